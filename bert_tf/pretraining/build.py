"""Builds a pre-training run: model, optimizer, task and trainer."""

import dataclasses
import pathlib
import typing
from typing import Any

import keras
import tensorflow as tf

from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.checkpoints.electra_networks import GENERATOR_CONFIG
from bert_tf.checkpoints.run_checkpoints import record_identity
from bert_tf.checkpoints.run_record import similar_runs
from bert_tf.checkpoints.start import has_pooler, starts_of_names
from bert_tf.config import PretrainingConfigs, TrainingConfig
from bert_tf.corpus.tfrecords import RecordFiles
from bert_tf.network.encoder import BertEncoder
from bert_tf.network.pretrained import assign_checkpoint
from bert_tf.pretraining.masked_words.gap_filling import MaskedModel
from bert_tf.pretraining.masked_words.model import BertPretrainer
from bert_tf.pretraining.objectives.distillation import Distillation
from bert_tf.pretraining.objectives.electra import ElectraPretrainer, generator_config
from bert_tf.pretraining.prepare import PreparedRun, encoder_passes, prepare_run
from bert_tf.pretraining.shown_sentences import MaskSamples, shown_sentences
from bert_tf.pretraining.task import PretrainingTask
from bert_tf.system.files import atomic_write
from bert_tf.text.tokenization import AnyVocab, make_tokenizer
from bert_tf.training.distribution import is_chief
from bert_tf.training.flops import training_flops
from bert_tf.training.metrics_log import line_interval
from bert_tf.training.optimizers import build_optimizer, decays
from bert_tf.training.reporting import Progress, strategy_peak, write_parameter_table
from bert_tf.training.schedules import ByShare, build_schedule
from bert_tf.training.time_budget import TimeBudget
from bert_tf.training.trainer import Trainer

Model = BertPretrainer | ElectraPretrainer


def build_trainer(
    configs: PretrainingConfigs, start: Checkpoint | None, strategy: tf.distribute.Strategy
) -> Trainer:
    """Prepares the run, then builds model, optimizer, task and trainer in this order."""
    run = prepare_run(configs, start, strategy)
    # Before the model is made, because initial weights and dropout depend on the seed.
    keras.utils.set_random_seed(run.configs.data.random_seed)
    keras.mixed_precision.set_global_policy(run.configs.training.precision)
    with strategy.scope():
        model = build_model(run, strategy)
        run = run._replace(teacher=None)  # The model has its weights; this frees the copy.
        schedule = build_schedule(run.configs.optimizer)
        optimizer = build_optimizer(run.configs.optimizer, schedule)
        # The optimizer's variables must exist before a checkpoint is restored into them.
        optimizer.build(model.trainable_variables)
    configs = run.configs
    if configs.training.do_train and is_chief(strategy):
        folder = pathlib.Path(configs.training.output_dir)
        write_parameter_table(folder, model.trainable_variables, decays)

    num_train_steps = configs.optimizer.num_train_steps
    task = build_task(run, model)
    training = loop_config(configs, task.eval_records)
    time_budget = None
    # A run of a given duration: the budget decides how many steps it has.
    if isinstance(schedule, ByShare):
        time_budget = TimeBudget(configs.optimizer.train_minutes, schedule, training)
    trainer = Trainer(
        task,
        optimizer,
        strategy,
        training,
        num_train_steps=num_train_steps,
        random_seed=configs.data.random_seed,
        progress=make_progress(configs, strategy),
        data_fingerprint=run.data.fingerprint,
        time_budget=time_budget,
        samples=make_samples(configs, model, run.vocab, strategy),
    )
    load_weights(trainer, start, training)
    return trainer


def build_model(run: PreparedRun, strategy: tf.distribute.Strategy) -> Model:
    """Makes the model, with a teacher if there is one, and records the run's identity."""
    training = run.configs.training
    model = make_model(run.configs, run.start)
    if training.do_train and is_chief(strategy):
        record_identity(pathlib.Path(training.output_dir))
    if run.teacher:
        add_teacher(model, run.teacher, run.configs)
    return model


def make_model(configs: PretrainingConfigs, start: Checkpoint | None) -> Model:
    """Makes the model of the objective."""
    if configs.objective.objective == "replaced_tokens":
        return make_electra(configs)
    is_paired = configs.data.use_next_sentence
    # Without pairs a pooler is kept only if the weights of the start or the run have one.
    use_pooler = is_paired or has_pooler(configs.training.output_dir, start)
    model = BertPretrainer(
        configs.model,
        use_next_sentence=is_paired,
        recompute=configs.training.recompute,
        use_pooler=use_pooler,
        sentence_order=configs.data.sentence_order,
        objective=configs.objective.objective,
    )
    if use_pooler and not is_paired:
        model.bert.pooler.trainable = False  # No loss reaches it: decay alone would shrink it.
    return model


