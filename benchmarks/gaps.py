"""Gaps of 1, 2, 4 and 8 words in held-out text, filled in by models of different training.

    python -m benchmarks.gaps --input_file=runs/bert_tf_cache/embedded-0.1.0.txt runs/a runs/b

The gaps stand in the documents of --input_file that run_pretraining holds out of it, in rows of
whole sentences, with two words at least on both sides; each has as many masks as pieces were taken
out. Of each model and length:

  exact        share of the gaps that mask-predict fills in with the very pieces of the text
  pieces       share of their pieces that are the text's
  nats         -log p a piece of the text's pieces, from left to right, what follows still masked

After them the half-width of a 95 % interval, over gaps.
"""

import itertools
import pathlib
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from absl import app, flags

from benchmarks.timing import print_table
from bert_tf.config import DataConfig
from bert_tf.corpus.corpus import list_parts, read_documents
from bert_tf.corpus.preparation import split_documents
from bert_tf.pretraining.masked_words.gap_filling import MaskedModel, mask_predict
from bert_tf.pretraining.masked_words.reading import read_model

INPUT = flags.DEFINE_string(
    "input_file", None, "Text that the runs were trained on.", required=True
)
COUNT = flags.DEFINE_integer("gaps", 300, "Gaps of each length, one in a row.")
PIECES = flags.DEFINE_integer("pieces", 62, "Most pieces of a row, without [CLS] and [SEP].")
ROUNDS = flags.DEFINE_integer("rounds", 10, "Of mask-predict.")
LENGTHS = (1, 2, 4, 8)
AROUND = 2  # Words on both sides.


class Gap(NamedTuple):
    """A row of ids, special tokens included, and the places that are taken out."""

    row: list[int]
    places: range


def held_out_rows(model: MaskedModel, input_file: str, most: int) -> Iterator[list[int]]:
    """Yields pieces of consecutive sentences of held-out documents, none of them special."""
    documents = [*itertools.chain.from_iterable(map(read_documents, list_parts(input_file)))]
    _, rows = split_documents(len(documents), DataConfig(use_next_sentence=False))
    for row in rows:
        pieces: list[int] = []
        for sentence in documents[row]:
            more = model.tokenizer.encode(sentence)
            if len(pieces) + len(more) > most:
                yield pieces
                pieces = []
            pieces = pieces + more if len(more) <= most else []


def make_gaps(model: MaskedModel, rows: list[list[int]], words: int) -> list[Gap]:
    """Takes so many words out of each row that is long enough, at a place of its own."""
    gaps = []
    for index, row in enumerate(rows):
        starts = np.flatnonzero(~model.vocab.is_continuation[row])
        ends = np.append(starts, len(row))
        room = len(starts) - words - 2 * AROUND
        if room < 0 or model.is_special[row].any():
            continue
        first = AROUND + np.random.default_rng([words, index]).integers(room + 1)
        places = range(1 + int(ends[first]), 1 + int(ends[first + words]))
        gaps.append(Gap([model.vocab.cls_id, *row, model.vocab.sep_id], places))
    return gaps[: COUNT.value]


def left_to_right(model: MaskedModel, gap: Gap) -> np.ndarray:
    """Returns -log p of each piece of a gap, given those before it in the gap: float64 [places]."""
    rows = []
    for place in gap.places:
        row = list(gap.row)
        row[place : gap.places.stop] = [model.vocab.mask_id] * (gap.places.stop - place)
        rows.append(row)
    tables = model.log_probabilities(rows, [[place] for place in gap.places])
    return np.array(
        [-table[0, gap.row[place]] for table, place in zip(tables, gap.places, strict=True)]
    )


def judge(model: MaskedModel, gaps: list[Gap]) -> list[str]:
    """Returns the cells of a row of the table."""
    right, losses, sizes = [], [], []
    for gap in gaps:
        masked = list(gap.row)
        masked[gap.places.start : gap.places.stop] = [model.vocab.mask_id] * len(gap.places)
        filled, _ = mask_predict(model, masked, ROUNDS.value)
        right.append(sum(filled[place] == gap.row[place] for place in gap.places))
        losses.append(left_to_right(model, gap).sum())
        sizes.append(len(gap.places))
    hits, total, size = np.array(right), np.array(losses), np.array(sizes)
    exact = hits == size

    def of_pieces(sums: np.ndarray) -> tuple[float, float]:
        """A ratio of sums and the half-width of its interval (the delta method)."""
        ratio = sums.sum() / size.sum()
        spread = np.std(sums - ratio * size) / size.mean() / np.sqrt(len(size))
        return float(ratio), float(1.96 * spread)

    width = 1.96 * exact.std() / np.sqrt(len(exact))
    pieces, nats = of_pieces(hits), of_pieces(total)
    return [
        f"{exact.mean():.1%} ± {100 * width:.1f}",
        f"{pieces[0]:.1%} ± {100 * pieces[1]:.1f}",
        f"{nats[0]:.2f} ± {nats[1]:.2f}",
    ]


def main(arguments: list[str]) -> None:
    rows = []
    for path in arguments[1:]:
        model = MaskedModel(*read_model(path))
        texts = [*held_out_rows(model, INPUT.value, PIECES.value)]
        for words in LENGTHS:
            gaps = make_gaps(model, texts, words)
            name = pathlib.Path(path).name
            rows.append((words, name, len(gaps), *judge(model, gaps)))
    rows.sort(key=lambda row: row[0])
    print_table(("words", "model", "gaps", "exact", "pieces", "nats"), rows)


if __name__ == "__main__":
    app.run(main)
