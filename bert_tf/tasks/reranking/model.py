"""A cross-encoder as a Keras model: scores a document for a query, reading both together."""

import pathlib
from collections.abc import Sequence
from typing import Any, Self

import keras
import numpy as np
from keras import ops

from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.checkpoints.cross_encoder import check_one_label
from bert_tf.checkpoints.cross_encoder_settings import stated_activation, stated_length
from bert_tf.checkpoints.hub import record_of
from bert_tf.config import ModelConfig
from bert_tf.config.fine_tuning_defaults import BATCH_SIZE
from bert_tf.config.ranking_config import RerankerConfig
from bert_tf.network.losses import WeightedSum
from bert_tf.system.type_names import Batch, Column, Labels, Tensor, Texts
from bert_tf.tasks.base.examples.rows import TokenizedDataset
from bert_tf.tasks.base.models.fine_tuned import FineTunedModel
from bert_tf.tasks.base.models.preprocessing import FROM_CHECKPOINT, make_preprocessor
from bert_tf.tasks.base.models.raw_batches import KerasBatch, unpack_text_columns
from bert_tf.tasks.reranking.answers import RerankerAnswers, read_query_pairs
from bert_tf.tasks.reranking.examples import read_ranking_columns
from bert_tf.tasks.reranking.features import RankingExamples, training_rows
from bert_tf.tasks.reranking.losses import RankingLoss
from bert_tf.text.packing import INPUTS, PackedText, pack_pair


