"""Embeds the shards of a job in Apache Beam. Needs the extra: pip install '.[beam]'."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from apache_beam.ml.inference.base import ModelHandler

from bert_tf.search.bulk import Job, embed_shard, load_embedder

if TYPE_CHECKING:
    from bert_tf.search.embedding import SearchEmbedder


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
