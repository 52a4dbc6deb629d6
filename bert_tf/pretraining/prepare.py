"""Prepares a pre-training run: initial weights, teacher, data, vocabulary and final configuration.

Everything that can be refused is refused here, before the model is built.
"""

import dataclasses
import pathlib
from typing import NamedTuple

import tensorflow as tf
from absl import logging

from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.checkpoints.run_checkpoints import check_run_directory
from bert_tf.checkpoints.run_identity import rewritten_files
from bert_tf.checkpoints.run_record import has_checkpoints, recorded, write_run_record
from bert_tf.checkpoints.start import (
    check_output_dir,
    keep_vocabulary,
    merge,
    read_begun,
    read_start,
    starts_of_names,
)
from bert_tf.checkpoints.teacher import check_same_teacher, check_vocabularies, read_teacher
from bert_tf.config import (
    ORDERED_OBJECTIVES,
    DataConfig,
    ModelConfig,
    PretrainingConfigs,
    TrainingConfig,
    config_flags,
    with_causal_share,
)
from bert_tf.corpus.preparation import PreparedData, prepare_pretraining_data
from bert_tf.pretraining.objectives.distillation import check_shapes, kept_bytes
from bert_tf.pretraining.objectives.electra import generator_config
from bert_tf.pretraining.objectives.masked_lm import LARGE_VOCABULARY
from bert_tf.text.kinds import VOCABULARY_FILES, find_vocabulary, with_vocabulary
from bert_tf.text.tokenization import AnyVocab, read_vocab
from bert_tf.training.checkpointing import read_fingerprint
from bert_tf.training.distribution import any_worker, is_chief
from bert_tf.training.memory import activation_bytes, choose_micro_batches
from bert_tf.training.precision import choose_precision


class PreparedRun(NamedTuple):
    """Everything from which a run is built.

    Attributes:
      configs: the configuration after all choices of the machine, the data and the weights.
      start, teacher: the weights of --init_checkpoint and of --teacher; None without them.
      data, vocab: files of examples, and their vocabulary.
    """

    configs: PretrainingConfigs
    start: Checkpoint | None
    teacher: Checkpoint | None
    data: PreparedData
    vocab: AnyVocab


def read_initial_checkpoint(
    configs: PretrainingConfigs,
) -> tuple[PretrainingConfigs, Checkpoint | None]:
    """Reads --init_checkpoint, which determines the model's configuration.

    A run with its own checkpoints resumes from them and does not read the initial one again. An
    evaluation without training uses the given weights.

    Raises:
      ValueError: if it cannot be read, contradicts the flags, or is in output_dir.
    """
    training = configs.training
    folder = pathlib.Path(training.output_dir)
    # A new run must not begin among the files of another model.
    if training.do_train and folder.is_dir() and not (folder / "run.flags").exists():
        check_output_dir(training.output_dir)
    if not training.init_checkpoint:
        return configs, None
    if training.do_train and has_checkpoints(folder):
        logging.info("%s has checkpoints; --init_checkpoint is not read again.", folder)
        record = folder / "bert_config.json"
        recorded_model = ModelConfig.read(record)
        model = merge(recorded_model, config_flags.given(ModelConfig), str(record))
        return configs._replace(model=model), None
    start = _read_start(configs.data, training)
    return configs._replace(model=start.config), start


def _read_start(data: DataConfig, training: TrainingConfig) -> Checkpoint:
    given = config_flags.given(ModelConfig)
    heads: tuple[str, ...] = ("masked_lm",)
    if data.use_next_sentence:
        heads = ("masked_lm", "pooler", "next_sentence")
    start = read_start(
        training.init_checkpoint,
        given,
        heads,
        config_file=training.bert_config_file,
        vocab_file=data.vocab_file,
        added_words_file=data.added_words_file,
        layers=training.keep_layers,
        allow_missing=starts_of_names(training.allow_missing),
        allow_unexpected=starts_of_names(training.allow_unexpected),
    )
    if not start.vocab:
        return start
    # The checkpoint's vocabulary has its size; a given --vocab_size must agree.
    vocab_size = given.get("vocab_size", len(start.vocab))
    check_vocabulary(len(start.vocab), vocab_size, training.init_checkpoint)
    return dataclasses.replace(start, config=with_vocabulary(start.config, start.vocab))


