"""Runs a step of `bulk.py` over many shards: in processes, by Apache Beam, or by Spark.

The engines only distribute the calls and repeat those that fail. Results are written into the job's
folder, so every worker must see that folder, the input and the model under the same paths.
"""

import functools
import logging
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from bert_tf.corpus.beam_examples import new_pipeline, raise_input_fault
from bert_tf.search.bulk import Job
from bert_tf.system.extras import install_hint
from bert_tf.system.processes import count_workers, map_in_processes

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
    """Calls step(job, key) for every key; the step is `read_file` or `embed_shard`.

    For `options` see `by_beam` and `by_spark`.

    Yields:
      The results of the calls, in any order; with Beam, no results.

    Raises:
      ValueError: if the engine is not installed, or a call rejected the input.
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
    """Runs a Beam pipeline until it has finished; the arguments are those of `run`.

    `options` are Beam's, as on a command line. Empty: Beam's runner for one machine.
    """
    # Beam warns about features that are not used here.
    logging.getLogger("apache_beam").setLevel(logging.ERROR)
    pipeline = new_pipeline(options, num_workers)

    import apache_beam as beam

    call = beam.Map(functools.partial(step, job))
    # Without Reshuffle, Beam fuses all steps, and one worker would get every key.
    pipeline | "Shards" >> beam.Create(list(keys)) | beam.Reshuffle() | step.__name__ >> call
    try:
        pipeline.run().wait_until_finish()
    except Exception as error:  # Each Beam runner raises another type.
        raise_input_fault(error)


def by_spark(
    step: Step, job: Job, keys: Sequence[Any], num_workers: int = 0, options: str = ""
) -> list[Any]:
    """Runs a Spark job with one task per key, and returns the results as text; see `run`.

    `options` are Spark's configuration as `NAME=VALUE`, separated by spaces. Empty: the
    configuration of spark-submit, by default this machine.
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
    # spark-submit and options name the master; otherwise use this machine.
    if not options and "PYSPARK_GATEWAY_PORT" not in os.environ:  # spark-submit sets this variable
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
        # One partition, and therefore one task, per key: a failed key is repeated alone.
        tasks = spark.range(0, len(keys), 1, len(keys))
        return [row["made"] for row in tasks.mapInPandas(call, "made string").collect()]
    except PySparkException as error:
        raise_input_fault(error)
