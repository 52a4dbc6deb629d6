"""Matches the labels of a trained head with those of a task: other order, case or separators."""

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np
from absl import logging

from bert_tf.checkpoints.checkpoint import HEADS, LABEL_HEADS, Checkpoint
from bert_tf.examples.labels import kind_of_spelling, spelling_key

# Formats that record the names of labels; without names there, their order is unknown.
NAMING_FORMS = ("huggingface", "keras_hub")


def plain_name(label: str) -> str:
    """Returns a label without the differences between spellings: NOT-ENTAILMENT, not_entailment."""
    return label.strip().casefold().replace("-", "_").replace(" ", "_")


def label_order(names: Sequence[str], wanted: Sequence[str]) -> list[int] | None:
    """Returns the index in `names` of each wanted label; None if they are not the same labels.

    Names are the same if they are spellings of one label (`bert_tf.examples.labels`), or differ in
    nothing but case or separators, unless two of one side would then be equal.
    """
    for key in (str, spelling_key(kind_of_spelling(names)), plain_name):
        indices = {key(label): index for index, label in enumerate(names)}
        found = [indices.get(key(label), -1) for label in wanted]
        if sorted(found) == list(range(len(names))):
            return found
    return None


def check_names(checkpoint: Checkpoint, labels: Sequence[str], flag: str) -> None:
    """Raises ValueError for a head whose labels have no names, where the task's have some.

    Args:
      checkpoint: with the head.
      labels: of the task; numbers from 0 on are taken for the rows of the head.
      flag: that names the checkpoint.
    """
    is_nameless = checkpoint.num_labels > 1 and not checkpoint.labels
    if not is_nameless or checkpoint.form not in NAMING_FORMS:
        return
    if tuple(labels) != tuple(map(str, range(len(labels)))):
        raise ValueError(
            f"--{flag}={checkpoint.source} has a head of {checkpoint.num_labels} labels without "
            f"names (LABEL_0 ..), so it is unknown which row is which of {list(labels)[:10]}. "
            "Write the names, in the order of the head, as id2label into its config.json."
        )


def with_labels(checkpoint: Checkpoint, labels: Sequence[str], order: Sequence[int]) -> Checkpoint:
    """Returns the checkpoint with the rows of its head in another order.

    Args:
      checkpoint: with a head of `LABEL_HEADS`.
      labels: the new names, in order.
      order: row of the head that each has now.
    """
    if list(order) != list(range(len(order))):
        logging.info(
            "%s: the rows of its head, %s, are put into the order of the task, %s.",
            checkpoint.source,
            list(checkpoint.labels)[:10],
            list(labels)[:10],
        )
    starts = tuple(HEADS[head] for head in LABEL_HEADS)
    weights = {
        name: np.ascontiguousarray(value[list(order)]) if name.startswith(starts) else value
        for name, value in checkpoint.weights.items()
    }
    return dataclasses.replace(checkpoint, weights=weights, labels=tuple(labels))


def spelled_as(labels: tuple[str, ...], found: Iterable[str]) -> tuple[str, ...]:
    """Returns labels of a head as a file spells them, if it has the same in other spellings."""
    spellings: dict[str, list[str]] = {}
    for name in found:
        spellings.setdefault(plain_name(name), []).append(name)
    known = set(map(plain_name, labels))
    is_clear = len(known) == len(labels) and all(len(names) == 1 for names in spellings.values())
    if not is_clear or not set(spellings) <= known:
        return labels
    return tuple(spellings.get(plain_name(label), [label])[0] for label in labels)
