"""Embeds texts: the encoder with pooling and optional dense layers, as a Keras model.

model = BertEmbedder.from_pretrained("all-MiniLM-L6-v2")  # a folder of sentence-transformers
model.fit((queries, positives))
vectors = model.encode(["A text.", "Another one."])  # float32 [N, D]
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from bert_tf.config.fine_tuning_defaults import BATCH_SIZE
from bert_tf.config.ranking_config import RetrieverConfig
from bert_tf.network.losses import WeightedSum
from bert_tf.network.pooled_layers import apply_layers
from bert_tf.network.pooling import l2_normalize, pool_tokens, pooling_of
from bert_tf.system.type_names import Batch, Column, Labels, Tensor, Texts
from bert_tf.tasks.base.examples.columns import read_texts
from bert_tf.tasks.base.models.raw_batches import KerasBatch, unpack_text_columns
from bert_tf.tasks.base.models.raw_input import RawInput
from bert_tf.tasks.base.models.text_model import TextModel
from bert_tf.tasks.embedding.answers import EmbedderAnswers
from bert_tf.tasks.embedding.contrastive_input import ContrastiveInput
from bert_tf.tasks.embedding.examples import read_embedding_columns
from bert_tf.tasks.embedding.features import SIDES, TextPacker, TrainingExamples, prepare_training
from bert_tf.tasks.embedding.loss_names import IN_BATCH, JOINT
from bert_tf.tasks.embedding.losses import Vectors, in_batch_accuracy, make_loss
from bert_tf.tasks.embedding.network import EmbeddingNetwork
from bert_tf.tasks.embedding.packing import pack_text, prompt_length
from bert_tf.tasks.embedding.sides import embed_sides
from bert_tf.text.packing import INPUTS, PackedText, by_length, pad_batch

SIDE_NAMES = tuple(f"{side}/" for side in SIDES)


@keras.saving.register_keras_serializable(package="bert_tf")
class InBatchAccuracy(keras.metrics.Mean):
    """The fraction of queries whose positive has the highest score of the batch's documents."""

    def update_state(
        self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None
    ) -> None:
        """Adds a batch; for the arguments see `BertEmbedder.task_loss`."""
        queries = y_pred[:, 0]  # [B, D]
        documents = y_pred[:, 1:]  # [B, M, D]
        weights = y_true[:, : ops.shape(documents)[1]]  # [B, M]
        accuracy = in_batch_accuracy(Vectors(queries, documents, weights))
        super().update_state(accuracy.mean(), accuracy.weight)


