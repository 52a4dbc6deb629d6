"""Traces a model for ONNX and converts the trace.

    input_ids, attention_mask, token_type_ids  int64 [batch, sequence], any sizes
      -> the outputs of the kind, by the names that other programs expect

Pooling, dense layers, masks and normalization are part of the graph. While it is traced, each
LayerNorm is one call that becomes one node, GELU is written with the error function, which runtimes
fuse, and attention is computed for whole sequences.
"""

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import keras
import tensorflow as tf
from keras import ops

from bert_tf.inference.onnx.graph import GraphBuilder, Input
from bert_tf.inference.onnx.operations import LAYER_NORM, convert
from bert_tf.network.activations import gelu_exact, gelu_tanh, inference_form
from bert_tf.network.attention import AttentionPattern
from bert_tf.network.layer_norm import LayerNorm
from bert_tf.pretraining.objectives import masked_lm
from bert_tf.system.nested_layers import nested_layers
from bert_tf.system.type_names import Batch, Model, Outputs, Tensor
from bert_tf.tasks.base.serving.model import IDS, Serving, function_of_ids
from bert_tf.tasks.base.serving.onnx_model import INPUT_NAMES

ROWS = ("batch", "sequence")


def make_model(serving: Serving) -> Any:
    """Returns the ModelProto of a model.

    Args:
      serving: the result of `bert_tf.inference.serving_models.load` with `unpad=False`.

    Raises:
      ValueError: if ONNX cannot hold the kind or an operation.
    """
    find_outputs(serving)
    getattr(serving.model, "bert", serving.model).prepare_for_inference()
    with _operations_of_onnx(serving.model):
        function = function_of_ids(lambda batch: find_outputs(serving)(serving, batch))
        traced = function.get_concrete_function()
    inputs = [Input(name, "int64", ROWS) for name in INPUT_NAMES]
    return convert_trace(traced, inputs, dict(zip(INPUT_NAMES, IDS, strict=True)))


def convert_trace(traced: Any, inputs: Sequence[Input], arguments: dict[str, str]) -> Any:
    """Returns the ModelProto of a traced function.

    Args:
      traced: a concrete function, which returns a dict.
      inputs: the inputs of the file.
      arguments: the name of the function's argument for each input.

    Raises:
      ValueError: if ONNX lacks an operation.
    """
    graph = GraphBuilder()
    placeholders = {tensor.op.name: tensor for tensor in traced.inputs}
    for one in inputs:
        tensor = placeholders[arguments[one.name]]
        dtype = tensor.dtype.name
        graph.names[tensor.name] = one.name if dtype == one.dtype else graph.cast(one.name, dtype)
    _add_weights(graph, traced)
    for op in traced.graph.get_operations():
        if op.type not in ("Placeholder", "NoOp"):
            convert(graph, op)
    outputs = []
    # TensorFlow flattens a dict in the order of its sorted names.
    flat = dict(zip(sorted(traced.structured_outputs), traced.outputs, strict=True))
    for name, tensor in traced.structured_outputs.items():
        graph.add_output(graph.value(flat[name]), name)
        axes = [size or axis for size, axis in zip(tensor.shape, _axes(tensor), strict=True)]
        outputs.append(Input(name, tensor.dtype.name, axes))
    return graph.model(inputs, outputs)


def _axes(tensor: Tensor) -> list[str]:
    """Returns the names of the axes whose sizes are not known."""
    return [*ROWS, *(f"axis_{index}" for index in range(2, tensor.shape.rank))][: tensor.shape.rank]


def _add_weights(graph: GraphBuilder, traced: Any) -> None:
    """Adds the variables and constants that a trace captures."""
    names = {id(variable.handle): variable.name for variable in traced.graph.variables}
    taken: set[str] = set()
    for captured, placeholder in traced.graph.captures:
        name = names.get(id(captured), placeholder.op.name).partition(":")[0]
        while name in taken:
            name += "_"
        taken.add(name)
        if captured.dtype == tf.resource:
            variable = next(one for one in traced.graph.variables if one.handle is captured)
            array = variable.numpy()
        else:
            array = captured.numpy()
        graph.names[placeholder.name] = graph.constant(array, array.dtype.name, name)


# Outputs -----------------------------------------------------------------------------------------

Answer = Callable[[Any, Batch], Outputs]


def _logits(serving: Any, batch: Batch) -> Outputs:
    return {"logits": serving.call_model(batch)}


def _spans(serving: Any, batch: Batch) -> Outputs:
    return dict(serving.call_model(batch))


def _encoded(serving: Any, batch: Batch) -> Outputs:
    encoded = serving.call_model(batch)
    outputs = {"last_hidden_state": encoded["sequence_output"]}
    if "pooled_output" in encoded:
        outputs["pooler_output"] = encoded["pooled_output"]
    return outputs