@keras.saving.register_keras_serializable(package="bert_tf")
class BertReranker(RerankerAnswers, FineTunedModel):
    """The encoder with a head that scores a document for a query.

        model = bert_tf.BertReranker.from_pretrained("cross-encoder/ms-marco-MiniLM-L6-v2")
        model.rank("a query", documents)  # [{"index": 2, "score": 0.98, "document": "..."}, ...]
        model.fit((queries, documents), labels)

    Args:
      config: shape of the network.
      activation: `sigmoid` or `identity`: the function from a logit to a score. `fit` sets it to
        sigmoid for bce, otherwise to identity.
      recompute, unpad: see `BertEncoder`.
      preprocessor: see `FineTunedModel`.

    Call arguments:
      inputs: dict of int32 [B, T] for pairs, or [B, L, T] for L documents of each query:
        `input_word_ids`, `input_mask`, `input_type_ids`; other keys are ignored.
      training, dropout_seed: see `BertEncoder`.

    Returns:
      float32 [B, 1] or [B, L], unnormalised.

    Reference: Nogueira and Cho 2019, "Passage re-ranking with BERT".
    """

    head_name = "classifier"
    needs_labels = False

    def __init__(self, config: ModelConfig, activation: str = "sigmoid", **kwargs: Any) -> None:
        if activation not in ("sigmoid", "identity"):
            raise ValueError(f"activation is {activation!r}, expected sigmoid or identity.")
        kwargs = {"name": "bert_reranker", **kwargs, "num_labels": 1}
        kwargs["use_pooler"] = config.classifier_pooling == "pooler"
        super().__init__(config, head="classifier", **kwargs)
        self.activation = activation
        self._settings = RerankerConfig()

    def call(
        self, inputs: dict[str, Any], training: bool = False, dropout_seed: Tensor | None = None
    ) -> Any:
        # [B, T] are pairs, [B, L, T] lists of documents.
        if len(inputs["input_word_ids"].shape) == 2:
            return self.score_texts(inputs, training, dropout_seed)
        return self.score_choices(inputs, training, dropout_seed)

    def pair_logits(
        self, queries: Sequence[str], documents: Sequence[str], batch_size: int
    ) -> np.ndarray:
        packed = []
        for query, document in zip(queries, documents, strict=True):
            packed.append(self.pack(query, document))
        rows = TokenizedDataset(packed, num_choices=1, pad_id=self.tokenizer.vocab.pad_id)
        outputs = self.predict_rows(rows, batch_size)  # N times [1]
        return np.array([logits[0] for logits in outputs], np.float32)

    def pack(self, query: str, document: str) -> PackedText:
        """Tokenizes a query and a document, and truncates them to the maximum length."""
        query_ids = self.tokenizer.encode(query)
        document_ids = self.tokenizer.encode(document)
        return pack_pair(self.tokenizer.vocab, query_ids, document_ids, self.max_seq_length)

    # Training ----------------------------------------------------------------------------------

    def fit(  # type: ignore[override]
        self,
        x: Texts | None = None,
        y: Labels | None = None,
        batch_size: int | None = None,
        epochs: int | None = None,
        *,
        loss: str = "bce",
        positive_weight: float = 1.0,
        lambda_k: int = 0,
        list_size: int = 8,
        **options: Any,
    ) -> Any:
        """Trains on queries with documents, as `run_reranker` does.

            model.fit((queries, documents), labels)                    # pairs
            model.fit((queries, lists), lists_of_grades, loss="lambda")
            model.fit((queries, positives, negatives), loss="listnet")

        Args:
          x: queries with documents, or with positives and negatives, as columns or as a list of
            tuples; see `read_ranking_columns`.
          y: labels of the documents, 0 for an irrelevant one; for mse and margin_mse the scores of
            a teacher.
          batch_size: documents per step for bce and mse, otherwise lists; see `TextModel.fit`.
          epochs: see `TextModel.fit`.
          loss: bce, mse, margin_mse, listnet or lambda.
          positive_weight: weight of relevant documents in bce.
          lambda_k: number of top ranks that lambda considers; 0: all.
          list_size: maximum number of documents of a list, relevant ones first.
          options: arguments of `TextModel.fit`, such as `validation_data` (x or (x, y)),
            `callbacks`, `learning_rate` and `verbose`.

        Returns:
          Keras' `History`.

        Raises:
          ValueError: if examples or settings are invalid, before anything is traced.
        """
        if self.raw_input.is_raw(x):
            settings: dict[str, Any] = {
                "ranking_loss": loss,
                "positive_weight": float(positive_weight),
                "lambda_k": lambda_k,
                "list_size": list_size,
            }
            config = RerankerConfig(**settings)
            config.check_needs(settings)
            if config != self._settings:
                # Keras keeps the traced graphs of a step, which contain the previous loss.
                self.train_function = None
                self.test_function = None
            self._settings = config
        return super().fit(x, y, batch_size, epochs, **options)

    def predict(
        self, x: Texts, batch_size: int | None = None, *arguments: Any, **options: Any
    ) -> Any:
        """Returns the unnormalised scores of pairs (query, document), float32 [N].

        Other inputs are passed to Keras' `predict`.
        """
        if self.raw_input.is_raw(x):
            return self.pair_logits(*read_query_pairs(x), batch_size or BATCH_SIZE)
        return super().predict(x, batch_size, *arguments, **options)

    def inputs_of(self, x: object) -> dict[str, Any]:
        if isinstance(x, tuple):
            return self.needed_preprocessor(*x)
        return super().inputs_of(x)

    def read_examples(
        self, x: Texts, y: Labels | None = None, weights: Column | None = None
    ) -> RankingExamples:
        if weights is not None:
            raise ValueError("BertReranker has no sample_weight: its losses are for whole lists.")
        name = self._settings.ranking_loss
        examples = read_ranking_columns(x, y, name)
        rows = training_rows(
            examples, self.tokenizer, self.max_seq_length, name, self._settings.list_size
        )
        return RankingExamples(examples, rows)

    def prepare_head(self, examples: Any) -> None:
        """Chooses the activation that fits the loss."""
        self.activation = "sigmoid" if self._settings.ranking_loss == "bce" else "identity"

    def keras_batch(self, batch: dict[str, Any]) -> KerasBatch:
        inputs = {name: batch[name] for name in INPUTS}
        # Keras passes the mask of documents, [B, L], to the loss as sample weights.
        weights = batch["list_mask"] * batch["example_weights"][:, None]
        return inputs, batch["list_labels"], weights

    def task_loss(
        self, x: Batch, y: Tensor, outputs: Tensor, weights: Tensor | None
    ) -> WeightedSum:
        # Without weights, all documents of [B, L] count.
        mask = ops.ones_like(outputs) if weights is None else ops.cast(weights, "float32")
        given = self._settings
        loss = RankingLoss(given.ranking_loss, given.positive_weight, given.lambda_k)
        return loss(outputs, ops.cast(y, "float32"), mask)

    @property
    def default_metrics(self) -> Any:
        return []

    def unpack_texts(self, data: object) -> tuple[Any, Any, Any]:
        return unpack_text_columns(data)

    @property
    def traced_settings(self) -> tuple[Any, ...]:  # type: ignore[override]
        return (self._settings,)

    # Checkpoints -------------------------------------------------------------------------------

    @classmethod
    def from_pretrained(
        cls,
        path: str | pathlib.Path,
        allow_missing: Sequence[str] = (),
        allow_unexpected: Sequence[str] = (),
        *,
        preprocessor: Any = FROM_CHECKPOINT,
        max_seq_length: int = 0,
        activation: str = "",
        **arguments: Any,
    ) -> Self:
        """Reads a run of `run_reranker`, a folder of CrossEncoder, or another checkpoint.

        Args:
          path, allow_missing, allow_unexpected, preprocessor: see `FineTunedModel.from_pretrained`.
          max_seq_length: maximum length of a pair; 0: the length that the folder states, otherwise
            512, or the number of positions if the encoder has fewer.
          activation: `sigmoid` or `identity`; "": the activation that the folder states, otherwise
            sigmoid.
          arguments: arguments of the constructor; `new_head=True` initializes a new head, for
            example on an encoder that was only pre-trained.

        Raises:
          ValueError: if the checkpoint cannot be read, or its head has several labels.
        """
        checkpoint = cls.read(path, allow_missing, allow_unexpected)
        folder = record_of(path)
        if preprocessor == FROM_CHECKPOINT:
            # A folder may state a longer maximum than the encoder has positions.
            length = max_seq_length or min(stated_length(folder), checkpoint.config.longest_row)
            preprocessor = make_preprocessor(checkpoint, length)
        arguments["preprocessor"] = preprocessor
        arguments["activation"] = activation or stated_activation(folder) or "sigmoid"
        return cls.from_checkpoint(checkpoint, allow_missing, **arguments)

    @classmethod
    def from_checkpoint(
        cls,
        checkpoint: Checkpoint,
        allow_missing: Sequence[str] = (),
        new_head: bool = False,
        **arguments: Any,
    ) -> Self:
        if not new_head and cls.head_name in checkpoint.heads:
            check_one_label(checkpoint)
        return super().from_checkpoint(checkpoint, allow_missing, new_head, **arguments)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "activation": self.activation}