@keras.saving.register_keras_serializable(package="bert_tf")
class BertEmbedder(EmbedderAnswers, EmbeddingNetwork, TextModel):
    """The encoder with pooling, dense layers and normalization.

        model.fit((queries, positives))             # pairs
        model.fit((queries, positives, negatives))  # triplets
        model.fit((firsts, seconds), scores)        # scored pairs

    `save` and `keras.models.load_model` preserve vocabulary and prompts.

    Args:
      arguments, options: see `EmbeddingNetwork`.

    Call arguments:
      inputs: texts, or a dict with the encoder's inputs and optionally `prompt_lengths` int32 [B],
        the number of first tokens of each row that the pooling skips; other keys are ignored. A
        batch of `ContrastiveDataset` has these keys with the prefixes query/ and document/.
      training, dropout_seed: see `BertEncoder`.

    Returns:
      float32 [B, D], where D is `dimension`; for a batch of `ContrastiveDataset` float32
      [B, 1 + M, D], each query followed by its M documents.

    Reference: Reimers and Gurevych 2019, "Sentence-BERT".
    """

    default_name = "bert_embedder"
    raw_input_class: type[RawInput] = ContrastiveInput

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._compute: Any = None
        self._settings = RetrieverConfig()
        self._loss_name = ""

    def call(
        self, inputs: dict[str, Any], training: bool = False, dropout_seed: Tensor | None = None
    ) -> Any:
        if "query/input_word_ids" in inputs:
            # A contrastive batch: the texts of each side pass through this method again.
            seed = self.bert.draw_dropout_seed(training, dropout_seed)
            queries, documents = embed_sides(
                lambda texts, side_seed, side: self.call(texts, training, side_seed),
                inputs,
                seed,
                joint=self._loss_name in JOINT,
            )
            return ops.concatenate([queries[:, None], documents], axis=1)  # [B, 1 + M, D]
        encoded = self.bert(inputs, training=training, dropout_seed=dropout_seed)
        prompt_lengths = inputs.get("prompt_lengths")
        mask = inputs["input_mask"]
        for token_id in self.embedding.skipped_tokens:
            is_other = ops.not_equal(inputs["input_word_ids"], token_id)
            mask = mask * ops.cast(is_other, mask.dtype)
        return self.pool(encoded["sequence_output"], mask, prompt_lengths)

    def inputs_of(self, x: object) -> dict[str, Any]:
        """Returns the inputs for texts, with the model's default prompt."""
        prompt = self.embedding.prompt(None)
        rows = [self.pack(text, prompt) for text in read_texts(x)]
        skipped = prompt_length(self.tokenizer, self.embedding, prompt)
        batch = pad_batch(rows, self.tokenizer.vocab.pad_id)
        return {**batch, "prompt_lengths": np.full([len(rows)], skipped, np.int32)}

    def pool(self, sequence: Tensor, mask: Tensor, prompt_lengths: Tensor | None = None) -> Any:
        """Computes embeddings from the encoder's outputs.

        Args:
          sequence: float [B, T, H], the outputs of the last layer.
          mask: int [B, T], 0 for padding.
          prompt_lengths: see the call arguments.

        Returns:
          float32 [B, D].
        """
        if prompt_lengths is not None:
            # The encoder attends to the prompt, but the pooling skips it.
            positions = ops.arange(ops.shape(mask)[1], dtype="int32")  # [T]
            mask = mask * ops.cast(positions >= prompt_lengths[:, None], mask.dtype)
        # Several poolings are concatenated, [B, H] each.
        parts = []
        for name in self.embedding.pooling:
            pooling = pooling_of(name, self.config.pooled_token)
            parts.append(pool_tokens(sequence, mask, pooling))
        vectors = parts[0] if len(parts) == 1 else ops.concatenate(parts, axis=-1)
        vectors = apply_layers(self, self.embedding.dense, vectors)
        return l2_normalize(vectors) if self.embedding.normalize else vectors

    def named_prompt(self, name: str | None) -> str:
        return self.embedding.prompt(name)

    def side_prompt(self, side: str) -> str:
        return self.embedding.side_prompt(side)

    def encode_texts(self, texts: Sequence[str], prompt: str, batch_size: int) -> np.ndarray:
        rows = [self.pack(text, prompt) for text in texts]
        skipped = prompt_length(self.tokenizer, self.embedding, prompt)
        return self.encode_rows(rows, skipped, batch_size)

    def encode_rows(
        self, rows: Sequence[PackedText], skipped: int = 0, batch_size: int = BATCH_SIZE
    ) -> np.ndarray:
        """Embeds packed texts, float32 [N, D].

        Args:
          skipped: number of first tokens of each row that the pooling skips.
        """
        vectors = np.zeros([len(rows), self.dimension], np.float32)

        def compute(chosen: list[int]) -> list[int]:
            batch = pad_batch([rows[index] for index in chosen], self.tokenizer.vocab.pad_id)
            prompt_lengths = np.full([len(chosen)], skipped, np.int32)
            inputs = {**batch, "prompt_lengths": prompt_lengths}
            # Written in place: a list of vectors would need the memory twice.
            vectors[chosen] = self._embed_function()(inputs).numpy()
            return chosen

        by_length([len(row.ids) for row in rows], batch_size, compute)
        return vectors

    def pack(self, text: str, prompt: str = "") -> PackedText:
        """Tokenizes a prompt and a text, and truncates them to the maximum length."""
        return pack_text(self.tokenizer, self.embedding, text, prompt)

    # Training ----------------------------------------------------------------------------------

    needs_labels = False

    def fit(  # type: ignore[override]
        self,
        x: Texts | None = None,
        y: Labels | None = None,
        batch_size: int | None = None,
        epochs: int | None = None,
        *,
        loss: str = "",
        num_negatives: int = 4,
        loss_scale_factor: float = 20.0,
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
          loss: in_batch, symmetric, cosent, cosine, triplet or margin_mse; "": cosent for scored
            pairs, margin_mse for margins, otherwise in_batch.
          num_negatives: maximum number of negatives per example and epoch; an example with more
            uses different ones in each epoch.
          loss_scale_factor: factor of the cosines, 1 / temperature.
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
        """Embeds texts as `encode` does; other inputs go to Keras' `predict`."""
        if self.raw_input.is_raw(x):
            return self.encode(x, batch_size=batch_size or BATCH_SIZE)
        return super().predict(x, batch_size, *arguments, **options)

    def read_examples(  # type: ignore[override]
        self, x: Texts, y: Labels | None = None, weights: Column | None = None
    ) -> TrainingExamples:
        if weights is not None:
            raise ValueError("BertEmbedder has no sample_weight: its losses are for whole batches.")
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
        # The result is discarded: this reports matryoshka sizes that do not fit.
        make_loss(loss_name, self._settings, self.dimension)
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
          outputs: float32 [B, 1 + M, D], see the class.
          weights: not used: the documents of an example that pads the batch have weight 0.
        """
        queries = outputs[:, 0]  # [B, D]
        documents = outputs[:, 1:]  # [B, M, D]
        num_documents = ops.shape(documents)[1]
        loss = make_loss(self._loss_name, self._settings, self.dimension)
        # `keras_batch` put the weights of the documents before the scores.
        return loss(Vectors(queries, documents, y[:, :num_documents], y[:, num_documents:]))

    def own_loss(
        self, x: Batch, y: Tensor, outputs: Tensor, weights: Tensor | None, training: bool
    ) -> Any:
        """See `TextModel`; only batches of queries and documents have this loss."""
        is_embedding = not isinstance(outputs, dict)  # A `BertDenoiser` returns a dict.
        if is_embedding and len(outputs.shape) != 3:
            # [B, D]: a dict of ids, whose loss the user compiles.
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

    def _embed_function(self) -> Any:
        """Returns the model as a single graph for batches of all shapes."""
        if self._compute is None:
            signature = {name: tf.TensorSpec([None, None], tf.int32) for name in INPUTS}
            signature["prompt_lengths"] = tf.TensorSpec([None], tf.int32)
            self._compute = tf.function(
                lambda batch: self(batch, training=False),
                input_signature=[signature],
                autograph=False,
            )
        return self._compute


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
