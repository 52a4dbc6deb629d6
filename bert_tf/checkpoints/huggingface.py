"""Hugging Face folders: config.json, model.safetensors (also sharded), pytorch_model.bin.

Names and shapes are those of the PyTorch classes BertModel, BertForPreTraining, BertForMaskedLM,
BertForSequenceClassification, BertForTokenClassification and BertForQuestionAnswering.
"""

import json
import pathlib
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from bert_tf.checkpoints.checkpoint import (
    HEADS,
    Checkpoint,
    Weights,
    count_layers,
    encoder_shapes,
    table_rows,
)
from bert_tf.checkpoints.tokenizer_files import read_tokenizer, write_tokenizer
from bert_tf.checkpoints.torch_pickle import read_torch_weights
from bert_tf.checkpoints.weight_names import Row, from_theirs, to_theirs
from bert_tf.config import ModelConfig
from bert_tf.files import json_field, read_json

WEIGHT_FILES = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
ACTIVATIONS = {
    "gelu": "gelu_exact",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "tanh": "tanh",
    "linear": "linear",
}
CLASSES = {
    "masked_lm next_sentence": "BertForPreTraining",
    "masked_lm": "BertForMaskedLM",
    "next_sentence": "BertForNextSentencePrediction",
    "classifier": "BertForSequenceClassification",
    "tagger": "BertForTokenClassification",
    "squad": "BertForQuestionAnswering",
    "": "BertModel",
}


def huggingface_rows(num_layers: int, has_prefix: bool, label_head: str) -> list[Row]:
    """Returns the table of weights.

    Args:
      num_layers: L.
      has_prefix: whether the encoder's names begin with `bert.`; a bare BertModel's do not.
      label_head: `classifier` or `tagger`: what `classifier.weight` is.
    """
    start = "bert." if has_prefix else ""
    rows = [
        Row(f"bert/embeddings/{name}", f"{start}embeddings.{name}.weight")
        for name in ("word_embeddings", "token_type_embeddings", "position_embeddings")
    ]
    rows += _norm("bert/embeddings", f"{start}embeddings")
    for i in range(num_layers):
        ours, theirs = f"bert/encoder/layer_{i}", f"{start}encoder.layer.{i}"
        for part in ("query", "key", "value"):
            rows += _linear(f"{ours}/attention/self/{part}", f"{theirs}.attention.self.{part}")
        rows += _linear(f"{ours}/intermediate/dense", f"{theirs}.intermediate.dense")
        for part in ("attention/output", "output"):
            other = f"{theirs}.{part.replace('/', '.')}"
            rows += _linear(f"{ours}/{part}/dense", f"{other}.dense")
            rows += _norm(f"{ours}/{part}", other)
    rows += _linear("bert/pooler/dense", f"{start}pooler.dense")
    rows += _linear("cls/predictions/transform/dense", "cls.predictions.transform.dense")
    rows += _norm("cls/predictions/transform", "cls.predictions.transform")
    rows += [Row("cls/predictions/output_bias", "cls.predictions.bias")]
    for head, other in (
        ("next_sentence", "cls.seq_relationship"),
        (label_head, "classifier"),
        ("squad", "qa_outputs"),
    ):
        rows += [
            Row(f"{HEADS[head]}output_weights", f"{other}.weight"),
            Row(f"{HEADS[head]}output_bias", f"{other}.bias"),
        ]
    return rows


def _linear(ours: str, theirs: str) -> list[Row]:
    return [
        Row(f"{ours}/kernel", f"{theirs}.weight", is_transposed=True),
        Row(f"{ours}/bias", f"{theirs}.bias"),
    ]


def _norm(ours: str, theirs: str) -> list[Row]:
    return [
        Row(f"{ours}/LayerNorm/gamma", f"{theirs}.LayerNorm.weight"),
        Row(f"{ours}/LayerNorm/beta", f"{theirs}.LayerNorm.bias"),
    ]


def is_huggingface(path: pathlib.Path) -> bool:
    """True for a folder with a config.json and weights in PyTorch's names, or such weights."""
    folder = path.parent if path.name in WEIGHT_FILES else path
    has_weights = any((folder / name).exists() for name in WEIGHT_FILES)
    return has_weights and (folder / "config.json").exists()


