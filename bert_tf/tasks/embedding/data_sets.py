"""Training on several data sets, each with its own loss."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from bert_tf.config.ranking_config import RetrieverConfig
from bert_tf.network.losses import WeightedSum
from bert_tf.tasks.base.examples.contrastive_batches import ContrastiveDataset
from bert_tf.tasks.base.examples.mixed_batches import MixedDataset
from bert_tf.tasks.embedding.examples import EmbeddingExample
from bert_tf.tasks.embedding.features import TextPacker, prepare_training
from bert_tf.tasks.embedding.losses import Loss, make_loss


class DataSetLoss(NamedTuple):
    """The loss of one data set, and how much of a batch is the set's own."""

    loss: Loss
    num_documents: int  # of an example
    num_scores: int


def prepare_data_sets(
    packer: TextPacker,
    data_sets: Sequence[Sequence[EmbeddingExample]],
    task: RetrieverConfig,
    has_dropout: bool,
) -> tuple[MixedDataset, list[str]]:
    """Packs the examples of each data set for its loss; returns them and the losses' names."""
    for examples in data_sets:
        for example in examples:
            packer.add("query", example.query)
            for text in (example.positive, *example.negatives):
                packer.add("document", text)
    # One loss is that of all sets; without a loss, the form of each set's examples decides.
    given = task.losses
    names = given if len(given) > 1 else [*given, ""][:1] * len(data_sets)
    sets = []
    chosen = []
    for examples, name in zip(data_sets, names, strict=True):
        own_task = dataclasses.replace(task, retrieval_loss=name)
        packed, loss = prepare_training(packer, examples, own_task, has_dropout)
        sets.append(packed.rows)
        chosen.append(loss)
    return MixedDataset(sets, task.mixing or "proportional"), chosen


def make_data_set_losses(
    data_sets: Sequence[ContrastiveDataset],
    names: Sequence[str],
    task: RetrieverConfig,
    dimension: int,
) -> list[DataSetLoss]:
    """Returns the loss of each data set."""
    losses = []
    for one, name in zip(data_sets, names, strict=True):
        loss = make_loss(name, task, dimension)
        losses.append(DataSetLoss(loss, 1 + one.num_negatives, one.num_scores))
    return losses


def loss_of_data_set(
    losses: Sequence[DataSetLoss],
    data_set: tf.Tensor,
    queries: tf.Tensor,
    documents: tf.Tensor,
    weights: tf.Tensor,
    scores: tf.Tensor | None,
) -> WeightedSum:
    """Returns the loss of a batch by its data set, float32 [B], the same in all rows.

    The other arguments are those of the losses; they may have more documents and scores than the
    examples of the set have.
    """

    def compute(one: DataSetLoss) -> tuple[tf.Tensor, tf.Tensor]:
        own_scores = None if scores is None else scores[:, : one.num_scores]
        found = one.loss(
            queries,
            documents[:, : one.num_documents],
            weights[:, : one.num_documents],
            own_scores,
        )
        return found.total, found.weight

    branches = [lambda one=one: compute(one) for one in losses]
    total, weight = tf.switch_case(tf.cast(data_set[0], tf.int32), branches)
    return WeightedSum(total, weight)
