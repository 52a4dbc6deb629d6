"""Pre-trains BERT: text in, a trained model out.

    python -m bert_tf.run_pretraining --flagfile=configs/base.flags --input_file='my_text/*.txt'

The run directory is self-contained, and the same command resumes a run that was stopped.
"""

import dataclasses
import pathlib
import typing
from typing import Any, NamedTuple

from absl import logging

from bert_tf import config_flags
from bert_tf.config import DataConfig, MaskingConfig, ModelConfig, OptimizerConfig, TrainingConfig
from bert_tf.run_record import check_same_run, write_run_record

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
    check_same_run(training.output_dir, *configs)

    # TensorFlow takes seconds to load: --help and wrong flags are answered before.
    import tensorflow as tf

    from bert_tf.training.distribution import is_chief, make_strategy
    from bert_tf.training.trainer import Stopped

    strategy = make_strategy(training)
    trainer = build_trainer(configs, strategy)
    try:
        if training.do_train:
            trainer.train()
    except Stopped as stop:
        record = f"{training.output_dir}/run.flags"
        logging.info("Saved at step %d. To go on, give the same command again, or:", trainer.step)
        logging.info("python -m bert_tf.run_pretraining --flagfile=%s", record)
        return 128 + stop.signal_number
    except FloatingPointError as error:
        raise ValueError(error) from error
    except tf.errors.InvalidArgumentError as error:  # What the input pipeline found in a file.
        raise ValueError(input_fault(error.message)) from error
    if training.do_eval:
        results = trainer.evaluate()
        if is_chief(strategy):
            report_results(trainer, configs, results)
    return 0


def input_fault(message: str) -> str:
    """Returns the pipeline's own words out of a TensorFlow error.

    >>> input_fault("Graph execution error:\\n ...\\nValueError: Corrupt data in record 3.\\n")
    'Corrupt data in record 3.'
    """
    own = [line for line in message.splitlines() if line.startswith("ValueError: ")]
    return own[-1].removeprefix("ValueError: ") if own else message


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
        configs = configs._replace(model=ModelConfig.read(training.bert_config_file))
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
    """Prepares the data and builds vocabulary, model, optimizer, task and trainer, in this order.

    The weights are those of the run's newest checkpoint, else of --init_checkpoint, else random.
    """
    import keras

    from bert_tf.data.tfrecords import RecordFiles
    from bert_tf.modeling.models import BertPretrainer
    from bert_tf.optimization.optimizers import build_optimizer, decays
    from bert_tf.tasks.pretraining import PretrainingTask
    from bert_tf.text.vocab import Vocab
    from bert_tf.training.checkpointing import load_weights
    from bert_tf.training.reporting import parameter_table
    from bert_tf.training.trainer import Trainer

    model_config, data, masking, optimization, training = configs
    prepared = prepare(configs, strategy)
    if not prepared.vocab_file:
        raise ValueError("The input is TFRecords; give the --vocab_file they were made with.")
    if training.do_eval and not prepared.eval_files:
        raise ValueError("--do_eval needs --eval_file, or an --eval_fraction above 0.")
    vocab = Vocab.read(prepared.vocab_file)
    check_vocabulary(len(vocab), model_config, prepared.vocab_file)
    check_batch_sizes(training, strategy.num_replicas_in_sync)
    write_run_record(training.output_dir, vocab, *configs)
    training = choose_micro_batches(configs, strategy.num_replicas_in_sync)

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
        progress=make_progress(configs, strategy.num_replicas_in_sync),
    )
    if not trainer.restore() and training.init_checkpoint:
        load_weights(model, training.init_checkpoint)
    return trainer


def prepare(configs: Configs, strategy: Any) -> Any:
    """Does what is missing between the input and ready records; one host does it for all."""
    from bert_tf.data.preparation import prepare_pretraining_data
    from bert_tf.training.distribution import any_worker, is_chief

    def prepare_here() -> Any:
        return prepare_pretraining_data(
            configs.data,
            configs.masking,
            vocab_size=configs.model.vocab_size,
            do_lower_case=configs.model.do_lower_case,
            cache_dir=configs.data.cache_dir,
        )

    prepared = prepare_here() if is_chief(strategy) else None
    any_worker(strategy, False)  # The others wait here, then find everything made.
    return prepared or prepare_here()


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


def choose_micro_batches(configs: Configs, replicas: int) -> TrainingConfig:
    """Returns the loop's configuration with a number of micro-batches that fits in memory."""
    from bert_tf.training.memory import activation_bytes, device_bytes, micro_batches

    training, length = configs.training, configs.data.max_seq_length
    if training.gradient_accumulation_steps:
        return training
    predictions = configs.masking.max_predictions_per_seq
    example = activation_bytes(configs.model, length, predictions, training.recompute)
    batch_size = training.train_batch_size // replicas
    count = micro_batches(batch_size, example, device_bytes())
    if count > 1:
        logging.info("A step takes %d micro-batches of %d.", count, batch_size // count)
    return dataclasses.replace(training, gradient_accumulation_steps=count)


def make_progress(configs: Configs, replicas: int) -> Any:
    """Makes the report of rates, with the work of an example and the machine's peak."""
    import tensorflow as tf

    from bert_tf.training.flops import peak_flops, training_flops
    from bert_tf.training.reporting import Progress

    data, training = configs.data, configs.training
    peak, source = training.peak_flops, "--peak_flops"
    if not peak:
        peak, source = peak_flops(training.precision)
    logging.info("Peak of one device: %.4g FLOP/s (%s).", peak, source)
    devices = replicas if tf.config.list_physical_devices("GPU") else 1
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
    note_evaluation(folder, trainer.step, results)
    write_eval_results(folder / "eval_results.txt", trainer.step, results, baseline)
    names = ("metrics.jsonl", "eval_metrics.jsonl")
    steps, evaluations = (read_metrics(folder / name) for name in names)
    draw_curves(folder / "curves.png", steps, evaluations, baseline)
    logging.info("Evaluation at step %d:", trainer.step)
    for name, value in results.items():
        beside = f"  (baseline {baseline[name]:.4f})" if name in baseline else ""
        logging.info("  %-24s %.4f%s", name, value, beside)
    logging.info("Curves: %s", folder / "curves.png")


if __name__ == "__main__":
    config_flags.run(main)
