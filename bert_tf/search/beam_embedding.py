"""Embeds texts in Apache Beam pipelines. Needs the extra: pip install '.[beam]'.

    texts | RunInference(SavedModelHandler("serving/mine/1"))  # vectors [D]
    embeddings = SavedModelEmbeddings("serving/mine/1", columns=["text"])
    rows | MLTransform(write_artifact_location=FOLDER).with_transform(embeddings)

Without columns the elements are items of apache_beam.ml.rag, whose sinks accept the results.

Beam's own TensorFlow handlers load by `tf.keras.models.load_model`, which reads no SavedModel in
Keras 3 (apache/beam issue 30616).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from apache_beam.ml.inference.base import ModelHandler, RunInference
from apache_beam.ml.rag.embeddings.base import create_text_adapter
from apache_beam.ml.transforms.base import EmbeddingsManager, _TextEmbeddingHandler

from bert_tf.search.bulk import Job, embed_shard, load_embedder
from bert_tf.search.saved_embedder import SavedEmbedder

if TYPE_CHECKING:
    from bert_tf.search.embedding import SearchEmbedder


class SavedModelHandler(ModelHandler):
    """Embeds texts with a SavedModel of `python -m export.saved_model --kind=embeddings`.

    Beam forms the batches, and the last bits of a vector depend on the other texts of its batch.

    Args:
      path: the folder with saved_model.pb, local or on any file system that TensorFlow reads.
      max_batch_size: largest number of texts per batch.
    """

    def __init__(self, path: str, max_batch_size: int = 64) -> None:
        super().__init__(max_batch_size=max_batch_size)
        self._path = path

    def load_model(self) -> SavedEmbedder:
        return SavedEmbedder(self._path)

    def run_inference(
        self,
        batch: Sequence[str],
        model: SavedEmbedder,
        inference_args: dict[str, Any] | None = None,
    ) -> np.ndarray:
        """Returns float32 [B, D]."""
        return model(batch)

    def get_metrics_namespace(self) -> str:
        return "bert_tf"


class SavedModelEmbeddings(EmbeddingsManager):
    """`SavedModelHandler` for MLTransform, on columns of rows or on items of apache_beam.ml.rag.

    Args:
      path: see `SavedModelHandler`.
      columns: names of the columns whose texts are replaced by vectors, lists of D floats; None:
        the elements are `EmbeddableItem`, and get a `dense_embedding`.
      max_batch_size: see `SavedModelHandler`.
    """

    def __init__(
        self, path: str, columns: list[str] | None = None, max_batch_size: int = 64
    ) -> None:
        adapter = None if columns else create_text_adapter()
        super().__init__(columns=columns, type_adapter=adapter, max_batch_size=max_batch_size)
        self.path = path

    def get_model_handler(self) -> ModelHandler:
        return SavedModelHandler(self.path, self.max_batch_size)

    def get_ptransform_for_processing(self, **_: object) -> RunInference:
        return RunInference(_TextEmbeddingHandler(self), inference_args=self.inference_args)


class ShardHandler(ModelHandler):
    """Embeds whole shards of a job, in the same batches as every other runner."""

    def __init__(self, job: Job) -> None:
        # A shard is a batch to Beam; the embedder forms the batches of its texts.
        super().__init__(min_batch_size=1, max_batch_size=1)
        self._job = job

    def load_model(self) -> "SearchEmbedder":
        return load_embedder(self._job)

    def run_inference(
        self,
        batch: Sequence[str],
        model: "SearchEmbedder",
        inference_args: dict[str, Any] | None = None,
    ) -> list[int]:
        return [embed_shard(self._job, name, model) for name in batch]

    def get_metrics_namespace(self) -> str:
        return "bert_tf"
