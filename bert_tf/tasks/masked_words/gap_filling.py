"""Fills in several masks together, and gaps of unknown length.

    "The [MASK] sat on the [MASK]."        two pieces
    "She went [GAP:1-4] and came back."    one to four pieces, whichever fit best

Three ways, each with one call of the model a step for all texts that are under way:

  best      the surest mask first, then the rest anew, a beam of the n best; the probability of a
            filling is the product of those of its pieces, in the order they were filled in
  predict   mask-predict: all masks at once, then T - 1 times the least sure of them again, of L
            masks floor(L (T - t) / T) in round t (Ghazvininejad et al. 2019, section 3)
  sample    the surest mask first, its piece drawn

Special tokens are never filled in: the probabilities of all other pieces are made to add up to 1.
"""

import itertools
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.text.kinds import MASK, encode_with_masks, token_texts
from bert_tf.text.tokenization import Tokenizer
from bert_tf.text.vocab import Vocab

GAP = re.compile(r"\[GAP:(\d+)-(\d+)\]")
MOST_LENGTHS = 64  # Combinations of lengths of all gaps of a text.
MOST_ROWS = 32  # Texts computed at once.


class Filling(NamedTuple):
    """A text with its masks filled in.

    Attributes:
      text: the whole text.
      pieces: what stands at each mask, in the order of the text.
      log_probability: sum of the pieces' natural logarithms.
      share: of the probability of all that are returned together; they add up to 1.
    """

    text: str
    pieces: tuple[str, ...]
    log_probability: float
    share: float

    @property
    def mean(self) -> float:
        """Log-probability a piece: what fillings of different lengths are compared by."""
        return self.log_probability / max(1, len(self.pieces))


