"""Runs a step of `bulk.py` over many shards: in processes, by Apache Beam, or by Spark.

The engines only spread the calls and repeat those that fail. What is made goes into the folder of
the job, so every worker must see it, the input and the model under the same paths.
"""

import functools
import logging
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from bert_tf.corpus.beam_examples import new_pipeline, raise_input_fault
from bert_tf.extras import install_hint
from bert_tf.processes import count_workers, map_in_processes
from bert_tf.search.bulk import Job, embed_shard

RUNNERS = ("local", "beam", "spark")
Step = Callable[[Job, Any], Any]


def run(
    runner: str,
    step: Step,
    job: Job,
    keys: Sequence[Any],
    num_workers: int = 0,
    options: str = "",
) -> Iterator[Any]:
    """Calls step(job, key) for all keys.

    Args:
      runner: one of `RUNNERS`.
      step: `read_file` or `embed_shard`.
      job: its first argument.
      keys: its second arguments.
      num_workers: processes of this machine; 0: one a core.
      options: of Beam or Spark; see `by_beam` and `by_spark`.

    Yields:
      What the calls return, in any order; Beam's nothing.

    Raises:
      ValueError: if the engine is not installed, or a call found fault with the input.
    """
    if runner == "beam":
        by_beam(step, job, keys, num_workers, options)
    elif runner == "spark":
        yield from by_spark(step, job, keys, num_workers, options)
    else:
        tasks = [(job, key) for key in keys]
        yield from map_in_processes(step, tasks, count_workers(num_workers))


def by_beam(
    step: Step, job: Job, keys: Sequence[Any], num_workers: int = 0, options: str = ""
) -> None:
    """Runs a pipeline to its end.

    Args:
      step, job, keys, num_workers: see `run`.
      options: Beam's own, as on a command line. Empty: Beam's runner for one machine.

    Raises:
      ValueError: see `run`.
    """
    logging.getLogger("apache_beam").setLevel(logging.ERROR)  # it warns of what is not used here
    pipeline = new_pipeline(options, num_workers)

    import apache_beam as beam
    from apache_beam.ml.inference.base import RunInference

    from bert_tf.search.beam_embedding import ShardHandler

    is_embedding = step is embed_shard
    call = (
        RunInference(ShardHandler(job)) if is_embedding else beam.Map(functools.partial(step, job))
    )
    pipeline | "Shards" >> beam.Create(list(keys)) | beam.Reshuffle() | step.__name__ >> call
    try:
        pipeline.run().wait_until_finish()
    except Exception as error:  # each runner has its own kind
        raise_input_fault(error)


def by_spark(
    step: Step, job: Job, keys: Sequence[Any], num_workers: int = 0, options: str = ""
) -> list[Any]:
    """Runs a Spark job with a task for each key.

    Args:
      step, job, keys, num_workers: see `run`.
      options: `NAME=VALUE` of Spark's configuration, separated by spaces. Empty: that of
        spark-submit, else this machine.

    Returns:
      What the calls return, as text.

    Raises:
      ValueError: see `run`.
    """
    logging.getLogger("py4j").setLevel(logging.ERROR)
    try:
        import pandas as pd
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise ValueError(
            f"--runner=spark needs Spark ({error}) and Java 17; {install_hint('spark')}."
        ) from None
    pairs = [pair.partition("=") for pair in shlex.split(options)]
    if wrong := [name for name, is_pair, _ in pairs if not is_pair]:
        raise ValueError(f"--spark_options has {wrong[0]!r}; expected NAME=VALUE.")
    if not options and "PYSPARK_GATEWAY_PORT" not in os.environ:  # which spark-submit sets
        pairs = [("spark.master", "=", f"local[{count_workers(num_workers)}]")]
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("bert_tf.embed_texts")
    for name, _, value in pairs:
        builder = builder.config(name, value)
    keys = list(keys)

    def call(frames: Iterator[Any]) -> Iterator[Any]:
        for frame in frames:
            yield pd.DataFrame({"made": [str(step(job, keys[row])) for row in frame["id"]]})

    try:
        spark = builder.getOrCreate()
        spark.sparkContext.setLogLevel("OFF")
        # A partition, and so a task, for each key: what fails is repeated alone.
        tasks = spark.range(0, len(keys), 1, len(keys))
        return [row["made"] for row in tasks.mapInPandas(call, "made string").collect()]
    except PySparkException as error:
        raise_input_fault(error)
