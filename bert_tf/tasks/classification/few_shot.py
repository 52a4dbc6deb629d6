"""Classifiers from a few labelled texts, by contrastive training of an embedder (SetFit).

    unlabelled texts --TSDAE--> embedder                     (only if given)
    texts, labels --make_pairs--> pairs --same_label or cosine loss--> embedder
        --vectors of the texts--> logistic regression
        --> classifier with the embedder's pooling and a linear head

Reference: Tunstall et al. 2022, "Efficient Few-Shot Learning Without Prompts".
"""

import dataclasses
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np

from bert_tf.checkpoints.embedding import EmbeddingConfig
from bert_tf.config import ModelConfig
from bert_tf.network.pretrained import checkpoint_variables
from bert_tf.system.type_names import Labels, TextColumn
from bert_tf.tasks.base.examples import columns
from bert_tf.tasks.base.examples.labels import check_distinct
from bert_tf.tasks.base.models.fine_tuned import FineTunedModel
from bert_tf.tasks.base.models.preprocessor import BertPreprocessor
from bert_tf.tasks.base.models.row_outputs import RowOutputs
from bert_tf.tasks.classification.answers import mean_of_rows, text_examples
from bert_tf.tasks.classification.examples import TextExample
from bert_tf.tasks.classification.features import TextExamples, make_examples
from bert_tf.tasks.classification.label_arrays import label_names
from bert_tf.tasks.classification.logistic_regression import fit_logistic
from bert_tf.tasks.classification.pairs import (
    check_counts,
    pair_batch_size,
    pair_examples,
    pair_loss,
)
from bert_tf.tasks.embedding.model import BertEmbedder
from bert_tf.tasks.embedding.tsdae_model import BertDenoiser

VECTOR_BATCH_SIZE = 32


def few_shot_model(
    model_class: Callable[..., FineTunedModel],
    embedder: BertEmbedder | str | pathlib.Path,
    texts: Sequence[str],
    labels: Labels,
    *,
    problem_type: str,
    names: Sequence[str] | None,
    unlabelled_texts: TextColumn | None,
    sampling: str,
    pairs_per_example: int,
    epochs: int,
    batch_size: int,
    learning_rate: float,
    seed: int,
    verbose: int | str,
) -> Any:
    """Makes a classifier; see `BertClassifier.from_few_shot`."""
    if problem_type == "regression":
        raise ValueError("problem_type is 'regression', but few-shot training is for labels.")
    texts = columns.read_texts(texts)
    names = tuple(map(str, names)) if names else names_in(labels, problem_type, len(texts))
    check_distinct(names)
    read = columns.read_label_ids if problem_type == "single_label" else columns.read_label_sets
    targets = read(labels, names, len(texts))
    check_counts(targets, names)
    body = copied_embedder(embedder)
    config = classifier_config(body.config, body.embedding)
    vocab = body.tokenizer.vocab  # Refuses a model without a vocabulary.
    options: dict[str, Any] = {"epochs": epochs, "learning_rate": learning_rate, "verbose": verbose}
    if unlabelled_texts is not None:
        unlabelled = columns.read_texts(unlabelled_texts)
        adapt_to_domain(body, unlabelled, batch_size=min(batch_size, len(unlabelled)), **options)
    sources = [f"texts[{index}]" for index in range(len(texts))]
    pairs = pair_examples(texts, sources, targets, sampling, pairs_per_example, seed)
    batch_size = pair_batch_size(batch_size, sampling, len(texts))
    body.fit(pairs, batch_size=min(batch_size, len(pairs)), loss=pair_loss(sampling), **options)
    preprocessor = BertPreprocessor(
        vocab, config.do_lower_case, max_seq_length=body.embedding.max_seq_length
    )
    model = model_class(config, labels=names, problem_type=problem_type, preprocessor=preprocessor)
    copy_weights(body, model)
    examples = make_examples(
        text_examples(texts), targets, problem_type, model.tokenizer, model.max_seq_length
    )
    fit_head(model, examples, problem_type)
    return model


def adapt_to_domain(embedder: BertEmbedder, texts: Sequence[str], **options: Any) -> None:
    """Trains an embedder, whose weights change, to reconstruct texts (TSDAE)."""
    denoiser = BertDenoiser(embedder.config, embedder.embedding, vocab=embedder.vocab)
    copy_weights(embedder, denoiser)
    denoiser.fit(texts, **options)
    copy_weights(denoiser, embedder)


