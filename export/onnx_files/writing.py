"""Writes the folder of an ONNX file: converts, makes the weights smaller, compares and scores."""

import dataclasses
import pathlib
from collections.abc import Callable

import tensorflow as tf
from absl import logging

from bert_tf.inference import serving_models
from bert_tf.inference.onnx.folder import write_folder
from bert_tf.inference.onnx.tracing import find_outputs
from bert_tf.tasks.base.serving.model import IDS, Serving, function_of_ids
from bert_tf.tasks.base.serving.onnx_model import NAMES, OnnxModel
from bert_tf.tasks.base.serving.row_model import Arrays
from export.lite.accuracy_gate import Verdict
from export.lite.writing import make_check
from export.onnx import OnnxConfig
from export.onnx_files.quantization import quantize


def write(request: OnnxConfig) -> Verdict:
    """Writes the folder and returns the comparison of its file with the model.

    Raises:
      ValueError: if the folder exists, the model has no ONNX form, there are no examples to score
        smaller weights on, or the file does not pass; then there is no folder.
    """
    trained = serving_models.read_model(request.model_dir, request.kind)
    side = {"side": request.side} if request.side else {}
    serving = serving_models.make_serving(trained, request.max_seq_length, unpad=False, **side)
    find_outputs(serving)
    form = request.quantize
    if form == "none" and not request.eval_file:
        # Float32 needs no score: its outputs are equal up to rounding.
        request = dataclasses.replace(request, no_gate=True)
    check = make_check(serving, request, OnnxModel, reference(serving))
    verdicts = []

    logging.info("Converting ...")
    path = write_folder(
        trained,
        serving,
        pathlib.Path(request.output_dir),
        request.model_dir,
        form,
        change=(lambda model: quantize(model, form)) if form != "none" else None,
        check=lambda path: verdicts.append(check(path)),
    )
    logging.info("Wrote %s: %s, %.1f MB.", path, serving.kind, verdicts[0].size / 1e6)
    return verdicts[0]


def reference(serving: Serving) -> Callable[[Arrays], Arrays]:
    """Returns the float32 model as a function of arrays, with the outputs of `OnnxModel`."""
    run = function_of_ids(lambda batch: find_outputs(serving)(serving, batch))

    def call(batch: Arrays) -> Arrays:
        outputs = run(*(tf.constant(batch[name]) for name in IDS))
        return {NAMES.get(name, name): value.numpy() for name, value in outputs.items()}

    return call
