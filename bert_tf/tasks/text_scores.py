"""Scores a text word by word with a masked language model, and rewrites unlikely words.

Each piece is masked and predicted; of a word of several pieces those that follow in the word are
masked with it, so that a rare word is not given away by its own end (Kauf and Ivanova 2023). The
sum is the pseudo-log-likelihood of Salazar et al. 2020, but for these masks.
"""

from typing import NamedTuple

import numpy as np

from bert_tf.tasks.gap_filling import MaskedModel, fill_text
from bert_tf.text.kinds import MASK


class Word(NamedTuple):
    """A word of a text.

    Attributes:
      text: as it stands there.
      start, end: its characters.
      log_probability: natural logarithm, of all its pieces together.
      alternative: the likeliest first piece in its place.
    """

    text: str
    start: int
    end: int
    log_probability: float
    alternative: str


def score_words(model: MaskedModel, text: str) -> list[Word]:
    """Scores each word of a text.

    Raises:
      ValueError: if it is empty or longer than the model's positions.
    """
    _, starts, ends = model.tokenizer.tokenize_with_offsets(text)
    ids = model.row(text)[1:-1]
    if not ids:
        raise ValueError(f"{text!r} has no words to score; give a text with words.")
    if len(starts) != len(ids):
        raise ValueError(f"{text!r} contains special tokens; give the text without them.")
    continues = model.vocab.is_continuation[ids]
    first = [index for index in range(len(ids)) if index == 0 or not continues[index]]
    words = [(begin, end) for begin, end in zip(first, [*first[1:], len(ids)], strict=True)]
    rows, positions = [], []
    for begin, end in words:
        for place in range(begin, end):
            row = list(ids)
            row[place:end] = [model.vocab.mask_id] * (end - place)
            rows.append([model.vocab.cls_id, *row, model.vocab.sep_id])
            positions.append([place + 1])
    tables = [table[0] for table in model.log_probabilities(rows, positions)]
    return [
        Word(
            text[starts[begin] : ends[end - 1]],
            starts[begin],
            ends[end - 1],
            float(sum(tables[place][ids[place]] for place in range(begin, end))),
            model.vocab.tokens[int(tables[begin].argmax())],
        )
        for begin, end in words
    ]


def pseudo_log_likelihood(words: list[Word]) -> float:
    """Adds up the log-probabilities of a text's words, in nats."""
    return float(np.sum([word.log_probability for word in words]))


def rewrite(model: MaskedModel, text: str, rounds: int, share: float = 0.15) -> list[str]:
    """Replaces the least likely words by likelier ones, round after round.

    Each takes as many pieces as it had. Stops when a round makes the text no likelier.

    Args:
      model: see `score_words`.
      text: to begin with.
      rounds: at most so many.
      share: of the words that a round masks, one at least.

    Returns:
      The text after each round that changed it.
    """
    versions: list[str] = []
    words = score_words(model, text)
    for _ in range(rounds):
        count = max(1, round(share * len(words)))
        worst = sorted(words, key=lambda word: word.log_probability)[:count]
        masked = text
        for word in sorted(worst, key=lambda word: word.start, reverse=True):
            pieces = len(model.tokenizer.encode(word.text))
            masked = masked[: word.start] + " ".join([MASK] * pieces) + masked[word.end :]
        filled = fill_text(model, masked, count=1)[0].text
        again = score_words(model, filled)
        if pseudo_log_likelihood(again) <= pseudo_log_likelihood(words):
            break
        text, words = filled, again
        versions.append(text)
    return versions
