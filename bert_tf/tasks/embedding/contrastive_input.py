"""Raw input of an embedder: groups of texts, in batches that contain no text twice."""

from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.corpus.mapping import ALL
from bert_tf.system.type_names import Column, Labels, Texts
from bert_tf.tasks.base.examples.contrastive_batches import (
    ContrastiveDataset,
    contrastive_batches,
    evaluation_contrastive_batches,
)
from bert_tf.tasks.base.examples.known_texts import KnownTexts
from bert_tf.tasks.base.examples.rows import TokenizedDataset, length_buckets
from bert_tf.tasks.base.models import raw_batches
from bert_tf.tasks.base.models.raw_input import RawInput
from bert_tf.tasks.embedding.features import TrainingExamples
from bert_tf.text.text_counts import TextCounts


class ContrastiveInput(RawInput):
    """The raw input of a `BertEmbedder`."""

    def is_raw(self, x: object) -> bool:
        """Returns whether inputs are texts; other inputs go to Keras unchanged."""
        return raw_batches.is_text_column(x)

    def training_data(  # type: ignore[override]
        self, examples: TrainingExamples, batch_size: int, seed: int | None, first_epoch: int = 0
    ) -> tuple[tf.data.Dataset, int]:
        groups: ContrastiveDataset = examples.rows
        steps = groups.batches_per_epoch(batch_size)
        buckets = self.buckets(groups.rows)
        # Steps count from the first epoch, so that a continued training gets other batches.
        data = contrastive_batches(groups, batch_size, first_epoch * steps, seed, buckets, ALL)
        return data.map(self.model.keras_batch), steps

    def evaluation_data(
        self,
        data: object,
        batch_size: int,
        known_texts: KnownTexts | None = None,
        counts: TextCounts | None = None,
    ) -> Any:
        x, y, weights = self.model.unpack_texts(data)
        if not self.is_raw(x):
            return super().evaluation_data(data, batch_size)
        examples = self.model.read_examples(x, y, weights)
        groups = examples.rows
        if known_texts and counts:
            counts.num_known, counts.num_compared = known_texts.count(examples)
        buckets = self.buckets(groups.rows)
        return evaluation_contrastive_batches(groups, batch_size, buckets).map(
            self.model.keras_batch
        )

    def pack_batch(
        self,
        x: Texts,
        y: Labels | None,
        weights: Column | None = None,
        is_evaluated: bool = False,
        length: int = 0,
    ) -> raw_batches.KerasBatch:
        groups = self.model.read_examples(x, y, weights).rows
        chosen = np.arange(len(groups))  # all examples, with the negatives of epoch 0
        batch = groups.batch(chosen, 0, len(groups), groups.longest(chosen, 0))
        return tf.nest.map_structure(np.asarray, self.model.keras_batch(batch))

    def pack_stream(
        self, data: object, class_weight: object = None, is_evaluated: bool = False
    ) -> tuple[Any, Any]:
        if raw_batches.is_stream(data):
            batch, data = raw_batches.first_batch(data)
            if raw_batches.holds_texts(raw_batches.unpack_batch(batch)[0]):
                raise ValueError(
                    "BertEmbedder does not train on a generator of texts: give lists, from which "
                    "it makes batches that contain no text twice."
                )
        return data, class_weight

    def buckets(self, rows: TokenizedDataset) -> list[int]:
        return length_buckets(max(1, int(rows.lengths.max())), bool(self.model.jit_compile))
