"""Answers of pre-trained models: next sentences, and texts from left to right.

Models that were trained with `causal_share` score and continue texts from left to right.

Special tokens are never predicted: the probabilities of all other tokens add up to 1.

Reference: Charpentier and Samuel 2024 (GPT-BERT).
"""

from collections.abc import Sequence

import numpy as np

from bert_tf.config import ModelConfig
from bert_tf.metrics.classification import softmax
from bert_tf.pretraining.masked_words.answers import (
    FillMaskAnswers,
    special_tokens,
    token_log_probabilities,
)
from bert_tf.pretraining.masked_words.sampling import Sampling
from bert_tf.system.number_arguments import check_numbers
from bert_tf.system.type_names import Texts
from bert_tf.tasks.base.examples.columns import is_empty, read_pairs, read_texts
from bert_tf.text.packing import PackedText, by_length, pack
from bert_tf.text.text_counts import counts_texts

# Tokens whose scores of the whole vocabulary are computed at once, to limit memory.
MOST_TOKENS = 4096
# WordPiece does not keep the spaces of a text. No space is written before these characters.
CLOSING = frozenset(".,;:!?%)]}’”")


class PretrainerAnswers(FillMaskAnswers):
    """`fill_mask`, `score` and `continue_text`, for anything that computes the logits of a network.

    A subclass also defines `compute_next_logits` and `compute_next_sentence_logits`, or
    `score_pairs`, which calls the latter.

    Attributes:
      config: shape of the network.
      use_next_sentence: whether the model has a next-sentence head.
    """

    config: ModelConfig
    use_next_sentence: bool

    def compute_next_sentence_logits(
        self, rows: Sequence[PackedText], batch_size: int
    ) -> np.ndarray:
        """Returns the logits of rows, float32 [B, 2]; class 0: the second text follows."""
        raise NotImplementedError

    def compute_next_logits(
        self, rows: Sequence[Sequence[int]], positions: np.ndarray
    ) -> np.ndarray:
        """Returns the logits of the token after each position, float32 [B, P, V].

        Args:
          rows: ids of B texts; each token attends to itself and the tokens before it.
          positions: int [B, P].
        """
        raise NotImplementedError

    @counts_texts
    def score(self, texts: Texts, batch_size: int = 32) -> list[float]:
        """Scores pairs by the next-sentence head, and single texts from left to right.

        Args:
          texts: a list of pairs or a tuple of two columns; or a list of texts.
          batch_size: maximum number of rows per batch.

        Returns:
          For each pair the probability that the second text follows the first; for each text its
          log-probability in nats, see `log_likelihood`.

        Raises:
          ValueError: if the model was not trained for it.
        """
        if is_empty(texts):
            return []
        firsts, seconds = read_pairs(texts)
        if seconds is not None:
            return self.score_pairs(firsts, seconds, batch_size)
        # If the model can do neither, `log_likelihood` tells how to train one that can.
        if self.use_next_sentence and not self.config.reads_left_to_right:
            raise ValueError(
                "texts are single texts; expected pairs: a list of ('A text.', 'Another.'), or a "
                "tuple of two columns."
            )
        return self.log_likelihood(firsts, batch_size)

    def score_pairs(
        self, firsts: Sequence[str], seconds: Sequence[str], batch_size: int
    ) -> list[float]:
        """Returns for each pair the probability that the second text follows the first."""
        rows = []
        for first, second in zip(firsts, seconds, strict=True):
            ids_a = self.tokenizer.encode(first)
            ids_b = self.tokenizer.encode(second)
            rows.append(pack(self.tokenizer.vocab, ids_a, ids_b, self.max_seq_length))
        logits = self.compute_next_sentence_logits(rows, batch_size)
        return list(map(float, softmax(logits.astype(np.float64))[:, 0]))

    def log_likelihood(self, texts: Texts, batch_size: int = 32) -> list[float]:
        """Returns the log-probability of each text, in nats: the sum over its tokens.

        Tokens that the vocabulary does not know have no probability and are left out; so is the
        first token of a vocabulary whose class token is the last one (XLNet's).

        Args:
          batch_size: maximum number of texts per batch.

        Raises:
          ValueError: if the model was not trained from left to right, or a text has no tokens or
            more than `max_seq_length`.
        """
        self.check_direction()
        if is_empty(texts):
            return []
        rows = [self._row(index, text) for index, text in enumerate(read_texts(texts))]
        for index, row in enumerate(rows):
            # The first token, such as [CLS], is not predicted.
            if len(row) < 2:
                raise ValueError(f"texts[{index}] has no tokens to score; give a text with words.")
        special = special_tokens(self.tokenizer.vocab)

        def score(chosen: list[int]) -> list[float]:
            longest = max(len(rows[index]) for index in chosen)
            positions = np.tile(np.arange(longest - 1), (len(chosen), 1))  # [B, T - 1]
            logits = self.compute_next_logits([rows[index] for index in chosen], positions)
            totals = []
            for index, row_logits in zip(chosen, logits, strict=True):
                # The logits at each position are for the token after it.
                labels = np.array(rows[index][1:])
                values = token_log_probabilities(row_logits[: len(labels)], special)  # [T - 1, V]
                label_values = values[np.arange(len(labels)), labels]
                # Unknown tokens are special, and have no probability.
                totals.append(float(label_values[~special[labels]].sum()))
            return totals

        lengths = list(map(len, rows))
        # Logits of a batch are [B, T - 1, V]: fewer long texts fit in memory.
        fitting = max(1, min(batch_size, MOST_TOKENS // max(lengths)))
        return by_length(lengths, fitting, score)

    def continue_text(
        self,
        texts: Texts,
        max_new_tokens: int = 20,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 0,
        batch_size: int = 32,
    ) -> list[str]:
        """Continues texts from left to right, by a model that was trained with `causal_share`.

        Args:
          texts: texts; "" to generate a text from its start.
          max_new_tokens: number of tokens to add; fewer if a text reaches `max_seq_length`.
          temperature: 0: take the likeliest token; otherwise a token is drawn from the
            probabilities to the power of 1 / temperature.
          top_k: draw from the likeliest `top_k` tokens; 0: from all.
          top_p: draw from the likeliest tokens that together have this probability.
          seed: seed of the draws; results do not depend on the batch size.
          batch_size: maximum number of texts per batch.

        Returns:
          Each text with its continuation.

        Raises:
          ValueError: if the model was not trained from left to right or is an exported one, a text
            is longer than `max_seq_length`, or an argument is out of range.
        """
        self.check_direction()
        check_generation(max_new_tokens, temperature, top_k, top_p)
        if is_empty(texts):
            return []
        given_texts = read_texts(texts)
        rows = [self._row(index, text) for index, text in enumerate(given_texts)]
        starts = list(map(len, rows))
        # A generator for each text, so that batches do not change the draws.
        randoms = [np.random.default_rng([seed, index]) for index in range(len(rows))]
        sampling = Sampling(temperature or 1.0, top_k, top_p)
        special = special_tokens(self.tokenizer.vocab)
        for _ in range(max_new_tokens):
            open_rows = [index for index, row in enumerate(rows) if len(row) < self.max_seq_length]
            for first in range(0, len(open_rows), batch_size):
                chosen = open_rows[first : first + batch_size]
                positions = np.array([[len(rows[index]) - 1] for index in chosen])  # [B, 1]
                logits = self.compute_next_logits([rows[index] for index in chosen], positions)
                for index, row_logits in zip(chosen, logits[:, 0], strict=True):
                    values = token_log_probabilities(row_logits, special)
                    if temperature:
                        token = sampling.draw(values, randoms[index])
                    else:
                        token = int(values.argmax())
                    rows[index].append(token)
        names = self.tokenizer.vocab.token_texts()
        continued = []
        for text, row, start in zip(given_texts, rows, starts, strict=True):
            added = [names[token] for token in row[start:]]
            if self.tokenizer.vocab.marks_spaces:
                continued.append(text + "".join(added))
            else:
                continued.append(join_wordpieces(text, added))
        return continued

    def _row(self, index: int, text: str) -> list[int]:
        """Returns the ids of a text, after [CLS] unless the vocabulary has it at the end."""
        vocab = self.tokenizer.vocab
        row = [] if vocab.class_at_end else [vocab.cls_id]
        row += self.tokenizer.encode(text)
        if not row:
            raise ValueError(
                f"texts[{index}] has no tokens, and this vocabulary has no token before a text; "
                "give a text with words."
            )
        if len(row) > self.max_seq_length:
            raise ValueError(
                f"texts[{index}] has {len(row)} tokens, but the model reads at most "
                f"{self.max_seq_length}; shorten it."
            )
        return row

    def check_direction(self) -> None:
        """Raises ValueError if the model does not read from left to right."""
        if not self.config.reads_left_to_right:
            raise ValueError(
                "The model was not trained to predict the next token: pre-train one with "
                "--masking_options=causal_share=0.0625, or score words by masks with score_text."
            )


def check_generation(max_new_tokens: int, temperature: float, top_k: int, top_p: float) -> None:
    """Raises an error of `check_numbers` if an argument of `continue_text` is out of range."""
    check_numbers(1, max_new_tokens=max_new_tokens)
    check_numbers(0, top_k=top_k)
    check_numbers(0, whole=False, temperature=temperature)
    check_numbers(0, 1, whole=False, top_p=top_p)
    if not top_p:
        raise ValueError("top_p is 0, expected more than 0 and at most 1.")


def join_wordpieces(text: str, tokens: Sequence[str]) -> str:
    """Appends WordPiece tokens to a text: ## continues a word, closing punctuation has no space."""
    for token in tokens:
        if token.startswith("##") and len(token) > 2:
            text += token[2:]
        elif not text or token in CLOSING:
            text += token
        else:
            text += f" {token}"
    return text
