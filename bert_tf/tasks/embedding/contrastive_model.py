"""The base class of embedders that train in Keras' loop, on pairs and triplets of texts."""

import abc
import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf
from keras import ops

from bert_tf.config.fine_tuning_defaults import BATCH_SIZE
from bert_tf.config.ranking_config import RetrieverConfig
from bert_tf.metrics.maxsim import MAXSIM
from bert_tf.network.losses import WeightedSum
from bert_tf.system.type_names import Batch, Column, Labels, Tensor, Texts
from bert_tf.tasks.base.models.raw_batches import KerasBatch, unpack_text_columns
from bert_tf.tasks.base.models.raw_input import RawInput
from bert_tf.tasks.base.models.text_model import TextModel
from bert_tf.tasks.embedding.contrastive_input import ContrastiveInput
from bert_tf.tasks.embedding.examples import read_embedding_columns
from bert_tf.tasks.embedding.features import SIDES, TextPacker, TrainingExamples, prepare_training
from bert_tf.tasks.embedding.loss_names import IN_BATCH, JOINT, SCALES, check_similarity
from bert_tf.tasks.embedding.losses import Vectors, in_batch_accuracy, make_loss
from bert_tf.tasks.embedding.network import EmbeddingNetwork
from bert_tf.tasks.embedding.sides import embed_sides

SIDE_NAMES = tuple(f"{side}/" for side in SIDES)


@keras.saving.register_keras_serializable(package="bert_tf")
class InBatchAccuracy(keras.metrics.Mean):
    """The fraction of queries whose positive has the highest score of the batch's documents."""

    def update_state(
        self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None
    ) -> None:
        """Adds a batch; for the arguments see `ContrastiveModel.task_loss`."""
        # A mean over a query's tokens ranks documents as the sum does.
        similarity = MAXSIM[0] if len(y_pred.shape) == 4 else "cosine"
        accuracy = in_batch_accuracy(vectors_of(y_pred, y_true), similarity)
        super().update_state(accuracy.mean(), accuracy.weight)