def read_huggingface(path: pathlib.Path) -> Checkpoint:
    """Reads a folder, or that of a weights file.

    Raises:
      ValueError: if it is no BERT, or its files contradict each other.
    """
    folder = path.parent if path.name in WEIGHT_FILES else path
    values = read_json(folder / "config.json")
    config = _read_config(values, folder / "config.json")
    theirs, notes = _modern_names(_read_weights(folder), folder)
    architectures = json_field(values, "architectures", list, folder / "config.json") or []
    label_head = _label_head(architectures, theirs)
    has_prefix = any(name.startswith("bert.") for name in theirs)
    rows = huggingface_rows(config.num_hidden_layers, has_prefix, label_head)
    theirs = _untie(theirs, "bert." if has_prefix else "", folder)
    weights, unused = from_theirs(rows, theirs, encoder_shapes(config))
    tokenizer = read_tokenizer(folder, table_rows(weights, config))
    labels = (
        _labels(values, folder / "config.json")
        if f"{HEADS[label_head]}output_weights" in weights
        else ()
    )
    return Checkpoint(
        source=str(folder),
        form="huggingface",
        config=tokenizer.with_casing(config),
        weights=weights,
        vocab=tokenizer.vocab,
        labels=labels,
        stated_casing=tokenizer.stated,
        unused=unused,
        notes=(*notes, *tokenizer.notes),
    )


def _read_config(values: dict[str, Any], path: pathlib.Path) -> ModelConfig:
    """Returns our configuration; a field that is missing has Hugging Face's default."""
    refused = {
        "model_type": ("bert",),
        "position_embedding_type": ("absolute",),
        "is_decoder": (False,),
        "add_cross_attention": (False,),
    }
    for key, expected in refused.items():
        if key in values and values[key] not in expected:
            raise ValueError(
                f"{path}: {key} is {values[key]!r}, expected {expected[0]!r}; only BERT is read."
            )
    if values.get("pruned_heads"):
        raise ValueError(f"{path}: layers with pruned heads are not supported.")
    act = json_field(values, "hidden_act", str, path) or "gelu"
    if act not in ACTIVATIONS:
        raise ValueError(f"{path}: hidden_act {act!r}, expected one of {list(ACTIVATIONS)}.")
    return ModelConfig.from_json_object({**values, "hidden_act": ACTIVATIONS[act]}, str(path))


def _read_weights(folder: pathlib.Path) -> Weights:
    """Reads the first that is there of `WEIGHT_FILES`, all shards of it."""
    path = next(folder / name for name in WEIGHT_FILES if (folder / name).exists())
    if path.suffix != ".json":
        return _read_weight_file(path)
    shards = read_json(path).get("weight_map")
    if not isinstance(shards, dict) or not all(isinstance(v, str) for v in shards.values()):
        raise ValueError(f"{path}: no weight_map of names and files; the index is damaged.")
    weights: Weights = {}
    for name in sorted(set(shards.values())):
        if pathlib.PurePath(name).name != name:
            raise ValueError(f"{path}: the shard {name!r} lies outside its folder.")
        weights |= _read_weight_file(folder / name)
    missing = sorted(set(shards) - set(weights))
    if missing:
        raise ValueError(f"{path} names weights that no shard holds: {missing[:5]}.")
    return weights


