"""Reads the texts of a request to a trained model as `columns` does; lists may be empty."""

from collections.abc import Sequence

from bert_tf.system.type_names import TextColumn, Texts
from bert_tf.tasks.base.examples.columns import read_pair_columns, read_texts


def text_column(texts: TextColumn, name: str = "texts") -> list[str]:
    """Returns texts as a list; see `read_texts`."""
    return read_texts(texts, name, may_be_empty=True)


def text_columns(texts: Texts, names: Sequence[str], name: str = "texts") -> list[list[str]]:
    """Returns a column for each text that a model takes.

    Args:
      texts: single texts, or pairs as for `read_pair_columns`.
      names: names of the model's inputs: one, or the two keys of a pair.
    """
    if len(names) == 1:
        return [text_column(texts, name)]
    return list(read_pair_columns(texts, names, name, may_be_empty=True))