class ContrastiveModel(EmbeddingNetwork, TextModel):
    """Base class of models that learn from batches of queries and their documents.

    For such a batch, `call` returns float32 [B, 1 + M, D], each query followed by its M documents;
    of late interaction [B, 1 + M, T, D], 0 for tokens that do not score.
    """

    raw_input_class: type[RawInput] = ContrastiveInput
    needs_labels = False
    loss_similarity = "cosine"  # in losses
    _loss_name = ""

    @functools.cached_property
    def _settings(self) -> RetrieverConfig:
        return RetrieverConfig(loss_scale_factor=SCALES[self.loss_similarity])

    @abc.abstractmethod
    def embed_side(
        self, inputs: dict[str, Any], training: bool, dropout_seed: Tensor | None, side: str
    ) -> Tensor:
        """Embeds texts of a side, query or document; see `call`."""

    @abc.abstractmethod
    def predict_texts(self, texts: Texts, batch_size: int) -> Any:
        """Returns the embeddings of texts, for `predict`."""

    def embed_batch(
        self, batch: Batch, training: bool, dropout_seed: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Embeds the queries and the documents of a batch; see `embed_sides`."""
        return embed_sides(
            lambda inputs, seed, side: self.embed_side(inputs, training, seed, side),
            batch,
            self.bert.draw_dropout_seed(training, dropout_seed),
            joint=self._loss_name in JOINT,
        )

    def fit(  # type: ignore[override]
        self,
        x: Texts | None = None,
        y: Labels | None = None,
        batch_size: int | None = None,
        epochs: int | None = None,
        *,
        loss: str = "",
        num_negatives: int = 4,
        loss_scale_factor: float | None = None,
        triplet_margin: float = 5.0,
        triplet_distance: str = "euclidean",
        matryoshka_dims: Sequence[int] = (),
        matryoshka_weights: Sequence[float] = (),
        **options: Any,
    ) -> Any:
        """Trains on pairs or triplets of texts, as `run_retriever` does.

            model.fit((queries, positives), epochs=1, batch_size=64)
            model.fit([("a query", "its answer", "another answer"), ...])
            model.fit((firsts, seconds), scores, validation_data=((firsts, seconds), scores))

        Args:
          x: pairs or triplets, as columns or as a list of tuples; see `read_embedding_columns`.
            Single texts are pairs of a text with itself (SimCSE).
          y: scores of pairs, or a teacher's margins for triplets.
          batch_size: examples per step; None: 32. In-batch losses use the documents of the other
            examples of a batch as negatives, and a batch contains no text twice.
          epochs: see `TextModel.fit`.
          loss: in_batch, symmetric, cosent, cosine, triplet, margin_mse or divergence; "": cosent
            for scored pairs, margin_mse for margins, otherwise in_batch. Late interaction has no
            cosent, cosine and triplet.
          num_negatives: maximum number of negatives per example and epoch; an example with more
            uses different ones in each epoch.
          loss_scale_factor: factor of the similarities, 1 / temperature; None: 20 for cosines, 1
            for MaxSim.
          triplet_margin, triplet_distance: for the triplet loss; the distance is euclidean or
            cosine.
          matryoshka_dims: sizes N for which the first N numbers of an embedding are trained as an
            embedding as well.
          matryoshka_weights: a weight for each size; (): 1 for each.
          options: arguments of `TextModel.fit`, such as `validation_data` (x or (x, y)),
            `callbacks`, `learning_rate` and `verbose`. Validation reports the loss, and with
            in-batch losses the accuracy within batches of validation examples.

        Returns:
          Keras' `History`.

        Raises:
          ValueError: if examples or settings are invalid, before anything is traced.
        """
        if self.raw_input.is_raw(x):
            if loss_scale_factor is None:
                loss_scale_factor = SCALES[self.loss_similarity]
            self._settings = training_settings(
                retrieval_loss=loss,
                num_negatives=num_negatives,
                loss_scale_factor=float(loss_scale_factor),
                triplet_margin=float(triplet_margin),
                triplet_distance=triplet_distance,
                matryoshka_dims=comma_text(matryoshka_dims),
                matryoshka_weights=comma_text(matryoshka_weights),
            )
            batch_size = batch_size or BATCH_SIZE
        return super().fit(x, y, batch_size, epochs, **options)

    def predict(
        self, x: Any, batch_size: int | None = None, *arguments: Any, **options: Any
    ) -> Any:
        """Embeds texts as documents; other inputs go to Keras' `predict`."""
        if self.raw_input.is_raw(x):
            return self.predict_texts(x, batch_size or BATCH_SIZE)
        return super().predict(x, batch_size, *arguments, **options)

    def read_examples(  # type: ignore[override]
        self, x: Texts, y: Labels | None = None, weights: Column | None = None
    ) -> TrainingExamples:
        if weights is not None:
            raise ValueError("sample_weight has no effect: the losses are for whole batches.")
        if self.compiled and not (self.compiler.has_own_loss or self.compiler.is_default):
            raise ValueError(
                "The model is compiled with a loss, but embeddings are trained with losses for "
                'whole batches: compile it without a loss, and give fit(..., loss="in_batch").'
            )
        examples = read_embedding_columns(x, y)
        packer = TextPacker(self.tokenizer, self.embedding)
        config = self.config
        has_dropout = bool(config.hidden_dropout_prob or config.attention_probs_dropout_prob)
        training_examples, loss_name = prepare_training(
            packer, examples, self._settings, has_dropout
        )
        check_similarity(loss_name, self.loss_similarity)
        # The result is discarded: this reports matryoshka sizes that do not fit.
        make_loss(loss_name, self._settings, self.dimension, self.loss_similarity)
        if loss_name != self._loss_name:
            # Keras keeps the traced graphs of a step, which contain the previous loss.
            self.train_function = None
            self.test_function = None
        self._loss_name = loss_name
        return training_examples

    def prepare_head(self, examples: TrainingExamples) -> None:
        """Uses the loss of the training examples for the validation examples as well."""
        self._settings = dataclasses.replace(self._settings, retrieval_loss=self._loss_name)

    def keras_batch(self, batch: dict[str, Any]) -> KerasBatch:
        inputs = {name: value for name, value in batch.items() if name.startswith(SIDE_NAMES)}
        # Keras passes a single tensor of labels, so that weights and scores share it: [B, M + S].
        labels = [batch["document_weights"]]
        if "scores" in batch:
            labels.append(batch["scores"])
        return inputs, tf.concat(labels, axis=1), batch["example_weights"]

    def task_loss(
        self, x: Batch, y: Tensor, outputs: Tensor, weights: Tensor | None
    ) -> WeightedSum:
        """Returns the loss of a batch.

        Args:
          x: not used.
          y: float32 [B, M + S]: the weights of the documents, then the scores.
          outputs: see the class.
          weights: not used: the documents of an example that pads the batch have weight 0.
        """
        loss = make_loss(self._loss_name, self._settings, self.dimension, self.loss_similarity)
        return loss(vectors_of(outputs, y))

    def own_loss(
        self, x: Batch, y: Tensor, outputs: Tensor, weights: Tensor | None, training: bool
    ) -> Any:
        """See `TextModel`; only batches of queries and documents have this loss."""
        is_embedding = not isinstance(outputs, dict)  # A `BertDenoiser` returns a dict.
        if is_embedding and len(outputs.shape) != 3 + self.has_token_vectors:
            # [B, D] or [B, T, D]: a dict of ids, whose loss the user compiles.
            return None
        return super().own_loss(x, y, outputs, weights, training)

    @property
    def default_metrics(self) -> Any:
        return [InBatchAccuracy(name="accuracy")] if self._loss_name in IN_BATCH else []

    def unpack_texts(self, data: object) -> tuple[Any, Any, Any]:
        return unpack_text_columns(data)

    @property
    def traced_settings(self) -> tuple[Any, ...]:  # type: ignore[override]
        return self._loss_name, self._settings


def vectors_of(outputs: Tensor, y: Tensor) -> Vectors:
    """Returns the embeddings and labels of a batch; see `ContrastiveModel.task_loss`."""
    documents = outputs[:, 1:]  # [B, M, D]
    num_documents = ops.shape(documents)[1]
    # `keras_batch` put the weights of the documents before the scores.
    return Vectors(outputs[:, 0], documents, y[:, :num_documents], y[:, num_documents:])


def training_settings(**settings: Any) -> RetrieverConfig:
    """Returns the settings of training, checked as the flags of `run_retriever`."""
    config = RetrieverConfig(**settings)
    if config.retrieval_loss == "denoising" or config.has_data_sets:
        raise ValueError(f"loss is {config.retrieval_loss!r}, which only run_retriever supports.")
    config.check_needs(settings)
    return config


def comma_text(numbers: Sequence[float] | str) -> str:
    """Returns numbers in the format of a flag, separated by commas."""
    return numbers if isinstance(numbers, str) else ",".join(map(str, numbers))
