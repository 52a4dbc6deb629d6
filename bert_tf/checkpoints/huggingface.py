"""Hugging Face folders: config.json and the weights in one of the forms of `weight_files`.

The names and shapes are those of the classes of transformers for PyTorch; differences between
families are in `families`. LoRA adapters are merged into their base, see `lora`.
"""

import dataclasses
import pathlib
from typing import Any

import numpy as np

from bert_tf.checkpoints import lora, tokenizer_files
from bert_tf.checkpoints.checkpoint import (
    HEADS,
    LABEL_HEADS,
    Checkpoint,
    Weights,
    encoder_shapes,
    heads_of,
    num_labels,
    table_rows,
    weight_names,
    without_prefix,
)
from bert_tf.checkpoints.embedding import read_embedding
from bert_tf.checkpoints.families import FAMILIES
from bert_tf.checkpoints.families.family import Family, architectures, expect
from bert_tf.checkpoints.tokenizer_settings import omits_types
from bert_tf.checkpoints.weight_files import WEIGHT_FILES, read_weights
from bert_tf.checkpoints.weight_names import from_file_names
from bert_tf.config import ModelConfig
from bert_tf.system.files import json_field, read_json
from bert_tf.text.kinds import with_rules
from bert_tf.text.sentencepiece_model import MODEL_FILES

ADAPTED_PURPOSES = ("encoder", "classifier", "multiple_choice", "tagger", "squad")
PRETRAINING_HEADS = ("masked_lm", "next_sentence", "discriminator")
# The tokenizer is read from the adapter's folder if that has one of these, else from the base's.
TOKENIZER_FILES = ("tokenizer.json", "vocab.txt", "vocab.json", *MODEL_FILES)
# How config.json calls the kinds of labels.
HF_PROBLEM_TYPES = {
    "single_label": "single_label_classification",
    "regression": "regression",
    "multi_label": "multi_label_classification",
}
# The purpose of a model with a dense layer before `classifier`, by the end of the layer's name.
DENSE_BEFORE = {
    "pooler.dense.weight": "multiple_choice",
    "pre_classifier.weight": "classifier",
    "head.dense.weight": "classifier",
    "albert.pooler.weight": "classifier",
    "sequence_summary.summary.weight": "multiple_choice",
}


def is_huggingface(path: pathlib.Path) -> bool:
    """True for a folder with a config.json and weights, an adapter, or such a file of weights."""
    folder = _folder(path)
    has_weights = any((folder / name).exists() for name in WEIGHT_FILES)
    return lora.is_adapter(folder) or (has_weights and (folder / "config.json").exists())


def _folder(path: pathlib.Path) -> pathlib.Path:
    return path.parent if path.name in (*WEIGHT_FILES, *lora.ADAPTER_FILES) else path


def read_huggingface(
    path: pathlib.Path, as_transformers: bool = False, base_model: str = ""
) -> Checkpoint:
    """Reads a folder, or that of a weights file.

    Args:
      as_transformers: see `read_tokenizer`.
      base_model: the model that an adapter belongs to; see `find_base`.

    Raises:
      ValueError: if its family is unknown, or its files contradict each other.
    """
    folder = _folder(path)
    if lora.is_adapter(folder):
        return _read_adapted(lora.read_adapter(folder), base_model, as_transformers)
    if base_model:
        raise ValueError(f"{folder} is not an adapter; leave --base_model={base_model} out.")
    values, family, config = read_config(folder)
    file_weights, notes = read_weights(folder)
    return from_names(
        family, config, values, file_weights, folder, tuple(notes), as_transformers=as_transformers
    )


def read_config(folder: pathlib.Path) -> tuple[dict[str, Any], Family, ModelConfig]:
    """Returns the config.json of a folder, the family that it names, and our configuration."""
    path = folder / "config.json"
    values = read_json(path)
    family = _family(values, path)
    config = family.read_config(values, path)
    _check_token_ids(values, config.vocab_size, path)
    return values, family, config


