"""Makes pre-training examples in an Apache Beam pipeline: the same ones, on any Beam engine.

    parts of the input -> tokens of each part -> (all are there) -> shards to write -> examples
          Create             tokenize_part         side input         plan_shards     write_shard

To leave out duplicates, `write_keys` follows `tokenize_part`, and the plan has `kept_documents`.

The steps are the functions of the local version and write to the same files. Each run, with Beam or
locally, can therefore use the results of another. Random partners for next sentence prediction may
come from any document, so a shard needs random access to the tokens of all documents. That is why
they are files in a folder, and not a collection that Beam would shuffle.

All workers must see the input, the vocabulary and the output folder under the same path.
"""

import dataclasses
import logging
import pathlib
import re
import shlex
from typing import TYPE_CHECKING, NoReturn

from bert_tf.corpus.corpus import CorpusPart
from bert_tf.corpus.duplicates import key_file, write_keys
from bert_tf.corpus.example_files import ExampleJob
from bert_tf.corpus.example_shards import ShardTask, write_shard
from bert_tf.corpus.token_store import tokenize_part
from bert_tf.system.extras import install_hint
from bert_tf.system.model_names import absolute_path
from bert_tf.system.processes import count_workers

if TYPE_CHECKING:
    import apache_beam as beam

# Not DirectRunner, which first tries to fetch another runner from the network.
ONE_MACHINE = (
    "--runner=FnApiRunner --direct_running_mode=multi_processing "
    "--default_sdk_harness_log_level=ERROR"
)


def fill_work_folder(job: ExampleJob, beam_options: str = "") -> None:
    """Makes the missing tokens and examples of a job.

    The local version then finds everything finished, and writes the manifest.

    Args:
      beam_options: Beam's own options, as on a command line. Empty: Beam's runner for one machine,
        with num_workers processes.

    Raises:
      ValueError: if Beam is not installed, or a worker found an error in the input.
    """
    pipeline = new_pipeline(beam_options, job.data.num_workers)
    logging.getLogger("apache_beam").setLevel(logging.WARNING)
    job = with_absolute_paths(job)
    build(pipeline, job)
    try:
        pipeline.run().wait_until_finish()
    except Exception as error:  # each runner has its own kind
        raise_input_fault(error)


def new_pipeline(beam_options: str, num_workers: int) -> "beam.Pipeline":
    """Makes an empty pipeline; see `fill_work_folder`. 0 workers: one per core."""
    try:
        import apache_beam as beam
        from apache_beam.options.pipeline_options import PipelineOptions
    except ImportError as error:
        raise ValueError(
            f"--runner=beam needs Apache Beam ({error}); {install_hint('beam')}, in a separate "
            "environment."
        ) from None
    if not beam_options:
        beam_options = f"{ONE_MACHINE} --direct_num_workers={count_workers(num_workers)}"
    return beam.Pipeline(options=PipelineOptions(shlex.split(beam_options)))


def build(pipeline: "beam.Pipeline", job: ExampleJob) -> None:
    """Adds the steps to a beam.Pipeline."""
    import apache_beam as beam

    tokenized = (
        pipeline
        | "Parts" >> beam.Create(job.token_tasks())
        # Without it Beam may run the steps of all parts in one worker, one after the other.
        | "Deal parts" >> beam.Reshuffle()
        | "Tokenize" >> beam.Map(_tokenize, job.data.deduplicate)
    )
    (
        pipeline
        | "Job" >> beam.Create([job])
        | "Plan" >> beam.FlatMap(_plan, beam.pvalue.AsList(tokenized))
        | "Deal shards" >> beam.Reshuffle()
        | "Write" >> beam.Map(write_shard)
    )


def _tokenize(task: tuple[CorpusPart, pathlib.Path, str, bool], deduplicate: str) -> str:
    """Writes the tokens of a part, and the keys to find duplicates, unless they exist."""
    path = task[1]
    if not path.exists():
        tokenize_part(*task)
    if deduplicate != "none" and not key_file(path, deduplicate).exists():
        write_keys(path, deduplicate)
    return path.name


def _plan(job: ExampleJob, tokenized: list[str]) -> list[ShardTask]:
    """Runs when the side input `tokenized` is complete; its content is of no interest."""
    del tokenized
    return job.missing_shards()


def with_absolute_paths(job: ExampleJob) -> ExampleJob:
    """Returns the job for workers with another working directory."""
    return dataclasses.replace(
        job,
        parts=tuple(
            part
            if part.format == "tfds"
            else dataclasses.replace(part, path=absolute_path(part.path))
            for part in job.parts
        ),
        output_files=tuple(path.absolute() for path in job.output_files),
        work=job.work.absolute(),
        data=dataclasses.replace(job.data, vocab_file=absolute_path(job.data.vocab_file)),
    )


def raise_input_fault(error: Exception) -> NoReturn:
    """Raises a worker's error again: runners wrap its text in an error of their own.

    Raises:
      ValueError: if there is a line of a ValueError or OSError in it; else `error` itself.
    """
    kinds = "ValueError|OSError|FileNotFoundError|PermissionError"
    lines = re.findall(rf"^(?:{kinds}): (.+?)(?: \[while running .*)?$", str(error), re.M)
    if isinstance(error, (ValueError, OSError)):
        lines.append(str(error).split(" [while running")[0])
    if not lines:
        raise error
    raise ValueError(lines[-1]) from error
