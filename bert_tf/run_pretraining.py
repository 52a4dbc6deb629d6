"""Pre-trains BERT: text in, a trained model out.

    python -m bert_tf.run_pretraining --flagfile=configs/base.flags --input_file='my_text/*.txt'

The run directory is self-contained, and the same command resumes a run that was stopped.
"""

import contextlib
import dataclasses
import pathlib
import typing
from typing import Any, NamedTuple

from absl import logging

from bert_tf import config_flags
from bert_tf.config import DataConfig, MaskingConfig, ModelConfig, OptimizerConfig, TrainingConfig
from bert_tf.files import exclusive
from bert_tf.run_record import check_same_run, recorded, write_run_record

if typing.TYPE_CHECKING:
    from bert_tf.tasks.pretraining import PretrainingTask
    from bert_tf.training.trainer import Trainer

config_flags.define_flags(ModelConfig, DataConfig, MaskingConfig, OptimizerConfig, TrainingConfig)


class Configs(NamedTuple):
    """The five groups of a run."""

    model: ModelConfig
    data: DataConfig
    masking: MaskingConfig
    optimizer: OptimizerConfig
    training: TrainingConfig


def main(_: list[str]) -> int:
    configs = read_configs()
    training = configs.training
    # An evaluation may use other data and batches; the model must be the same.
    check_same_run(training.output_dir, *(configs if training.do_train else [configs.model]))

    # TensorFlow takes seconds to load: --help and wrong flags are answered before.
    from bert_tf.training.checkpointing import has_next_sentence
    from bert_tf.training.distribution import is_chief, make_strategy

    strategy = make_strategy(training)
    check_batch_sizes(training, strategy.num_replicas_in_sync)
    if training.init_checkpoint:
        has_next_sentence(training.init_checkpoint)  # It can be read.
    with contextlib.ExitStack() as stack:
        if training.do_train and is_chief(strategy):
            lock = pathlib.Path(training.output_dir, ".lock")
            if not stack.enter_context(exclusive(lock)):
                raise ValueError(
                    f"Another process trains in {training.output_dir}; wait for its end, or give "
                    f"another --output_dir."
                )
        return train_and_evaluate(configs, strategy)


def train_and_evaluate(configs: Configs, strategy: Any) -> int:
    """Does what the flags ask for; returns the exit status.

    Raises:
      ValueError: with all that is wrong with flags, input or numbers.
    """
    import tensorflow as tf

    from bert_tf.data.pipeline import raise_input_fault
    from bert_tf.training.distribution import is_chief
    from bert_tf.training.trainer import Stopped

    training = configs.training
    trainer = build_trainer(configs, strategy)
    try:
        if training.do_train:
            trainer.train()
        if training.do_eval:
            results = trainer.evaluate()
            if is_chief(strategy):
                report_results(trainer, configs, results)
    except Stopped as stop:
        record = f"{training.output_dir}/run.flags"
        logging.info("Saved at step %d. To go on, give the same command again, or:", trainer.step)
        logging.info("python -m bert_tf.run_pretraining --flagfile=%s", record)
        return 128 + stop.signal_number
    except FloatingPointError as error:
        raise ValueError(error) from error
    except tf.errors.InvalidArgumentError as error:
        task = typing.cast("PretrainingTask", trainer.task)
        raise_input_fault(error, task.train_records, task.eval_records)
    return 0


def read_configs() -> Configs:
    """Makes the configuration from the flags.

    Raises:
      ValueError: if flags contradict each other.
    """
    configs = Configs(*map(config_flags.from_flags, Configs.__annotations__.values()))
    data, training = configs.data, configs.training
    if not training.output_dir:
        raise ValueError("--output_dir is empty; name the run directory, say runs/my_bert.")
    if not (training.do_train or training.do_eval):
        raise ValueError("At least one of --do_train and --do_eval must be true.")
    if training.bert_config_file:
        model = ModelConfig.read(training.bert_config_file, others=configs.model)
        configs = configs._replace(model=model)
    if data.max_seq_length > configs.model.max_position_embeddings:
        raise ValueError(
            f"--max_seq_length={data.max_seq_length} is above the model's "
            f"max_position_embeddings {configs.model.max_position_embeddings}."
        )
    if not data.cache_dir:
        cache_dir = pathlib.Path(training.output_dir).parent / "bert_tf_cache"
        configs = configs._replace(data=dataclasses.replace(data, cache_dir=str(cache_dir)))
    return configs