def _read_adapted(adapter: lora.LoraAdapter, base_model: str, as_transformers: bool) -> Checkpoint:
    """Reads the base of an adapter, with the adapter merged into its weights."""
    base = lora.find_base(adapter, base_model)
    if lora.is_adapter(base) or not is_huggingface(base):
        kind = "itself an adapter" if lora.is_adapter(base) else "no Hugging Face folder"
        raise ValueError(
            f"{adapter.folder} is an adapter of {base}, which is {kind}; expected a folder with "
            "config.json and model.safetensors."
        )
    values, family, config = read_config(base)
    base_weights, notes = read_weights(base)
    prefix = family.prefix
    is_bare = not any(name.startswith(prefix) for name in base_weights)
    base_weights = _untie(base_weights, family, prefix if is_bare else "", base)
    file_weights = lora.merge_adapter(adapter, base_weights, base, prefix)
    notes.append(
        f"A LoRA adapter of {len(adapter.matrices)} weights was merged into those of {base}."
    )
    adapter_class = family.classes.get(adapter.purpose, adapter.base_class)
    if adapter_class:
        values = {**values, "architectures": [adapter_class]}
    # The labels of the base are not those of a new head with another number of rows.
    for name in ("classifier.weight", "classifier.out_proj.weight"):
        if name in adapter.weights and len(values.get("id2label") or {}) != len(
            adapter.weights[name]
        ):
            values = {**values, "id2label": None}
    has_tokenizer = any((adapter.folder / name).exists() for name in TOKENIZER_FILES)
    folder = adapter.folder if has_tokenizer else base
    checkpoint = from_names(
        family, config, values, file_weights, folder, tuple(notes), as_transformers=as_transformers
    )
    checkpoint = dataclasses.replace(checkpoint, source=str(adapter.folder))
    if adapter_class not in list(map(family.classes.get, ADAPTED_PURPOSES)):
        return checkpoint
    # The class that was adapted lacks the heads of the base's pre-training.
    starts = tuple(HEADS[head] for head in PRETRAINING_HEADS)
    weights = without_prefix(checkpoint.weights, starts)
    unused = tuple(name for name in checkpoint.unused if name not in base_weights)
    return dataclasses.replace(checkpoint, weights=weights, unused=unused)


def from_names(
    family: Family,
    config: ModelConfig,
    values: dict[str, Any],
    file_weights: Weights,
    folder: pathlib.Path,
    notes: tuple[str, ...] = (),
    *,
    as_transformers: bool = False,
    source: str = "",
    form: str = "huggingface",
) -> Checkpoint:
    """Makes a checkpoint of float32 weights in Hugging Face's names.

    Args:
      family: the family whose names they have.
      config, values: the configuration in bert_tf, and the config.json.
      file_weights: the weights, float32.
      folder: where the tokenizer is.
      notes, form: see `Checkpoint`.
      as_transformers: see `read_tokenizer`.
      source: where the weights were read; empty: the folder.

    Raises:
      ValueError: if the files contradict each other.
    """
    if family.variant is not None:
        family = family.variant(values, file_weights)
    is_bare = not any(name.startswith(family.prefix) for name in file_weights)
    if is_bare:
        _check_bare_names(family, config, file_weights, folder)
    prefix = family.prefix if is_bare else ""  # The prefix that the names lack.
    file_weights = _untie(file_weights, family, prefix, folder)
    file_weights = _without_constants(file_weights, family, config, prefix, folder)
    purpose = _purpose(family, values, file_weights, folder / "config.json")
    if idle := [name for name in file_weights if name.startswith(family.idle.get(purpose, ()))]:
        file_weights = {name: value for name, value in file_weights.items() if name not in idle}
        notes += (f"Left out, as a {family.title} {purpose} does not use them: {', '.join(idle)}.",)
    weights, unused = _take_weights(family, config, purpose, prefix, file_weights, folder)
    num_rows = table_rows(weights, config)
    tokenizer = tokenizer_files.read_tokenizer(folder, num_rows, as_transformers=as_transformers)
    if tokenizer.vocab and config.type_vocab_size > 1 and omits_types(folder):
        vocab = with_rules(tokenizer.vocab, second_type=0)
        tokenizer = dataclasses.replace(tokenizer, vocab=vocab)
    has_labels = any(f"{HEADS[head]}output_weights" in weights for head in LABEL_HEADS)
    return Checkpoint(
        source=source or str(folder),
        form=form,
        config=tokenizer.applied_to(config, str(folder)),
        weights=weights,
        vocab=tokenizer.vocab,
        labels=stated_labels(values, folder / "config.json") if has_labels else (),
        stated_casing=tokenizer.stated,
        unused=unused,
        notes=(*notes, *tokenizer.notes),
        family=family.title,
        embedding=read_embedding(folder),
        problem_type=_problem_type(values, weights, folder / "config.json"),
        is_multiple_choice=purpose == "multiple_choice",
        settings=_input_settings(folder, config, weights, purpose),
    )


