"""Registers embedders and plain encoders as kinds of models that can be loaded and exported."""

from bert_tf.tasks.base.serving.kind import Kind

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
ENCODER = Kind(
    name="encoder",
    request="text",
    head="",
    methods=(),
    model="bert_tf.network.encoder.BertEncoder",
    serving="bert_tf.tasks.embedding.serving.EncoderServing",
)
