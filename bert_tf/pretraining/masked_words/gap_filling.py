"""Fills in several masks together, and gaps of unknown length.

    "The [MASK] sat on the [MASK]."        two tokens
    "She went [GAP:1-4] and came back."    one to four tokens, whichever fit best

There are three methods. Each calls the model once per step, for all texts that are not finished:

  best      fills in the most certain mask, then computes the others again, with a beam of the n
            best fillings; the probability of a filling is the product of the probabilities of its
            tokens, in the order in which they are filled in
  predict   mask-predict: fills in all masks at once, then T - 1 times the least certain ones
            again: in round t, floor(L (T - t) / T) of L masks (Ghazvininejad et al. 2019,
            section 3)
  sample    fills in the most certain mask, by a token that is drawn

Special tokens are never filled in: the probabilities of all other tokens add up to 1.
"""

import itertools
import re
from collections.abc import Sequence
from typing import NamedTuple, Self, cast

import numpy as np

from bert_tf.checkpoints.start import read_start, starts_of_names
from bert_tf.pretraining.masked_words import answers
from bert_tf.pretraining.masked_words.model import BertPretrainer
from bert_tf.pretraining.masked_words.sampling import Sampling
from bert_tf.text.kinds import encode_with_masks
from bert_tf.text.packing import add_special_tokens
from bert_tf.text.tokenization import AnyVocab, Tokenizer, make_tokenizer
from bert_tf.text.vocab import MASK

GAP = re.compile(r"\[GAP:(\d+)-(\d+)\]")
MOST_LENGTHS = 64  # maximum number of combinations of the lengths of a text's gaps
MOST_ROWS = 32  # texts per batch


class Filling(NamedTuple):
    """A text with its masks filled in.

    Attributes:
      text: the whole text.
      tokens: the token at each mask, in the order of the text.
      log_probability: sum of the natural logarithms of the tokens' probabilities.
      share: probability among the fillings that are returned; shares add up to 1.
    """

    text: str
    tokens: tuple[str, ...]
    log_probability: float
    share: float

    @property
    def mean(self) -> float:
        """Log-probability per token, by which fillings of different lengths are compared."""
        return self.log_probability / max(1, len(self.tokens))


class MaskedModel(answers.FillMaskAnswers):
    """A masked language model with the tokenizer that it was trained with."""

    def __init__(self, model: BertPretrainer, tokenizer: Tokenizer) -> None:
        self._model = model
        self.tokenizer = tokenizer
        self.max_seq_length = model.config.longest_row
        self.vocab = tokenizer.vocab
        self.is_special = answers.special_tokens(self.vocab)

    @classmethod
    def read(
        cls, path: str, config_file: str = "", vocab_file: str = "", allow_unexpected: str = ""
    ) -> Self:
        """Reads a checkpoint with an MLM head; for the arguments, flags, see `read_start`."""
        checkpoint = read_start(
            path,
            given={},
            heads=["masked_lm"],
            config_file=config_file,
            vocab_file=vocab_file,
            allow_missing=None,
            allow_unexpected=starts_of_names(allow_unexpected),
        )
        model = BertPretrainer.from_checkpoint(checkpoint)
        vocab = cast(AnyVocab, checkpoint.vocab)
        return cls(model, make_tokenizer(vocab, checkpoint.config.do_lower_case))

    def compute_mask_logits(
        self, rows: Sequence[Sequence[int]], positions: Sequence[Sequence[int]], batch_size: int
    ) -> list[np.ndarray]:
        return self._model.compute_mask_logits(rows, positions, batch_size)

    def row(self, text: str) -> list[int]:
        """Returns the ids of a text, special tokens included; ValueError if it is too long."""
        vocab = self.vocab
        ids = add_special_tokens(vocab, encode_with_masks(self.tokenizer, text)).ids
        if len(ids) > self.max_seq_length:
            raise ValueError(
                f"The text has {len(ids)} tokens, but max_seq_length is {self.max_seq_length}; "
                "shorten it."
            )
        return ids

    def log_probabilities(
        self, rows: Sequence[Sequence[int]], positions: Sequence[Sequence[int]]
    ) -> list[np.ndarray]:
        """Returns the distributions over tokens at positions of rows, float64 [positions, V] each.

        Special tokens have -inf; each row has at least one position.
        """
        logits = self.compute_mask_logits(rows, positions, MOST_ROWS)
        return [answers.token_log_probabilities(values, self.is_special) for values in logits]


