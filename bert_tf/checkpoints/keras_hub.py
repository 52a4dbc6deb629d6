"""keras-hub: presets of BERT's backbone and tasks and ELECTRA's backbone, and .weights.h5 files.

keras-hub (its old name is keras-nlp) has one GELU and one epsilon in the encoder, google-research/
bert's; its BertMaskedLM has the exact GELU and an epsilon of 1e-5 in the head, whatever the encoder
has, so that model's logits differ from the original's. It has no NSP, tagging or QA head.

Of ELECTRA it has the encoder alone, with BERT's GELU instead of ELECTRA's exact one, and adds a
pooler with tanh that ELECTRA does not have.
"""

import dataclasses
import pathlib
from typing import Any

import h5py
import numpy as np

from bert_tf.checkpoints import google, tokenizer_files
from bert_tf.checkpoints.checkpoint import (
    HEADS,
    Checkpoint,
    Weights,
    encoder_shapes,
    head_shapes,
    table_rows,
    with_prefix,
    without_prefix,
)
from bert_tf.checkpoints.embedding import read_embedding, write_embedding
from bert_tf.checkpoints.families.electra import ELECTRA
from bert_tf.checkpoints.families.family import with_file_keys
from bert_tf.checkpoints.hdf5 import read_h5
from bert_tf.checkpoints.run_identity import read_labels
from bert_tf.checkpoints.weight_names import (
    Row,
    from_file_names,
    pair,
    post_norm_rows,
    to_file_names,
)
from bert_tf.config import ModelConfig
from bert_tf.system.files import json_field, read_json
from bert_tf.system.type_names import Layer, Model

BACKBONE_FILE = "model.weights.h5"
TASK_FILE = "task.weights.h5"
POOLER = "bert/pooler/dense/kernel"
HEADS_WITHOUT_COUNTERPART = ("next_sentence", "tagger", "squad", "embedding")
# The parts of a layer, see `post_norm_rows`.
PARTS = {
    "query": "self_attention_layer/query_dense",
    "key": "self_attention_layer/key_dense",
    "value": "self_attention_layer/value_dense",
    "context": "self_attention_layer/output_dense",
    "attention_norm": "self_attention_layer_norm",
    "intermediate": "feedforward_intermediate_dense",
    "output": "feedforward_output_dense",
    "output_norm": "feedforward_layer_norm",
}
# Fields of a backbone's configuration. It has one dropout rate instead of two.
SIZES = {
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "hidden_dim": "hidden_size",
    "intermediate_dim": "intermediate_size",
    "dropout": "hidden_dropout_prob",
    "max_sequence_length": "max_position_embeddings",
    "num_segments": "type_vocab_size",
}
ELECTRA_ACTS: dict[str, Any] = {"hidden_act": "gelu_exact", "pooler_act": "gelu_exact"}
ELECTRA_NOTE = (
    "keras-hub computes this ELECTRA with the tanh form of GELU, and adds a pooler; here it has "
    "the exact form, with which ELECTRAs are trained, and no pooler."
)


def keras_hub_rows(
    num_layers: int, backbone: str, task: str, has_projection: bool = False
) -> list[Row]:
    """Returns the table of weights; names in the files begin with `backbone` or, of heads, `task`.

    Layers are numbered by kind: in ELECTRA alone, whose tables are narrower than its layers, a
    projection is the first dense one.
    """
    projection = _dense("bert/embeddings_project", f"{backbone}/dense") if has_projection else []
    rows = [
        *projection,
        Row("bert/embeddings/word_embeddings", f"{backbone}/reversible_embedding/vars/0"),
        Row("bert/embeddings/position_embeddings", f"{backbone}/position_embedding/vars/0"),
        Row("bert/embeddings/token_type_embeddings", f"{backbone}/embedding/vars/0"),
        *_norm("bert/embeddings", f"{backbone}/layer_normalization"),
    ]
    for i in range(num_layers):
        # Keras numbers the layers of one class from the second on.
        file_layer = f"{backbone}/transformer_encoder{f'_{i}' if i else ''}/"
        rows += post_norm_rows(i, file_layer, PARTS, _dense, _norm)
    return [
        *rows,
        *_dense("bert/pooler/dense", f"{backbone}/dense{'_1' if has_projection else ''}"),
        *_dense("cls/predictions/transform/dense", f"{task}/masked_lm_head/intermediate_dense"),
        *_norm("cls/predictions/transform", f"{task}/masked_lm_head/intermediate_layer_norm"),
        Row("cls/predictions/output_bias", f"{task}/masked_lm_head/vars/0"),
        # [labels, D] here, [D, labels] in Keras.
        Row("cls/classifier/output_weights", f"{task}/dense/vars/0", is_transposed=True),
        Row("cls/classifier/output_bias", f"{task}/dense/vars/1"),
    ]