def _check_bare_names(
    family: Family, config: ModelConfig, file_weights: Weights, folder: pathlib.Path
) -> None:
    """Raises ValueError if names without the family's prefix begin as those of another family."""
    # Names of one family may begin as those of another: transformer.layer in DistilBERT and XLNet.
    own = {row.file_name for row in family.rows(config.num_unique_layers, "masked_lm")}
    foreign = [name for name in file_weights if f"{family.prefix}{name}" not in own]
    for other in FAMILIES.values():
        if any(name.startswith(other.prefix) for name in foreign):
            raise ValueError(
                f"{folder}: model_type is {family.model_type!r}, but its weights are named as "
                f"those of {other.model_type!r}."
            )


def _take_weights(
    family: Family,
    config: ModelConfig,
    purpose: str,
    prefix: str,
    file_weights: Weights,
    folder: pathlib.Path,
) -> tuple[Weights, tuple[str, ...]]:
    """Returns the weights in bert_tf's names, and the names in the file that are unused.

    Raises:
      ValueError: if no weight has a name of the family, or bert_tf does not support the model.
    """
    # Weights that the configuration excludes, for example biases, are not read.
    possible = weight_names(config)
    rows = []
    for row in family.rows(config.num_unique_layers, purpose):
        if row.name in possible:
            rows.append(row._replace(file_name=row.file_name.removeprefix(prefix)))
    weights, unused = from_file_names(rows, file_weights, encoder_shapes(config))
    if unused and not weights:
        raise ValueError(
            f"{folder}: none of its weights has a name of a {family.title}, as "
            f"{rows[0].file_name}; the first is {unused[0]:.100}. Rename them, or save them "
            "without the module around the model."
        )
    if reasons := family.differences(config, heads_of(weights)):
        raise ValueError(
            f"{folder}: {'; '.join(reasons)}; bert_tf does not support this {family.title}."
        )
    return weights, unused


def _input_settings(
    folder: pathlib.Path, config: ModelConfig, weights: Weights, purpose: str
) -> dict[str, str]:
    """Returns how the tokenizer of a folder cuts texts, of `run_record.INPUT_FIELDS`.

    Only classifiers of bert_tf cut the beginning; for another model that is an error.
    """
    settings = {}
    length = tokenizer_files.model_max_length(folder)
    # The usual case, a limit that is that of the model, needs no record.
    if length is not None and length < min(config.longest_row, config.max_position_embeddings):
        settings["max_seq_length"] = str(length)
    if tokenizer_files.truncates_beginning(folder):
        if purpose != "classifier" or num_labels(weights) < 2:
            raise ValueError(
                f"{folder}: truncation_side is left, but bert_tf cuts the beginning of long texts "
                "only for classifiers of several labels. Remove truncation_side from "
                "tokenizer_config.json (and truncation from tokenizer.json) to cut their end."
            )
        settings["long_texts"] = "tail"
    return settings


def _family(values: dict[str, Any], path: pathlib.Path) -> Family:
    """Returns the family of a config.json; the oldest BERTs do not name it."""
    name = json_field(values, "model_type", str, path, choices=FAMILIES, default="bert")
    expect(values, path, is_decoder=False, add_cross_attention=False)
    # Null would untie the table of the masked LM's head, which has no other weights.
    if values.get("tie_word_embeddings", True) is None:
        raise ValueError(f"{path}: tie_word_embeddings is null, expected true.")
    if values.get("pruned_heads"):
        raise ValueError(
            f"{path}: pruned_heads is {values['pruned_heads']!r:.100}; bert_tf does not support "
            "layers with pruned heads."
        )
    return FAMILIES[name]


def _check_token_ids(values: dict[str, Any], vocab_size: int, path: pathlib.Path) -> None:
    """Raises ValueError for the id of a special token that is not in the vocabulary."""
    for key, value in values.items():
        if not key.endswith("_token_id") or value is None:
            continue
        for index in value if isinstance(value, list) else [value]:
            if type(index) is not int or not 0 <= index < vocab_size:
                raise ValueError(
                    f"{path}: {key} is {value!r:.100}, expected an id from 0 to {vocab_size - 1}, "
                    "as vocab_size says; correct or remove it."
                )


