"""Measures what a training step waits for: the input pipeline alone, then steps with and without.

Steps are those of training (`training/train_step.py`) on one device. With the same batch again and
again they cost what they compute; with the pipeline's batches, more if the input is too slow.
"""

import dataclasses
import pathlib
import time
from collections.abc import Callable, Sequence
from typing import Any

from bert_tf.config import DataConfig, MaskingConfig, ModelConfig, OptimizerConfig, TrainingConfig
from bert_tf.diagnosis.findings import Finding, judge, percent
from bert_tf.text.vocab import Vocab

WARM_UP, MEASURED = 3, 20  # batches, steps
MAX_SECONDS = 60.0  # of each of the three measurements


def measure(
    paths: Sequence[pathlib.Path],
    vocab: Vocab,
    masking: MaskingConfig,
    model: ModelConfig | None,
    batch_size: int,
) -> tuple[dict[str, str], list[Finding]]:
    """Measures the input, and with a model the steps.

    Args:
      paths: record files.
      vocab: their vocabulary.
      masking: how they are masked while they are read.
      model: what is trained on them; None: the input alone is measured.
      batch_size: B.

    Returns:
      Facts and findings.

    Raises:
      ValueError: if the records cannot be read.
    """
    import tensorflow as tf

    from bert_tf.data.pipeline import pretraining_dataset
    from bert_tf.data.record_form import describe_records
    from bert_tf.data.tfrecords import RecordFiles
    from bert_tf.tasks.pretraining import PretrainingTask

    records = RecordFiles(paths)
    form = describe_records(records)
    slots = form.max_predictions_per_seq or masking.max_predictions_per_seq
    masking = dataclasses.replace(masking, max_predictions_per_seq=slots)
    data = DataConfig(max_seq_length=form.max_seq_length)
    length, seed = form.max_seq_length, data.random_seed
    batches = iter(
        pretraining_dataset(
            records, vocab, masking, max_seq_length=length, batch_size=batch_size, seed=seed
        )
    )
    seconds = seconds_each(lambda: next(batches))
    facts = {"input": f"{batch_size / seconds:,.0f} examples a second in batches of {batch_size}"}
    if not model:
        return facts, []
    task = PretrainingTask(_build(model), records, None, vocab, data, masking)
    step = _make_step(task)
    same = tf.data.Dataset.from_tensors(next(batches)).repeat()
    computed = seconds_each(_caller(step, iter(same)))
    real = seconds_each(_caller(step, iter(task.train_dataset(batch_size, 0, 0, 1))))
    facts["steps"] = (
        f"{real * 1e3:.0f} ms with the input, {computed * 1e3:.0f} ms with one batch repeated"
    )
    return facts, waiting_findings(seconds, computed, real)


def waiting_findings(alone: float, computed: float, real: float) -> list[Finding]:
    """Judges seconds: of the input alone, of a step without it, of a step with it."""
    waiting = max(0.0, 1 - computed / real)
    return judge(
        "input_wait",
        waiting,
        "Steps wait for input",
        f"{percent(waiting)} of a step; the input alone takes {alone * 1e3:.0f} ms a batch",
        "Give the host more cores, put the records on a local disk, or mask beforehand "
        "(--masking=static).",
    )


def seconds_each(call: Callable[[], Any]) -> float:
    """Returns the duration of a call in seconds, after `WARM_UP` that do not count.

    The lower quartile: what else the machine does makes calls longer, never shorter.
    """
    for _ in range(WARM_UP):
        call()
    durations: list[float] = []
    begin = time.perf_counter()
    while len(durations) < MEASURED and (
        not durations or time.perf_counter() - begin < MAX_SECONDS
    ):
        start = time.perf_counter()
        call()
        durations.append(time.perf_counter() - start)
    return sorted(durations)[len(durations) // 4]


def _build(config: ModelConfig) -> Any:
    from bert_tf.modeling.models import BertPretrainer

    return BertPretrainer(config)


def _make_step(task: Any) -> Any:
    from bert_tf.optimization.optimizers import build_optimizer
    from bert_tf.training.distribution import make_strategy
    from bert_tf.training.train_step import TrainStep

    optimizer = build_optimizer(OptimizerConfig())
    optimizer.build(task.model.trainable_variables)
    return TrainStep(task, optimizer, make_strategy(TrainingConfig()), random_seed=0)


def _caller(step: Any, iterator: Any) -> Callable[[], Any]:
    import tensorflow as tf

    return lambda: step(iterator, tf.constant(0), tf.constant(1)).numpy()
