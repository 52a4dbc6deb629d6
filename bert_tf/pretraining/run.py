"""A pre-training run as configured by `run_pretraining`: data, vocabulary, model and loop."""

import dataclasses
import functools
import pathlib
import typing
from typing import Any

import keras
import tensorflow as tf
from absl import logging

from bert_tf import config_flags
from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.checkpoints.electra_networks import GENERATOR_CONFIG
from bert_tf.checkpoints.run_checkpoints import check_run_directory, record_identity
from bert_tf.checkpoints.start import (
    check_output_dir,
    decays_pooler,
    has_pooler,
    keep_vocabulary,
    merge,
    read_begun,
    read_start,
    starts_of_names,
)
from bert_tf.checkpoints.teacher import check_same_teacher, check_vocabularies, read_teacher
from bert_tf.config import DataConfig, ModelConfig, PretrainingConfigs, TrainingConfig
from bert_tf.corpus.masking import MOST_WORDS, mean_span
from bert_tf.corpus.pipeline import raise_input_fault
from bert_tf.corpus.preparation import prepare_pretraining_data
from bert_tf.corpus.tfrecords import RecordFiles
from bert_tf.files import atomic_write
from bert_tf.network.encoder import BertEncoder
from bert_tf.network.pretrained import assign_checkpoint
from bert_tf.objectives.distillation import Distillation, check_shapes, kept_bytes
from bert_tf.objectives.electra import ElectraPretrainer, generator_config
from bert_tf.optimization.optimizers import build_optimizer, decays
from bert_tf.optimization.schedules import ByShare, build_schedule
from bert_tf.pretraining.mask_samples import MaskSamples
from bert_tf.pretraining.task import PretrainingTask
from bert_tf.run_identity import rewritten_files
from bert_tf.run_record import has_checkpoints, only_training, recorded, write_run_record
from bert_tf.tasks.models import BertPretrainer
from bert_tf.text.kinds import VOCABULARY_FILES, find_vocabulary, with_vocabulary
from bert_tf.text.tokenization import AnyVocab, make_tokenizer, read_vocab
from bert_tf.training.curves import draw_curves
from bert_tf.training.distribution import any_worker, check_batch_sizes, is_chief, make_strategy
from bert_tf.training.flops import training_flops
from bert_tf.training.memory import activation_bytes, choose_micro_batches
from bert_tf.training.metrics_log import line_interval, read_metrics
from bert_tf.training.precision import choose_precision
from bert_tf.training.reporting import (
    Progress,
    strategy_peak,
    write_eval_results,
    write_parameter_table,
)
from bert_tf.training.stopping import Stopped
from bert_tf.training.time_budget import TimeBudget
from bert_tf.training.trainer import Trainer, note_evaluation, read_fingerprint


def run(configs: PretrainingConfigs, start: Checkpoint | None) -> int:
    """Runs the configuration, with exclusive use of the run directory; returns the exit status.

    Raises:
      ValueError: for errors in flags, input or numbers.
    """
    training = configs.training
    towers(configs)  # Shapes that cannot be are refused before data are prepared for hours.
    if configs.masking.span_length:
        logging.info(
            "--span_length=%g: spans end after %d words at the latest, which gives %.2f words on "
            "average.",
            configs.masking.span_length,
            MOST_WORDS,
            mean_span(configs.masking),
        )
    strategy = make_strategy(training)
    check_batch_sizes(training, strategy.num_replicas_in_sync)
    if not (training.do_train and is_chief(strategy)):
        return train_and_evaluate(configs, start, strategy)
    with only_training(training.output_dir):
        return train_and_evaluate(configs, start, strategy)


def train_and_evaluate(configs: PretrainingConfigs, start: Checkpoint | None, strategy: Any) -> int:
    """Does what the flags ask for, as `run` does."""
    training = configs.training
    trainer = build_trainer(configs, start, strategy)
    task = typing.cast(PretrainingTask, trainer.task)
    sizes = training.eval_batch_size, training.max_eval_steps
    trainer.baseline = functools.cache(lambda: task.baseline(*sizes))
    try:
        if training.do_train:
            trainer.train()
        if training.do_eval:
            judged = trainer.last_evaluation
            is_judged = judged and judged[0] == trainer.step
            results = judged[1] if judged and is_judged else trainer.evaluate()
            if is_chief(strategy):
                report_results(trainer, configs, results)
    except Stopped as stop:
        record = f"{training.output_dir}/run.flags"
        logging.info("Saved at step %d. To resume, run the same command again, or:", trainer.step)
        logging.info("python -m bert_tf.run_pretraining --flagfile=%s", record)
        return stop.exit_status
    except FloatingPointError as error:
        raise ValueError(error) from error
    except tf.errors.InvalidArgumentError as error:
        raise_input_fault(error, task.train_records, task.eval_records)
    return 0


