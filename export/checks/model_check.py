"""All checks of an exported model; see `export.check`."""

import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

from bert_tf.checkpoints.hub import is_hub_name
from export.checks.answer_check import (
    Answer,
    broken_request,
    check_finite,
    check_refused,
    compare,
    first_line,
    load_source,
    make_requests,
    python_answer,
    tolerance_of,
)
from export.checks.apart import C_LIBRARY, TENSORFLOW, run_apart
from export.checks.c_api import has_library
from export.checks.op_check import check_foreign_ops, check_graph, used_ops
from export.checks.stored_model import Request, StoredModel, read


def check(folder: pathlib.Path, model_dir: str = "") -> Iterator[str]:
    """Checks a SavedModel; yields what each check found, for people.

    Args:
      folder: of a version.
      model_dir: what it was made from; "": what its card says, if that is still there.

    Raises:
      ValueError: at the first check that fails.
    """
    stored = read(folder)
    yield stored.table()
    check_graph(stored.meta_graph)
    requests = all_requests(stored)
    job = make_job(stored, requests)
    (result,) = run_apart(TENSORFLOW, [job])
    needed = check_foreign_ops(result["foreign_ops"], stored.takes_texts)
    yield f"operations  {len(job['ops'])} kinds; {needed}"
    answers = check_result(stored, requests, result, "a process of its own")
    yield f"process     {_times(result)}; {len(answers)} requests as they should be"
    if has_library():
        (result,) = run_apart(C_LIBRARY, [job])
        found = check_result(stored, requests, result, "the C library")
        difference = compare(requests, answers, found, "TensorFlow in Python", tolerance_of(stored))
        yield f"C library   {_times(result)}; same answers, floats to {difference:.1g}"
    else:
        yield "C library   not installed, so not tried"
    yield check_source(stored, answers, model_dir)


def all_requests(stored: StoredModel) -> list[Request]:
    """Returns the warm-up requests, those of odd texts, and to a model of texts one that it must
    refuse, with the first again after it.
    """
    requests = [*stored.warmup, *make_requests(stored)]
    if stored.takes_texts:
        requests += [broken_request(stored), stored.warmup[0]]
    return requests


def make_job(stored: StoredModel, requests: Sequence[Request]) -> dict[str, Any]:
    """Returns what `run_apart` needs to know."""
    signatures = {
        name: tuple(
            {key: info.name for key, info in part.items()}
            for part in (signature.inputs, signature.outputs)
        )
        for name, signature in stored.signatures.items()
    }
    return {
        "folder": str(stored.folder),
        "ops": sorted(used_ops(stored.meta_graph)),
        "signatures": signatures,
        "requests": [tuple(request) for request in requests],
    }


def check_result(
    stored: StoredModel, requests: Sequence[Request], result: dict[str, Any], where: str
) -> list[Answer]:
    """Checks what a process says; returns its answers.

    Raises:
      ValueError: if it could not load the model, or answers are not as they should be.
    """
    if error := result.get("error"):
        raise ValueError(f"{stored.folder} does not load in {where}: {first_line(error)}")
    answers = result["answers"]
    refused = answers[-2:] if stored.takes_texts else []
    count = len(answers) - len(refused)
    check_finite(requests[:count], answers[:count])
    if refused:
        check_refused(refused[0])
        compare(requests[:1], answers[:1], refused[1:], "the time before")
    return answers


def is_gone(path: str) -> bool:
    """True if a path leads nowhere; a name on a hub is no path."""
    return not is_hub_name(path) and not pathlib.Path(path).expanduser().exists()


def check_source(stored: StoredModel, found: Sequence[Answer], model_dir: str) -> str:
    """Compares answers with those of the model that it was made from.

    Args:
      stored: the model.
      found: its answers to `all_requests`.
      model_dir: "" for what the card says.

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
    served = load_source(stored, source)
    expected = [python_answer(served, stored, request) for request in requests]
    first = len(stored.warmup)
    answers = found[first : first + len(requests)]
    difference = compare(requests, expected, answers, source, tolerance_of(stored))
    return (
        f"source      {len(requests)} requests of odd texts answered as {source} does; floats to "
        f"{difference:.1g}"
    )


def _times(result: dict[str, Any]) -> str:
    load, first = result["load_seconds"], result["first_seconds"]
    return f"loaded in {load:.1f} s, first answer after {first:.1f} s"
