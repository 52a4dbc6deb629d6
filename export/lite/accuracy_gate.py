"""Compares a LiteRT or ONNX file with its float32 model before the file is published.

A file passes if its outputs are finite, and its answers lose no more points of the task's metric
than allowed. Without labelled examples, its outputs for sample texts must be within `BOUNDS`.
"""

import functools
import math
import pathlib
import statistics
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.inference.predictor import Predictor
from bert_tf.tasks.base.examples.rows import TokenizedDataset
from bert_tf.tasks.base.serving.model import IDS, Serving, function_of_ids
from bert_tf.tasks.base.serving.onnx_model import num_bytes
from export.lite.conversion import answer
from export.lite.labelled import Labelled

MAX_LOSS = {"none": 0.1, "float16": 0.5, "dynamic": 0.5, "int8": 2.0}  # points
# Largest difference for sample texts, as a share of the largest number of the reference.
BOUNDS = {"none": 1e-4, "float16": 0.01, "dynamic": 0.1, "int8": 0.5}
WARM_UP_ROWS = 5
Arrays = dict[str, np.ndarray]


class Verdict(NamedTuple):
    """The comparison of a file with the float32 model.

    Attributes:
      form: one of `conversion.FORMS`.
      size: bytes of the file.
      difference: largest difference of an output.
      largest: largest number of the float32 model's outputs.
      milliseconds: median time of a single row, with one thread.
      metric: name of the task's metric; "" without labelled examples.
      reference, score: the metric of the float32 model and of the file, in percent.
    """

    form: str
    size: int
    difference: float
    largest: float
    milliseconds: float
    metric: str = ""
    reference: float = math.nan
    score: float = math.nan

    def table(self) -> str:
        """Returns header and line of a table."""
        header = f"{'form':8}  {'MB':>7}  {'metric':>9}  {'float32':>8}  {'file':>7}  "
        header += "largest difference  ms a text"
        scores = f"{'-':>9}  {'-':>8}  {'-':>7}"
        if self.metric:
            scores = f"{self.metric:>9}  {self.reference:8.2f}  {self.score:7.2f}"
        numbers = f"{self.difference:18.2g}  {self.milliseconds:9.2f}"
        return f"{header}\n{self.form:8}  {self.size / 1e6:7.2f}  {scores}  {numbers}"


def compare_rows(
    path: pathlib.Path,
    compute: Callable[[Arrays], Arrays],
    expect: Callable[[Arrays], Arrays],
    form: str,
    rows: TokenizedDataset,
) -> Verdict:
    """Compares a file with the float32 model on single rows, and measures its time.

    Args:
      compute: computes a batch by the file.
      expect: computes a batch by the float32 model.
      form: form of the file.
      rows: token ids.

    Raises:
      ValueError: if outputs of the file are not finite.
    """
    differences = []
    numbers = []
    times = []
    order = list(range(len(rows)))
    # The first rows come twice: they warm up the interpreter.
    for batch in batches(rows, 1, [*order[:WARM_UP_ROWS], *order]):
        start = time.perf_counter()
        outputs = compute(batch)
        times.append(1e3 * (time.perf_counter() - start))
        for name, expected in expect(batch).items():
            if not np.isfinite(outputs[name]).all():
                raise ValueError(f"{form} gives {name} that are not finite; no file was written.")
            differences.append(float(np.abs(outputs[name] - expected).max()))
            numbers.append(float(np.abs(expected).max()))
    return Verdict(
        form,
        num_bytes(path),
        max(differences),
        max(numbers),
        statistics.median(times[-len(order) :]),
    )


def check_parity(verdict: Verdict) -> None:
    """Raises ValueError if outputs for rows without labels differ by more than `BOUNDS`."""
    form = verdict.form
    if not verdict.difference <= BOUNDS[form] * verdict.largest:
        raise ValueError(
            f"{form} differs by {verdict.difference:.2g} on sample texts, where the largest number "
            f"is {verdict.largest:.2g}; at most {BOUNDS[form]:g} of it is allowed. No file was "
            "written."
        )


def score(
    verdict: Verdict, file: Predictor, model: Predictor, examples: Labelled, max_loss: float
) -> Verdict:
    """Returns the verdict with the scores of a file on labelled examples.

    Args:
      verdict: without scores.
      file: answers by the file.
      model: the float32 model.
      examples: labelled examples.
      max_loss: number of points that the file may lose.

    Raises:
      ValueError: if the file does not pass.
    """
    points = examples.points(file)
    expected = examples.points(model)
    loss = expected - points
    if not loss <= max_loss:  # Also true if one of them is NaN.
        raise ValueError(
            f"{verdict.form} loses {loss:.2f} points of {examples.metric} ({expected:.2f} to "
            f"{points:.2f}) on {examples.source}, more than --max_loss={max_loss:g}; no file was "
            "written."
        )
    return verdict._replace(metric=examples.metric, reference=expected, score=points)


def reference(serving: Serving) -> Callable[[Arrays], Arrays]:
    """Returns the float32 model as a function of arrays."""
    run = function_of_ids(functools.partial(answer, serving))

    def call(batch: Arrays) -> Arrays:
        outputs = run(*(tf.constant(batch[name]) for name in IDS))
        return {name: value.numpy() for name, value in outputs.items()}

    return call


def batches(rows: TokenizedDataset, batch_size: int, order: Sequence[int]) -> list[Arrays]:
    """Returns batches of rows in an order, each as long as its longest row."""
    made = []
    for start in range(0, len(order), batch_size):
        ids = np.asarray(order[start : start + batch_size])
        batch = rows.batch(ids, len(ids), int(rows.lengths[ids].max()))
        made.append({name: batch[name] for name in IDS})
    return made