def _dense(name: str, file_name: str) -> list[Row]:
    return pair(name, file_name, file_end="vars/{}")


def _norm(name: str, file_name: str) -> list[Row]:
    return pair(f"{name}/LayerNorm", file_name, ("gamma", "beta"), "vars/{}")


def is_keras_hub(path: pathlib.Path) -> bool:
    """True if the path is a preset folder or a .weights.h5 file."""
    if path.name.endswith(".weights.h5"):
        return path.is_file()
    return any(path.glob("model*.weights.h5")) and (path / "config.json").exists()


def read_keras_hub(path: pathlib.Path) -> Checkpoint:
    """Reads a preset folder, or a single weights file, whose shapes determine the configuration."""
    # The weights file of a preset is read with the rest of the preset.
    if path.name == BACKBONE_FILE and (path.parent / "config.json").exists():
        path = path.parent
    if path.is_file():
        return _read_weights_file(path)
    config_file = path / "config.json"
    values = read_json(config_file)
    class_name = tokenizer_files.keras_hub_class(values, config_file)
    of_electra = class_name == "ElectraBackbone"
    notes = [ELECTRA_NOTE] if of_electra else []
    fields = json_field(values, "config", dict, config_file) or {}
    config = _read_config(fields, path, class_name)
    file_weights = _read_preset_weights(path)
    has_projection = config.table_width != config.hidden_size
    rows = keras_hub_rows(
        config.num_hidden_layers, "backbone/layers", "task/layers", has_projection
    )
    weights, unused = from_file_names(rows, file_weights, encoder_shapes(config))
    if of_electra or not np.any(weights.get(POOLER)):  # Written for a model that has none.
        weights = without_pooler(weights)
    vocab = None
    stated = None
    if (path / tokenizer_files.KERAS_HUB_VOCAB).exists():
        num_rows = table_rows(weights, config)
        tokenizer = tokenizer_files.read_keras_hub_tokenizer(path, num_rows)
        vocab = tokenizer.vocab
        stated = tokenizer.stated
        notes += tokenizer.notes
        config = tokenizer.applied_to(config, str(path))
    # Written by bert_tf, with fields that keras-hub lacks.
    if (path / google.CONFIG_NAME).exists():
        config = ModelConfig.read(path / google.CONFIG_NAME)
        stated = config.do_lower_case
    return Checkpoint(
        source=str(path),
        form="keras_hub",
        config=config,
        weights=weights,
        vocab=vocab,
        labels=read_labels(path),
        stated_casing=stated,
        unused=unused,
        notes=tuple(notes),
        family=ELECTRA.title if of_electra else "BERT",
        embedding=read_embedding(path),
        problem_type=google.read_problem_type(path, weights),
    )


def _read_preset_weights(path: pathlib.Path) -> Weights:
    """Returns the weights of a preset folder; names begin with backbone/ or task/."""
    file_weights: Weights = {}
    for file in sorted(path.glob("model*.weights.h5")):
        for name, value in _read_h5(file).items():
            file_weights[f"backbone/{name}"] = value
    if (path / TASK_FILE).exists():
        for name, value in _read_h5(path / TASK_FILE).items():
            file_weights[f"task/{name}"] = value
    return file_weights


def without_pooler(weights: Weights) -> Weights:
    """Returns the weights but the pooler's."""
    return without_prefix(weights, HEADS["pooler"])


