"""Late interaction (ColBERT): the encoder with a vector for each token, compared by MaxSim.

model = BertLateInteraction.from_pretrained("colbert")  # of sentence-transformers, PyLate, Stanford
model.fit((queries, positives))
scores = model.score(["a query"], ["A document.", "Another one."])  # float32 [1, 2]
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, Self

import keras
import numpy as np
import tensorflow as tf

from bert_tf.checkpoints.checkpoint import Checkpoint, embedding_of
from bert_tf.checkpoints.embedding import HEAD, EmbeddingConfig
from bert_tf.checkpoints.token_vectors import QUERY_LENGTH, SIDES, TokenVectors
from bert_tf.config import ModelConfig
from bert_tf.config.fine_tuning_defaults import BATCH_SIZE
from bert_tf.config.pooled_layers import DenseStep
from bert_tf.metrics.maxsim import MAXSIM
from bert_tf.network.pooled_layers import apply_layers
from bert_tf.network.pooling import l2_normalize
from bert_tf.system.number_arguments import check_numbers
from bert_tf.system.type_names import Tensor, Texts
from bert_tf.tasks.embedding.answers import LateInteractionAnswers
from bert_tf.tasks.embedding.contrastive_model import ContrastiveModel
from bert_tf.tasks.embedding.packing import pack_text
from bert_tf.tasks.embedding.token_pooling import pool_tokens_of_document
from bert_tf.text.packing import BATCHES_AT_ONCE, INPUTS, by_length, pad_batch

QUERY, DOCUMENT = SIDES


@keras.saving.register_keras_serializable(package="bert_tf")
class BertLateInteraction(LateInteractionAnswers, ContrastiveModel):
    """The encoder with dense layers and normalization of each token's vector.

    Args:
      arguments, options: see `EmbeddingNetwork`; the embedding must have `tokens`, and there must
        be a vocabulary, with the token that expands queries and those that do not score.

    Call arguments:
      inputs: a dict with the encoder's inputs and optionally `is_query` int32 [B], 1 for queries;
        without it the texts are documents. Other keys are ignored.
      training, dropout_seed: see `BertEncoder`.

    Returns:
      float32 [B, T, D], 0 for tokens that do not score. T is at least the length to which queries
      are expanded, if some may be queries. For a batch of `ContrastiveDataset` [B, 1 + M, T, D],
      each query followed by its M documents.

    Reference: Khattab and Zaharia 2020, "ColBERT: Efficient and Effective Passage Search via
    Contextualized Late Interaction over BERT".
    """

    default_name = "bert_late_interaction"
    has_token_vectors = True

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        if self.vocab is None:
            raise ValueError("BertLateInteraction needs a vocabulary; make it with vocab=.")
        self._encode = functools.lru_cache(maxsize=None)(self._make_encode)
        self.expansion_id = self._find_expansion()
        # Whether each id of the vocabulary scores, bool [V].
        self._scores = {side: self._scoring_ids(side) for side in SIDES}

    @classmethod
    def from_checkpoint(
        cls,
        checkpoint: Checkpoint,
        allow_missing: Sequence[str] = (),
        token_dimension: int = 0,
        **arguments: Any,
    ) -> Self:
        """Creates the model; see `EmbeddingNetwork`.

        Args:
          token_dimension: numbers of a token's vector, for an encoder or another embedder, to train
            it; 0: the checkpoint is a model of late interaction.
        """
        if token_dimension:
            check_numbers(1, token_dimension=token_dimension)
            stated = embedding_of(checkpoint)
            embedding = with_token_vectors(stated, checkpoint.config, token_dimension)
            checkpoint = dataclasses.replace(checkpoint, embedding=embedding)
            allow_missing = (*allow_missing, HEAD)
        return super().from_checkpoint(checkpoint, allow_missing, **arguments)

    @property
    def tokens(self) -> Any:
        """The settings of the tokens that score, `TokenVectors`."""
        return self.embedding.tokens

    @property
    def similarity(self) -> str:
        return self.embedding.similarity

    @property
    def loss_similarity(self) -> str:  # type: ignore[override]
        return self.similarity

    def _find_expansion(self) -> int:
        """Returns the id of the token that expands queries."""
        token = self.tokens.expansion_token
        vocab = self.tokenizer.vocab
        if token and token not in vocab.ids:
            raise ValueError(
                f"The token {token!r} that expands queries is not in the vocabulary; expected one "
                "of its tokens."
            )
        return int(vocab.ids[token] if token else vocab.mask_id)

    def _scoring_ids(self, side: str) -> np.ndarray:
        scores = np.ones([self.config.vocab_size], np.bool_)
        tokens = self.tokens
        if side == DOCUMENT and tokens.kept_token_ids:
            kept = [index for index in tokens.kept_token_ids if 0 <= index < len(scores)]
            scores[:] = False
            scores[kept] = True
        if side in tokens.skiplist_sides:
            # Words that the vocabulary lacks would be [UNK], which scores.
            ids = self.tokenizer.vocab.ids
            skipped = [ids[word] for word in tokens.skiplist if word in ids]
            scores[skipped] = False
        return scores

    def call(
        self, inputs: dict[str, Any], training: bool = False, dropout_seed: Tensor | None = None
    ) -> Any:
        if "query/input_word_ids" not in inputs:
            return self.token_vectors(inputs, training, dropout_seed)[0]
        queries, documents = self.embed_batch(inputs, training, dropout_seed)
        # Vectors of 0 are those of tokens that do not score.
        missing = tf.shape(documents)[2] - tf.shape(queries)[1]
        queries = tf.pad(queries, [[0, 0], [0, tf.maximum(missing, 0)], [0, 0]])
        documents = tf.pad(documents, [[0, 0], [0, 0], [0, tf.maximum(-missing, 0)], [0, 0]])
        return tf.concat([queries[:, None], documents], axis=1)

    def embed_side(
        self, inputs: dict[str, Any], training: bool, dropout_seed: Tensor | None, side: str
    ) -> Tensor:
        return self.token_vectors(inputs, training, dropout_seed, side)[0]

    def predict_texts(self, texts: Texts, batch_size: int) -> list[np.ndarray]:
        return self.encode_documents(texts, batch_size=batch_size)

    def token_vectors(
        self,
        inputs: dict[str, Any],
        training: bool = False,
        dropout_seed: Tensor | None = None,
        side: str = "",
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the vectors of tokens, and which of them score.

        Args:
          inputs, training, dropout_seed: see the call arguments.
          side: query or document, if all texts are of one side; "": as `is_query` says.

        Returns:
          float32 [B, T, D], 0 for tokens that do not score; bool [B, T].
        """
        batch = {name: tf.cast(inputs[name], tf.int32) for name in INPUTS}
        if side or "is_query" not in inputs:
            is_query = tf.constant([side == QUERY])  # [1], broadcast to [B]
            may_be_query = side == QUERY
        else:
            is_query = tf.cast(inputs["is_query"], tf.bool)  # [B]
            may_be_query = True
        scores = tf.cast(batch["input_mask"], tf.bool)
        if may_be_query and self.tokens.expansion_length:
            batch, scores = self._expand(batch, is_query)
        ids = batch["input_word_ids"]
        has_score = [tf.gather(tf.constant(self._scores[one]), ids) for one in SIDES]
        scores &= tf.where(is_query[:, None], *has_score)  # [B, T]
        if may_be_query and self.tokens.fills_padding:
            batch["computed_mask"] = batch["input_mask"]
        encoded = self.bert(batch, training=training, dropout_seed=dropout_seed)
        vectors = tf.cast(encoded["sequence_output"], tf.float32)
        # Vectors of padding may be 0, and the norm of 0 has no gradient.
        vectors = tf.where(scores[..., None], vectors, 1.0)
        vectors = apply_layers(self, self.embedding.dense, vectors)
        if self.embedding.normalize:
            vectors = l2_normalize(vectors)
        return tf.where(scores[..., None], vectors, 0.0), scores

    def _expand(
        self, batch: dict[str, tf.Tensor], is_query: tf.Tensor
    ) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        """Fills queries up with the token that expands them.

        Args:
          batch: the encoder's inputs, int32 [B, T].
          is_query: bool [B] or [1].

        Returns:
          The encoder's inputs, and whether each token is of a text or expands one, bool.
        """
        least = self.tokens.expansion_length
        missing = tf.maximum(0, least - tf.shape(batch["input_mask"])[1])
        for name, value in batch.items():
            pad_id = self.tokenizer.vocab.pad_id if name == "input_word_ids" else 0
            batch[name] = tf.pad(value, [[0, 0], [0, missing]], constant_values=pad_id)
        mask = tf.cast(batch["input_mask"], tf.bool)
        positions = tf.range(tf.shape(mask)[1])
        expands = ~mask & (positions < least) & is_query[:, None]  # [B, T]
        ids = batch["input_word_ids"]
        batch["input_word_ids"] = tf.where(expands, self.expansion_id, ids)
        if self.tokens.attends:
            batch["input_mask"] = tf.cast(mask | expands, tf.int32)
        return batch, mask | expands

    def pair_logits(
        self, queries: Sequence[str], documents: Sequence[str], batch_size: int = BATCH_SIZE
    ) -> np.ndarray:
        """Scores pairs of a query and a document, float32 [N]; a query is embedded once."""
        known = sorted(set(queries))
        scores = self.score(known, documents, batch_size=batch_size)  # [queries, N]
        return scores[list(map(known.index, queries)), np.arange(len(documents))]

    def encode_side(
        self, texts: Sequence[str], side: str, batch_size: int = BATCH_SIZE
    ) -> list[np.ndarray]:
        prompt = self.embedding.side_prompt(side)
        rows = [pack_text(self.tokenizer, self.embedding, text, prompt, side) for text in texts]
        tokens = self.tokens
        factor = tokens.pool_factor if side in tokens.pool_sides else 1.0
        options = (factor, tokens.protected_tokens, tokens.pool_normalizes)
        encode = self._encode(side)

        def compute(chosen: list[int]) -> list[np.ndarray]:
            batch = pad_batch([rows[index] for index in chosen], self.tokenizer.vocab.pad_id)
            vectors, scores = encode(batch)
            texts_and_scores = zip(vectors.numpy(), scores.numpy(), strict=True)
            return [pool_tokens_of_document(one[kept], *options) for one, kept in texts_and_scores]

        lengths = [len(row.ids) for row in rows]
        return by_length(lengths, batch_size, compute, BATCHES_AT_ONCE)

    def _make_encode(self, side: str) -> Any:
        """Returns `token_vectors` of a side as a single graph for batches of all shapes."""
        signature = {name: tf.TensorSpec([None, None], tf.int32) for name in INPUTS}
        return tf.function(
            lambda batch: self.token_vectors(batch, side=side),
            input_signature=[signature],
            autograph=False,
        )


def with_token_vectors(
    stated: EmbeddingConfig,
    config: ModelConfig,
    token_dimension: int,
    query_length: int = QUERY_LENGTH,
) -> EmbeddingConfig:
    """Returns the embedding of a model that is to learn late interaction.

    A token's vector is that before the pooling of the stated embedding, projected to
    `token_dimension` numbers. An embedding that has token vectors is returned as it is.
    """
    if stated.tokens:
        return stated
    # Dense layers of several concatenated poolings do not fit a token's vector.
    dense = stated.dense if len(stated.pooling) == 1 else ()
    width = EmbeddingConfig(dense=dense).dimension(config.hidden_size)
    projection = DenseStep(width, token_dimension, use_bias=False, activation="linear")
    length = min(query_length, config.longest_row)
    return dataclasses.replace(
        stated,
        pooling=("mean",),
        dense=(*dense, projection),
        normalize=True,
        include_prompt=True,
        similarity=MAXSIM[0],
        tokens=TokenVectors(query_length=length, expansion_length=length),
    )