def prepare_run(
    configs: PretrainingConfigs, start: Checkpoint | None, strategy: tf.distribute.Strategy
) -> PreparedRun:
    """Reads the teacher, prepares the data, settles the configuration and records it.

    Raises:
      ValueError: if any of them is wrong or does not go with the others.
    """
    folder = pathlib.Path(configs.training.output_dir)
    if configs.training.do_train or not start:
        check_run_directory(folder, rewritten_files(configs.training))
    teacher = read_run_teacher(configs, start)
    prepared = prepare_data(configs, start, strategy)
    configs = configs._replace(training=choose_precision(configs.training, strategy))
    configs = configs._replace(training=choose_sizes(configs, strategy, teacher))
    training = configs.training
    if needs_eval_data(training) and not prepared.eval_files:
        flag = "--do_eval" if training.do_eval else f"--eval_steps={training.eval_steps}"
        raise ValueError(f"{flag} needs --eval_file, or an --eval_fraction above 0.")
    vocab = read_vocab(prepared.vocab_file)
    model = with_causal_share(with_vocabulary(configs.model, vocab), configs.masking)
    configs = configs._replace(model=model)
    check_vocabulary(len(vocab), configs.model.vocab_size, prepared.vocab_file)
    if teacher:
        check_same_teacher(training.output_dir, teacher, is_chief(strategy))
    if training.do_train and is_chief(strategy):
        write_run_record(training.output_dir, vocab, *configs)
    return PreparedRun(configs, start, teacher, prepared, vocab)


def read_run_teacher(configs: PretrainingConfigs, start: Checkpoint | None) -> Checkpoint | None:
    """Reads the --teacher of a training, before data are prepared for hours; None without one.

    A teacher that does not go with the student is an error.
    """
    objective = configs.objective
    if not (objective.teacher and configs.training.do_train):
        return None
    heads = ("masked_lm",) if objective.teacher_weight else ()
    teacher = read_teacher(objective.teacher, heads, configs.data.max_seq_length)
    vocab_file = vocabulary_of_weights(configs.data, configs.training, start)
    if not vocab_file:
        raise ValueError(
            f"--teacher={objective.teacher}: the student needs the teacher's vocabulary, not one "
            "trained on the text; give it as --vocab_file, or an --init_checkpoint that has it."
        )
    check_vocabularies(teacher, read_vocab(vocab_file), configs.model.do_lower_case)
    check_shapes(objective, teacher.config, configs.model)
    return teacher


def needs_eval_data(training: TrainingConfig) -> bool:
    """Returns whether examples for evaluation are needed: at the end, or during training."""
    return training.do_eval or training.do_train and training.eval_steps > 0


def prepare_data(
    configs: PretrainingConfigs, start: Checkpoint | None, strategy: tf.distribute.Strategy
) -> PreparedData:
    """Prepares the data as far as necessary; one host does it for all."""
    vocab_file = vocabulary_of_weights(configs.data, configs.training, start)

    def prepare_here() -> PreparedData:
        return prepare_pretraining_data(
            dataclasses.replace(configs.data, vocab_file=vocab_file),
            configs.masking,
            vocab_size=configs.model.vocab_size,
            do_lower_case=configs.model.do_lower_case,
            cache_dir=configs.data.cache_dir,
            do_eval=needs_eval_data(configs.training),
            tokenizer=configs.model.tokenizer,
            begun_with=read_begun(configs.training.output_dir, read_fingerprint) or "",
        )

    prepared = prepare_here() if is_chief(strategy) else None
    any_worker(strategy, False)  # The other hosts wait here, then read the chief's files.
    prepared = prepared or prepare_here()
    if not prepared.vocab_file:
        raise ValueError("The input is TFRecords; give the --vocab_file with which they were made.")
    return prepared


