"""Fingerprints of embedding models, which indexes and bulk jobs record.

A fingerprint has 32 hexadecimal digits: 16 for weights, vocabulary and embedding, and 16 for the
other settings of the network.
"""

import hashlib
import json
import typing
from typing import Any

import numpy as np

from bert_tf.checkpoints.embedding import HEAD, EmbeddingConfig
from bert_tf.config import BIAS_POSITIONS, DISENTANGLED_POSITIONS, ModelConfig

if typing.TYPE_CHECKING:
    from bert_tf.checkpoints.checkpoint import Checkpoint

# Fields of the configuration that do not change the vectors of given weights.
_WITHOUT_EFFECT = (
    # Training.
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    # Sequences of several segments, and the longest one.
    "memory_length",
    "memory_reuse",
    "max_position_embeddings",
    # Heads of other tasks.
    "classifier_pooling",
    "classifier_layers",
    "pooler_act",
    "head_act",
    "head_transform",
    "masked_lm_transform",
    "query_vector",
    "reads_left_to_right",
    # Names and shapes of the weights determine these.
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "embedding_size",
    "embedding_projection",
    "type_vocab_size",
    "num_layer_groups",
    "embedding_norm",
    "gated_feed_forward",
    "biases",
    "relative_bias_per_layer",
    "relative_unused_rows",
)


def fingerprint(checkpoint: "Checkpoint", embedding: EmbeddingConfig) -> str:
    """Returns a digest of weights, vocabulary, configuration, pooling and prompts.

    The pooler, the heads of other tasks and the maximum length are left out: vectors that differ
    only in these are comparable.
    """
    digest = hashlib.sha256()
    # Sorted, because formats store the weights in different orders.
    for name, value in sorted(checkpoint.weights.items()):
        if name.startswith(("bert/", HEAD)) and not name.startswith("bert/pooler/"):
            digest.update(f"{name} {value.shape}\n".encode())
            digest.update(np.ascontiguousarray(value).tobytes())
    tokens = checkpoint.vocab.tokens if checkpoint.vocab else ()
    config = checkpoint.config
    settings = embedding.to_dict()
    for ignored in ("max_seq_length", "similarity"):
        del settings[ignored]
    values = [list(tokens), config.hidden_act, config.do_lower_case, settings]
    digest.update(json.dumps(values, sort_keys=True).encode())
    text = json.dumps(_network_settings(config), sort_keys=True)
    return digest.hexdigest()[:16] + hashlib.sha256(text.encode()).hexdigest()[:16]


def _network_settings(config: ModelConfig) -> dict[str, Any]:
    """Returns the fields of the configuration that change the vectors of given weights.

    Fields with their default are left out, so that a field that is added later, with a default
    that changes nothing, does not change fingerprints.
    """
    defaults = ModelConfig().to_dict()
    ignored = {*_WITHOUT_EFFECT, *_unused_fields(config)}
    settings = {}
    for name, value in config.to_dict().items():
        if name == "pos_att_type":
            # The terms are added, so their order has no effect.
            value = ",".join(sorted(value.split(","), reverse=True))
        if name not in ignored and value != defaults[name]:
            settings[name] = value
    return settings


def _unused_fields(config: ModelConfig) -> list[str]:
    """Returns fields that have no effect because of the values of other fields."""
    unused = []
    if config.position_type != "sinusoidal":
        unused.append("initializer_range")  # otherwise the scale of the sines
    if not config.position_offset:
        unused.append("pad_token_id")  # otherwise positions are counted without padding
    if not config.position_type.startswith("rotary"):
        unused += ["rotary_theta", "local_rotary_theta"]
    elif not config.local_attention or config.local_rotary_theta == config.rotary_theta:
        unused.append("local_rotary_theta")
    if config.position_type not in (*BIAS_POSITIONS, *DISENTANGLED_POSITIONS):
        unused += ["relative_buckets", "relative_max_distance"]
    if config.position_type not in DISENTANGLED_POSITIONS:
        unused.append("pos_att_type")
    if config.position_type != "transformer_xl":
        unused.append("clamp_distance")
    if not config.local_attention:
        unused.append("global_attention_every")
    return unused
