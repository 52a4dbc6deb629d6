"""Pairs of labelled texts for contrastive training.

in_batch: the loss `same_label` compares every two texts of a batch, so that pairs only decide on
the texts of a batch:

    labels [N] --partners with a common label, shuffled--> int [P, 2]

oversampling and unique, as SetFit makes them:

    labels [N] --every pair i <= j--> pairs with a common label (1) and without one (0)
        --shuffled, balanced--> int [P, 2] and float [P]

Reference: Tunstall et al. 2022, "Efficient Few-Shot Learning Without Prompts", section 3.1.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bert_tf.config.fine_tuning_config import OVERSAMPLING, SAME_LABEL_PAIRS
from bert_tf.tasks.embedding.examples import EmbeddingExample

# Above this many pairs without a common label, they are drawn instead of listed.
MOST_LISTED = 2_000_000


class TextPairs(NamedTuple):
    """Pairs of texts, with 1 for those that have a label in common, else 0."""

    indices: np.ndarray  # int [P, 2]
    scores: np.ndarray  # float [P]


def pair_loss(sampling: str) -> str:
    """Returns the name of the loss that the pairs of a sampling are trained with."""
    if sampling == SAME_LABEL_PAIRS:
        return "same_label"
    return "cosine"


def pair_batch_size(batch_size: int, sampling: str, num_texts: int) -> int:
    """Returns a batch size that batches without repeated texts can reach."""
    if sampling == SAME_LABEL_PAIRS:
        # Each pair takes two of the batch's texts, none of which is repeated.
        return min(batch_size, num_texts // 2)
    return batch_size


def pair_examples(
    texts: Sequence[str],
    sources: Sequence[str],
    labels: np.ndarray,
    sampling: str,
    pairs_per_example: int,
    seed: int,
) -> list[EmbeddingExample]:
    """Returns the pairs of `make_pairs` as examples for the loss `pair_loss`.

    `sources` are the origins of the texts, for messages; for others, see `make_pairs`.
    """
    pairs = make_pairs(labels, sampling, pairs_per_example, seed)
    label_sets = _label_sets(labels)
    examples = []
    for (first, second), score in zip(pairs.indices.tolist(), pairs.scores.tolist(), strict=True):
        scores = (score,)
        if sampling == SAME_LABEL_PAIRS:
            # Labels of both texts, [2 * C]: the loss compares those of every two texts of a batch.
            scores = (*label_sets[first].tolist(), *label_sets[second].tolist())
        examples.append(EmbeddingExample(texts[first], texts[second], (), scores, sources[first]))
    return examples


def make_pairs(
    labels: np.ndarray, sampling: str = OVERSAMPLING, pairs_per_example: int = 0, seed: int = 0
) -> TextPairs:
    """Returns pairs of texts, which depend only on the arguments.

    Pairs with and without a common label alternate. A text is also paired with itself. With
    in_batch, all pairs are of two texts that have a label in common.

    Args:
      labels: int [N], or 0 and 1 [N, C] for several labels.
      sampling: in_batch draws partners for each text, the same number for all; oversampling
        repeats the kind of pairs of which there are fewer until there are as many of both; unique
        uses each pair once.
      pairs_per_example: at most half as many pairs of either kind for each text; 0: no limit.
      seed: of the order and the choice.
    """
    rng = np.random.default_rng(seed)
    count = len(labels)
    labels = _label_sets(labels)
    if sampling == SAME_LABEL_PAIRS:
        return _partners(labels, pairs_per_example, rng)
    most = pairs_per_example * count // 2 if pairs_per_example else count * count
    similar = _all_pairs(labels, is_similar=True)
    # count * (count + 1) / 2 pairs i <= j, those of a text with itself included.
    num_different = count * (count + 1) // 2 - len(similar)
    if num_different <= max(MOST_LISTED, most):
        different = _all_pairs(labels, is_similar=False)
    else:
        different = _drawn_pairs(labels, most, rng)
    sizes = [min(len(similar), most), min(num_different, most)]
    if sampling == OVERSAMPLING and num_different:
        sizes = [max(sizes)] * 2
    chosen = []
    keys = []
    for kind, pairs in enumerate((similar, different)):
        order = rng.permutation(len(pairs))
        # `resize` repeats the order where there are too few pairs, and cuts it where too many.
        repeated = np.resize(order, sizes[kind])
        chosen.append(pairs[repeated])
        # Even numbers for one kind and odd ones for the other, so that a sort alternates them.
        keys.append(2 * np.arange(sizes[kind]) + kind)
    alternating = np.argsort(np.concatenate(keys), kind="stable")
    scores = np.repeat([1.0, 0.0], sizes)
    return TextPairs(np.concatenate(chosen)[alternating], scores[alternating])


def check_counts(labels: np.ndarray, names: Sequence[str]) -> None:
    """Checks that there are pairs with and without a common label.

    Args:
      labels: int [N], or 0 and 1 [N, C] for several labels.
    """
    if len(names) < 2:
        raise ValueError(
            f"All {len(labels)} examples have the label {names[0]!r}; give examples of at least "
            "two labels."
        )
    sets = _label_sets(labels, len(names))
    for name, count in zip(names, sets.sum(axis=0).astype(int).tolist(), strict=True):
        if count < 2:
            raise ValueError(
                f"The label {name!r} has {count} example{'s' * (count != 1)}; few-shot training "
                "needs at least 2 of each, and is meant for 8 to 64."
            )
    if (sets == sets[0]).all():
        raise ValueError(
            f"All {len(labels)} examples have the same labels; give examples of different ones."
        )


def _partners(labels: np.ndarray, pairs_per_example: int, rng: np.random.Generator) -> TextPairs:
    """Returns pairs of each text with others that have a label in common.

    A text without such a partner is paired with texts that have none either, or else with any.
    There are half of `pairs_per_example` for each text; 0: all, each pair once.
    """
    count = len(labels)
    # Half, because each text is also the partner of others.
    rounds = (pairs_per_example + 1) // 2
    matches: np.ndarray = labels @ labels.T > 0
    # A batch has no text twice, so that a text cannot be its own partner.
    np.fill_diagonal(matches, False)
    is_alone = np.logical_not(matches.any(axis=1))
    partners = []
    for index in range(count):
        found = np.flatnonzero(matches[index])
        if is_alone[index]:
            others = np.flatnonzero(is_alone if is_alone.sum() > 1 else ~is_alone)
            found = others[others != index]
        order = rng.permutation(found)
        # Without a limit, each pair is taken once, by the text with the lower index.
        partners.append(np.resize(order, rounds) if rounds else order[order > index])
    chosen = []
    for number in range(max(map(len, partners))):  # A round has each text once.
        for index in rng.permutation(count):
            if number < len(partners[index]):
                chosen.append((index, partners[index][number]))
    if pairs_per_example:
        chosen = chosen[: max(1, pairs_per_example * count // 2)]
    indices = np.array(chosen)
    return TextPairs(indices, matches[indices[:, 0], indices[:, 1]].astype(float))


def _label_sets(labels: np.ndarray, num_labels: int | None = None) -> np.ndarray:
    """Returns labels, int [N] or [N, C], as 0 and 1 [N, C]."""
    return labels if labels.ndim > 1 else np.eye(num_labels or labels.max() + 1)[labels]


def _all_pairs(labels: np.ndarray, is_similar: bool) -> np.ndarray:
    """Returns all pairs i <= j with a common label, or all without one, int [P, 2]."""
    parts = []
    for index in range(len(labels)):
        matches = labels[index:] @ labels[index] > 0  # of the texts from this one on
        others = index + np.flatnonzero(matches == is_similar)
        parts.append(np.stack([np.full_like(others, index), others], axis=1))
    return np.concatenate(parts)


def _drawn_pairs(labels: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Returns `count` different pairs i <= j without a common label, int [P, 2]."""
    size = len(labels)
    found = np.zeros([0], np.int64)
    while len(found) < count:
        # More than needed, because some have a common label or were drawn before.
        drawn = np.sort(rng.integers(size, size=[2 * count, 2]), axis=1)
        is_same = (labels[drawn[:, 0]] * labels[drawn[:, 1]]).any(axis=1)
        # The pair (i, j) as the number i * size + j, of which `unique` drops duplicates.
        keys = drawn[~is_same] @ np.array([size, 1])
        found = np.unique(np.concatenate([found, keys]))
    # `unique` has sorted them: without a shuffle, only pairs of the first texts would be left.
    found = rng.permutation(found)[:count]
    return np.stack(np.divmod(found, size), axis=1)
