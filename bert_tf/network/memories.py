"""Memories: the inputs of the layers for an earlier segment, which the tokens also attend to.

Reference: Dai et al. 2019 (Transformer-XL), section 3.2.
"""

import numpy as np
import tensorflow as tf
from keras import ops

from bert_tf.config import ModelConfig
from bert_tf.network.layout import PaddedBatch
from bert_tf.system.type_names import Batch, Tensor


def count_tokens(
    memories: list[Tensor] | None,
    inputs: Batch,
    layout: PaddedBatch,
    config: ModelConfig,
    has_memory: bool,
) -> int:
    """Returns the number of tokens in memories, 0 without any.

    Args:
      memories: float [B, M, D] of each layer; an empty list for a first segment.
      has_memory: whether its positions say how far the tokens of an earlier segment are.

    Raises:
      ValueError: for memories that this network or layout cannot read.
    """
    if memories is None:
        return 0
    if not has_memory:
        raise ValueError(
            f"memories need position_type transformer_xl, but it is {config.position_type}: "
            "other positions do not say how far the tokens of an earlier segment are."
        )
    if type(layout) is not PaddedBatch or "query_content_ids" in inputs:
        raise ValueError(
            "memories need plain rows; leave out packed rows, unpad and query_content_ids."
        )
    mask = inputs["input_mask"]
    if not tf.is_symbolic_tensor(mask) and not np.all(mask):
        raise ValueError(
            "memories need segments without padding, but input_mask has zeros; give rows that "
            "are full."
        )
    if len(memories) not in (0, config.num_hidden_layers):
        raise ValueError(
            f"memories has {len(memories)} tensors, expected one for each of the "
            f"{config.num_hidden_layers} layers, or none for a first segment."
        )
    return ops.shape(memories[0])[1] if memories else 0


def new_memories(memories: list[Tensor], states: list[Tensor], config: ModelConfig) -> list[Tensor]:
    """Returns the memories for the next segment, float [B, M, D] of each layer.

    Args:
      memories: those of this segment; an empty list for a first one.
      states: the inputs of the layers, float [B, T, D].
    """
    result = []
    for index in range(config.num_hidden_layers):
        memory = states[index]  # [B, T, D]
        if config.memory_reuse:
            memory = memory[:, : config.memory_reuse]
        if memories:
            memory = ops.concatenate([memories[index], memory], axis=1)
        if config.memory_length:
            memory = memory[:, -config.memory_length :]
        # Training does not go back into earlier segments (Transformer-XL, section 3.2).
        result.append(ops.stop_gradient(memory))
    return result