def vocabulary_of_weights(
    data: DataConfig, training: TrainingConfig, start: Checkpoint | None
) -> str:
    """Returns the vocabulary to use: that of the start, the given one, else that of the run.

    It is "" if the weights are random, so that a vocabulary may be trained.
    """
    if start and start.vocab:
        return str(keep_vocabulary(start.vocab, data.cache_dir))
    run_vocabulary = find_vocabulary(training.output_dir)
    # With --init_checkpoint, --vocab_file changed the vocabulary of the start; a resumed run
    # continues with the result.
    if run_vocabulary and (training.init_checkpoint or not data.vocab_file):
        return str(run_vocabulary)
    if not data.vocab_file and not training.do_train:
        folder = pathlib.Path(training.output_dir)
        names = " or ".join(VOCABULARY_FILES)
        raise ValueError(f"{folder} has no {names}; give its vocabulary as --vocab_file.")
    return data.vocab_file


def check_vocabulary(size: int, vocab_size: int, source: str) -> None:
    """Raises ValueError if vocabulary and model have different sizes."""
    if size != vocab_size:
        raise ValueError(
            f"{source} has {size} tokens, but the model's vocab_size is {vocab_size}; "
            f"give --vocab_size={size} or the vocabulary that belongs to the configuration."
        )


def encoder_passes(configs: PretrainingConfigs) -> list[tuple[ModelConfig, int, float]]:
    """Returns the encoders that a step runs.

    They are the generator and the discriminator of ELECTRA, and for an order of prediction the
    tokens and each stream of targets.

    Returns:
      The shape of each network, the number of tokens that it predicts in a sequence, and
      the share of a sequence's tokens that its dense layers compute.
    """
    num_predictions = configs.masking.max_predictions_per_seq
    objective = configs.objective
    if objective.objective != "replaced_tokens":
        # A stream computes its dense layers for the predicted tokens only.
        stream = (configs.model, 0, num_predictions / configs.data.max_seq_length)
        streams = [stream] * ORDERED_OBJECTIVES.get(objective.objective, 0)
        return [(configs.model, num_predictions, 1.0), *streams]
    generator = generator_config(
        configs.model, objective.generator_hidden_size, objective.generator_layers
    )
    # The discriminator classifies every token, and has no logits of the vocabulary.
    return [(generator, num_predictions, 1.0), (configs.model, 0, 1.0)]


def choose_sizes(
    configs: PretrainingConfigs,
    strategy: tf.distribute.Strategy,
    teacher: Checkpoint | None = None,
) -> TrainingConfig:
    """Returns the loop's configuration with the run's number of micro-batches."""
    training = configs.training
    length = configs.data.max_seq_length
    if not training.do_train:
        return dataclasses.replace(training, gradient_accumulation_steps=1)
    bytes_per_example = 0.0
    is_large = configs.model.vocab_size > LARGE_VOCABULARY
    # Replacements are drawn from the logits, and those of a teacher are compared with them.
    needs_logits = teacher is not None or configs.objective.objective == "replaced_tokens"
    for config, num_predictions, _ in encoder_passes(configs):
        # A stream of few tokens has whole rows of attention all the same.
        if is_large and not needs_logits:
            num_predictions = 0  # Their logits exist for one chunk of the vocabulary at a time.
        bytes_per_example += activation_bytes(config, length, num_predictions, training.recompute)
    if teacher:
        predictions = configs.masking.max_predictions_per_seq
        bytes_per_example += kept_bytes(configs.objective, teacher.config, length, predictions)
    # A resumed run keeps this number if it can, because dropout masks depend on it.
    recorded_steps = int(recorded(training.output_dir, "gradient_accumulation_steps") or 0)
    return choose_micro_batches(
        training, bytes_per_example, strategy.num_replicas_in_sync, recorded_steps
    )
