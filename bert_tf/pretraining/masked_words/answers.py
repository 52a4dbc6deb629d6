"""Answers of masked language models: the likeliest tokens of masks.

The Keras model, `bert_tf.load` and the programs all decode with these functions.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_tf.system.number_arguments import check_numbers
from bert_tf.system.type_names import Texts
from bert_tf.tasks.base.examples.columns import is_empty, read_texts
from bert_tf.text.kinds import encode_with_masks
from bert_tf.text.packing import pack
from bert_tf.text.text_counts import counts_texts
from bert_tf.text.tokenization import AnyVocab, Tokenizer
from bert_tf.text.vocab import MASK

TokenAnswer = dict[str, Any]  # `piece`: the token as text; `score`: its probability


class MaskedRow(NamedTuple):
    """A tokenized text with special tokens, and the positions of its masks."""

    ids: list[int]
    positions: list[int]


class FillMaskAnswers:
    """`fill_mask`, for anything that computes the logits of masks.

    A subclass defines `compute_mask_logits`, or `fill_texts`, which calls it.

    Attributes:
      tokenizer: the tokenizer that the model was trained with.
      max_seq_length: maximum length of a row; longer texts are truncated.
    """

    tokenizer: Tokenizer
    max_seq_length: int

    def compute_mask_logits(
        self, rows: Sequence[Sequence[int]], positions: Sequence[Sequence[int]], batch_size: int
    ) -> list[np.ndarray]:
        """Returns the logits at the P positions of each row of ids, float32 [P, V]."""
        raise NotImplementedError

    @counts_texts
    def fill_mask(
        self, texts: Texts, top_k: int = 5, batch_size: int = 32
    ) -> list[list[list[TokenAnswer]]]:
        """Fills in [MASK].

        Args:
          texts: texts, each with at least one `[MASK]`; the mask token of byte-level BPE works too.
          top_k: tokens for each mask; special tokens are left out.
          batch_size: maximum number of texts per batch.

        Returns:
          For each text and each of its masks the likeliest tokens, the best first: {"piece":
          "paris", "score": 0.4}, the score being the probability among all tokens that are not
          special.

        Raises:
          ValueError: if `top_k` is below 1, or more than the model was exported with, a text has no
            mask, or a mask is not among the first `max_seq_length` tokens.
        """
        check_top_k(top_k)
        if is_empty(texts):
            return []
        return self.fill_texts(read_texts(texts), top_k, batch_size)

    def fill_texts(
        self, texts: Sequence[str], top_k: int, batch_size: int
    ) -> list[list[list[TokenAnswer]]]:
        """Returns the answers of `fill_mask` for texts that were read."""
        vocab = self.tokenizer.vocab
        rows = []
        for index, text in enumerate(texts):
            row = read_masked_text(text, self.tokenizer, self.max_seq_length)
            num_written = count_masks(text, vocab.mask)
            check_masks_are_read(index, num_written, len(row.positions), self.max_seq_length)
            rows.append(row)
        logits = self.compute_mask_logits(
            [row.ids for row in rows], [row.positions for row in rows], batch_size
        )
        names = vocab.token_texts()
        special = special_tokens(vocab)
        answers = []
        for text_logits in logits:  # [P, V]
            log_probabilities = token_log_probabilities(text_logits, special)
            answers_of_text = []
            for values in log_probabilities:  # [V]
                answers_of_text.append(_likeliest(values, names, special, top_k))
            answers.append(answers_of_text)
        return answers


def read_masked_text(text: str, tokenizer: Tokenizer, max_seq_length: int) -> MaskedRow:
    """Tokenizes and truncates a text in which `[MASK]` stands for the mask token."""
    vocab = tokenizer.vocab
    tokens = encode_with_masks(tokenizer, text)
    ids = pack(vocab, tokens, None, max_seq_length).ids
    positions = [index for index, token in enumerate(ids) if token == vocab.mask_id]
    return MaskedRow(ids, positions)


def count_masks(text: str, mask: str) -> int:
    """Counts the masks of a text, written as `[MASK]` or as the vocabulary names the mask token."""
    # A set: with BERT's vocabulary both names are the same.
    return sum(map(text.count, {MASK, mask}))


def check_top_k(top_k: int, most: int = 0) -> None:
    """Checks that top_k is at least 1, and at most `most`; 0 means no maximum.

    Raises:
      TypeError, ValueError: if it is not.
    """
    check_numbers(1, top_k=top_k)
    if most and top_k > most:
        raise ValueError(
            f"top_k is {top_k}, expected 1 .. {most}, with which the model was exported."
        )


def check_masks_are_read(index: int, num_written: int, num_read: int, max_seq_length: int) -> None:
    """Raises ValueError if a text has no mask, or a mask was truncated."""
    if num_read == 0 or num_read < num_written:
        raise ValueError(
            f"texts[{index}] has {num_written} {MASK}, {num_read} of them among the "
            f"{max_seq_length} tokens that are read; write {MASK} where a word should be filled in."
        )


def special_tokens(vocab: AnyVocab) -> np.ndarray:
    """Returns a mask of the special tokens, which are never filled in, bool [V]."""
    is_special = np.zeros(len(vocab), bool)
    is_special[sorted(vocab.special_ids)] = True
    return is_special


def token_log_probabilities(logits: np.ndarray, is_special: np.ndarray) -> np.ndarray:
    """Returns log-probabilities among the tokens that are not special, float64 [..., V].

    Those of special tokens, bool [V], are -inf; logits are float [..., V].
    """
    scores = np.where(is_special, -np.inf, logits.astype(np.float64))
    # A log-softmax; the shift by the maximum keeps the exponentials from overflowing.
    shifted = scores - scores.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def token_answer(token: str, probability: float) -> TokenAnswer:
    """Returns a token and its probability in the format of `fill_mask`."""
    return {"piece": token, "score": float(probability)}


def _likeliest(
    log_probabilities: np.ndarray, names: Sequence[str], is_special: np.ndarray, top_k: int
) -> list[TokenAnswer]:
    """Returns the likeliest tokens of a mask, from log-probabilities float64 [V]."""
    # The log-probabilities of special tokens are -inf: a larger top_k would reach them.
    count = min(top_k, int((~is_special).sum()))
    # A stable sort: among equally likely tokens, the one with the lower id is first.
    order = np.argsort(-log_probabilities, kind="stable")[:count]
    return [token_answer(names[token], np.exp(log_probabilities[token])) for token in order]
