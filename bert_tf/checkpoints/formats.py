"""Reads and writes a BERT in any format; the format is detected from the files.

    bert_tf       a run directory, a checkpoint in it, or a converted model
    google        TF1 checkpoint of google-research/bert or -/electra, or of zihangdai/xlnet (read
                  only): prefix or folder
    huggingface   config.json and model.safetensors (or shards, pytorch_model.bin, tf_model.h5), or
                  a LoRA adapter of one
    sentence_transformers  a Hugging Face folder with modules that make embeddings
    model2vec     a table of vectors with a tokenizer; sentence_transformers also has these
    pylate, stanford  the same for late interaction (ColBERT), in these libraries' dialects
    keras_hub     preset folder or .weights.h5
    model_garden  a TF2 encoder checkpoint (read only)
    keras         a .keras file of a model of this package (read only)

Each also inside a .zip or .tar.gz, as Google and the Garden release them, and by its name on
Hugging Face's hub or Kaggle: see `hub`.
"""

import dataclasses
import pathlib
from collections.abc import Callable

from bert_tf.checkpoints import late_interaction
from bert_tf.checkpoints.archives import ARCHIVES, unpacked
from bert_tf.checkpoints.checkpoint import HEADS, Checkpoint
from bert_tf.checkpoints.cross_encoder_settings import stated_activation
from bert_tf.checkpoints.families.electra import ELECTRA
from bert_tf.checkpoints.google import is_electra, read_google, write_bert_tf, write_google
from bert_tf.checkpoints.hub import local_path, record_of
from bert_tf.checkpoints.huggingface import is_huggingface, read_huggingface
from bert_tf.checkpoints.huggingface_writing import (
    KEPT_HEADS,
    encoder_alone,
    family_and_heads,
    write_huggingface,
)
from bert_tf.checkpoints.keras_archive import is_keras_file
from bert_tf.checkpoints.keras_file import read_keras_file
from bert_tf.checkpoints.keras_hub import (
    HEADS_WITHOUT_COUNTERPART,
    is_keras_hub,
    read_keras_hub,
    write_keras_hub,
)
from bert_tf.checkpoints.model_garden import is_model_garden, read_model_garden
from bert_tf.checkpoints.run_record import check_seeds, input_settings, write_inputs
from bert_tf.checkpoints.sentence_modules import is_sentence_transformers
from bert_tf.checkpoints.sentence_transformers import (
    is_modular,
    read_sentence_transformers,
    write_sentence_transformers,
)
from bert_tf.checkpoints.static_embeddings import (
    is_static,
    is_static_folder,
    read_static,
    write_model2vec,
    write_static_modules,
)
from bert_tf.checkpoints.tf_bundle import bundle_names, bundle_prefix
from bert_tf.checkpoints.unfinished import warn_if_unfinished
from bert_tf.checkpoints.xlnet import is_xlnet, read_xlnet
from bert_tf.config import ModelConfig
from bert_tf.system.files import new_folder, new_folder_path
from bert_tf.system.model_names import advice, is_hub_name


def _write_modules(checkpoint: Checkpoint, folder: pathlib.Path) -> None:
    write = write_static_modules if is_static(checkpoint.config) else write_sentence_transformers
    write(checkpoint, folder)


WRITERS: dict[str, Callable[[Checkpoint, pathlib.Path], None]] = {
    "bert_tf": write_bert_tf,
    "google": write_google,
    "huggingface": write_huggingface,
    "sentence_transformers": _write_modules,
    "model2vec": write_model2vec,
    "keras_hub": write_keras_hub,
    "pylate": late_interaction.write_pylate,
    "stanford": late_interaction.write_stanford,
}
EXPECTED = (
    "a run directory or checkpoint of bert_tf; google-research/bert's bert_model.ckpt.* with "
    "bert_config.json, or google-research/electra's, or zihangdai/xlnet's; a Hugging Face folder "
    "with config.json and model.safetensors; a keras-hub preset or .weights.h5; a Model Garden "
    "encoder; a folder of Model2Vec; a .keras file; or an archive of one"
)
# Forms that hold the layers of embeddings.
WITH_MODULES = ("sentence_transformers", "pylate", "stanford")
# Messages for weights that cannot be read, by the name of the file.
OTHER_FRAMEWORKS = {
    "flax_model.msgpack": (
        "flax_model.msgpack, the weights of transformers' Flax classes, which bert_tf cannot read. "
        "Convert them with a release of transformers before 5: "
        "AutoModel.from_pretrained(folder, from_flax=True).save_pretrained(new_folder), with the "
        "class that config.json names instead of AutoModel."
    ),
    "model.onnx": (
        "model.onnx, a graph without the names of the weights; give the model that it was exported "
        "from."
    ),
    "rust_model.ot": (
        "rust_model.ot, the weights of rust-bert; give the model that it was converted from, with "
        "model.safetensors or pytorch_model.bin."
    ),
}