def names_in(labels: Labels, problem_type: str, count: int) -> tuple[str, ...]:
    """Returns the names of the labels that occur, sorted.

    Raises:
      ValueError: if there are not as many as texts, labels are missing, or they are rows of 0 and
        1, a decision for each label, which name none.
    """
    rows = np.asarray(labels).tolist() if hasattr(labels, "shape") else list(labels)
    if len(rows) != count:
        raise ValueError(f"Got {len(rows):,} labels for {count:,} texts.")
    width = len(rows[0]) if rows and isinstance(rows[0], list | tuple) else 0
    if width > 1 and all(columns.is_row_of_bits(row, width) for row in rows):
        raise ValueError(
            f"labels has {count} rows of {width} numbers, 0 or 1. If they are decisions for "
            f"{width} labels, give them as an array and the labels in the same order as "
            "names=[...]; otherwise give labels by name."
        )
    examples = []
    for index, row in enumerate(rows):
        # NaN, which pandas has for a missing value, differs from itself.
        if row is None or row != row or row == "":
            raise ValueError(f"labels[{index}] is {row!r}; label the text, or leave it out.")
        if problem_type == "multi_label":
            row = "|".join(map(str, row))
        examples.append(TextExample("", None, str(row), str(index), f"labels[{index}]"))
    return label_names(examples, problem_type == "multi_label")


def copied_embedder(source: BertEmbedder | str | pathlib.Path) -> BertEmbedder:
    """Returns an embedder to train, without prompts; a given model stays as it is."""
    if isinstance(source, BertEmbedder):
        # A classifier reads texts without prompts, so that the pairs have none either.
        embedding = dataclasses.replace(source.embedding, prompts={}, default_prompt=None)
        made = BertEmbedder(source.config, embedding, source.vocab)
        copy_weights(source, made)
        return made
    if not isinstance(source, str | pathlib.Path) or not str(source):
        raise ValueError(
            f"embedder is {source!r:.80}; expected a BertEmbedder, or the folder or name of one."
        )
    return BertEmbedder.from_pretrained(source, use_pooler=False, prompts={}, default_prompt=None)


def classifier_config(config: ModelConfig, embedding: EmbeddingConfig) -> ModelConfig:
    """Returns the configuration of a classifier whose head reads the vectors of an embedder."""
    pooling = ",".join(embedding.pooling)
    if pooling not in ("cls", "mean") or embedding.dense:
        dense = f" and has {len(embedding.dense)} dense layers" if embedding.dense else ""
        raise ValueError(
            f"The embedder pools by {pooling}{dense}; few-shot training is for embedders with the "
            "pooling mean or cls and no dense layer."
        )
    if embedding.lower_case_texts and not config.do_lower_case:
        raise ValueError(
            "The embedder lower-cases texts before a vocabulary with capital letters; few-shot "
            "training is for embedders that do not."
        )
    if embedding.normalize:
        pooling = f"normalized_{pooling}"
    # The head reads the embeddings as they are, without a layer in between.
    return dataclasses.replace(
        config, classifier_pooling=pooling, classifier_layers="", head_transform=False
    )


def copy_weights(source: keras.Model, target: keras.Model) -> None:
    """Copies the weights of the encoder, and those of the head that both models have."""
    values = checkpoint_variables(source)
    for name, variable in checkpoint_variables(target).items():
        if name in values:
            variable.assign(values[name])


def fit_head(model: FineTunedModel, examples: TextExamples, problem_type: str) -> None:
    """Fits the head of a classifier on the vectors of its training texts."""
    rows = RowOutputs(model, model.pool_texts).predict(examples.rows, VECTOR_BATCH_SIZE)
    # The mean over the windows of a text: that of their scores, since the head is linear.
    vectors = mean_of_rows(rows, examples.owners, len(examples.examples))
    if not np.isfinite(vectors).all():
        raise FloatingPointError(
            "The embedder's vectors are not finite numbers: its training diverged. Lower the "
            "learning rate."
        )
    weights = fit_logistic(vectors, examples.labels, problem_type, model.num_labels)
    # [D + 1, C]: the last row is the bias. The head has its weights as [C, D].
    model.head.output_weights.assign(weights[:-1].T)
    model.head.output_bias.assign(weights[-1])