def fill_text(
    model: MaskedModel,
    text: str,
    count: int = 5,
    rounds: int = 0,
    sampling: Sampling | None = None,
) -> list[Filling]:
    """Fills in all masks and gaps of a text with at least one `[MASK]` or `[GAP:a-b]`.

    Args:
      count: number of fillings; 1 with `rounds`.
      rounds: rounds of mask-predict; 0: the best fillings, or with `sampling` drawn ones.
      sampling: options of drawing; None: no sampling.

    Returns:
      Fillings, the best first: by probability, or by its mean per token if lengths differ. Longer
      fillings have lower probabilities, so the first may have the smallest share.

    Raises:
      ValueError: if there is nothing to fill in, or a text is too long.
    """
    by_text: dict[str, Filling] = {}
    texts = _with_masks(text)

    def key(filling: Filling) -> float:
        # The sum over a longer filling is lower whatever its tokens are.
        if len(texts) == 1:
            return filling.log_probability
        return filling.mean

    for masked in texts:
        ids = model.row(masked)
        positions = mask_positions(ids, model.vocab.mask_id)
        if sampling:
            rows = _sampled(model, ids, positions, count, sampling)
        elif rounds:
            rows = [mask_predict(model, ids, rounds)]
        else:
            rows = _best(model, ids, positions, count)
        for row, value in rows:
            tokens = [row[position] for position in positions]
            filling = _filling(model, masked, tokens, value)
            # Different tokens may give the same text: the better filling is kept.
            by_text[filling.text] = max(by_text.get(filling.text, filling), filling, key=key)
    best = sorted(by_text.values(), key=key, reverse=True)[: 1 if rounds else count]
    values = np.array([filling.log_probability for filling in best])
    # Relative to the most probable filling, so that the exponentials do not underflow.
    shares = np.exp(values - values.max())
    shares /= shares.sum()
    fillings = []
    for filling, share in zip(best, shares, strict=True):
        fillings.append(filling._replace(share=float(share)))
    return fillings


def _with_masks(text: str) -> list[str]:
    """Replaces gaps by masks; returns a text for each combination of the gaps' lengths."""
    gaps = GAP.findall(text)
    if not gaps and MASK not in text:
        raise ValueError(
            f"Nothing to fill in in {text!r}; write [MASK] for a token, [GAP:1-5] for one to five."
        )
    ranges = []
    for low, high in gaps:
        if not 1 <= int(low) <= int(high):
            raise ValueError(f"[GAP:{low}-{high}] in {text!r}: expected 1 <= first <= last.")
        # `product` copies its arguments, so that ranges stay short. One length or combination more
        # than allowed is enough to see that there are too many.
        most = int(low) + MOST_LENGTHS
        ranges.append(range(int(low), min(int(high), most) + 1))
    combinations = list(itertools.islice(itertools.product(*ranges), MOST_LENGTHS + 1))
    if len(combinations) > MOST_LENGTHS:
        raise ValueError(f"The gaps of {text!r} have over {MOST_LENGTHS} lengths; narrow them.")
    first, *others = re.split(r"\[GAP:\d+-\d+\]", text)
    texts = []
    for lengths in combinations:
        masked = first
        for length, text_after in zip(lengths, others, strict=True):
            masked += " ".join([MASK] * length) + text_after
        texts.append(masked)
    return texts


def mask_positions(ids: Sequence[int], mask_id: int) -> list[int]:
    """Returns the positions of masks in a row of ids."""
    return [position for position, token in enumerate(ids) if token == mask_id]


