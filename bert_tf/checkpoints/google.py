"""TensorFlow checkpoints of google-research/bert and google-research/electra, and of bert_tf.

    bert_config.json  vocab.txt  bert_model.ckpt.index  bert_model.ckpt.data-00000-of-00001

Ours also hold labels.txt, problem_type.txt and embedder.json, and name the heads of fine-tuned
models under cls/. The bert_config.json of a run directory states the exact GELU form and the
casing; Google's states neither. ELECTRA's names are in `electra_networks`; generator_config.json is
the generator's where a file has both networks.
"""

import dataclasses
import pathlib
import re

import numpy as np
import tensorflow as tf

from bert_tf.checkpoints.checkpoint import (
    Checkpoint,
    Weights,
    num_labels,
    table_rows,
    weight_names,
)
from bert_tf.checkpoints.electra_networks import (
    GENERATOR_CONFIG,
    has_networks,
    infer_config,
    networks_in,
    one_network,
    original_names,
)
from bert_tf.checkpoints.embedding import DECODER, read_embedding, write_embedding
from bert_tf.checkpoints.families.bert import BERT
from bert_tf.checkpoints.families.electra import ELECTRA
from bert_tf.checkpoints.run_checkpoints import NAME_START, check_checkpoint
from bert_tf.checkpoints.run_identity import CONFIGURATION, LABELS, read_labels
from bert_tf.checkpoints.run_record import RUN_NAME, is_choice_record, recorded
from bert_tf.checkpoints.tf_bundle import read_bundle, write_bundle
from bert_tf.checkpoints.tokenizer_files import read_tokenizer
from bert_tf.config import ModelConfig
from bert_tf.config.fine_tuning_config import PROBLEM_TYPES
from bert_tf.system.bounded_files import read_text
from bert_tf.system.files import json_field, read_json, write_json
from bert_tf.text.vocab import SPECIAL_TOKENS, WORDPIECE

CONFIG_NAME = CONFIGURATION
BUNDLE_NAME = "bert_model.ckpt"
PROBLEM_TYPE_NAME = "problem_type.txt"
MULTIPLE_CHOICE = "multiple_choice"  # instead of a kind of labels

# Variables that only training needs: moments, steps, states of seeds, a decoder.
TRAINING_ONLY = re.compile(
    r"/adam_[mv]$|^optimizer/|^loss_scale/|^global_step$|^loop_state$|/seed_generator_state$"
    rf"|^{NAME_START}"
    rf"|dropout_seeds|^{DECODER}"
)
# run_classifier.py names its head without a scope.
CLASSIFIER_NAMES = {
    "output_weights": "cls/classifier/output_weights",
    "output_bias": "cls/classifier/output_bias",
}


def read_google(prefix: str, config_file: str = "", electra_network: str = "") -> Checkpoint:
    """Reads a checkpoint by its prefix, with the other files of the folder.

    Args:
      prefix: of a checkpoint of bert_tf, google-research/bert or google-research/electra.
      config_file: its bert_config.json, if that is in another folder.
      electra_network: one of `NETWORKS`; "both": the discriminator, with the generator as
        `Checkpoint.generator`; "": the discriminator. The last two take the other network if the
        file has only that.

    Raises:
      ValueError: if it cannot be read, has no configuration, or files belong to another run.
    """
    check_checkpoint(prefix, (CONFIG_NAME,) if config_file else ())
    values = {}
    for name, value in with_averages(read_bundle(prefix)).items():
        if not TRAINING_ONLY.search(name):
            values[name] = value
    if not has_networks(values):
        return _from_values(values, prefix, config_file)
    found = networks_in(values)
    if electra_network in ("", "both") and found:
        checkpoint = _read_network(values, prefix, config_file, found[0])
        if electra_network == "both" and len(found) == 2:
            # `config_file` is the discriminator's; the generator's is in the folder.
            generator = _read_network(values, prefix, "", found[1])
            checkpoint = dataclasses.replace(checkpoint, generator=generator)
        return checkpoint
    return _read_network(values, prefix, config_file, electra_network or "discriminator")


