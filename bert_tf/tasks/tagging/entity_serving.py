"""Joins tags of words to entities."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_tf.metrics.entities import join_words


def find_entities(
    labels: Sequence[str], outputs: dict[str, np.ndarray], texts: list[str]
) -> list[list[dict[str, Any]]]:
    """Joins the tags of words to entities.

    Args:
      labels: of the tagger; if they are of no scheme of entities (BIO, IOB1, BIOES, BILOU), each
        word with a tag but O stands alone.
      outputs: of `TaggingServing` for texts.
      texts: B of them.

    Returns:
      For each text its entities: `type`, `start` and `end` in characters, `text`, and `score`, the
      lowest of its words'.
    """
    found = []
    columns = (outputs[name] for name in ("tags", "starts", "ends", "scores"))
    for text, *row in zip(texts, *columns, strict=True):
        words = [
            {"label": tag.decode(), "start": int(start), "end": int(end), "score": float(score)}
            for tag, start, end, score in zip(*row, strict=True)
            if tag
        ]
        found.append(join_words(labels, text, words))
    return found
