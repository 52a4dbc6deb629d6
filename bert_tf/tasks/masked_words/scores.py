"""Scores a text word by word with a masked language model, and rewrites unlikely words.

Each piece is masked and predicted; of a word of several pieces those that follow in the word are
masked with it, so that a rare word is not given away by its own end (Kauf and Ivanova 2023). The
sum is the pseudo-log-likelihood of Salazar et al. 2020, but for these masks. Words that the
vocabulary does not know have no score, and no part in the sum.
"""

import math
import unicodedata
from typing import NamedTuple

import numpy as np

from bert_tf.tasks.masked_words.gap_filling import MaskedModel, fill_text
from bert_tf.text.kinds import MASK, token_texts


class Word(NamedTuple):
    """A word of a text.

    Attributes:
      text: as it stands there.
      start, end: its characters.
      num_pieces: how many pieces it has where it stands.
      log_probability: natural logarithm, of all its pieces together; NaN of an unknown word.
      alternative: the likeliest first piece in its place, as text.
    """

    text: str
    start: int
    end: int
    num_pieces: int
    log_probability: float
    alternative: str

    @property
    def is_known(self) -> bool:
        """Whether the vocabulary has its pieces, so that it has a score."""
        return not math.isnan(self.log_probability)


def score_words(model: MaskedModel, text: str) -> list[Word]:
    """Scores each word of a text.

    Raises:
      ValueError: if it is empty, has special tokens, or is longer than the model's positions.
    """
    vocab = model.vocab
    ids = model.row(text)[1:-1]
    if not ids:
        raise ValueError(f"{text!r} has no words to score; give a text with words.")
    if not vocab.special_ids.isdisjoint(set(ids) - {vocab.unk_id}):
        raise ValueError(f"{text!r} contains special tokens; give the text without them.")
    _, starts, ends = model.tokenizer.tokenize_with_offsets(text)
    continues = vocab.is_continuation[ids]
    first = [index for index in range(len(ids)) if index == 0 or not continues[index]]
    words = list(zip(first, [*first[1:], len(ids)], strict=True))
    rows, positions = [], []
    for begin, end in words:
        for place in range(begin, end):
            row = list(ids)
            row[place:end] = [vocab.mask_id] * (end - place)
            rows.append([vocab.cls_id, *row, vocab.sep_id])
            positions.append([place + 1])
    tables = [table[0] for table in model.log_probabilities(rows, positions)]
    names, scored = token_texts(vocab), []
    for begin, end in words:
        values = [tables[place][ids[place]] for place in range(begin, end)]
        is_known = vocab.unk_id not in ids[begin:end]
        # The first word of byte-level BPE may begin as those do that continue one.
        others = np.where(vocab.is_continuation & ~continues[begin], -np.inf, tables[begin])
        stop, limit = ends[end - 1], starts[end] if end < len(ids) else len(text)
        while stop < limit and unicodedata.category(text[stop]) == "Mn":
            stop += 1  # A mark that the uncased rules drop belongs to the letter before it.
        span = text[starts[begin] : stop]
        word = span.lstrip()  # Where offsets are not trimmed, the space before it stands there.
        scored.append(
            Word(
                word,
                stop - len(word),
                stop,
                end - begin,
                float(sum(values)) if is_known else math.nan,
                names[int(others.argmax())].strip(),
            )
        )
    return scored


def pseudo_log_likelihood(words: list[Word]) -> float:
    """Adds up the log-probabilities of a text's known words, in nats."""
    return float(np.sum([word.log_probability for word in words if word.is_known]))


def rewrite(model: MaskedModel, text: str, rounds: int, share: float = 0.15) -> list[str]:
    """Replaces the least likely words by likelier ones, round after round.

    Each takes as many pieces as it had; unknown words stay. Stops when a round makes the text no
    likelier.

    Args:
      model: see `score_words`.
      text: to begin with.
      rounds: at most so many.
      share: of the known words that a round masks, one at least.

    Returns:
      The text after each round that changed it.
    """
    versions: list[str] = []
    words = score_words(model, text)
    for _ in range(rounds):
        known = [word for word in words if word.is_known and word.text]
        if not known:
            break
        count = max(1, round(share * len(known)))
        worst = sorted(known, key=lambda word: word.log_probability)[:count]
        masked = text
        for word in sorted(worst, key=lambda word: word.start, reverse=True):
            masks = " ".join([MASK] * word.num_pieces)
            masked = masked[: word.start] + masks + masked[word.end :]
        filled = fill_text(model, masked, count=1)[0].text
        again = score_words(model, filled)
        if pseudo_log_likelihood(again) <= pseudo_log_likelihood(words):
            break
        text, words = filled, again
        versions.append(text)
    return versions