def _read_network(
    values: Weights, prefix: str, config_file: str, electra_network: str
) -> Checkpoint:
    """Makes the checkpoint of one ELECTRA network; files of the original need no configuration."""
    weights = one_network(values, electra_network, prefix)
    own = pathlib.Path(prefix).with_name(GENERATOR_CONFIG)
    path = own.with_name(CONFIG_NAME)
    # In a folder of both networks bert_config.json is the discriminator's.
    if electra_network == "generator" and (own.exists() or len(networks_in(values)) == 2):
        path = own
    is_original = any(name.startswith("electra/") for name in values)
    inferred = None
    if is_original and not config_file and not path.exists():
        inferred = infer_config(weights, prefix)
    checkpoint = _from_values(weights, prefix, config_file or str(path), inferred)
    heads = checkpoint.heads
    if is_original and "classifier" in heads and "pooler" not in heads:
        # The original's classifier reads the first token without a pooler.
        config = dataclasses.replace(checkpoint.config, classifier_pooling="cls")
        checkpoint = dataclasses.replace(checkpoint, config=config)
    notes = (f"This is ELECTRA's {electra_network}.", *checkpoint.notes)
    return dataclasses.replace(checkpoint, family=ELECTRA.title, notes=notes)


def _from_values(
    values: Weights, prefix: str, config_file: str, inferred: ModelConfig | None = None
) -> Checkpoint:
    """Makes a checkpoint of weights in bert_tf's names, with the other files of the folder."""
    folder = pathlib.Path(prefix).parent
    config = inferred
    stated = None
    form = "google"
    if config is None:
        config, stated, form = read_bert_config(folder, config_file, prefix)
    embedding = read_embedding(folder)
    known = weight_names(config) | set(embedding.shapes() if embedding else ())
    weights: Weights = {}
    unused = []
    for name, value in values.items():
        name = CLASSIFIER_NAMES.get(name, name)
        # Only floating-point tensors are weights; counters are integers.
        if name in known and value.dtype.kind == "f":
            weights[name] = value.astype(np.float32)
        else:
            unused.append(name)
    tokenizer = read_tokenizer(folder, table_rows(weights, config), stated)
    return Checkpoint(
        source=prefix,
        form=form,
        config=tokenizer.applied_to(config, prefix),
        weights=weights,
        vocab=tokenizer.vocab,
        labels=read_labels(folder),
        stated_casing=tokenizer.stated,
        unused=tuple(sorted(unused)),
        notes=tokenizer.notes,
        embedding=embedding,
        problem_type=read_problem_type(folder, weights),
        is_multiple_choice=is_multiple_choice(folder),
    )


def with_averages(values: Weights) -> Weights:
    """Replaces weights by their moving averages, under the names of TF1's, if there are any.

    Before the first update a run has no averages yet, so its weights are used.
    """
    ending = "/ExponentialMovingAverage"
    averages = {}
    weights = {}
    for name, value in values.items():
        if name.endswith(ending):
            averages[name.removesuffix(ending)] = value
        else:
            weights[name] = value
    # TF1's checkpoints have no such counter: their averages are used.
    has_averages = values.get("optimizer/iterations", 1) > 0
    if has_averages:
        return weights | averages
    return weights


def read_bert_config(
    folder: pathlib.Path, config_file: str, prefix: str
) -> tuple[ModelConfig, bool | None, str]:
    """Returns the configuration, the casing if it states one, and the program that wrote it."""
    path = pathlib.Path(config_file) if config_file else folder / CONFIG_NAME
    if not path.exists():
        raise ValueError(
            f"{prefix}: no {path}; give the bert_config.json of these weights as "
            f"--bert_config_file."
        )
    values = read_json(path)
    stated = json_field(values, "do_lower_case", bool, path)
    # Google's own never states the casing, and calls its GELU only gelu.
    form = "google" if stated is None or values.get("hidden_act") == "gelu" else "bert_tf"
    return ModelConfig.from_json_object(values, str(path)), stated, form


