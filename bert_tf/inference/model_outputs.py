"""Outputs of models that read texts: a graph, or a file with its tokenizer."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from bert_tf.tasks.base.serving.metadata import Metadata
from bert_tf.text.packing import by_length
from bert_tf.text.text_counts import Remedy

Row = dict[str, Any]
EXPORT_REMEDY = Remedy("--max_seq_length={} when the model is exported")
QUESTION_REMEDY = Remedy(
    "--max_query_length={} to run_squad, and export the model again", limit="max_query_length"
)
CHARACTERS_PER_TOKEN = 4  # About; only the graph knows the tokens.


class TextFunction(Protocol):
    """A function of texts: a TensorFlow graph or a LiteRT file with its tokenizer.

    Attributes:
      card: kind, inputs (names of the texts), labels, max_seq_length.
      calls_at_once: number of threads that may call it.
    """

    card: Metadata
    calls_at_once: int

    def rows(self, *columns: Sequence[Any]) -> list[Row]:
        """Returns the outputs by name for each row of texts; strings are bytes.

        Args:
          columns: a column of texts for each input; lists of texts for a reranker's documents and
            for candidates.
        """


class ModelOutputs:
    """Mixin that holds the model whose outputs become answers.

    Args:
      model: computes the outputs.
    """

    text_remedy = EXPORT_REMEDY

    def __init__(self, model: TextFunction) -> None:
        self._model = model
        self.max_seq_length = int(model.card["max_seq_length"])

    def compute(
        self,
        columns: Sequence[Sequence[Any]],
        batch_size: int,
        call: Callable[..., list[Row]] | None = None,
    ) -> list[Row]:
        """Returns the outputs for each row; rows of similar length are computed together.

        The columns hold texts or lists of words; `call` takes those of some rows.
        """
        ask = call or self._model.rows

        def compute(chosen: list[int]) -> list[Row]:
            return ask(*([column[i] for i in chosen] for column in columns))

        sizes = []
        for row in zip(*columns, strict=True):
            characters = sum(len("".join(text)) for text in row)  # a text, or its words
            sizes.append(min(characters / CHARACTERS_PER_TOKEN, self.max_seq_length))
        return by_length(sizes, batch_size, compute, self._model.calls_at_once)


def refuse_direction() -> None:
    """Raises ValueError for answers that no exported model has."""
    raise ValueError(
        "score and continue_text from left to right are not part of an exported model; load "
        "the run directory or the checkpoint that it was exported from."
    )
