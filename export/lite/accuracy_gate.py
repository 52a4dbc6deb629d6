"""Compares a LiteRT file with its float32 model before the file is published.

A file passes if it is not implausibly small, all its outputs are finite, and it loses no more
points of the task's metric than allowed. Without labelled examples, its outputs for sample texts
must be within `BOUNDS`.
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

from bert_tf.tasks.base.examples.rows import TokenizedDataset
from bert_tf.tasks.base.serving.lite_model import LiteModel
from bert_tf.tasks.base.serving.model import IDS, Serving, function_of_ids
from export.lite.conversion import answer, check_size
from export.lite.judges import Judge, RowOutputs

MAX_LOSS = {"none": 0.1, "float16": 0.5, "dynamic": 0.5, "int8": 2.0}  # points
# Largest difference for sample texts, as a share of the largest number of the reference.
BOUNDS = {"none": 1e-4, "float16": 0.01, "dynamic": 0.1, "int8": 0.5}
BATCH_SIZE = 32
TIMED_ROWS = 100
WARM_UP_ROWS = 5
PER_TOKEN = ("tagger", "question_answering", "encoder")  # kinds with outputs of each token
Call = Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]


class Verdict(NamedTuple):
    """The comparison of a file with the float32 model.

    Attributes:
      form: one of `conversion.FORMS`.
      size: bytes of the file.
      metric: name of the task's metric; "" without labelled examples.
      reference, score: the metric of the float32 model and of the file, in percent.
      agreement: share of equal answers.
      difference: largest difference of an output.
      milliseconds: median time of a single row, with one thread.
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
    path: pathlib.Path, serving: Serving, form: str, judged_by: Judge, max_loss: float
) -> Verdict:
    """Scores a file on labelled examples.

    Args:
      path: the file.
      serving: the float32 model.
      form: form of the file.
      judged_by: examples and metric.
      max_loss: number of points that the file may lose.

    Raises:
      ValueError: if the file does not pass.
    """
    verdict, outputs, expected = _compare(path, serving, form, judged_by.rows)
    verdict = verdict._replace(
        metric=judged_by.metric,
        reference=judged_by.points(expected),
        score=judged_by.points(outputs),
        agreement=judged_by.agreement(outputs, expected),
    )
    loss = verdict.reference - verdict.score
    if not loss <= max_loss:  # Also true if one of them is NaN.
        raise ValueError(
            f"{form} loses {loss:.2f} points of {verdict.metric} ({verdict.reference:.2f} to "
            f"{verdict.score:.2f}) on {judged_by.source}, more than --max_loss={max_loss:g}; no "
            f"file was written."
        )
    return verdict


def check_parity(
    path: pathlib.Path, serving: Serving, form: str, rows: TokenizedDataset
) -> Verdict:
    """Compares the outputs for rows without labels.

    Raises:
      ValueError: if the file does not pass.
    """
    verdict, _, expected = _compare(path, serving, form, rows)
    largest = max(float(np.abs(row).max()) for column in expected.values() for row in column)
    if not verdict.difference <= BOUNDS[form] * largest:
        raise ValueError(
            f"{form} differs by {verdict.difference:.2g} on sample texts, where the largest number "
            f"is {largest:.2g}; at most {BOUNDS[form]:g} of it is allowed. No file was written."
        )
    return verdict


def _compare(
    path: pathlib.Path, serving: Serving, form: str, rows: TokenizedDataset
) -> tuple[Verdict, RowOutputs, RowOutputs]:
    """Runs both models on all rows.

    Returns:
      A verdict without scores, the outputs of the file, and the outputs of the float32 model.
    """
    check_size(path, serving, form)
    lite = LiteModel(path, num_threads=1)
    is_per_token = serving.kind in PER_TOKEN
    outputs = run_rows(lite.from_ids, rows, is_per_token)
    for name, column in outputs.items():
        if bad := sum(not np.isfinite(row).all() for row in column):
            raise ValueError(
                f"{form} gives {name} that are not finite for {bad} of {len(rows)} rows; no file "
                f"was written."
            )
    expected = run_rows(reference(serving), rows, is_per_token)
    differences = []
    for name, column in expected.items():
        for row, other in zip(outputs[name], column, strict=True):
            differences.append(float(np.abs(row - other).max()))
    verdict = Verdict(
        form=form,
        size=path.stat().st_size,
        metric="",
        reference=math.nan,
        score=math.nan,
        agreement=math.nan,
        difference=max(differences),
        milliseconds=median_milliseconds(lite.from_ids, rows),
    )
    return verdict, outputs, expected


def reference(serving: Serving) -> Call:
    """Returns the float32 model as a function of arrays."""
    run = function_of_ids(functools.partial(answer, serving))

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


def run_rows(call: Call, rows: TokenizedDataset, is_per_token: bool) -> RowOutputs:
    """Returns the outputs of all rows by name, an array per row, without padding.

    Args:
      call: a model.
      rows: N rows.
      is_per_token: whether outputs [B, T, ...] have an axis of tokens.
    """
    # The longest first, so that rows of a batch have similar lengths.
    order = np.argsort(-rows.lengths, kind="stable")
    collected: RowOutputs = {}
    for number, batch in enumerate(batches(rows, BATCH_SIZE, order.tolist())):
        width = batch["input_mask"].shape[1]
        for name, values in call(batch).items():
            column = collected.setdefault(name, [np.zeros(0)] * len(rows))
            # `pooled_output` is [B, D], where D may be equal to the length by chance.
            has_tokens = is_per_token and name != "pooled_output" and values.shape[1] == width
            for position, value in enumerate(values):
                row = order[number * BATCH_SIZE + position]
                column[row] = value[: rows.lengths[row]] if has_tokens else value
    return collected


def median_milliseconds(call: Call, rows: TokenizedDataset) -> float:
    """Returns the median time of a single row, over rows of all lengths."""
    order = np.argsort(rows.lengths, kind="stable")
    chosen = order[np.linspace(0, len(order) - 1, min(TIMED_ROWS, len(order))).astype(int)]
    times = []
    # The first rows come twice: they warm up the interpreter, and are not timed then.
    for number, batch in enumerate(batches(rows, 1, [*chosen[:WARM_UP_ROWS], *chosen])):
        start = time.perf_counter()
        call(batch)
        if number >= min(WARM_UP_ROWS, len(chosen)):
            times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)