def _read_weight_file(path: pathlib.Path) -> Weights:
    if path.suffix == ".bin":
        weights = read_torch_weights(path)
        # A view may repeat one stored number without end; a file this dishonest is not widened.
        if sum(value.size for value in weights.values()) > 4 * path.stat().st_size:
            raise ValueError(f"{path} describes far more numbers than it holds; not read.")
        return weights
    try:
        return safetensors.numpy.load_file(path)
    except AttributeError as error:  # float8: of numpy, which has none
        raise ValueError(
            f"{path} has weights of another type than float32, float16 or bfloat16 ({error}); save "
            "the model in one of these."
        ) from None
    except (safetensors.SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is no readable safetensors file: {error}.") from None


def _modern_names(theirs: Weights, folder: pathlib.Path) -> tuple[Weights, list[str]]:
    """Returns the weights in float32, LayerNorm's legacy names replaced, buffers left out."""
    weights = {}
    for name, value in theirs.items():
        if name.endswith("embeddings.position_ids"):
            continue  # 0, 1, 2 .., in files of older releases
        if name.endswith(("LayerNorm.gamma", "LayerNorm.beta")):
            name = name.replace(".gamma", ".weight").replace(".beta", ".bias")
        weights[name] = value
    kinds = sorted({str(value.dtype) for value in weights.values()} - {"float32"})
    others = [kind for kind in kinds if kind not in ("float16", "bfloat16", "float64")]
    if others:
        raise ValueError(f"{folder}: weights of {', '.join(others)}; expected floating point.")
    notes = [f"Weights stored as {', '.join(kinds)} are float32 here."] if kinds else []
    return {name: value.astype(np.float32, copy=False) for name, value in weights.items()}, notes


def _untie(theirs: Weights, start: str, folder: pathlib.Path) -> Weights:
    """Removes the copies of tied weights.

    Raises:
      ValueError: if a copy differs, so that the MLM head has a table of its own.
    """
    copies = {
        "cls.predictions.decoder.weight": f"{start}embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    }
    theirs = dict(theirs)
    for copy, original in copies.items():
        if copy in theirs:
            value = theirs.pop(copy)
            if not np.array_equal(value, theirs.setdefault(original, value)):
                raise ValueError(f"{folder}: {copy} differs from {original}; they must be tied.")
    return theirs


def _label_head(architectures: list[str], theirs: Weights) -> str:
    """Returns what `classifier.weight` is: by the named class, else by the pooler's presence."""
    if architectures:
        return "tagger" if "BertForTokenClassification" in architectures else "classifier"
    return "classifier" if any("pooler.dense" in name for name in theirs) else "tagger"


def _labels(values: dict[str, Any], path: pathlib.Path) -> tuple[str, ...]:
    """Returns the names of the classes; () if they are only LABEL_0, LABEL_1 ..."""
    names = json_field(values, "id2label", dict, path) or {}
    if set(names) != {str(index) for index in range(len(names))}:
        raise ValueError(f"{path}: id2label {names!r}, expected names by number: 0, 1, 2 ...")
    labels = tuple(str(names[str(index)]) for index in range(len(names)))
    return () if labels == tuple(f"LABEL_{i}" for i in range(len(labels))) else labels


def write_huggingface(checkpoint: Checkpoint, folder: pathlib.Path) -> None:
    """Writes config.json, model.safetensors and the tokenizer's files into a folder."""
    heads = [head for head in checkpoint.heads if head != "pooler"]
    purpose = next((head for head in ("classifier", "tagger", "squad") if head in heads), "")
    name = CLASSES[purpose or " ".join(heads)]
    has_prefix = name != "BertModel"
    label_head = "tagger" if purpose == "tagger" else "classifier"
    rows = huggingface_rows(count_layers(checkpoint.weights), has_prefix, label_head)
    (folder / "config.json").write_text(_config_json(checkpoint, name), encoding="utf8")
    weights = to_theirs(rows, checkpoint.weights)
    safetensors.numpy.save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    if checkpoint.vocab is not None:
        write_tokenizer(folder, checkpoint.vocab, checkpoint.config)


def _config_json(checkpoint: Checkpoint, name: str) -> str:
    values = checkpoint.config.to_dict()
    del values["do_lower_case"]  # stands in tokenizer_config.json
    theirs = {ours: name for name, ours in reversed(ACTIVATIONS.items())}
    values["hidden_act"] = theirs[checkpoint.config.hidden_act]
    labels = checkpoint.labels or tuple(f"LABEL_{i}" for i in range(checkpoint.num_labels))
    if labels:
        values["id2label"] = {str(index): label for index, label in enumerate(labels)}
        values["label2id"] = {label: index for index, label in enumerate(labels)}
    pad_id = checkpoint.vocab.pad_id if checkpoint.vocab else 0
    fixed = {
        "architectures": [name],
        "model_type": "bert",
        "pad_token_id": pad_id,
        "position_embedding_type": "absolute",
        "tie_word_embeddings": True,
    }
    return json.dumps({**fixed, **values}, indent=2, ensure_ascii=False) + "\n"