def build_trainer(configs: Configs, strategy: Any) -> "Trainer":
    """Prepares the data and builds vocabulary, model, optimizer, task and trainer in this order."""
    import keras

    from bert_tf.data.tfrecords import RecordFiles
    from bert_tf.modeling.models import BertPretrainer
    from bert_tf.optimization.optimizers import build_optimizer, decays
    from bert_tf.tasks.pretraining import PretrainingTask
    from bert_tf.text.vocab import Vocab
    from bert_tf.training.distribution import is_chief
    from bert_tf.training.reporting import parameter_table
    from bert_tf.training.trainer import Trainer

    prepared = prepare(configs, strategy)
    configs = configs._replace(training=choose_micro_batches(configs, strategy))
    model_config, data, masking, optimization, training = configs
    if training.do_eval and not prepared.eval_files:
        raise ValueError("--do_eval needs --eval_file, or an --eval_fraction above 0.")
    vocab = Vocab.read(prepared.vocab_file)
    check_vocabulary(len(vocab), model_config, prepared.vocab_file)
    if training.do_train and is_chief(strategy):
        write_run_record(training.output_dir, vocab, *configs)

    keras.utils.set_random_seed(data.random_seed)
    keras.mixed_precision.set_global_policy(training.precision)
    with strategy.scope():
        model = BertPretrainer(model_config, data.use_next_sentence, training.recompute)
        optimizer = build_optimizer(optimization)
        optimizer.build(model.trainable_variables)
    logging.info("%s", parameter_table(model.trainable_variables, decays))

    train_records = RecordFiles(prepared.train_files)
    eval_records = RecordFiles(prepared.eval_files) if prepared.eval_files else None
    trainer = Trainer(
        PretrainingTask(model, train_records, eval_records, vocab, data, masking),
        optimizer,
        strategy,
        training,
        num_train_steps=optimization.num_train_steps,
        random_seed=data.random_seed,
        progress=make_progress(configs, strategy),
        data_fingerprint=prepared.fingerprint,
    )
    load_start(trainer, training)
    return trainer


def load_start(trainer: "Trainer", training: TrainingConfig) -> None:
    """Loads the run's newest checkpoint, else the weights of --init_checkpoint, else nothing.

    Raises:
      ValueError: if an evaluation alone has no weights to evaluate.
    """
    from bert_tf.training.checkpointing import load_weights

    if trainer.restore():
        return
    if training.init_checkpoint:
        load_weights(trainer.task.model, training.init_checkpoint)
    elif not training.do_train:
        raise ValueError(
            f"Nothing to evaluate: {training.output_dir} holds no checkpoint. Give the "
            f"--output_dir of a run, or weights as --init_checkpoint."
        )


def prepare(configs: Configs, strategy: Any) -> Any:
    """Does what is missing between the input and ready records; one host does it for all."""
    from bert_tf.data.preparation import prepare_pretraining_data
    from bert_tf.training.distribution import any_worker, is_chief

    vocab_file = vocabulary_of_weights(configs.data, configs.training)

    def prepare_here() -> Any:
        return prepare_pretraining_data(
            dataclasses.replace(configs.data, vocab_file=vocab_file),
            configs.masking,
            vocab_size=configs.model.vocab_size,
            do_lower_case=configs.model.do_lower_case,
            cache_dir=configs.data.cache_dir,
            do_eval=configs.training.do_eval,
        )

    prepared = prepare_here() if is_chief(strategy) else None
    any_worker(strategy, False)  # The others wait here, then find everything made.
    prepared = prepared or prepare_here()
    if not prepared.vocab_file:
        raise ValueError("The input is TFRecords; give the --vocab_file they were made with.")
    return prepared


def vocabulary_of_weights(data: DataConfig, training: TrainingConfig) -> str:
    """Returns the vocabulary to use: the one given, else that of the weights to start from.

    Returns:
      A path; "" if the weights are random, so that a vocabulary may be trained.

    Raises:
      ValueError: if weights are given and no vocabulary.
    """
    if data.vocab_file:
        return data.vocab_file
    start = pathlib.Path(training.init_checkpoint or training.output_dir)
    for folder in (pathlib.Path(training.output_dir), start if start.is_dir() else start.parent):
        if (folder / "vocab.txt").exists():
            return str(folder / "vocab.txt")
    if training.init_checkpoint or not training.do_train:
        raise ValueError(f"{start} has no vocab.txt; give its vocabulary as --vocab_file.")
    return ""


