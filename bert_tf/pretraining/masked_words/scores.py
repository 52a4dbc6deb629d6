"""Scores a text word by word with a masked language model, and rewrites unlikely words.

Each token is masked and predicted. The tokens that follow in the same word are masked with it, so
that the end of a rare word does not reveal its beginning (Kauf and Ivanova 2023). Except for these
masks, the sum is the pseudo-log-likelihood of Salazar et al. 2020. Unknown words have no score and
are left out of the sum.
"""

import math
import unicodedata
from typing import NamedTuple

import numpy as np

from bert_tf.pretraining.masked_words.gap_filling import MaskedModel, fill_text
from bert_tf.text.packing import add_special_tokens
from bert_tf.text.vocab import MASK


class Word(NamedTuple):
    """A word of a text.

    Attributes:
      text: the word as it is written.
      start, end: offsets in characters; text[start:end] is the word.
      num_tokens: number of its tokens.
      log_probability: natural logarithm of the probability of all its tokens; NaN for an unknown
        word.
      alternative: the likeliest first token at its position, as text.
    """

    text: str
    start: int
    end: int
    num_tokens: int
    log_probability: float
    alternative: str

    @property
    def is_known(self) -> bool:
        """Whether the vocabulary knows the word, so that it has a score."""
        return not math.isnan(self.log_probability)


def score_words(model: MaskedModel, text: str) -> list[Word]:
    """Scores each word of a text.

    Raises:
      ValueError: if the text is empty, contains special tokens, or has more tokens than the model
        has positions.
    """
    vocab = model.vocab
    row_ids = model.row(text)
    num_after = 2 - vocab.text_start  # special tokens after the text
    ids = row_ids[vocab.text_start : len(row_ids) - num_after]
    if not ids:
        raise ValueError(f"{text!r} has no words to score; give a text with words.")
    if not vocab.special_ids.isdisjoint(set(ids) - {vocab.unk_id}):
        raise ValueError(f"{text!r} contains special tokens; give the text without them.")
    _, starts, ends = model.tokenizer.tokenize_with_offsets(text)
    continues = vocab.is_continuation[ids]
    first_tokens = [index for index in range(len(ids)) if index == 0 or not continues[index]]
    end_tokens = [*first_tokens[1:], len(ids)]
    words = list(zip(first_tokens, end_tokens, strict=True))
    # A row for each token, in which this token and the rest of its word are masked.
    rows = []
    positions = []
    for first, end in words:
        for position in range(first, end):
            row = list(ids)
            row[position:end] = [vocab.mask_id] * (end - position)
            rows.append(add_special_tokens(vocab, row).ids)
            positions.append([position + vocab.text_start])
    tables = [table[0] for table in model.log_probabilities(rows, positions)]  # [V] per token
    names = vocab.token_texts()
    scored = []
    for first, end in words:
        values = [tables[position][ids[position]] for position in range(first, end)]
        is_known = vocab.unk_id not in ids[first:end]
        # An alternative must begin a word as well, unless the word itself does not: with byte-level
        # BPE the first word of a text may begin with a token that otherwise continues a word.
        excluded = vocab.is_continuation & ~continues[first]
        alternatives = np.where(excluded, -np.inf, tables[first])
        stop = ends[end - 1]
        limit = starts[end] if end < len(ids) else len(text)
        # A combining mark that uncased tokenization drops belongs to the letter before it.
        while stop < limit and unicodedata.category(text[stop]) == "Mn":
            stop += 1
        # Offsets that are not trimmed include the space before the word.
        word = text[starts[first] : stop].lstrip()
        scored.append(
            Word(
                text=word,
                start=stop - len(word),
                end=stop,
                num_tokens=end - first,
                log_probability=float(sum(values)) if is_known else math.nan,
                alternative=names[int(alternatives.argmax())].strip(),
            )
        )
    return scored


def pseudo_log_likelihood(words: list[Word]) -> float:
    """Adds up the log-probabilities of a text's known words, in nats."""
    return float(np.sum([word.log_probability for word in words if word.is_known]))


def rewrite(model: MaskedModel, text: str, rounds: int, share: float = 0.15) -> list[str]:
    """Replaces the least likely words by likelier ones, in several rounds.

    A word is replaced by the same number of tokens; unknown words are not changed. Stops when a
    round does not make the text likelier.

    Args:
      rounds: maximum number of rounds.
      share: fraction of the known words that a round masks, at least one word.

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
        # From the end of the text, so that the offsets before stay valid.
        for word in sorted(worst, key=lambda word: word.start, reverse=True):
            masks = " ".join([MASK] * word.num_tokens)
            masked = masked[: word.start] + masks + masked[word.end :]
        filled = fill_text(model, masked, count=1)[0].text
        filled_words = score_words(model, filled)
        if pseudo_log_likelihood(filled_words) <= pseudo_log_likelihood(words):
            break
        text = filled
        words = filled_words
        versions.append(text)
    return versions