def write_labels(folder: pathlib.Path, labels: tuple[str, ...]) -> None:
    """Writes labels.txt, one label per line, if there are any; a label must not be longer."""
    broken = [label for label in labels if "\n" in label or "\r" in label]
    if broken:
        raise ValueError(
            f"The label {broken[0]!r} contains a line break, but {LABELS} has one label "
            f"per line; rename it."
        )
    if labels:
        text = "".join(f"{label}\n" for label in labels)
        (folder / LABELS).write_text(text, encoding="utf8")


def read_problem_type(folder: pathlib.Path, weights: Weights) -> str:
    """Returns the problem type of a classifier, from its run or problem_type.txt; else ""."""
    if "cls/classifier/output_weights" not in weights:
        return ""
    if recorded(str(folder), "task_name"):  # Of GLUE's tasks only that of numbers has one label.
        if num_labels(weights) == 1:
            return "regression"
        return "single_label"
    kind = recorded(str(folder), "problem_type") or _stored_problem_type(folder)
    if kind == MULTIPLE_CHOICE:
        return ""
    if kind not in ("", *PROBLEM_TYPES):
        raise ValueError(
            f"{folder}: the problem type is {kind!r:.40}, expected one of "
            f"{', '.join(PROBLEM_TYPES)}."
        )
    return kind


def is_multiple_choice(folder: pathlib.Path) -> bool:
    """Returns whether a folder has a model of run_multiple_choice."""
    record = folder / RUN_NAME
    if record.is_file():
        return is_choice_record(record)
    return _stored_problem_type(folder) == MULTIPLE_CHOICE


def _stored_problem_type(folder: pathlib.Path) -> str:
    """Returns the content of problem_type.txt; "" without it."""
    path = folder / PROBLEM_TYPE_NAME
    return read_text(path).strip() if path.is_file() else ""


def write_problem_type(folder: pathlib.Path, kind: str) -> None:
    """Writes problem_type.txt, if the problem type is known."""
    if kind:
        (folder / PROBLEM_TYPE_NAME).write_text(f"{kind}\n", encoding="utf8")


def write_bert_tf(checkpoint: Checkpoint, folder: pathlib.Path) -> None:
    """Writes our own format into a folder."""
    (folder / CONFIG_NAME).write_text(checkpoint.config.to_json(), encoding="utf8")
    _write(checkpoint, checkpoint.weights, folder)


def write_google(checkpoint: Checkpoint, folder: pathlib.Path) -> None:
    """Writes google-research/bert's format, or google-research/electra's, into a folder.

    Their configuration has one GELU, the tanh form (the exact one in ELECTRA), and no epsilon;
    these programs ignore the additional keys written here, which this one reads.

    Raises:
      ValueError: if neither program has such a structure or tokenizer.
    """
    check_rules(checkpoint, "google")
    if is_electra(checkpoint):
        electra_network = "generator" if "masked_lm" in checkpoint.heads else "discriminator"
        weights = original_names(checkpoint.weights, electra_network)
        if checkpoint.generator:
            generator_weights = original_names(checkpoint.generator.weights, "generator")
            _check_shared(weights, generator_weights, checkpoint.source)
            weights |= generator_weights
            _write_config(checkpoint.generator.config, folder / GENERATOR_CONFIG)
    elif reason := google_refusal(checkpoint):
        raise ValueError(f"google cannot hold this model: {reason}. Write it as bert_tf.")
    else:
        file_names = {name: other for other, name in CLASSIFIER_NAMES.items()}
        weights = {file_names.get(name, name): value for name, value in checkpoint.weights.items()}
    _write_config(checkpoint.config, folder / CONFIG_NAME)
    _write(checkpoint, weights, folder)