def check_vocabulary(size: int, model: ModelConfig, vocab_file: str) -> None:
    """Raises ValueError if vocabulary and model have different sizes."""
    if size != model.vocab_size:
        raise ValueError(
            f"{vocab_file} has {size} pieces, but the model's vocab_size is {model.vocab_size}; "
            f"give --vocab_size={size} or the vocabulary that belongs to the configuration."
        )


def check_batch_sizes(training: TrainingConfig, replicas: int) -> None:
    """Raises ValueError if a batch cannot be dealt to replicas and micro-batches."""
    parts = {
        "train_batch_size": replicas * max(1, training.gradient_accumulation_steps),
        "eval_batch_size": replicas,
    }
    for name, divisor in parts.items():
        size = getattr(training, name)
        if size % divisor:
            raise ValueError(
                f"--{name}={size} is not a multiple of {divisor} (replicas {replicas}, "
                f"gradient_accumulation_steps {training.gradient_accumulation_steps})."
            )


def choose_micro_batches(configs: Configs, strategy: Any) -> TrainingConfig:
    """Returns the loop's configuration with the run's number of micro-batches.

    Where the flag is 0: the number the run began with, since the dropout masks depend on it, or
    for a new run the smallest that fits in memory.
    """
    from bert_tf.training.memory import activation_bytes, device_bytes, micro_batches

    training, length = configs.training, configs.data.max_seq_length
    if training.gradient_accumulation_steps:
        return training
    predictions = configs.masking.max_predictions_per_seq
    example = activation_bytes(configs.model, length, predictions, training.recompute)
    batch_size = training.train_batch_size // strategy.num_replicas_in_sync
    before = int(recorded(training.output_dir, "gradient_accumulation_steps") or 0)
    count = before or micro_batches(batch_size, example, device_bytes())
    if count > 1:
        logging.info("A step takes %d micro-batches of %d.", count, batch_size // count)
    training = dataclasses.replace(training, gradient_accumulation_steps=count)
    check_batch_sizes(training, strategy.num_replicas_in_sync)
    return training


def make_progress(configs: Configs, strategy: Any) -> Any:
    """Makes the report of rates, with the work of an example and the machine's peak."""
    import tensorflow as tf

    from bert_tf.training.distribution import worker_of
    from bert_tf.training.flops import peak_flops, training_flops
    from bert_tf.training.reporting import Progress

    data, training = configs.data, configs.training
    peak, source = training.peak_flops, "--peak_flops"
    devices = strategy.num_replicas_in_sync
    if not peak and not isinstance(strategy, tf.distribute.TPUStrategy):
        peak, source = peak_flops(training.precision)
        if not tf.config.list_physical_devices("GPU"):
            devices = worker_of(strategy)[1]  # All logical devices of a host share its CPU.
    if peak:
        logging.info("Peak of one device: %.4g FLOP/s (%s).", peak, source)
    predictions = configs.masking.max_predictions_per_seq
    return Progress(
        configs.optimizer.num_train_steps,
        training.train_batch_size,
        data.max_seq_length,
        training_flops(configs.model, data.max_seq_length, predictions),
        peak * devices,
    )


def report_results(trainer: "Trainer", configs: Configs, results: dict[str, float]) -> None:
    """Writes eval_results.txt and curves.png, and prints the results beside the baseline's."""
    from bert_tf.training.curves import draw_curves
    from bert_tf.training.metrics_log import read_metrics
    from bert_tf.training.trainer import note_evaluation, write_eval_results

    training = configs.training
    baseline = typing.cast("PretrainingTask", trainer.task).unigram_baseline(
        configs.model.vocab_size, training.eval_batch_size, training.max_eval_steps
    )
    folder = pathlib.Path(training.output_dir)
    if training.do_train:
        note_evaluation(folder, trainer.step, results)
        trainer.directory.mark_best(trainer.step, results["loss"])
    write_eval_results(folder / "eval_results.txt", trainer.step, results, baseline)
    names = ("metrics.jsonl", "eval_metrics.jsonl")
    steps, evaluations = (read_metrics(folder / name) for name in names)
    draw_curves(folder / "curves.png", steps, evaluations, baseline)
    logging.info("Evaluation at step %d:", trainer.step)
    for name, value in results.items():
        beside = f"  (baseline {baseline[name]:.4f})" if name in baseline else ""
        logging.info("  %-24s %.4f%s", name, value, beside)
    if steps:
        logging.info("Curves: %s", folder / "curves.png")


if __name__ == "__main__":
    config_flags.run(main)
