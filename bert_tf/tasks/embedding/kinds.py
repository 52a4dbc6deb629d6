"""Registers embedders and plain encoders as kinds of models that can be loaded and exported."""

import typing

from bert_tf.tasks.base.serving.kind import Kind

if typing.TYPE_CHECKING:
    from bert_tf.checkpoints.checkpoint import Checkpoint


def has_token_vectors(checkpoint: "Checkpoint") -> bool:
    """Returns whether a checkpoint is a model of late interaction."""
    return checkpoint.embedding is not None and checkpoint.embedding.tokens is not None


EMBEDDINGS = Kind(
    name="embeddings",
    request="text",
    head="",
    methods=("encode", "encode_query", "encode_document"),
    model="bert_tf.tasks.embedding.model.BertEmbedder",
    serving="bert_tf.tasks.embedding.serving.EmbeddingServing",
    is_default=lambda checkpoint, folder: True,  # Any encoder can compute embeddings.
    options=("pooling", "normalize", "side"),
    model_options={"use_pooler": False},
)
LATE_INTERACTION = Kind(
    name="late_interaction",
    request="text",
    head="",
    methods=("encode_queries", "encode_documents", "score"),
    model="bert_tf.tasks.embedding.late_interaction_model.BertLateInteraction",
    serving="bert_tf.tasks.embedding.serving.LateInteractionServing",
    is_default=lambda checkpoint, folder: has_token_vectors(checkpoint),
    options=("side",),
    model_options={"use_pooler": False},
)
ENCODER = Kind(
    name="encoder",
    request="text",
    head="",
    methods=(),
    model="bert_tf.network.encoder.BertEncoder",
    serving="bert_tf.tasks.embedding.serving.EncoderServing",
)
