"""Runs the functions of a SavedModel, with times and errors as a server would see them."""

import dataclasses
import time
from collections.abc import Sequence

import tensorflow as tf

from export.checks.answer_check import Answer, first_line
from export.checks.stored_model import Request, StoredModel


@dataclasses.dataclass(frozen=True)
class Run:
    """The answers of a SavedModel.

    Attributes:
      answers: one for each request: outputs by name, or an error's code and message.
      load_seconds: time to load the model.
      first_seconds: time to the first answer after that.
    """

    answers: list[Answer]
    load_seconds: float
    first_seconds: float


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
