"""Writes Hugging Face folders: config.json, model.safetensors and the tokenizer's files."""

import dataclasses
import pathlib
from typing import Any

import safetensors.numpy

from bert_tf.checkpoints.checkpoint import HEADS, Checkpoint, count_layers, without_prefix
from bert_tf.checkpoints.embedding import HEAD, write_embedding
from bert_tf.checkpoints.families import WRITABLE
from bert_tf.checkpoints.families.family import Family
from bert_tf.checkpoints.huggingface import HF_PROBLEM_TYPES
from bert_tf.checkpoints.tokenizer_writing import write_tokenizer
from bert_tf.checkpoints.weight_names import to_file_names
from bert_tf.system.files import read_json, write_json

KEPT_HEADS = ("pooler", "embedding")  # in folders with modules

# Heads that no class of transformers has.
OWN_HEADS = ("embedding", "joint_squad", "answerable")


def write_huggingface(checkpoint: Checkpoint, folder: pathlib.Path) -> None:
    """Writes config.json, model.safetensors and the tokenizer's files into a folder.

    Raises:
      ValueError: if no family can hold the model.
    """
    family, heads = family_and_heads(checkpoint)
    purpose = _written_purpose(heads, checkpoint.is_multiple_choice, family)
    is_bare = purpose == "encoder"
    prefix = family.prefix if is_bare else ""
    config = checkpoint.config
    rows = family.rows(count_layers(checkpoint.weights), purpose)
    weights = to_file_names(rows, checkpoint.weights, config.num_attention_heads)
    weights |= {name: compute(config) for name, compute in family.constants.items()}
    weights = {name.removeprefix(prefix): value for name, value in weights.items()}
    write_json(folder / "config.json", _config_json(checkpoint, family, purpose))
    safetensors.numpy.save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    if checkpoint.vocab is not None:
        write_tokenizer(folder, checkpoint.vocab, config)
        _write_cuts(folder, checkpoint.settings)
    # The weights of dense layers cannot be stored, and without them the embeddings would differ.
    if checkpoint.embedding and not checkpoint.embedding.dense:
        write_embedding(folder, checkpoint.embedding)


def encoder_alone(checkpoint: Checkpoint) -> Checkpoint:
    """Returns the encoder of a folder, without heads of pre-training and of tasks."""
    starts = tuple(start for head, start in HEADS.items() if head not in KEPT_HEADS)
    encoder = without_prefix(checkpoint.weights, (*starts, HEAD))
    return dataclasses.replace(checkpoint, weights=encoder, labels=(), embedding=None)


def _write_cuts(folder: pathlib.Path, settings: dict[str, str]) -> None:
    """States in tokenizer_config.json how texts are cut; see `huggingface._input_settings`."""
    cuts: dict[str, Any] = {}
    if length := settings.get("max_seq_length"):
        cuts["model_max_length"] = int(length)
    if settings.get("long_texts") == "tail":
        cuts["truncation_side"] = "left"
    if cuts:
        path = folder / "tokenizer_config.json"
        write_json(path, {**read_json(path), **cuts})


def family_and_heads(checkpoint: Checkpoint) -> tuple[Family, tuple[str, ...]]:
    """Returns the first family that can hold a model, and the heads that it holds of it.

    If none can, the error has the nearest family and what differs from it.
    """
    refusals: list[tuple[Family, list[str]]] = []
    # Some structures are of two families, BERT's and ELECTRA's encoder: the one it came from first.
    for family in sorted(WRITABLE, key=lambda one: one.title != checkpoint.family):
        heads = checkpoint.heads
        heads = tuple(head for head in heads if head not in OWN_HEADS)
        # Heads without a class in this family are left out; `formats.left_out` names them.
        if "next_sentence" in heads and "next_sentence" not in family.classes:
            heads = tuple(head for head in heads if head != "next_sentence")
        # DeBERTa: transformers has no class with the discriminator's head.
        if family.classes.get("discriminator") == family.classes["encoder"]:
            heads = tuple(head for head in heads if head != "discriminator")
        purpose = _written_purpose(heads, checkpoint.is_multiple_choice, family)
        names = {row.name for row in family.rows(1, purpose)}
        if not any(name.startswith(HEADS["pooler"]) for name in names):
            heads = tuple(head for head in heads if head != "pooler")
        reasons = family.differences(checkpoint.config, heads)
        if "discriminator" in heads and "discriminator" not in family.classes:
            reasons = ["it has no discriminator", *reasons]
        if not reasons:
            return family, heads
        refusals.append((family, reasons))
    nearest, reasons = min(refusals, key=lambda refusal: len(refusal[1]))
    raise ValueError(
        f"huggingface cannot hold this model. The nearest family is {nearest.model_type}, and it "
        f"differs: {'; '.join(reasons)}. Train a model with the other value (of --model_options "
        "where --help has no such flag), or write this one as bert_tf."
    )


def _written_purpose(heads: tuple[str, ...], is_multiple_choice: bool, family: Family) -> str:
    if is_multiple_choice and "classifier" in heads and "multiple_choice" in family.classes:
        return "multiple_choice"
    for head in ("classifier", "tagger", "squad", "discriminator"):
        if head in heads:
            return head
    pretrained = {"masked_lm", "next_sentence"} & set(heads)
    if len(pretrained) == 2:
        return "pretrained"
    return next(iter(pretrained), "encoder")


def _config_json(checkpoint: Checkpoint, family: Family, purpose: str) -> dict[str, Any]:
    values: dict[str, Any] = {
        "architectures": [family.classes[purpose]],
        "model_type": family.model_type,
        "tie_word_embeddings": True,
        **family.write_config(checkpoint.config),
    }
    if vocab := checkpoint.vocab:
        names = {"bos": vocab.cls_id, "eos": vocab.sep_id, "cls": vocab.cls_id, "sep": vocab.sep_id}
        values |= {f"{name}_token_id": index for name, index in names.items()}
    labels = checkpoint.labels or tuple(f"LABEL_{i}" for i in range(checkpoint.num_labels))
    if labels:
        values["id2label"] = {str(index): label for index, label in enumerate(labels)}
        values["label2id"] = {label: index for index, label in enumerate(labels)}
    if purpose == "classifier" and checkpoint.problem_type:
        values["problem_type"] = HF_PROBLEM_TYPES[checkpoint.problem_type]
    return values
