"""Converts a model to LiteRT (TFLite): one file for ids that runs without TensorFlow.

    input_word_ids, input_mask, input_type_ids  int32 [B, T], any B and T
      -> the outputs of the kind, see `ROW_OUTPUTS`, float32

form     weights    computation
none     float32    float32
float16  float16    float32
dynamic  int8       int8 products with inputs quantized at run time, otherwise float32
int8     int8       int8, with ranges measured on calibration examples

LiteRT lacks two operations of the training graph: the error function by itself, and slices that add
axes to a mask. While the graph is traced for LiteRT, GELU is therefore TensorFlow's, which the
converter supports, and masks get their axes by `expand_dims`. The numbers are the same.
"""

import contextlib
import functools
import hashlib
import io
import json
import pathlib
import tempfile
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from typing import Any
from unittest import mock

import numpy as np
import tensorflow as tf

from bert_tf.network import layout
from bert_tf.network.activations import inference_form
from bert_tf.network.attention import AttentionPattern
from bert_tf.network.pooling import LEAST_COUNT, LEAST_VALUE
from bert_tf.system.nested_layers import nested_layers
from bert_tf.system.printable import first_line
from bert_tf.system.startup_lines import hidden_lines
from bert_tf.system.type_names import Model
from bert_tf.tasks.base.serving.lite_model import CHECKSUM_NAME, TEXT_SIGNATURE, model_checksum
from bert_tf.tasks.base.serving.metadata import CARD_NAME, OPTIONAL_ROW_OUTPUTS, ROW_OUTPUTS
from bert_tf.tasks.base.serving.model import Batch, Outputs, Serving, function_of_ids
from bert_tf.tasks.base.serving.saving.writing import save_functions
from bert_tf.tasks.embedding import model as embedder
from bert_tf.tasks.question_answering.serving import JointQuestionAnsweringServing
from export.lite.text_input import check_text_input, make_packer

FORMS = ("none", "float16", "dynamic", "int8")
BYTES_OF_WEIGHT = {"none": 4, "float16": 2, "dynamic": 1, "int8": 1}
# exp(-30) is negligible compared to any real token. A larger bias would use up the 256 steps of an
# int8 score for padding.
INT8_PADDING_BIAS = -30.0
_DATE = (1980, 1, 1, 0, 0, 0)  # A fixed date, so that the same model gives the same bytes.


def check_kind(serving: Serving) -> None:
    """Raises ValueError if a model cannot be converted to LiteRT."""
    if isinstance(serving, JointQuestionAnsweringServing):
        raise ValueError(
            "The joint head for questions cannot be converted to LiteRT; train one with "
            "--span_head=independent. export.saved_model serves this one."
        )
    if serving.kind not in ROW_OUTPUTS:
        raise ValueError(
            f"{serving.kind} cannot be converted to LiteRT; expected one of "
            f"{', '.join(ROW_OUTPUTS)}. export.saved_model serves it."
        )


def answer(serving: Any, batch: Batch) -> Outputs:
    """Returns the outputs of the kind for a batch of token ids, int32 [B, T]."""
    if serving.kind == "tagger":
        return {"probabilities": tf.nn.softmax(serving.call_model(batch))}
    if serving.kind == "reranker":
        return serving.row_scores(batch)
    answers = serving.from_ids(batch)
    names = output_names(serving.kind)
    return {name: answers[name] for name in names if name in answers}


def output_names(kind: str) -> tuple[str, ...]:
    """Returns the outputs of a kind's files; a model may lack some."""
    return (*ROW_OUTPUTS[kind], *OPTIONAL_ROW_OUTPUTS.get(kind, ()))


def convert(
    serving: Serving,
    form: str,
    calibration: Sequence[dict[str, np.ndarray]] = (),
    text_input: bool = False,
) -> bytes:
    """Converts a model; returns the bytes of the file, including metadata and vocabulary.

    Args:
      serving: the result of `bert_tf.inference.serving_models.load` with `unpad=False`.
      form: one of `FORMS`.
      calibration: for int8, batches of typical inputs, int32 [B, T] by name.
      text_input: whether to add a second signature for texts; see `text_input.py`.

    Raises:
      ValueError: if the kind has no LiteRT form, there are no calibration batches, or the converter
        fails.
    """
    check_kind(serving)
    if text_input:
        check_text_input(serving, form)
    if form == "int8" and not calibration:
        raise ValueError(
            "int8 needs texts to measure ranges on, but there are none; give --calibration_file."
        )
    with tempfile.TemporaryDirectory() as folder:
        bias = INT8_PADDING_BIAS if form == "int8" else layout.PADDING_BIAS
        with _operations_of_litert(serving.model, bias):
            outputs = _save(serving, folder, text_input)
        signatures = ["serving_default"] + [TEXT_SIGNATURE] * text_input
        converter = tf.lite.TFLiteConverter.from_saved_model(folder, signature_keys=signatures)
        # The kernels of the tokenizer are custom operations to LiteRT.
        converter.allow_custom_ops = text_input
        # The default optimization stores weights as int8; float16 and int8 change it below.
        if form != "none":
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
        if form == "float16":
            converter.target_spec.supported_types = [tf.float16]
        if form == "int8":
            converter.representative_dataset = lambda: iter(calibration)
            converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
        try:
            with warnings.catch_warnings():
                # Calibration runs in TensorFlow's interpreter, which has a deprecation warning.
                warnings.simplefilter("ignore")
                with hidden_lines():
                    model = converter.convert()
        except Exception as error:  # The stages of the converter raise different types.
            raise ValueError(f"TensorFlow's converter failed: {first_line(error)}") from error
    metadata = {
        **serving.card(),
        "quantize": form,
        "outputs": outputs,
        "text_input": text_input,
    }
    return _with_files(model, metadata, serving)