def read_checkpoint(
    path: str | pathlib.Path,
    config_file: str = "",
    electra_network: str = "",
    base_model: str = "",
) -> Checkpoint:
    """Reads a BERT.

    Args:
      path: a folder, file or checkpoint prefix in any of the forms above, or a name on a hub.
      config_file: the bert_config.json of a TensorFlow checkpoint, if it is in another folder.
      electra_network: the network to read from a TensorFlow checkpoint of ELECTRA; see
        `read_google`.
      base_model: the model that a LoRA adapter belongs to, if its files do not name one here.

    Returns:
      The checkpoint as it is in the files; `Checkpoint.check` checks that it is complete.

    Raises:
      ValueError: if nothing is recognised, or it cannot be read.
    """
    if is_hub_name(path):
        checkpoint = read_checkpoint(local_path(path), config_file, electra_network, base_model)
        # Messages show the name that the user gave, not a folder of the cache.
        return dataclasses.replace(checkpoint, source=str(path))
    path = local_path(path)
    warn_if_unfinished(path)
    if path.is_file() and path.name.endswith(ARCHIVES):
        with unpacked(path) as folder:
            try:
                checkpoint = read_checkpoint(
                    _model_folder(folder, path), config_file, electra_network, base_model
                )
            except ValueError as error:
                # The folder is temporary, so the message names the archive.
                raise ValueError(str(error).replace(str(folder), str(path))) from None
            return dataclasses.replace(checkpoint, source=str(path))
    if base_model and not is_huggingface(path):
        raise ValueError(f"{path} is not an adapter; leave --base_model={base_model} out.")
    if is_keras_file(path):
        if config_file:
            raise ValueError(f"{path} has its own configuration; leave --bert_config_file out.")
        return read_keras_file(path, electra_network)
    checkpoint = _read_files(path, config_file, electra_network, base_model)
    record = record_of(checkpoint.source)
    settings = {**checkpoint.settings, **input_settings(record)}
    # The activation of a single logit is not in the weights: a sigmoid, or none.
    if checkpoint.num_labels == 1 and "classifier" in checkpoint.heads:
        if activation := stated_activation(record):
            settings["activation"] = activation
    return dataclasses.replace(checkpoint, settings=settings)


def _read_files(
    path: pathlib.Path, config_file: str, electra_network: str, base_model: str
) -> Checkpoint:
    """Reads a checkpoint whose files are in a folder; see `read_checkpoint`."""
    # In this order: a sentence-transformers folder is also one of Hugging Face.
    readers = {
        is_static_folder: read_static,
        is_sentence_transformers: read_sentence_transformers,
        is_keras_hub: read_keras_hub,
        late_interaction.is_stanford: late_interaction.read_stanford,
        is_huggingface: read_huggingface,
    }
    for is_theirs, read in readers.items():
        if is_theirs(path):
            if config_file:
                raise ValueError(f"{path} has its own configuration; leave --bert_config_file out.")
            if base_model:
                return read_huggingface(path, base_model=base_model)
            return read(path)
    prefix = bundle_prefix(path)
    if prefix is None:
        check_seeds(path)
        raise ValueError(_not_recognised(path))
    names = bundle_names(prefix)
    if is_model_garden(names):
        return read_model_garden(prefix, config_file)
    if is_xlnet(names):
        return read_xlnet(prefix, config_file)
    return read_google(prefix, config_file, electra_network)


def _not_recognised(path: pathlib.Path) -> str:
    if not path.is_dir():
        problem = "is not recognised" if path.exists() else "does not exist"
        return f"{path} {problem}; {advice(str(path))}; expected {EXPECTED}."
    names = sorted(p.name for p in path.iterdir())
    other = [name for name in OTHER_FRAMEWORKS if name in names]
    if other:
        return f"{path} holds {OTHER_FRAMEWORKS[other[0]]}"
    return f"{path} is not recognised: it holds {names[:10] or 'nothing'}; expected {EXPECTED}."


def _model_folder(folder: pathlib.Path, path: pathlib.Path) -> pathlib.Path:
    """Returns the folder of an unpacked archive that holds the model, the outermost one."""
    folders = [folder, *(p for p in sorted(folder.rglob("*")) if p.is_dir())]
    for candidate in sorted(folders, key=lambda p: len(p.parts)):
        has_index = any(candidate.glob("[!.]*.index"))
        is_model = (is_static_folder, is_sentence_transformers, is_huggingface, is_keras_hub)
        if has_index or any(test(candidate) for test in is_model):
            return candidate
    raise ValueError(f"{path} contains no model; expected {EXPECTED}.")


