"""Compares a LiteRT file with its float32 model before the file is published.

A file passes if it is not implausibly small, all its numbers are finite, and it loses no more
points of the task's metric than allowed; without examples to judge by, if its answers to sample
texts are as near as `BOUNDS` says.
"""

import functools
import pathlib
import statistics
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.examples.rows import TokenizedDataset
from bert_tf.serving.lite_model import LiteModel
from bert_tf.serving.model import IDS, Serving, function_of_ids
from export.lite.conversion import answer, check_size
from export.lite.judges import Judge, RowOutputs

MAX_LOSS = {"none": 0.1, "float16": 0.5, "dynamic": 0.5, "int8": 2.0}  # points
# Of sample texts: the largest difference, as a share of the largest number of the reference.
BOUNDS = {"none": 1e-4, "float16": 0.01, "dynamic": 0.1, "int8": 0.5}
BATCH_SIZE = 32
TIMED_ROWS, WARM_UP_ROWS = 100, 5
PER_PIECE = ("tagger", "question_answering", "encoder")
Call = Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]


class Verdict(NamedTuple):
    """A file beside its reference.

    Attributes:
      form: of `tflite_conversion.FORMS`.
      size: bytes of the file.
      metric: name of the task's metric; "" if nothing was judged.
      reference, score: the metric of the float32 model and of the file, in points of 100.
      agreement: share of equal answers.
      difference: largest difference of an output.
      milliseconds: median of a row alone, one thread.
    """

    form: str
    size: int
    metric: str
    reference: float
    score: float
    agreement: float
    difference: float
    milliseconds: float

    def table(self) -> str:
        """Returns header and line of a table."""
        header = f"{'form':8}  {'MB':>7}  {'metric':>9}  {'float32':>8}  {'file':>7}  "
        header += "agreement  largest difference  ms a text"
        scores = f"{self.metric or '-':>9}  {'-':>8}  {'-':>7}  {'-':>9}"
        if self.metric:
            scores = f"{self.metric:>9}  {self.reference:8.2f}  {self.score:7.2f}  "
            scores += f"{self.agreement:9.2%}"
        numbers = f"{self.difference:18.2g}  {self.milliseconds:9.2f}"
        return f"{header}\n{self.form:8}  {self.size / 1e6:7.2f}  {scores}  {numbers}"


def judge(
    path: pathlib.Path, served: Serving, form: str, judged_by: Judge, max_loss: float
) -> Verdict:
    """Scores a file on labelled examples.

    Args:
      path: the file.
      served: what it was made from.
      form: how.
      judged_by: examples and metric.
      max_loss: points that the file may lose.

    Raises:
      ValueError: if it does not pass.
    """
    verdict, found, expected = _compare(path, served, form, judged_by.rows)
    verdict = verdict._replace(
        metric=judged_by.metric,
        reference=judged_by.points(expected),
        score=judged_by.points(found),
        agreement=judged_by.agreement(found, expected),
    )
    loss = verdict.reference - verdict.score
    if not loss <= max_loss:  # Also if one of them is no number.
        raise ValueError(
            f"{form} loses {loss:.2f} points of {verdict.metric} ({verdict.reference:.2f} to "
            f"{verdict.score:.2f}) on {judged_by.source}, more than --max_loss={max_loss:g}; no "
            f"file was written."
        )
    return verdict


def check_parity(path: pathlib.Path, served: Serving, form: str, rows: TokenizedDataset) -> Verdict:
    """Compares the outputs of rows without labels.

    Raises:
      ValueError: if the file does not pass.
    """
    verdict, _, expected = _compare(path, served, form, rows)
    largest = max(float(np.abs(row).max()) for column in expected.values() for row in column)
    if not verdict.difference <= BOUNDS[form] * largest:
        raise ValueError(
            f"{form} differs by {verdict.difference:.2g} on sample texts, where the largest number "
            f"is {largest:.2g}; at most {BOUNDS[form]:g} of it is allowed. No file was written."
        )
    return verdict


def _compare(
    path: pathlib.Path, served: Serving, form: str, rows: TokenizedDataset
) -> tuple[Verdict, RowOutputs, RowOutputs]:
    """Runs both models; returns a verdict without scores, the file's outputs, the reference's."""
    check_size(path, served, form)
    lite = LiteModel(path, num_threads=1)
    is_long = served.kind in PER_PIECE
    found = run_rows(lite.from_ids, rows, is_long)
    for name, column in found.items():
        if bad := sum(not np.isfinite(row).all() for row in column):
            raise ValueError(
                f"{form} gives {name} that are not finite for {bad} of {len(rows)} rows; no file "
                f"was written."
            )
    expected = run_rows(reference(served), rows, is_long)
    difference = max(
        float(np.abs(row - other).max())
        for name, column in expected.items()
        for row, other in zip(found[name], column, strict=True)
    )
    size, nothing = path.stat().st_size, float("nan")
    latency = median_milliseconds(lite.from_ids, rows)
    verdict = Verdict(form, size, "", nothing, nothing, nothing, difference, latency)
    return verdict, found, expected


def reference(served: Serving) -> Call:
    """Returns the float32 model as a function of arrays."""
    run = function_of_ids(functools.partial(answer, served))

    def call(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        outputs = run(*(tf.constant(batch[name]) for name in IDS))
        return {name: value.numpy() for name, value in outputs.items()}

    return call


def batches(
    rows: TokenizedDataset, batch_size: int, order: Sequence[int]
) -> list[dict[str, np.ndarray]]:
    """Returns batches of rows in an order, each as long as its longest row."""
    made = []
    for start in range(0, len(order), batch_size):
        ids = np.asarray(order[start : start + batch_size])
        batch = rows.batch(ids, len(ids), int(rows.lengths[ids].max()))
        made.append({name: batch[name] for name in IDS})
    return made


def run_rows(call: Call, rows: TokenizedDataset, is_long: bool) -> RowOutputs:
    """Returns the outputs of all rows, by name an array a row.

    Args:
      call: a model.
      rows: N rows.
      is_long: whether outputs of three axes, or those of two of a model of pieces, have one of
        pieces; they are cut to the pieces of the row.
    """
    order = np.argsort(-rows.lengths, kind="stable")
    collected: RowOutputs = {}
    for number, batch in enumerate(batches(rows, BATCH_SIZE, order.tolist())):
        width = batch["input_mask"].shape[1]
        for name, values in call(batch).items():
            found = collected.setdefault(name, [np.zeros(0)] * len(rows))
            has_pieces = is_long and name != "pooled_output" and values.shape[1] == width
            for place, value in enumerate(values):
                row = order[number * BATCH_SIZE + place]
                found[row] = value[: rows.lengths[row]] if has_pieces else value
    return collected


def median_milliseconds(call: Call, rows: TokenizedDataset) -> float:
    """Returns the median time of a row alone, over rows of all lengths."""
    order = np.argsort(rows.lengths, kind="stable")
    chosen = order[np.linspace(0, len(order) - 1, min(TIMED_ROWS, len(order))).astype(int)]
    times = []
    for number, batch in enumerate(batches(rows, 1, [*chosen[:WARM_UP_ROWS], *chosen])):
        start = time.perf_counter()
        call(batch)
        if number >= min(WARM_UP_ROWS, len(chosen)):
            times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)