def _check_shared(weights: Weights, generator_weights: Weights, source: str) -> None:
    """Raises ValueError if both ELECTRA networks have a weight of the same name, but not equal."""
    for name in set(weights) & set(generator_weights):
        if not np.array_equal(weights[name], generator_weights[name]):
            raise ValueError(
                f"{source}: generator and discriminator have different {name}, which "
                "google-research/electra shares; give --tower=generator or --tower=discriminator."
            )


def _write_config(config: ModelConfig, path: pathlib.Path) -> None:
    values = config.to_dict()
    if config.hidden_act.startswith("gelu_"):
        # The only name that Google's programs know; bert_tf also reads `gelu_form`.
        values["hidden_act"] = "gelu"
        values["gelu_form"] = config.hidden_act.removeprefix("gelu_")
    write_json(path, values)


def is_electra(checkpoint: Checkpoint) -> bool:
    """Returns whether a model is written in google-research/electra's form instead of bert's."""
    config = checkpoint.config
    heads = checkpoint.heads
    if checkpoint.vocab is not None and checkpoint.vocab.kind != WORDPIECE:
        return False
    if {"next_sentence", "embedding"} & set(heads):
        return False
    if config.classifier_pooling == "cls":  # Its head; Hugging Face's has the pooler.
        config = dataclasses.replace(config, classifier_pooling="pooler")
    is_named = checkpoint.family == ELECTRA.title or "discriminator" in heads
    return not ELECTRA.differences(config, heads) and (is_named or google_refusal(checkpoint) != "")


def check_rules(checkpoint: Checkpoint, form: str) -> None:
    """Raises ValueError if a program that reads vocab.txt alone would split texts otherwise.

    Words of over 100 characters and special tokens in a text are left out: few texts have them.
    """
    if checkpoint.vocab is None:
        return
    options = checkpoint.vocab.options
    rules = {
        "strip_accents": options.strip_accents is not None,
        "tokenize_chinese_chars": not options.splits_ideographs,
        "added_tokens": bool({token.content for token in options.added_tokens} - {*SPECIAL_TOKENS}),
        "special tokens": bool(options.special_tokens),
    }
    names = [name for name, is_stated in rules.items() if is_stated]
    if names:
        raise ValueError(
            f"{form} cannot hold this model: its tokenizer states {', '.join(names)}, which that "
            "format does not have. Write it as bert_tf or huggingface."
        )


def google_refusal(checkpoint: Checkpoint) -> str:
    """Returns why google-research/bert cannot hold such a model; "" if it can."""
    if "embedding" in checkpoint.heads:
        return "it has dense layers that make embeddings"
    if "joint_squad" in checkpoint.heads:
        return "it has the joint head of google-research/electra"
    if checkpoint.vocab is not None and checkpoint.vocab.kind != WORDPIECE:
        return "its tokenizer is not WordPiece"
    return "; ".join(BERT.differences(checkpoint.config, checkpoint.heads))


def _write(checkpoint: Checkpoint, weights: Weights, folder: pathlib.Path) -> None:
    if checkpoint.vocab is not None:
        checkpoint.vocab.write(folder / checkpoint.vocab.file_name)
    write_labels(folder, checkpoint.labels)
    kind = MULTIPLE_CHOICE if checkpoint.is_multiple_choice else checkpoint.problem_type
    write_problem_type(folder, kind)
    if checkpoint.embedding:
        write_embedding(folder, checkpoint.embedding)
    tensors = {name: tf.constant(value) for name, value in weights.items()}
    write_bundle(str(folder / BUNDLE_NAME), tensors)
    # TensorFlow's state file, which names the newest checkpoint of a folder.
    (folder / "checkpoint").write_text(
        f'model_checkpoint_path: "{BUNDLE_NAME}"\nall_model_checkpoint_paths: "{BUNDLE_NAME}"\n'
    )
