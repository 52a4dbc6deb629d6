"""All checks of an exported model; see `export.check`."""

import pathlib
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import tensorflow as tf

from bert_tf.system.model_names import is_hub_name
from export.checks.answer_check import (
    Answer,
    broken_request,
    check_finite,
    compare,
    first_line,
    load_source,
    make_requests,
    python_answer,
    tolerance_of,
)
from export.checks.op_check import check_foreign_ops, check_graph, foreign_ops, used_ops
from export.checks.stored_model import Request, StoredModel, read


def check(folder: pathlib.Path, model_dir: str = "") -> Iterator[str]:
    """Checks a SavedModel; yields the result of each check as text.

    Args:
      folder: folder of a version.
      model_dir: the model that was exported; "": the model that the export recorded, if it still
        exists.

    Raises:
      ValueError: at the first check that fails.
    """
    stored = read(folder)
    yield stored.table()
    check_graph(stored.meta_graph)
    requests = all_requests(stored)
    ops = used_ops(stored.meta_graph)
    needed = check_foreign_ops(foreign_ops(ops), stored.takes_texts)
    yield f"operations  {len(ops)} kinds; {needed}"
    run = run_model(stored, requests)
    check_answers(stored, requests, run.answers)
    yield (
        f"answers     loaded in {run.load_seconds:.1f} s, first answer after "
        f"{run.first_seconds:.1f} s; {len(run.answers)} requests as they should be"
    )
    yield check_source(stored, run.answers, model_dir)


class Run(NamedTuple):
    """The answers of a SavedModel, one for each request, and their times."""

    answers: list[Answer]
    load_seconds: float
    first_seconds: float  # From loading to the first answer.


def run_model(stored: StoredModel, requests: Sequence[Request]) -> Run:
    """Loads a model and sends it requests.

    Raises:
      ValueError: if it cannot be loaded.
    """
    start = time.perf_counter()
    try:
        if stored.takes_texts:
            import tensorflow_text  # noqa: F401  Registers its operations, which a server has built in.

        signatures = tf.saved_model.load(str(stored.folder)).signatures
    except Exception as error:  # TensorFlow raises many types for damaged files.
        raise ValueError(f"{stored.folder} cannot be loaded: {first_line(str(error))}") from None
    # The end of loading, then the time of each answer.
    times = [time.perf_counter()]
    answers = []
    for request in requests:
        answers.append(call(signatures[request.signature], request))
        times.append(time.perf_counter())
    first_seconds = times[1] - times[0] if requests else 0.0
    return Run(answers, times[0] - start, first_seconds)


def call(signature: tf.types.experimental.ConcreteFunction, request: Request) -> Answer:
    """Returns the outputs by name, or the code and the message of TensorFlow's error."""
    tensors = request.tensors()
    try:
        outputs = signature(**tensors)
        return {name: value.numpy() for name, value in outputs.items()}
    except tf.errors.OpError as error:
        return error.error_code, error.message


def all_requests(stored: StoredModel) -> list[Request]:
    """Returns the warm-up requests and the requests of unusual texts.

    A model of texts also gets a text that is not UTF-8, and then the first request again.
    """
    requests = [*stored.warmup, *make_requests(stored)]
    if stored.takes_texts:
        requests += [broken_request(stored), stored.warmup[0]]
    return requests


def check_answers(
    stored: StoredModel, requests: Sequence[Request], answers: Sequence[Answer]
) -> None:
    """Checks the answers to `all_requests`.

    Raises:
      ValueError: if one is an error or not finite, or if a text that is not UTF-8 changes the
        answers after it.
    """
    check_finite(requests, answers)
    if stored.takes_texts:
        # The last request is the first one again.
        compare(requests[:1], answers[:1], answers[-1:], "the time before")


def is_gone(path: str) -> bool:
    """Returns whether a path does not exist; a name on a hub is not a path."""
    return not is_hub_name(path) and not pathlib.Path(path).expanduser().exists()


def check_source(stored: StoredModel, found: Sequence[Answer], model_dir: str) -> str:
    """Compares answers with those of the model that was exported; returns the result as text.

    Raises:
      ValueError: if answers differ.
    """
    source = model_dir or stored.card.get("source", "")
    options = stored.card.get("options", {})
    if not source:
        return "source      a model in Python, so not compared; --model_dir=... names a saved one"
    if not model_dir and is_gone(source):
        return f"source      {source} is not here, so not compared; --model_dir=... says where"
    for name in ("index", "rerank"):
        if is_gone(options.get(name, "")):
            return f"source      {options[name]} is not here, so not compared"
    requests = make_requests(stored)
    serving = load_source(stored, source)
    expected = [python_answer(serving, stored, request) for request in requests]
    # The warm-up requests come before the requests of unusual texts.
    first = len(stored.warmup)
    answers = found[first : first + len(requests)]
    difference = compare(requests, expected, answers, source, tolerance_of(stored))
    return (
        f"source      {len(requests)} requests of odd texts answered as {source} does; floats to "
        f"{difference:.1g}"
    )
