"""Joins tags of words to entities."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_tf.metrics.entities import Span, spans


def find_entities(
    labels: Sequence[str], outputs: dict[str, np.ndarray], texts: list[str]
) -> list[list[dict[str, Any]]]:
    """Joins the tags of words to entities.

    Args:
      labels: of the tagger; if they are not BIO or IOB1, each word with a tag but O stands alone.
      outputs: of `ServedTagger` for texts.
      texts: B of them.

    Returns:
      For each text its entities: `type`, `start` and `end` in characters, `text`, and `score`, the
      lowest of its words'.
    """
    try:
        spans(labels)
        join = spans
    except ValueError:
        join = single_words
    found = []
    columns = (outputs[name] for name in ("tags", "starts", "ends", "scores"))
    for text, tags, starts, ends, scores in zip(texts, *columns, strict=True):
        entities = []
        for kind, first, end in join([tag.decode() for tag in tags if tag]):
            start, stop = int(starts[first]), int(ends[end - 1])
            entity = {"type": kind, "start": start, "end": stop, "text": text[start:stop]}
            entities.append({**entity, "score": float(scores[first:end].min())})
        found.append(entities)
    return found


def single_words(tags: Sequence[str]) -> list[Span]:
    """Returns each word with a tag but O as a span of its own."""
    return [Span(tag, index, index + 1) for index, tag in enumerate(tags) if tag != "O"]