def write_checkpoint(
    checkpoint: Checkpoint,
    folder: str | pathlib.Path,
    form: str,
    complete: Callable[[pathlib.Path, Checkpoint], None] | None = None,
) -> Checkpoint:
    """Writes a BERT into a new folder, reads it back and compares: the folder is right or absent.

    `complete` writes further files or checks more, before the folder gets its name: it is called
    with the folder and the checkpoint that was read back.

    Returns:
      The checkpoint read back; heads without a counterpart are missing, see `left_out`.

    Raises:
      ValueError: if the folder exists and is not empty, or is a mount point, or the format cannot
        hold the model.
    """
    with new_folder(folder) as inner:
        WRITERS[form](checkpoint, inner)
        write_inputs(inner, checkpoint.settings)
        written = read_checkpoint(inner, electra_network="both" if checkpoint.generator else "")
        written = dataclasses.replace(written, source=str(new_folder_path(folder)))
        _compare(checkpoint, written, form)
        if checkpoint.generator and form == "google":
            _compare(checkpoint.generator, written.generator or written, form)
        if complete:
            complete(inner, written)
    return written


def _compare(checkpoint: Checkpoint, written: Checkpoint, form: str) -> None:
    """Raises ValueError unless weights are read back bit for bit and give the same embeddings."""
    written.check()
    heads = left_out(checkpoint, form)
    gone = tuple(HEADS[head] for head in heads)
    for name, value in checkpoint.weights.items():
        if name.startswith(gone):
            continue
        # Bytes are compared because 0.0 == -0.0.
        if name not in written.weights or value.tobytes() != written.weights[name].tobytes():
            raise ValueError(
                f"{form} cannot hold this model: {name} is lost when it is read back; its heads "
                f"are {', '.join(checkpoint.heads)}."
            )
    expected = None if "embedding" in heads else checkpoint.embedding
    if expected and form in WITH_MODULES:  # It states no length that rows cannot have.
        length = min(expected.max_seq_length, written.config.longest_row)
        expected = dataclasses.replace(expected, max_seq_length=length)
    if written.embedding != expected:
        raise ValueError(
            f"{form} cannot hold this model: it embeds as {expected}, but is read back as "
            f"{written.embedding}."
        )


def left_out(checkpoint: Checkpoint, form: str) -> tuple[str, ...]:
    """Returns the heads that have no counterpart in a form."""
    if form == "model2vec" or (is_static(checkpoint.config) and form == "sentence_transformers"):
        return tuple(head for head in checkpoint.heads if head != "embedding")
    if form in ("huggingface", *WITH_MODULES):
        if form in WITH_MODULES:
            # The modules hold the head of a cross-encoder; the family holds the encoder.
            own = "classifier" if is_modular(checkpoint) else "embedding"
            _, held = family_and_heads(encoder_alone(checkpoint))
            held = (own, *(head for head in held if head in KEPT_HEADS))
        else:
            _, held = family_and_heads(checkpoint)
        return tuple(head for head in checkpoint.heads if head not in held)
    if form == "keras_hub" and is_electra(checkpoint):  # It has the backbone alone.
        return checkpoint.heads
    if form != "keras_hub":
        return ()
    lacking: tuple[str, ...] = HEADS_WITHOUT_COUNTERPART
    if "classifier" in checkpoint.heads:  # The garden has another task for each of the other heads.
        lacking = (*lacking, "masked_lm")
    return tuple(head for head in checkpoint.heads if head in lacking)


def head_as_computed(config: ModelConfig, form: str, family: str = "BERT") -> ModelConfig:
    """Returns the configuration with which the programs of that form compute the MLM head."""
    if form == "keras_hub":
        return dataclasses.replace(config, hidden_act="gelu_exact", layer_norm_eps=1e-5)
    return as_computed(config, form, family)


def as_computed(config: ModelConfig, form: str, family: str = "BERT") -> ModelConfig:
    """Returns the configuration as the programs of that form compute it.

    They have one GELU, the tanh form (google-research/electra the exact one), and an epsilon of
    1e-12 alone.
    """
    if form not in ("google", "keras_hub"):
        return config
    gelu = "gelu_exact" if (form, family) == ("google", ELECTRA.title) else "gelu_tanh"
    act = gelu if config.hidden_act.startswith("gelu_") else config.hidden_act
    return dataclasses.replace(config, hidden_act=act, layer_norm_eps=1e-12)
