"""Registers embedders and plain encoders as kinds of models that can be loaded and exported."""

import typing

from bert_tf.tasks.base.serving.kind import Kind

if typing.TYPE_CHECKING:
    from bert_tf.checkpoints.checkpoint import Checkpoint


def always(checkpoint: "Checkpoint", folder: str) -> bool:
    """Returns True: any encoder can compute embeddings."""
    return True


EMBEDDINGS = Kind(
    name="embeddings",
    request="text",
    head="",
    methods=("encode", "encode_query", "encode_document"),
    model="bert_tf.tasks.embedding.model.BertEmbedder",
    serving="bert_tf.tasks.embedding.serving.EmbeddingServing",
    is_default=always,
    options=("pooling", "normalize", "side"),
    model_options={"use_pooler": False},
)
ENCODER = Kind(
    name="encoder",
    request="text",
    head="",
    methods=(),
    model="bert_tf.network.encoder.BertEncoder",
    serving="bert_tf.tasks.base.serving.encoder.EncoderServing",
)
