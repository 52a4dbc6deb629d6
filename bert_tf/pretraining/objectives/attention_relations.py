"""Attention relations: similarities among the queries, keys and values of a text's tokens.

  queries [B, T, D] -> A relation heads [B, A, T, D / A] -> softmax(q q' / sqrt(D / A)) [B, A, T, T]

and the same for keys and for values. Width and number of heads of the two models may differ: both
are split into the same number of relation heads.

Reference: Wang et al. 2021, "MiniLMv2: Multi-Head Self-Attention Relation Distillation".
"""

from keras import ops

from bert_tf.network.layout import attention_bias
from bert_tf.system.type_names import Model, Outputs, Tensor


def attention_vectors(encoder: Model, encoded: Outputs, layer: int) -> tuple[Tensor, ...]:
    """Returns queries, keys and values of a layer, float32 [B, T, D], before any rotation.

    They are computed a second time from the inputs of the layer, so that the encoder does not have
    to return them: three matrix products of one layer, and no cost in steps that do not need them.
    """
    block = encoder.encoder_layers[layer]
    inputs = encoded["encoder_outputs"][layer]
    # The inputs of the projections: in the pre-norm form, after the block's LayerNorm.
    if encoder.config.block_type == "pre_norm" and block.attention_norm:
        inputs = block.attention_norm(inputs)
    attention = block.self_attention
    projections = attention.query, attention.key, attention.value
    return tuple(ops.cast(project(inputs), "float32") for project in projections)


def relation_losses(student: Tensor, teacher: Tensor, input_mask: Tensor, heads: int) -> Tensor:
    """Returns KL(teacher's relations || student's relations) of each token, averaged over heads.

    Args:
      student, teacher: queries, keys or values, float32 [B, T, D] and [B, T, E].
      input_mask: int32 [B, T], 1 for tokens and 0 for padding, which no relation includes.
      heads: A, the number of relation heads; divides D and E.

    Returns:
      float32 [B, T]; values at padding are meaningless.
    """
    bias = attention_bias(input_mask)  # [B, 1, 1, T]
    log_student, log_teacher = (_log_relations(x, bias, heads) for x in (student, teacher))
    # KL is the sum over the keys of p (log p - log q), where p is the teacher's.
    terms = ops.exp(log_teacher) * (log_teacher - log_student)  # [B, A, T, T]
    return ops.mean(ops.sum(terms, axis=-1), axis=1)  # [B, T]


def _log_relations(vectors: Tensor, bias: Tensor, heads: int) -> Tensor:
    """Returns log probabilities of the relations, float32 [B, A, T, T]."""
    size = vectors.shape[-1] // heads
    split = ops.reshape(vectors, (-1, ops.shape(vectors)[1], heads, size))  # [B, T, A, H]
    scores = ops.einsum("BTAH,BSAH->BATS", split * size**-0.5, split)
    # Keys at padding get a probability of 0.
    return ops.log_softmax(scores + bias)
