"""Attention relations: how like each other the queries, keys and values of a text's pieces are.

  queries [B, T, D] -> A relation heads [B, A, T, D / A] -> softmax(q q' / sqrt(D / A)) [B, A, T, T]

and the same of keys and of values. Width and heads of two models may differ: all are cut in the
same number of relation heads.

Reference: Wang et al. 2021, "MiniLMv2: Multi-Head Self-Attention Relation Distillation".
"""

from typing import Any

from keras import ops

from bert_tf.modeling.layout import attention_bias


def attention_vectors(encoder: Any, encoded: dict[str, Any], layer: int) -> tuple[Any, ...]:
    """Returns queries, keys and values of a layer, float32 [B, T, D], before any rotation.

    They are computed once more from what enters the layer, so that the encoder need not hand them
    out: three products of one layer, and nothing in a step that has no use for them.

    Args:
      encoder: `BertEncoder`.
      encoded: what it returned.
      layer: from 0.
    """
    block, inputs = encoder.encoder_layers[layer], encoded["encoder_outputs"][layer]
    if encoder.config.block_type == "pre_norm" and block.attention_norm:
        inputs = block.attention_norm(inputs)
    attention = block.self_attention
    projections = attention.query, attention.key, attention.value
    return tuple(ops.cast(project(inputs), "float32") for project in projections)


def relation_losses(student: Any, teacher: Any, input_mask: Any, heads: int) -> Any:
    """Returns KL(teacher's relations || student's), mean over the heads, of each piece.

    Args:
      student: float32 [B, T, D], its queries, keys or values.
      teacher: the same of the teacher, float32 [B, T, E].
      input_mask: int32 [B, T], 1 for a real piece; padding is no piece to be like.
      heads: A, divides D and E.

    Returns:
      float32 [B, T]; what stands at padding has no meaning.
    """
    bias = attention_bias(input_mask)  # [B, 1, 1, T]
    log_student, log_teacher = (_log_relations(x, bias, heads) for x in (student, teacher))
    terms = ops.exp(log_teacher) * (log_teacher - log_student)  # [B, A, T, T]
    return ops.mean(ops.sum(terms, axis=-1), axis=1)


def _log_relations(vectors: Any, bias: Any, heads: int) -> Any:
    """Returns the logarithms of relations, float32 [B, A, T, T]."""
    size = vectors.shape[-1] // heads
    cut = ops.reshape(vectors, (-1, ops.shape(vectors)[1], heads, size))
    scores = ops.einsum("BTAH,BSAH->BATS", cut * size**-0.5, cut)
    return ops.log_softmax(scores + bias)
