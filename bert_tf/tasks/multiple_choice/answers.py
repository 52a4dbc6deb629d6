"""Answers of multiple choice: scores of pairs, and the choice with the highest score.

contexts, choices --read_choices--> pairs --pair_rows--> rows --predict_rows--> scores of pairs
    --best_choice--> choice, index, probability
"""

from typing import Any

import numpy as np

from bert_tf.config.fine_tuning_defaults import BATCH_SIZE
from bert_tf.metrics.classification import softmax
from bert_tf.system.type_names import Column, Texts
from bert_tf.tasks.base.examples.columns import (
    as_two_columns,
    is_empty,
    read_column,
    read_pairs,
    read_texts,
)
from bert_tf.tasks.multiple_choice.features import pair_rows
from bert_tf.text.text_counts import counts_texts
from bert_tf.text.tokenization import Tokenizer


class ChoiceAnswers:
    """`choose` and `score`, for anything that computes the scores of tokenized pairs.

    A subclass defines `predict_rows`, or `score`, which calls it.
    """

    tokenizer: Tokenizer
    max_seq_length: int
    predict_rows: Any  # from rows and a batch size to the scores of each row's choices, float32 [C]

    @counts_texts
    def score(self, texts: Texts, batch_size: int = BATCH_SIZE) -> list[float]:
        """Returns the unnormalised score of each pair of a context and a choice.

        Args:
          texts: a list of pairs, or a tuple of two columns.
          batch_size: pairs per batch.

        Raises:
          ValueError: if these are not pairs of texts.
        """
        if is_empty(texts):
            return []
        contexts, choices = read_pairs(texts)
        if choices is None:
            raise ValueError("score needs pairs (context, choice), but received single texts.")
        rows = pair_rows(contexts, choices, self.tokenizer, self.max_seq_length)
        # Each row has a single choice, and so a single score.
        return [float(scores[0]) for scores in self.predict_rows(rows, batch_size)]

    @counts_texts
    def choose(
        self, contexts: Column, choices: Column | None = None, batch_size: int = BATCH_SIZE
    ) -> list[dict[str, Any]]:
        """Chooses the continuation or answer for each context.

        Args:
          contexts: texts; or, without choices, a list of pairs (context, list of choices), or a
            tuple of the two columns.
          choices: a list of texts for each context; the lists may have different lengths.
          batch_size: pairs of a context and a choice per batch.

        Returns:
          For each context {"choice": "He sat down.", "index": 2, "score": 0.7}, the score being a
            probability among its choices.

        Raises:
          ValueError: if these are not texts and lists of texts, or the model does not take pairs.
        """
        given = contexts if choices is None else (contexts, choices)
        if is_empty(given):
            return []
        read_contexts, lists = read_choices(given)
        # The pairs of all contexts are scored together, so that batches are full.
        pairs = []
        for context, texts in zip(read_contexts, lists, strict=True):
            pairs += [(context, text) for text in texts]
        scores = self.score(pairs, batch_size)
        answers = []
        first = 0  # the first pair of the context
        for texts in lists:
            index, probability = best_choice(np.array(scores[first : first + len(texts)]))
            answers.append({"choice": texts[index], "index": index, "score": probability})
            first += len(texts)
        return answers


def best_choice(scores: np.ndarray) -> tuple[int, float]:
    """Returns the index of the highest score and its probability; of equal scores, the first."""
    return int(scores.argmax()), float(softmax(scores).max())


def read_choices(x: Texts) -> tuple[list[str], list[tuple[str, ...]]]:
    """Returns the contexts, and the choices of each context.

    Args:
      x: a tuple of two columns, texts and lists of texts; or a list of pairs (text, texts).
    """
    given = as_two_columns(
        x,
        "(contexts, choices), a list of texts and a list of lists, or a list of pairs (context, "
        "list of choices)",
    )
    contexts = read_texts(given[0], "contexts")
    lists = read_column(given[1], "choices")
    if len(contexts) != len(lists):
        raise ValueError(
            f"{len(contexts):,} contexts and {len(lists):,} lists of choices; expected equal "
            "numbers."
        )
    choices = [tuple(read_texts(row, f"choices[{index}]")) for index, row in enumerate(lists)]
    return contexts, choices