def _best(
    model: MaskedModel, ids: list[int], positions: list[int], count: int
) -> list[tuple[list[int], float]]:
    """Returns the rows of a beam search with their log-probabilities; see `best` above."""
    beam = {tuple(ids): 0.0}
    for _ in positions:
        # Each step fills in one mask of each row; rows may differ in which one.
        rows = list(beam)
        open_positions = [mask_positions(row, model.vocab.mask_id) for row in rows]
        tables = model.log_probabilities(rows, open_positions)
        grown: dict[tuple[int, ...], float] = {}
        for row, masks, table in zip(rows, open_positions, tables, strict=True):
            # The mask whose likeliest token is the most probable; table is [masks, V].
            surest = int(table.max(axis=1).argmax())
            tokens = np.argsort(-table[surest], kind="stable")[:count]
            for token in tokens[np.isfinite(table[surest, tokens])]:
                new = list(row)
                new[masks[surest]] = int(token)
                value = beam[row] + float(table[surest, token])
                # Rows that were filled in different orders can become equal.
                grown[tuple(new)] = max(value, grown.get(tuple(new), -np.inf))
        beam = dict(sorted(grown.items(), key=lambda item: item[1], reverse=True)[:count])
    return [(list(row), value) for row, value in beam.items()]


def mask_predict(model: MaskedModel, ids: list[int], rounds: int) -> tuple[list[int], float]:
    """Fills in all masks of a row at once, and then the least certain ones again in each round.

    Returns the row, and the sum of its tokens' log-probabilities, each from the last round that
    filled in the token.
    """
    row = list(ids)
    positions = mask_positions(ids, model.vocab.mask_id)
    values = np.zeros(len(positions))  # log-probability of the token at each mask
    chosen = list(range(len(positions)))  # the masks that this round fills in
    for done in range(1, rounds + 1):
        table = model.log_probabilities([row], [[positions[index] for index in chosen]])[0]
        for index, scores in zip(chosen, table, strict=True):
            row[positions[index]] = int(scores.argmax())
            values[index] = scores.max()
        # floor(L (T - t) / T), see above.
        left = len(positions) * (rounds - done) // rounds
        if not left:
            break
        chosen = sorted(np.argsort(values, kind="stable")[:left].tolist())
        for index in chosen:
            row[positions[index]] = model.vocab.mask_id
    return row, float(values.sum())


def _sampled(
    model: MaskedModel, ids: list[int], positions: list[int], count: int, sampling: Sampling
) -> list[tuple[list[int], float]]:
    """Draws fillings, each with its own generator, so that a larger count keeps the first ones."""
    rows = [list(ids) for _ in range(count)]
    # Fillings differ only by their draws.
    randoms = [np.random.default_rng([sampling.seed, index]) for index in range(count)]
    values = [0.0] * count
    for _ in positions:
        open_positions = [mask_positions(row, model.vocab.mask_id) for row in rows]
        tables = model.log_probabilities(rows, open_positions)
        for index, (masks, table) in enumerate(zip(open_positions, tables, strict=True)):
            surest = int(table.max(axis=1).argmax())
            token = sampling.draw(table[surest], randoms[index])
            rows[index][masks[surest]] = token
            values[index] += float(table[surest, token])
    return list(zip(rows, values, strict=True))


def _filling(model: MaskedModel, masked: str, ids: list[int], value: float) -> Filling:
    """Replaces a text's masks by tokens; a token that continues a word is joined to it."""
    names = model.vocab.token_texts()
    mask = model.vocab.mask
    first, *others = masked.replace(MASK, mask).split(mask)
    text = first
    for token, text_after in zip(ids, others, strict=True):
        text = joined(text, names[token], model.vocab.marks_spaces) + text_after
    tokens = tuple(names[token].strip() for token in ids)
    # `fill_text` replaces the share when it knows all fillings.
    return Filling(text, tokens, value, share=1.0)


def joined(text: str, token: str, marks_spaces: bool) -> str:
    """Appends a token to a text that ends before a mask.

    The text has the spaces around the mask as the user wrote them. A token that continues a word
    removes the space; with byte-level BPE, a token that begins a word brings its own.
    """
    if marks_spaces:
        if token.startswith(" "):
            return text.rstrip(" ") + token
        return text.removesuffix(" ") + token
    if token.startswith("##"):
        return text.rstrip() + token[2:]
    return text + token
