"""Pairs of labelled texts for contrastive training, as SetFit makes them.

    labels [N] --every pair i <= j--> pairs with a common label (1) and without one (0)
        --shuffled, balanced--> int [P, 2] and float [P]

Reference: Tunstall et al. 2022, "Efficient Few-Shot Learning Without Prompts", section 3.1.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bert_tf.fine_tuning_config import OVERSAMPLING

# Above this many pairs without a common label, they are drawn instead of listed.
MOST_LISTED = 2_000_000


class TextPairs(NamedTuple):
    """Pairs of texts, with 1 for those that have a label in common, else 0."""

    indices: np.ndarray  # int [P, 2]
    scores: np.ndarray  # float [P]


def make_pairs(
    labels: np.ndarray, sampling: str = OVERSAMPLING, pairs_per_example: int = 0, seed: int = 0
) -> TextPairs:
    """Returns pairs of texts, which depend only on the arguments.

    Pairs with and without a common label alternate. A text is also paired with itself.

    Args:
      labels: int [N], or 0 and 1 [N, C] for several labels.
      sampling: oversampling repeats the kind of pairs of which there are fewer until there are as
        many of both; unique uses each pair once.
      pairs_per_example: at most half as many pairs of either kind for each text; 0: no limit.
      seed: of the order and the choice.
    """
    rng = np.random.default_rng(seed)
    count = len(labels)
    most = pairs_per_example * count // 2 if pairs_per_example else count * count
    similar = _similar_pairs(labels)
    num_different = count * (count + 1) // 2 - len(similar)
    if num_different <= max(MOST_LISTED, most):
        different = _different_pairs(labels)
    else:
        different = _drawn_pairs(labels, most, rng)
    sizes = [min(len(similar), most), min(num_different, most)]
    if sampling == OVERSAMPLING and num_different:
        sizes = [max(sizes)] * 2
    chosen = []
    keys = []
    for kind, pairs in enumerate((similar, different)):
        order = rng.permutation(len(pairs))
        repeated = np.resize(order, sizes[kind])
        chosen.append(pairs[repeated])
        keys.append(2 * np.arange(sizes[kind]) + kind)
    alternating = np.argsort(np.concatenate(keys), kind="stable")
    scores = np.repeat([1.0, 0.0], sizes)
    return TextPairs(np.concatenate(chosen)[alternating], scores[alternating])


def check_counts(labels: np.ndarray, names: Sequence[str]) -> None:
    """Checks that there are pairs with and without a common label.

    Args:
      labels: int [N], or 0 and 1 [N, C] for several labels.
      names: the labels.

    Raises:
      ValueError: if there is one label, or a label with fewer than two examples.
    """
    if labels.ndim == 1:
        counts = np.bincount(labels, minlength=len(names))
    else:
        counts = labels.sum(axis=0).astype(int)
    if len(names) < 2:
        raise ValueError(
            f"All {len(labels)} examples have the label {names[0]!r}; give examples of at least "
            "two labels."
        )
    for name, count in zip(names, counts.tolist(), strict=True):
        if count < 2:
            raise ValueError(
                f"The label {name!r} has {count} example{'s' * (count != 1)}; few-shot training "
                "needs at least 2 of each, and is meant for 8 to 64."
            )
    if labels.ndim > 1 and (labels == labels[0]).all():
        raise ValueError(
            f"All {len(labels)} examples have the same labels; give examples of different ones."
        )


def _is_similar(labels: np.ndarray, index: int) -> np.ndarray:
    """Returns which texts from `index` on have a label in common with that text, bool [N - i]."""
    if labels.ndim == 1:
        return labels[index:] == labels[index]
    return labels[index:] @ labels[index] > 0


def _similar_pairs(labels: np.ndarray) -> np.ndarray:
    """Returns all pairs i <= j with a common label, int [P, 2]."""
    return _pairs_by_row(labels, True)


def _different_pairs(labels: np.ndarray) -> np.ndarray:
    """Returns all pairs i <= j without a common label, int [P, 2]."""
    return _pairs_by_row(labels, False)


def _pairs_by_row(labels: np.ndarray, is_similar: bool) -> np.ndarray:
    parts = []
    for index in range(len(labels)):
        others = index + np.flatnonzero(_is_similar(labels, index) == is_similar)
        parts.append(np.stack([np.full_like(others, index), others], axis=1))
    return np.concatenate(parts)


def _drawn_pairs(labels: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Returns `count` different pairs i < j without a common label, int [P, 2]."""
    size = len(labels)
    found = np.zeros([0], np.int64)
    while len(found) < count:
        drawn = np.sort(rng.integers(size, size=[2 * count, 2]), axis=1)
        first, second = labels[drawn[:, 0]], labels[drawn[:, 1]]
        is_same = first == second if labels.ndim == 1 else (first * second).any(axis=1)
        keys = drawn[~is_same] @ np.array([size, 1])
        found = np.unique(np.concatenate([found, keys]))
    found = rng.permutation(found)[:count]
    return np.stack(np.divmod(found, size), axis=1)
