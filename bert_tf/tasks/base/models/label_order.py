"""Matches the labels of a trained head with those of a task, in another order or spelling."""

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np
from absl import logging

from bert_tf.checkpoints.checkpoint import HEADS, LABEL_HEADS, Checkpoint
from bert_tf.tasks.base.examples.labels import kind_of_spelling, spelling_key

# Formats that record the names of labels. If the names are missing, the order is unknown.
NAMING_FORMS = ("huggingface", "keras_hub")


def plain_name(label: str) -> str:
    """Normalizes the spelling of a label: NOT-ENTAILMENT becomes not_entailment."""
    return label.strip().casefold().replace("-", "_").replace(" ", "_")


def label_order(names: Sequence[str], wanted: Sequence[str]) -> list[int] | None:
    """Returns the index in `names` of each wanted label; None if the labels differ.

    Two names match if they are spellings of one label (`bert_tf.tasks.base.examples.labels`), or
    differ only in case and separators and the match is unique.
    """
    # From the strictest comparison to the most tolerant.
    for key in (str, spelling_key(kind_of_spelling(names)), plain_name):
        indices = {key(label): index for index, label in enumerate(names)}
        order = [indices.get(key(label), -1) for label in wanted]
        # A permutation: each name matches exactly one label.
        if sorted(order) == list(range(len(names))):
            return order
    return None


def check_names(checkpoint: Checkpoint, labels: Sequence[str], flag: str) -> None:
    """Raises ValueError if the labels of the head have no names, but those of the task do.

    The labels 0, 1, ... of a task are taken as rows of the head.
    """
    is_nameless = checkpoint.num_labels > 1 and not checkpoint.labels
    if not is_nameless or checkpoint.form not in NAMING_FORMS:
        return
    if tuple(labels) != tuple(map(str, range(len(labels)))):
        raise ValueError(
            f"--{flag}={checkpoint.source} has a head of {checkpoint.num_labels} labels without "
            f"names (LABEL_0 ..), so their match with {list(labels)[:10]} is unknown. "
            "Write the names, in the order of the head, as id2label into its config.json."
        )


def with_labels(checkpoint: Checkpoint, labels: Sequence[str], order: Sequence[int]) -> Checkpoint:
    """Returns the checkpoint with its head's rows in an order: the current row of each label."""
    if list(order) != list(range(len(order))):
        logging.info(
            "%s: the rows of its head, %s, are reordered to the labels of the task, %s.",
            checkpoint.source,
            list(checkpoint.labels)[:10],
            list(labels)[:10],
        )
    starts = tuple(HEADS[head] for head in LABEL_HEADS)
    weights = dict(checkpoint.weights)
    for name, value in weights.items():
        if name.startswith(starts):
            weights[name] = np.ascontiguousarray(value[list(order)])
    return dataclasses.replace(checkpoint, weights=weights, labels=tuple(labels))


def spelled_as(labels: tuple[str, ...], found: Iterable[str]) -> tuple[str, ...]:
    """Returns labels of a head as a file spells them, if all match one spelling of the file."""
    # Lists, because two spellings of a label in the file make the match ambiguous.
    spellings: dict[str, list[str]] = {}
    for name in found:
        spellings.setdefault(plain_name(name), []).append(name)
    known = set(map(plain_name, labels))
    is_unique = len(known) == len(labels) and all(len(names) == 1 for names in spellings.values())
    if not is_unique or not set(spellings) <= known:
        return labels
    return tuple(spellings.get(plain_name(label), [label])[0] for label in labels)