def _read_config(values: dict[str, Any], path: pathlib.Path, class_name: str) -> ModelConfig:
    """Returns the configuration."""
    of_electra = class_name == "ElectraBackbone"
    names = {tokenizer_files.KERAS_HUB_SIZES[class_name]: "vocab_size", **SIZES}
    if of_electra:
        names["embedding_dim"] = "embedding_size"
    missing = sorted(set(names) - set(values))
    if missing:
        raise ValueError(f"{path / 'config.json'} lacks {missing}.")
    fields = {names[key]: value for key, value in values.items() if key in names}
    fields["attention_probs_dropout_prob"] = fields["hidden_dropout_prob"]
    if of_electra:
        fields |= ELECTRA_ACTS
        if fields["embedding_size"] == fields["hidden_size"]:
            fields["embedding_size"] = 0
    keys = {name: key for key, name in names.items()}
    try:
        return ModelConfig.from_json_object(fields, str(path / "config.json"))
    except ValueError as error:
        raise ValueError(with_file_keys(str(error), keys)) from None


def _read_h5(path: pathlib.Path) -> Weights:
    """Returns the arrays of a Keras weights file by name, which releases begin with underscores."""
    return {_plain(name): value for name, value in read_h5(path).items()}


def _plain(name: str) -> str:
    return "/".join(part.lstrip("_") for part in name.split("/"))


def _read_weights_file(path: pathlib.Path) -> Checkpoint:
    """Reads a .weights.h5 of a backbone or a task; it has no vocabulary and no casing."""
    file_weights = _read_h5(path)
    words = next(
        (name for name in file_weights if name.endswith("reversible_embedding/vars/0")), None
    )
    if words is None:
        raise ValueError(
            f"{path} holds no BertBackbone or ElectraBackbone: no reversible_embedding in it."
        )
    start = words.removesuffix("/reversible_embedding/vars/0")
    query = file_weights.get(f"{start}/transformer_encoder/self_attention_layer/query_dense/vars/0")
    wide = file_weights.get(f"{start}/transformer_encoder/feedforward_intermediate_dense/vars/0")
    positions = file_weights.get(f"{start}/position_embedding/vars/0")
    types = file_weights.get(f"{start}/embedding/vars/0")
    if query is None or wide is None or positions is None or types is None or query.ndim != 3:
        raise ValueError(
            f"{path} holds no BertBackbone or ElectraBackbone: its first layer or a table is "
            "missing."
        )
    # .../transformer_encoder_1/feedforward_layer_norm/vars/0: the name of the layer.
    layers = {name.split("/")[-4] for name in file_weights if "/feedforward_layer_norm/" in name}
    config = ModelConfig(
        vocab_size=file_weights[words].shape[0],
        # The kernel of the queries is [D, N, H]; that of `wide` is [D, F].
        hidden_size=query.shape[0],
        num_hidden_layers=len(layers),
        num_attention_heads=query.shape[1],
        intermediate_size=wide.shape[1],
        max_position_embeddings=positions.shape[0],
        type_vocab_size=types.shape[0],
    )
    width = file_weights[words].shape[1]
    # One with tables as wide as its layers cannot be told from a BERT: the names are the same.
    of_electra = width != config.hidden_size
    if of_electra:
        config = dataclasses.replace(config, embedding_size=width, **ELECTRA_ACTS)
    # A file of the backbone alone has no head; this start matches no name in it.
    task = "none/layers" if start == "layers" else "layers"
    rows = keras_hub_rows(config.num_hidden_layers, start, task, of_electra)
    weights, unused = from_file_names(rows, file_weights, encoder_shapes(config))
    note = "A weights file does not record dropout and casing: 0.1 and lower case are assumed."
    checkpoint = Checkpoint(str(path), "keras_hub", config, weights, unused=unused, notes=(note,))
    if not of_electra:
        return checkpoint
    return dataclasses.replace(
        checkpoint,
        weights=without_pooler(weights),
        notes=(ELECTRA_NOTE, note),
        family=ELECTRA.title,
    )


