"""The start of a fine-tuning run: its own checkpoints, or other weights."""

import dataclasses
import pathlib
import typing
from typing import Any, NamedTuple

from absl import logging

from bert_tf.checkpoints.checkpoint import Checkpoint, without_task_heads
from bert_tf.checkpoints.run_checkpoints import check_run_directory
from bert_tf.checkpoints.run_identity import read_labels
from bert_tf.checkpoints.run_record import check_seeds
from bert_tf.checkpoints.start import check_output_dir, merge, read_start, starts_of_names
from bert_tf.checkpoints.unfinished import warn_if_unfinished
from bert_tf.config import ModelConfig, TrainingConfig, config_flags
from bert_tf.tasks.base.models.label_order import check_names, label_order, with_labels
from bert_tf.tasks.base.programs.program import Configs, Program, has_own_weights
from bert_tf.text.kinds import check_kind, read_vocabulary_in, with_vocabulary
from bert_tf.text.tokenization import AnyVocab, read_vocab


class InitialState(NamedTuple):
    """The weights that a run starts or resumes from."""

    config: ModelConfig
    vocab: AnyVocab
    labels: tuple[str, ...]  # labels of the head; () if it is new or has no names
    num_labels: int  # 0 if the head is new
    weights: Checkpoint | None  # None: those of the run directory, or random ones


def load_initial_state(configs: Configs, program: Program) -> InitialState:
    """Finds the initial weights: the checkpoints of the run, by default --init_checkpoint."""
    training = configs.training
    data = configs.data
    folder = pathlib.Path(training.output_dir)
    named = training.init_checkpoint
    given = config_flags.given(ModelConfig)
    if training.do_train:
        check_output_dir(training.output_dir)
    # A run that continues takes configuration, vocabulary and labels from its folder.
    if has_own_weights(training, folder):
        check_run_directory(folder)
        if not training.do_train:
            warn_if_unfinished(folder)
        record = folder / "bert_config.json"
        config = merge(ModelConfig.read(record), given, str(record))
        labels = read_labels(folder)
        return InitialState(config, read_vocabulary_in(folder), labels, len(labels), None)
    if not named and not training.do_train:
        check_seeds(folder)
        raise ValueError(
            f"{folder} has no checkpoint; train it first, or give weights as --init_checkpoint."
        )
    if not named:
        return _random_state(configs, given)
    start = read_start(
        named,
        given,
        ("pooler",) if program.needs_pooler else (),
        config_file=training.bert_config_file,
        vocab_file=data.vocab_file,
        layers=training.keep_layers,
        # ELECTRA's generator is its masked language model; other heads need the discriminator.
        electra_network="generator" if program.head == "masked_lm" else "discriminator",
        new_head=configs.tuning.new_head,
        allow_missing=starts_of_names(training.allow_missing),
        allow_unexpected=starts_of_names(training.allow_unexpected),
    )
    vocab = typing.cast(AnyVocab, start.vocab)
    start = dataclasses.replace(start, config=with_vocabulary(start.config, vocab))
    if program.head not in start.heads or configs.tuning.new_head:
        program.check_missing_head(start, training.do_train)
        start = without_task_heads(start, program.kept_heads)
        return InitialState(start.config, vocab, (), 0, start)
    return InitialState(start.config, vocab, start.labels, max(1, start.num_labels), start)


def _random_state(configs: Configs, given: dict[str, Any]) -> InitialState:
    """Returns a state without weights, which are initialized at random."""
    logging.warning("No --init_checkpoint: all weights are initialized at random.")
    model = configs.model
    if configs.training.bert_config_file:
        model = config_flags.read_model(configs.training.bert_config_file, model)
    vocab = read_vocab(configs.data.vocab_file)
    check_kind(vocab, given, configs.data.vocab_file)
    model = with_vocabulary(dataclasses.replace(model, vocab_size=len(vocab)), vocab)
    return InitialState(model, vocab, (), 0, None)


def fit_head(
    initial: InitialState, labels: tuple[str, ...], training: TrainingConfig
) -> InitialState:
    """Reorders the rows of the head to the order of the task's labels."""
    expected = max(1, len(labels))
    if initial.weights is not None and initial.labels and labels:
        order = label_order(initial.labels, labels)
        if order is not None:
            weights = with_labels(initial.weights, labels, order)
            return initial._replace(labels=labels, weights=weights)
    # As many labels, but the order of labels without names is unknown.
    if initial.weights is not None and initial.num_labels == expected:
        check_names(initial.weights, labels, "init_checkpoint")
    has_other_labels = initial.labels and initial.labels != labels
    if initial.num_labels and (has_other_labels or initial.num_labels != expected):
        source = training.init_checkpoint
        remedy = "Give --new_head to start with a new head."
        if initial.weights is None:
            source = training.output_dir
            remedy = "Give the same examples, or another --output_dir."
        named = f" {list(initial.labels)[:10]}" if initial.labels else ""
        raise ValueError(
            f"{source} has a head with {initial.num_labels} labels{named}, but the task has "
            f"{len(labels)} {list(labels)[:10]}. {remedy}"
        )
    return initial