def with_start(configs: PretrainingConfigs) -> tuple[PretrainingConfigs, Checkpoint | None]:
    """Reads --init_checkpoint, which determines the model's configuration.

    A run with its own checkpoints resumes from them and does not read the initial one again. An
    evaluation without training uses the given weights.

    Raises:
      ValueError: if it cannot be read, contradicts the flags, or lies in output_dir.
    """
    data, training = configs.data, configs.training
    folder = pathlib.Path(training.output_dir)
    if training.do_train and folder.is_dir() and not (folder / "run.flags").exists():
        check_output_dir(training.output_dir)
    if not training.init_checkpoint:
        return configs, None

    given, record = config_flags.given(ModelConfig), folder / "bert_config.json"
    if training.do_train and has_checkpoints(folder):
        logging.info("%s has checkpoints; --init_checkpoint is not read again.", folder)
        return configs._replace(model=merge(ModelConfig.read(record), given, str(record))), None
    start = read_start(
        training.init_checkpoint,
        given,
        ("masked_lm", "pooler", "next_sentence") if data.use_next_sentence else ("masked_lm",),
        config_file=training.bert_config_file,
        vocab_file=data.vocab_file,
        added_words_file=data.added_words_file,
        layers=training.keep_layers,
        may_miss=starts_of_names(training.may_miss),
        may_ignore=starts_of_names(training.may_ignore),
    )
    if start.vocab:
        vocab_size = given.get("vocab_size", len(start.vocab))
        check_vocabulary(len(start.vocab), vocab_size, training.init_checkpoint)
        start = dataclasses.replace(start, config=with_vocabulary(start.config, start.vocab))
    return configs._replace(model=start.config), start