@contextlib.contextmanager
def _operations_of_litert(model: Model, padding_bias: float) -> Iterator[None]:
    """Replaces operations that LiteRT lacks while the model is traced; see above."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(layout, "PADDING_BIAS", padding_bias))
        stack.enter_context(mock.patch.object(AttentionPattern, "uses_blocks", False))
        for layer in (model, *nested_layers(model)):
            if act := getattr(layer, "activation", None):
                stack.enter_context(mock.patch.object(layer, "activation", inference_form(act)))
        stack.enter_context(mock.patch.object(embedder, "pool_tokens", _pool))
        yield


def _pool(sequence: tf.Tensor, input_mask: tf.Tensor, pooling: str) -> tf.Tensor:
    """Pools as `bert_tf.network.pooling.pool_tokens`.

    Raises:
      ValueError: for poolings with operations that LiteRT lacks.
    """
    if pooling not in ("cls", "lasttoken", "max", "mean"):
        raise ValueError(
            f"The pooling is {pooling}; a LiteRT file supports cls, lasttoken, max or mean."
        )
    if pooling == "cls":
        return sequence[:, 0]  # [B, D]
    if pooling == "lasttoken":
        return layout.PaddedBatch(input_mask).last_tokens(sequence, sequence)
    is_real = tf.expand_dims(tf.cast(input_mask, tf.float32), 2)  # [B, T, 1]
    if pooling == "max":
        # Padding must not win the maximum.
        hidden = (1.0 - is_real) * LEAST_VALUE
        return tf.reduce_max(sequence * is_real + hidden, axis=1)
    count = tf.maximum(tf.reduce_sum(is_real, axis=1), LEAST_COUNT)
    return tf.reduce_sum(sequence * is_real, axis=1) / count


def _save(serving: Serving, folder: str, text_input: bool) -> list[str]:
    """Writes a SavedModel with functions of ids and texts; returns the names of the outputs.

    Its weights are variables. From concrete functions around a Keras model, the converter would
    silently write files with NaN as outputs.
    """
    function = function_of_ids(functools.partial(answer, serving)).get_concrete_function()
    functions = {"serving_default": function}
    if text_input:
        pack = make_packer(serving)

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")], autograph=False)
        def texts(text: tf.Tensor) -> Outputs:
            return answer(serving, pack(text))

        functions[TEXT_SIGNATURE] = texts.get_concrete_function()
    save_functions(folder, functions)
    return sorted(function.structured_outputs)


def _with_files(model: bytes, metadata: dict[str, Any], serving: Serving) -> bytes:
    """Appends metadata and vocabulary as a zip archive, as TFLite's metadata tools do.

    A LiteRT file may have other data after its tables, and a zip archive other data before it, so
    one file is both: `unzip model.tflite vocab.txt`.
    """
    files = {
        CARD_NAME: json.dumps(metadata, indent=2) + "\n",
        CHECKSUM_NAME: model_checksum(model),
    }
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, serving.vocab.file_name)
        serving.vocab.write(path)
        for written in sorted(pathlib.Path(folder).iterdir()):
            files[written.name] = written.read_text(encoding="utf8")
    buffer = io.BytesIO(model)
    # Mode "a" keeps the model and appends the archive.
    with zipfile.ZipFile(buffer, "a", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(
                zipfile.ZipInfo(name, _DATE), text.encode("utf8"), zipfile.ZIP_DEFLATED
            )
    return buffer.getvalue()


def check_size(path: pathlib.Path, serving: Serving, form: str) -> None:
    """Raises ValueError if a file is too small for the weights."""
    # Equal tensors are stored once, such as the biases of a model that was not trained.
    sizes = {}
    for weight in serving.model.trainable_weights:
        values = np.asarray(weight)
        sizes[hashlib.sha256(values.tobytes()).digest()] = values.size
    weights = sum(sizes.values())
    expected = weights * BYTES_OF_WEIGHT[form]
    size = path.stat().st_size
    if size < expected:
        raise ValueError(
            f"The file has {size:,} bytes, but {weights:,} weights take {expected:,}: the "
            "converter lost some."
        )