def make_electra(configs: PretrainingConfigs) -> ElectraPretrainer:
    """Makes generator and discriminator; a training keeps the generator's shape in its folder."""
    objective = configs.objective
    generator = generator_config(
        configs.model, objective.generator_hidden_size, objective.generator_layers
    )
    if configs.training.do_train:
        path = pathlib.Path(configs.training.output_dir, GENERATOR_CONFIG)
        with atomic_write(path) as file:
            file.write(generator.to_json())
    return ElectraPretrainer(
        configs.model,
        generator,
        objective.discriminator_weight,
        configs.training.recompute,
        reference_sampling=objective.electra_reference_sampling,
        embedding_sharing=objective.embedding_sharing,
    )


def add_teacher(model: Model, teacher: Checkpoint, configs: PretrainingConfigs) -> None:
    """Adds the objective of learning from a teacher, in addition to the labels or instead."""
    options: dict[str, Any] = {"use_pooler": False, "dtype": model.dtype_policy}
    teacher_model: BertPretrainer | BertEncoder
    # Only this loss compares logits; the others need the teacher's encoder alone.
    if configs.objective.teacher_weight:
        teacher_model = BertPretrainer(teacher.config, use_next_sentence=False, **options)
    else:
        teacher_model = BertEncoder(teacher.config, **options)
    assign_checkpoint(teacher_model, teacher)
    for objective in model.objectives:
        # Otherwise the losses of the labels are reported, but not minimized.
        objective.is_learned = configs.objective.learn_labels
    distillation = Distillation(teacher_model, configs.model, configs.objective)
    model.objectives = (*model.objectives, distillation)


def build_task(run: PreparedRun, model: Model) -> PretrainingTask:
    """Makes the task of the model and the prepared examples."""
    configs = run.configs
    return PretrainingTask(
        model,
        RecordFiles(run.data.train_files),
        RecordFiles(run.data.eval_files) if run.data.eval_files else None,
        run.vocab,
        configs.data,
        configs.masking,
        num_train_steps=configs.optimizer.num_train_steps,
    )


def loop_config(configs: PretrainingConfigs, eval_records: RecordFiles | None) -> TrainingConfig:
    """Returns the loop's configuration with the lengths of evaluations and of log intervals."""
    training = configs.training
    if eval_records:  # The time that an evaluation needs is estimated by its batches.
        num_batches = -(-len(eval_records) // training.eval_batch_size)
        max_eval_steps = min(training.max_eval_steps, num_batches)
        training = dataclasses.replace(training, max_eval_steps=max_eval_steps)
    if steps := configs.optimizer.num_train_steps:
        training = dataclasses.replace(training, log_steps=line_interval(training.log_steps, steps))
    return training


def make_samples(
    configs: PretrainingConfigs,
    model: Model,
    vocab: AnyVocab,
    strategy: tf.distribute.Strategy,
) -> MaskSamples | None:
    """Returns the sentences of --show_masks, which evaluations fill in; None without any."""
    if not (configs.training.do_train and is_chief(strategy)):
        return None
    tokenizer = make_tokenizer(vocab, configs.model.do_lower_case)
    texts = shown_sentences(configs.data, tokenizer)
    if not texts:
        return None
    masked = MaskedModel(typing.cast(BertPretrainer, model), tokenizer)
    return MaskSamples(pathlib.Path(configs.training.output_dir), masked, texts)


def make_progress(configs: PretrainingConfigs, strategy: tf.distribute.Strategy) -> Progress:
    """Makes the report of rates, with the work of an example and the machine's peak."""
    length = configs.data.max_seq_length
    flops_per_example = 0.0
    for config, num_predictions, share in encoder_passes(configs):
        flops_per_example += share * training_flops(config, length, num_predictions)
    return Progress(
        configs.optimizer.num_train_steps,
        configs.training.train_batch_size,
        length,
        flops_per_example,
        strategy_peak(configs.training, strategy),
    )


def load_weights(trainer: Trainer, start: Checkpoint | None, training: TrainingConfig) -> None:
    """Loads the run's newest checkpoint, else the weights of --init_checkpoint, else nothing.

    An evaluation without weights is an error.
    """
    # An evaluation with --init_checkpoint is of these weights, not of the run's.
    if (training.do_train or not start) and trainer.restore():
        return
    if start:
        assign_checkpoint(trainer.task.model, start, starts_of_names(training.allow_missing))
    elif not training.do_train:
        raise ValueError(
            f"Nothing to evaluate: {training.output_dir} holds no checkpoint."
            f"{similar_runs(pathlib.Path(training.output_dir))} Give the --output_dir of "
            "a run, or weights as --init_checkpoint."
        )