def build_trainer(configs: PretrainingConfigs, start: Checkpoint | None, strategy: Any) -> Trainer:
    """Prepares the data and builds vocabulary, model, optimizer, task and trainer in this order."""
    folder = pathlib.Path(configs.training.output_dir)
    if configs.training.do_train or not start:
        check_run_directory(folder, rewritten_files(configs.training))
    teacher = read_its_teacher(configs, start)
    prepared = prepare(configs, start, strategy)
    configs = configs._replace(training=choose_precision(configs.training, strategy))
    configs = configs._replace(training=choose_sizes(configs, strategy, teacher))
    training = configs.training
    if evaluates(training) and not prepared.eval_files:
        flag = "--do_eval" if training.do_eval else f"--eval_steps={training.eval_steps}"
        raise ValueError(f"{flag} needs --eval_file, or an --eval_fraction above 0.")
    vocab = read_vocab(prepared.vocab_file)
    configs = configs._replace(model=with_vocabulary(configs.model, vocab))
    model_config, data, masking, optimization, training, _ = configs
    check_vocabulary(len(vocab), model_config.vocab_size, prepared.vocab_file)
    if teacher:
        check_same_teacher(training.output_dir, teacher, is_chief(strategy))
    if training.do_train and is_chief(strategy):
        write_run_record(training.output_dir, vocab, *configs)

    keras.utils.set_random_seed(data.random_seed)
    keras.mixed_precision.set_global_policy(training.precision)
    with strategy.scope():
        model = make_model(configs, start)
        if training.do_train and is_chief(strategy):
            record_identity(folder)
        if teacher:
            add_teacher(model, teacher, configs)
            teacher = None  # Its variables hold the weights now.
        schedule = build_schedule(optimization)
        optimizer = build_optimizer(optimization, schedule)
        optimizer.build(model.trainable_variables)
    if training.do_train and is_chief(strategy):
        write_parameter_table(folder, model.trainable_variables, decays)

    train_records = RecordFiles(prepared.train_files)
    eval_records = RecordFiles(prepared.eval_files) if prepared.eval_files else None
    if eval_records:  # The time that an evaluation needs is reckoned by its batches.
        batches = min(training.max_eval_steps, -(-len(eval_records) // training.eval_batch_size))
        training = dataclasses.replace(training, max_eval_steps=batches)
    if steps := optimization.num_train_steps:
        training = dataclasses.replace(training, log_steps=line_interval(training.log_steps, steps))
    time_budget = None
    if isinstance(schedule, ByShare):
        time_budget = TimeBudget(optimization.train_minutes, schedule, training)
    trainer = Trainer(
        PretrainingTask(
            *(model, train_records, eval_records, vocab, data, masking),
            num_train_steps=optimization.num_train_steps,
        ),
        optimizer,
        strategy,
        training,
        num_train_steps=optimization.num_train_steps,
        random_seed=data.random_seed,
        progress=make_progress(configs, strategy),
        data_fingerprint=prepared.fingerprint,
        time_budget=time_budget,
        samples=make_samples(configs, model, vocab, strategy),
    )
    load_weights(trainer, start, training)
    return trainer


def make_model(configs: PretrainingConfigs, start: Checkpoint | None) -> Any:
    """Makes the model of the objective; of ELECTRA's the run keeps the generator's shape, too."""
    config, training, objective = configs.model, configs.training, configs.objective
    if objective.objective == "replaced_tokens":
        sizes = objective.generator_hidden_size, objective.generator_layers
        generator = generator_config(config, *sizes)
        if training.do_train:
            path = pathlib.Path(training.output_dir, GENERATOR_CONFIG)
            with atomic_write(path) as file:
                file.write(generator.to_json())
        weight = objective.discriminator_weight
        return ElectraPretrainer(
            *(config, generator, weight, training.recompute),
            reference_sampling=objective.electra_reference_sampling,
        )
    is_paired = configs.data.use_next_sentence
    use_pooler = is_paired or has_pooler(training.output_dir, start)
    model = BertPretrainer(
        *(config, is_paired, training.recompute, use_pooler),
        sentence_order=configs.data.sentence_order,
        objective=objective.objective,
    )
    if use_pooler and not is_paired and not decays_pooler(training.output_dir):
        model.bert.pooler.trainable = False  # No loss reaches it: decay alone would shrink it.
    return model


def read_its_teacher(configs: PretrainingConfigs, start: Checkpoint | None) -> Checkpoint | None:
    """Reads the --teacher of a training, before data are prepared for hours; None without one.

    Raises:
      ValueError: if it cannot be read, or does not go with the student.
    """
    data, training, objective = configs.data, configs.training, configs.objective
    if not (objective.teacher and training.do_train):
        return None
    heads = ("masked_lm",) if objective.teacher_weight else ()
    teacher = read_teacher(objective.teacher, heads, data.max_seq_length)
    vocab_file = vocabulary_of_weights(data, training, start)
    if not vocab_file:
        raise ValueError(
            f"--teacher={objective.teacher}: the student needs the teacher's vocabulary, not one "
            "trained on the text; give it as --vocab_file, or an --init_checkpoint that has it."
        )
    check_vocabularies(teacher, read_vocab(vocab_file), configs.model.do_lower_case)
    check_shapes(objective, teacher.config, configs.model)
    return teacher


def add_teacher(model: BertPretrainer, teacher: Checkpoint, configs: PretrainingConfigs) -> None:
    """Lets a model learn from a teacher, too, or from it alone."""
    options = {"use_pooler": False, "dtype": model.dtype_policy}
    if configs.objective.teacher_weight:
        made: Any = BertPretrainer(teacher.config, use_next_sentence=False, **options)
    else:
        made = BertEncoder(teacher.config, **options)
    assign_checkpoint(made, teacher)
    for objective in model.objectives:
        objective.is_learned = configs.objective.learn_labels
    distillation = Distillation(made, configs.model, configs.objective)
    model.objectives = (*model.objectives, distillation)


def make_samples(
    configs: PretrainingConfigs, model: BertPretrainer, vocab: AnyVocab, strategy: Any
) -> MaskSamples | None:
    """Makes what fills in the sentences of --show_masks; None without any."""
    texts = [text.strip() for text in configs.data.show_masks.split("|") if text.strip()]
    if not (texts and configs.training.do_train and is_chief(strategy)):
        return None
    tokenizer = make_tokenizer(vocab, configs.model.do_lower_case)
    return MaskSamples(pathlib.Path(configs.training.output_dir), model, tokenizer, texts)


def load_weights(trainer: Trainer, start: Checkpoint | None, training: TrainingConfig) -> None:
    """Loads the run's newest checkpoint, else the weights of --init_checkpoint, else nothing.

    Raises:
      ValueError: if there are no weights to evaluate.
    """
    if (training.do_train or not start) and trainer.restore():
        return
    if start:
        assign_checkpoint(trainer.task.model, start, starts_of_names(training.may_miss))
    elif not training.do_train:
        raise ValueError(
            f"Nothing to evaluate: {training.output_dir} holds no checkpoint. Give the "
            f"--output_dir of a run, or weights as --init_checkpoint."
        )


def evaluates(training: TrainingConfig) -> bool:
    """True if examples for evaluation are needed: at the end, or during training."""
    return training.do_eval or training.do_train and training.eval_steps > 0


def prepare(configs: PretrainingConfigs, start: Checkpoint | None, strategy: Any) -> Any:
    """Prepares the data as far as necessary; one host does it for all."""
    vocab_file = vocabulary_of_weights(configs.data, configs.training, start)

    def prepare_here() -> Any:
        return prepare_pretraining_data(
            dataclasses.replace(configs.data, vocab_file=vocab_file),
            configs.masking,
            vocab_size=configs.model.vocab_size,
            do_lower_case=configs.model.do_lower_case,
            cache_dir=configs.data.cache_dir,
            do_eval=evaluates(configs.training),
            tokenizer=configs.model.tokenizer,
            begun_with=read_begun(configs.training.output_dir, read_fingerprint) or "",
        )

    prepared = prepare_here() if is_chief(strategy) else None
    any_worker(strategy, False)  # The others wait here, then find everything made.
    prepared = prepared or prepare_here()
    if not prepared.vocab_file:
        raise ValueError("The input is TFRecords; give the --vocab_file with which they were made.")
    return prepared


def vocabulary_of_weights(
    data: DataConfig, training: TrainingConfig, start: Checkpoint | None
) -> str:
    """Returns the vocabulary to use: that of the start, the one given, else that of the run.

    Returns:
      A path; "" if the weights are random, so that a vocabulary may be trained.

    Raises:
      ValueError: if weights are given and no vocabulary.
    """
    if start and start.vocab:
        return str(keep_vocabulary(start.vocab, data.cache_dir))
    own = find_vocabulary(training.output_dir)
    if own and (training.init_checkpoint or not data.vocab_file):
        return str(own)
    if not data.vocab_file and not training.do_train:
        folder, names = pathlib.Path(training.output_dir), " or ".join(VOCABULARY_FILES)
        raise ValueError(f"{folder} has no {names}; give its vocabulary as --vocab_file.")
    return data.vocab_file


def check_vocabulary(size: int, vocab_size: int, source: str) -> None:
    """Raises ValueError if vocabulary and model have different sizes."""
    if size != vocab_size:
        raise ValueError(
            f"{source} has {size} pieces, but the model's vocab_size is {vocab_size}; "
            f"give --vocab_size={size} or the vocabulary that belongs to the configuration."
        )


def towers(configs: PretrainingConfigs) -> list[tuple[ModelConfig, int]]:
    """Returns the shape of each encoder that a step runs, and the pieces that it predicts.

    Raises:
      ValueError: if there is no generator of the size that is asked for.
    """
    predictions, objective = configs.masking.max_predictions_per_seq, configs.objective
    if objective.objective != "replaced_tokens":
        return [(configs.model, predictions)]
    sizes = objective.generator_hidden_size, objective.generator_layers
    return [(generator_config(configs.model, *sizes), predictions), (configs.model, 0)]


def choose_sizes(
    configs: PretrainingConfigs, strategy: Any, teacher: Checkpoint | None = None
) -> TrainingConfig:
    """Returns the loop's configuration with the run's number of micro-batches."""
    training, length = configs.training, configs.data.max_seq_length
    if not training.do_train:
        return dataclasses.replace(training, gradient_accumulation_steps=1)
    parts = [activation_bytes(one, length, n, training.recompute) for one, n in towers(configs)]
    if teacher:
        predictions = configs.masking.max_predictions_per_seq
        parts.append(kept_bytes(configs.objective, teacher.config, length, predictions))
    example = sum(parts)
    before = int(recorded(training.output_dir, "gradient_accumulation_steps") or 0)
    return choose_micro_batches(training, example, strategy.num_replicas_in_sync, before)


def make_progress(configs: PretrainingConfigs, strategy: Any) -> Progress:
    """Makes the report of rates, with the work of an example and the machine's peak."""
    data, training = configs.data, configs.training
    return Progress(
        configs.optimizer.num_train_steps,
        training.train_batch_size,
        data.max_seq_length,
        sum(training_flops(one, data.max_seq_length, n) for one, n in towers(configs)),
        strategy_peak(training, strategy),
    )


def report_results(
    trainer: Trainer, configs: PretrainingConfigs, results: dict[str, float]
) -> None:
    """Writes eval_results.txt and curves.png, and prints the results beside the baseline's."""
    training = configs.training
    task = typing.cast(PretrainingTask, trainer.task)
    baseline = trainer.baseline() if trainer.baseline else {}
    folder = pathlib.Path(training.output_dir)
    if training.do_train:
        note_evaluation(folder, trainer.step, results)
        trainer.directory.mark_best(trainer.step, trainer.task.score(results))
    write_eval_results(folder / "eval_results.txt", trainer.step, results, baseline)
    names = ("metrics.jsonl", "eval_metrics.jsonl")
    steps, evaluations = (read_metrics(folder / name) for name in names)
    draw_curves(folder / "curves.png", task.plot_titles, steps, evaluations, baseline)
    logging.info("Evaluation at step %d:", trainer.step)
    for name, value in results.items():
        beside = f"  (baseline {baseline[name]:.4f})" if name in baseline else ""
        logging.info("  %-24s %.4f%s", name, value, beside)
    if trainer.samples and training.do_train:
        trainer.note_samples()
        for line in trainer.samples.report():
            logging.info("%s", line)
    if steps:
        logging.info("Curves: %s", folder / "curves.png")