class Sampling(NamedTuple):
    """How pieces are drawn: from the `top_k` likeliest (0: all) that together have `top_p`."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0

    def draw(self, log_probabilities: np.ndarray, random: np.random.Generator) -> int:
        """Draws a piece from log-probabilities, float64 [V]."""
        scaled = log_probabilities / self.temperature
        order = np.argsort(-scaled, kind="stable")
        if self.top_k:
            order = order[: self.top_k]
        shares = np.exp(scaled[order] - scaled[order[0]])
        shares /= shares.sum()
        kept = np.cumsum(shares) - shares < self.top_p  # The one that passes the bound is kept.
        kept[0] = True
        shares = np.where(kept, shares, 0.0)
        return int(order[random.choice(len(order), p=shares / shares.sum())])


class MaskedModel:
    """A masked language model with its tokenizer: log-probabilities of what may be filled in.

    Args:
      model: `BertPretrainer`.
      tokenizer: as the model was trained with.
    """

    def __init__(self, model: Any, tokenizer: Tokenizer) -> None:
        self.tokenizer, self.vocab = tokenizer, tokenizer.vocab
        self.longest = model.config.longest_row
        self.is_special = np.zeros(len(self.vocab), bool)
        self.is_special[sorted(self.vocab.special_ids)] = True
        shape = tf.TensorSpec([None, None], tf.int32)

        @tf.function(input_signature=[shape, shape, shape])
        def scores(ids: Any, mask: Any, positions: Any) -> Any:
            inputs = {"input_word_ids": ids, "input_mask": mask, "input_type_ids": 0 * ids}
            return model({**inputs, "masked_lm_positions": positions})["masked_lm_logits"]

        self._scores = scores

    def row(self, text: str) -> list[int]:
        """Returns the ids of a text, special tokens included.

        Raises:
          ValueError: if it is longer than the model's positions.
        """
        vocab = self.vocab
        ids = [vocab.cls_id, *encode_with_masks(self.tokenizer, text), vocab.sep_id]
        if len(ids) > self.longest:
            raise ValueError(
                f"The text has {len(ids)} pieces, more than the model's {self.longest}."
            )
        return ids

    def log_probabilities(
        self, rows: Sequence[Sequence[int]], positions: Sequence[Sequence[int]]
    ) -> list[np.ndarray]:
        """Computes the distributions at positions of rows, special tokens left out.

        Args:
          rows: ids.
          positions: of each row, at least one.

        Returns:
          Of each row float64 [its positions, V], -inf at special tokens.
        """
        result: list[np.ndarray] = []
        for start in range(0, len(rows), MOST_ROWS):
            some, where = rows[start : start + MOST_ROWS], positions[start : start + MOST_ROWS]
            ids, mask = _padded(some, self.vocab.pad_id)
            logits = self._scores(ids, mask, _padded(where, 0)[0]).numpy().astype(np.float64)
            for scores, places in zip(logits, where, strict=True):
                scores = np.where(self.is_special, -np.inf, scores[: len(places)])
                top = scores.max(axis=-1, keepdims=True)
                result.append(
                    scores - top - np.log(np.exp(scores - top).sum(axis=-1, keepdims=True))
                )
        return result


def _padded(rows: Sequence[Sequence[int]], pad: int) -> tuple[np.ndarray, np.ndarray]:
    ids = np.full([len(rows), max(map(len, rows))], pad, np.int32)
    mask = np.zeros_like(ids)
    for index, row in enumerate(rows):
        ids[index, : len(row)], mask[index, : len(row)] = row, 1
    return ids, mask


def fill_text(
    model: MaskedModel,
    text: str,
    count: int = 5,
    rounds: int = 0,
    sampling: Sampling | None = None,
) -> list[Filling]:
    """Fills in all masks and gaps of a text.

    Args:
      model: what knows the probabilities.
      text: with at least one `[MASK]` or `[GAP:a-b]`.
      count: fillings returned; one with `rounds`.
      rounds: of mask-predict; 0: the best, or with `sampling` drawn ones.
      sampling: how pieces are drawn; None: none is.

    Returns:
      The best first: by probability, or by its mean a piece where lengths differ: probabilities
      of longer fillings are smaller, so that of the first may have the smallest share.

    Raises:
      ValueError: if there is nothing to fill in, or a text is too long.
    """
    found: dict[str, Filling] = {}
    texts = _with_masks(text)
    key = (lambda one: one.log_probability) if len(texts) == 1 else (lambda one: one.mean)
    for masked in texts:
        ids = model.row(masked)
        places = [index for index, piece in enumerate(ids) if piece == model.vocab.mask_id]
        if sampling:
            made = _sampled(model, ids, places, count, sampling)
        elif rounds:
            made = [mask_predict(model, ids, rounds)]
        else:
            made = _best(model, ids, places, count)
        for row, value in made:
            filling = _filling(model, masked, [row[place] for place in places], value)
            # Other pieces may give the same text.
            found[filling.text] = max(found.get(filling.text, filling), filling, key=key)
    best = sorted(found.values(), key=key, reverse=True)[: 1 if rounds else count]
    values = np.array([one.log_probability for one in best])
    shares = np.exp(values - values.max())
    return [
        one._replace(share=float(share))
        for one, share in zip(best, shares / shares.sum(), strict=True)
    ]


def _with_masks(text: str) -> list[str]:
    """Returns a text with masks for gaps, of every length that they may have.

    Raises:
      ValueError: if there is neither gap nor mask, or a gap is empty.
    """
    gaps = GAP.findall(text)
    if not gaps and MASK not in text:
        raise ValueError(
            f"Nothing to fill in in {text!r}; write [MASK] for a piece, [GAP:1-5] for one to five."
        )
    ranges = []
    for low, high in gaps:
        if not 1 <= int(low) <= int(high):
            raise ValueError(f"[GAP:{low}-{high}] in {text!r}: expected 1 <= first <= last.")
        ranges.append(range(int(low), int(high) + 1))
    lengths = list(itertools.islice(itertools.product(*ranges), MOST_LENGTHS + 1))
    if len(lengths) > MOST_LENGTHS:
        raise ValueError(f"The gaps of {text!r} have over {MOST_LENGTHS} lengths; narrow them.")
    first, *others = re.split(r"\[GAP:\d+-\d+\]", text)
    return [
        first + "".join(" ".join([MASK] * n) + rest for n, rest in zip(sizes, others, strict=True))
        for sizes in lengths
    ]


def _best(
    model: MaskedModel, ids: list[int], places: list[int], count: int
) -> list[tuple[list[int], float]]:
    """Returns the rows of a beam with their log-probabilities; see the head of this file."""
    beam = {tuple(ids): 0.0}
    for _ in places:
        rows = list(beam)
        open_places = [[p for p in places if row[p] == model.vocab.mask_id] for row in rows]
        tables = model.log_probabilities(rows, open_places)
        grown: dict[tuple[int, ...], float] = {}
        for row, where, table in zip(rows, open_places, tables, strict=True):
            surest = int(table.max(axis=1).argmax())
            pieces = np.argsort(-table[surest], kind="stable")[:count]
            for piece in pieces[np.isfinite(table[surest, pieces])]:
                new = list(row)
                new[where[surest]] = int(piece)
                value = beam[row] + float(table[surest, piece])
                grown[tuple(new)] = max(value, grown.get(tuple(new), -np.inf))
        beam = dict(sorted(grown.items(), key=lambda item: item[1], reverse=True)[:count])
    return [(list(row), value) for row, value in beam.items()]


def mask_predict(model: MaskedModel, ids: list[int], rounds: int) -> tuple[list[int], float]:
    """Fills in all masks of a row at once, and the least sure of them again and again.

    Returns:
      The row, and the sum of its pieces' log-probabilities, each of the round that filled it in.
    """
    row = list(ids)
    places = [index for index, piece in enumerate(ids) if piece == model.vocab.mask_id]
    values = np.zeros(len(places))
    chosen = list(range(len(places)))
    for done in range(1, rounds + 1):
        table = model.log_probabilities([row], [[places[index] for index in chosen]])[0]
        for index, scores in zip(chosen, table, strict=True):
            row[places[index]], values[index] = int(scores.argmax()), scores.max()
        left = len(places) * (rounds - done) // rounds
        if not left:
            break
        chosen = sorted(np.argsort(values, kind="stable")[:left].tolist())
        for index in chosen:
            row[places[index]] = model.vocab.mask_id
    return row, float(values.sum())


def _sampled(
    model: MaskedModel, ids: list[int], places: list[int], count: int, sampling: Sampling
) -> list[tuple[list[int], float]]:
    """Draws fillings, each from numbers of its own, so that more of them change none."""
    rows = [list(ids) for _ in range(count)]
    randoms = [np.random.default_rng([sampling.seed, index]) for index in range(count)]
    values = [0.0] * count
    for _ in places:
        open_places = [[p for p in places if row[p] == model.vocab.mask_id] for row in rows]
        tables = model.log_probabilities(rows, open_places)
        for index, (where, table) in enumerate(zip(open_places, tables, strict=True)):
            surest = int(table.max(axis=1).argmax())
            piece = sampling.draw(table[surest], randoms[index])
            rows[index][where[surest]] = piece
            values[index] += float(table[surest, piece])
    return list(zip(rows, values, strict=True))


def _filling(model: MaskedModel, masked: str, ids: list[int], value: float) -> Filling:
    """Puts pieces in the place of a text's masks; a piece that continues a word joins it."""
    names = token_texts(model.vocab)
    mask = MASK if isinstance(model.vocab, Vocab) else model.vocab.tokens[model.vocab.mask_id]
    first, *others = masked.replace(MASK, mask).split(mask)
    text = first
    for piece, rest in zip(ids, others, strict=True):
        text = joined(text, names[piece], isinstance(model.vocab, Vocab)) + rest
    return Filling(text, tuple(names[piece].strip() for piece in ids), value, 1.0)


def joined(text: str, piece: str, is_wordpiece: bool) -> str:
    """Returns a text with a piece after it, spaced as the piece says."""
    if is_wordpiece:
        return text.rstrip() + piece[2:] if piece.startswith("##") else text + piece
    return text.rstrip(" ") + piece if piece.startswith(" ") else text.removesuffix(" ") + piece