def _embedding(serving: Any, batch: Batch) -> Outputs:
    model = serving.model
    sequence = model.bert(batch, training=False)["sequence_output"]
    with mock.patch.object(model, "bert", lambda *_, **__: {"sequence_output": sequence}):
        vectors = serving.from_ids(batch)["embedding"]
    return {"last_hidden_state": sequence, "sentence_embedding": vectors}


def _token_vectors(serving: Any, batch: Batch) -> Outputs:
    vectors, scored = serving.model.token_vectors(batch, side=serving.side)
    return {"token_embeddings": vectors, "scoring_mask": tf.cast(scored, tf.int64)}


def _masked_words(serving: Any, batch: Batch) -> Outputs:
    ids = batch["input_word_ids"]
    columns = tf.range(tf.shape(ids)[1])
    inputs = {**batch, "masked_lm_positions": tf.zeros_like(ids) + columns}
    if serving.model.config.query_vector:
        # A query stream predicts the masked tokens, which no token sees.
        is_mask = tf.equal(ids, serving.vocab.mask_id)
        inputs["query_positions"] = tf.where(is_mask, columns, -1)
        inputs["key_ranks"] = tf.cast(is_mask, tf.int32)
        inputs["query_ranks"] = tf.ones_like(ids)
    return {"logits": serving.call_model(inputs)["masked_lm_logits"]}


def _sparse_vectors(serving: Any, batch: Batch) -> Outputs:
    return {"sentence_embedding": serving.from_ids(batch)["weights"]}


def _next_sentence(serving: Any, batch: Batch) -> Outputs:
    inputs = {**batch, "masked_lm_positions": tf.zeros_like(batch["input_word_ids"][:, :1])}
    return {"logits": serving.call_model(inputs)["next_sentence_logits"]}


OUTPUTS: dict[str, Answer] = {
    "classifier": _logits,
    "multi_label": _logits,
    "regression": _logits,
    "zero_shot": _logits,
    "tagger": _logits,
    "question_answering": _spans,
    "reranker": lambda serving, batch: serving.row_scores(batch),
    "fill_mask": _masked_words,
    "splade": _sparse_vectors,
    "next_sentence": _next_sentence,
    "embeddings": _embedding,
    "late_interaction": _token_vectors,
    "encoder": _encoded,
}


def find_outputs(serving: Serving) -> Answer:
    """Returns the function that computes the outputs of a kind.

    Raises:
      ValueError: if ONNX cannot hold the kind.
    """
    is_joint = getattr(serving.model, "default_name", "") == "bert_joint_span_labeler"
    if serving.kind not in OUTPUTS or is_joint:
        name = "The joint head for questions" if is_joint else f"The kind {serving.kind}"
        raise ValueError(
            f"{name} has outputs that ONNX cannot hold, lists of different lengths; expected one "
            f"of {', '.join(OUTPUTS)}. export.saved_model serves it."
        )
    return OUTPUTS[serving.kind]


# Operations --------------------------------------------------------------------------------------


def erf_gelu(x: Tensor) -> Tensor:
    """Computes GELU with the error function, in the form that ONNX Runtime fuses."""
    return 0.5 * x * (1.0 + ops.erf(x / math.sqrt(2.0)))


def tanh_gelu(x: Tensor) -> Tensor:
    """Computes the tanh form of GELU, with the cube as products."""
    return 0.5 * x * (1.0 + ops.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x * x * x)))


GELUS = {
    gelu_exact: erf_gelu,
    gelu_tanh: tanh_gelu,
    # The forms of layers that are prepared for inference.
    inference_form(gelu_exact): erf_gelu,
    inference_form(gelu_tanh): tanh_gelu,
}


@contextlib.contextmanager
def _operations_of_onnx(model: Model) -> Iterator[None]:
    """Replaces operations while the model is traced; see above."""
    patch = mock.patch.object
    with contextlib.ExitStack() as stack:
        stack.enter_context(patch(AttentionPattern, "uses_blocks", False))
        stack.enter_context(patch(masked_lm, "gather_positions", lambda sequence, _: sequence))
        for layer_class in (LayerNorm, keras.layers.LayerNormalization):
            stack.enter_context(patch(layer_class, "call", _call_layer_norm))
        for layer in (model, *nested_layers(model)):
            if (act := getattr(layer, "activation", None)) in GELUS:
                stack.enter_context(patch(layer, "activation", GELUS[act]))
        yield


def _call_layer_norm(layer: Any, inputs: Tensor, training: bool | None = None) -> Tensor:
    gamma = tf.convert_to_tensor(layer.gamma)
    beta = tf.zeros_like(gamma) if layer.beta is None else tf.convert_to_tensor(layer.beta)
    return _marked_layer_norm(inputs, gamma, beta, tf.constant(layer.epsilon))


def _layer_norm(inputs: Tensor, gamma: Tensor, beta: Tensor, epsilon: Tensor) -> Tensor:
    return tf.ensure_shape(inputs + 0.0 * (gamma + beta + epsilon), inputs.shape)


_layer_norm.__name__ = LAYER_NORM
_marked_layer_norm = tf.function(_layer_norm, autograph=False)