def write_keras_hub(checkpoint: Checkpoint, folder: pathlib.Path) -> None:
    """Writes a preset with keras-hub's code, and additional files for the fields it lacks."""
    google.check_rules(checkpoint, "keras_hub")
    config = checkpoint.config
    if google.is_electra(checkpoint):
        kept = ("bert/embeddings", "bert/encoder/")
        weights = with_prefix(checkpoint.weights, kept)
        checkpoint = dataclasses.replace(checkpoint, weights=weights, family=ELECTRA.title)
    elif reason := google.google_refusal(checkpoint):
        raise ValueError(f"keras_hub cannot hold this model: {reason}. Write it as bert_tf.")
    if not config.hidden_act.startswith("gelu_"):
        raise ValueError(f"keras-hub has no model with hidden_act {config.hidden_act}.")
    if "classifier" in checkpoint.heads:  # keras-hub's classifier cannot have another head.
        weights = without_prefix(checkpoint.weights, HEADS["masked_lm"])
        checkpoint = dataclasses.replace(checkpoint, weights=weights)
    task = _make_task(checkpoint)
    task.save_to_preset(str(folder))
    has_projection = config.table_width != config.hidden_size
    rows = keras_hub_rows(config.num_hidden_layers, "layers", "task/layers", has_projection)
    rows = [row for row in rows if not row.file_name.startswith("task/")]
    # A backbone always has a pooler. Zeros mark the pooler of a model without one.
    pooler = {}
    for name, shape in head_shapes(config, "pooler").items():
        pooler[name] = np.zeros(shape, np.float32)
    _fill(folder / BACKBONE_FILE, to_file_names(rows, {**pooler, **checkpoint.weights}))
    if (folder / TASK_FILE).exists():
        # No layers: the file of the task is only filled with the head.
        rows = keras_hub_rows(0, "backbone/layers", "layers")
        rows = [row for row in rows if not row.file_name.startswith("backbone/")]
        _fill(folder / TASK_FILE, to_file_names(rows, checkpoint.weights))
    (folder / google.CONFIG_NAME).write_text(config.to_json(), encoding="utf8")
    if "classifier" in checkpoint.heads:
        google.write_labels(folder, checkpoint.labels)
        google.write_problem_type(folder, checkpoint.problem_type)
    if checkpoint.embedding:
        write_embedding(folder, checkpoint.embedding)


def known_presets() -> dict[str, str]:
    """Returns the handles on Kaggle of the BERTs and ELECTRAs that keras-hub knows by name."""
    from keras_hub import models

    presets = {**models.BertBackbone.presets, **models.ElectraBackbone.presets}.items()
    return {name: preset["kaggle_handle"].removeprefix("kaggle://") for name, preset in presets}


def _make_task(checkpoint: Checkpoint) -> Any:
    """Makes the backbone or the task that holds the heads, with placeholder weights."""
    from keras_hub import models

    config = checkpoint.config
    of_electra = checkpoint.family == ELECTRA.title
    sizes = {key: getattr(config, name) for key, name in SIZES.items()}
    if of_electra:
        size = config.vocab_size
        width = config.table_width
        backbone = models.ElectraBackbone(vocab_size=size, embedding_dim=width, **sizes)
    else:
        backbone = models.BertBackbone(vocabulary_size=config.vocab_size, **sizes)
    tokenizer = None
    if checkpoint.vocab is not None:
        lower = config.do_lower_case
        tokenizer_class = models.ElectraTokenizer if of_electra else models.BertTokenizer
        tokenizer = tokenizer_class(
            list(checkpoint.vocab.tokens), lowercase=lower, strip_accents=lower
        )
    length = config.max_position_embeddings
    if "classifier" in checkpoint.heads:
        preprocessor = tokenizer and models.BertTextClassifierPreprocessor(tokenizer, length)
        return models.BertTextClassifier(backbone, checkpoint.num_labels, preprocessor)
    if "masked_lm" in checkpoint.heads:
        preprocessor = tokenizer and models.BertMaskedLMPreprocessor(tokenizer, length)
        return models.BertMaskedLM(backbone, preprocessor)
    if tokenizer is None:
        return backbone
    return _WithTokenizer(backbone, tokenizer)


class _WithTokenizer:
    """A backbone and its tokenizer, saved into one preset."""

    def __init__(self, backbone: Model, tokenizer: Layer) -> None:
        self.parts = (backbone, tokenizer)

    def save_to_preset(self, folder: str) -> None:
        for part in self.parts:
            part.save_to_preset(folder)


def _fill(path: pathlib.Path, weights: Weights) -> None:
    """Writes the weights over those of the same names in a Keras weights file."""
    with h5py.File(path, "r+") as file:
        names: list[str] = []
        file.visit(names.append)
        datasets = {_plain(name): name for name in names}
        for name, value in weights.items():
            dataset = file[datasets[name]]
            # Keras has an axis for the heads: [D, N, H] instead of [D, D].
            dataset[...] = value.reshape(dataset.shape)