def _untie(file_weights: Weights, family: Family, prefix: str, folder: pathlib.Path) -> Weights:
    """Removes the copies of tied weights; a copy that differs (a separate table) is an error."""
    file_weights = dict(file_weights)
    for copy, name in family.copies.items():
        original = name.removeprefix(prefix)
        if copy in file_weights:
            value = file_weights.pop(copy)
            if not np.array_equal(value, file_weights.setdefault(original, value)):
                raise ValueError(
                    f"{folder}: {copy} differs from {original}; they must be equal (tied)."
                )
    return file_weights


def _without_constants(
    file_weights: Weights, family: Family, config: ModelConfig, prefix: str, folder: pathlib.Path
) -> Weights:
    """Removes constants that follow from the configuration; other numbers are an error."""
    positions = config.max_position_embeddings
    # Tables are as long as those in the file: memory may not hold as many rows as config.json says.
    for name, compute in family.constants.items():
        found = file_weights.pop(name.removeprefix(prefix), None)
        if found is None:
            continue
        is_constant = found.shape[:1] == (positions,)
        if is_constant:
            value = compute(config)
            is_constant = found.shape == value.shape and np.allclose(
                found, value, rtol=0, atol=_rounding(found)
            )
        if not is_constant:
            raise ValueError(
                f"{folder}: {name.removeprefix(prefix)} {list(found.shape)} is not the constant of "
                f"{positions} positions that follows from config.json; configuration and weights "
                "belong to different models."
            )
    return file_weights


def _rounding(value: np.ndarray) -> float:
    """Returns the largest error of float32 numbers up to 1 that may have been stored shorter."""
    if not np.any(np.ascontiguousarray(value).view(np.uint32) & 0xFFFF):
        return 2.0**-8  # bfloat16 has the upper half of the bits.
    if np.array_equal(value.astype(np.float16).astype(np.float32), value):
        return 2.0**-11
    return 1e-6


def _purpose(
    family: Family, values: dict[str, Any], file_weights: Weights, path: pathlib.Path
) -> str:
    """Returns the purpose of the model, one of `Family.classes`; masked_lm if it has no labels.

    The purpose of `classifier.weight` is that of the class in config.json, or of its dense layer.
    """
    names = architectures(values, path)
    if "qa_outputs.weight" in file_weights:
        return "squad"
    if "classifier.out_proj.weight" in file_weights:
        return "classifier"
    if "logits_proj.weight" in file_weights:
        is_choice = family.classes.get("multiple_choice") in names
        return "multiple_choice" if is_choice else "classifier"
    if "classifier.weight" not in file_weights:
        is_discriminator = any(name.startswith("mask_predictions.") for name in file_weights)
        return "encoder" if is_discriminator else "masked_lm"
    for purpose in ("classifier", "multiple_choice", "tagger", "squad"):
        if family.classes.get(purpose) in names:
            return purpose
    for end, purpose in DENSE_BEFORE.items():
        if any(name.endswith(end) for name in file_weights):
            return purpose
    return "tagger"


def stated_labels(values: dict[str, Any], path: pathlib.Path) -> tuple[str, ...]:
    """Returns the names of the classes; () if they are only LABEL_0, LABEL_1 ..."""
    names = json_field(values, "id2label", dict, path, nullable=True) or {}
    if set(names) != set(map(str, range(len(names)))):
        raise ValueError(f"{path}: id2label {names!r}, expected names by number: 0, 1, 2 ...")
    nameless = [index for index, name in names.items() if name is None]
    if nameless:
        raise ValueError(f"{path}: id2label is null for {nameless[0]}, expected a name.")
    labels = tuple(str(names[str(index)]) for index in range(len(names)))
    if labels == tuple(f"LABEL_{i}" for i in range(len(labels))):
        return ()
    return labels


def _problem_type(values: dict[str, Any], weights: Weights, path: pathlib.Path) -> str:
    """Returns the problem type of a classifier; "" where config.json does not state it."""
    if "classifier" not in heads_of(weights):
        return ""
    types = {hf_name: name for name, hf_name in HF_PROBLEM_TYPES.items()}
    stated = json_field(values, "problem_type", str, path, nullable=True, choices=types)
    return types.get(stated, "")
