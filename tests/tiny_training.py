"""A training of seconds through everything that a real one goes through but the model.

The loop, the run directory, record files, notices and errors are those of the programs; the model
is a table of 400 weights, so that a process is started, killed and started again hundreds of times.
"""

import hashlib
import os
import pathlib
import sys
import traceback
from collections.abc import Mapping

import numpy as np

from bert_tf.checkpoints.run_record import check_same_run, write_run_record
from bert_tf.config import ModelConfig, OptimizerConfig, TrainingConfig, config_flags
from bert_tf.corpus.tfrecords import write_records
from bert_tf.system.files import exclusive
from bert_tf.text.vocab import Vocab
from bert_tf.training.stopping import Stopped, stoppable
from bert_tf.training.worker_group import joined_workers

NUM_STEPS, BATCH, PIECES, LENGTH = 240, 4, 40, 8
STEP_SECONDS = 0.004  # Asleep: gives faults a time to come, and costs none.
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
MODEL = ModelConfig(vocab_size=PIECES, hidden_size=8, num_attention_heads=1, num_hidden_layers=1)
OPTIMIZER = OptimizerConfig(
    optimizer="adamw", learning_rate=1e-2, num_train_steps=NUM_STEPS, ema_decay=0.99
)


def write_examples(path: pathlib.Path) -> None:
    """Writes 150 examples: LENGTH pieces and one that depends on them; the 100th is broken."""
    random = np.random.default_rng(0)
    pieces = random.integers(0, PIECES, [150, LENGTH + 1]).astype(np.int32)
    pieces[:, -1] = pieces[:, 0] // 2
    pieces[99] = 0
    write_records(path, [row.tobytes() for row in pieces])


def train(folder: pathlib.Path, examples: pathlib.Path, distribution: str) -> int:
    """Trains in `folder`, or goes on there, as `run_pretraining` does."""
    import keras
    import tensorflow as tf

    from bert_tf.corpus.pipeline import raise_input_fault
    from bert_tf.corpus.tfrecords import RecordFiles
    from bert_tf.training.distribution import is_chief, make_strategy
    from bert_tf.training.optimizers import build_optimizer
    from bert_tf.training.reporting import Progress
    from bert_tf.training.trainer import Trainer
    from tests.tiny_table import TableTask

    training = TrainingConfig(
        output_dir=str(folder), train_batch_size=BATCH, eval_batch_size=BATCH, max_eval_steps=2,
        gradient_accumulation_steps=1, jit_compile=False, save_checkpoints_steps=20, eval_steps=60,
        log_steps=10, iterations_per_loop=5, distribution=distribution, on_bad_loss="rewind",
        spike_sigmas=3.0, max_bad_losses=50, batch_ramp_start=BATCH // 2, batch_ramp_steps=80,
    )  # fmt: skip
    check_same_run(training.output_dir, MODEL, OPTIMIZER, training)
    strategy = make_strategy(training)
    with exclusive(folder / f".lock{'' if is_chief(strategy) else '1'}", f"training in {folder}"):
        records = RecordFiles([examples])
        if is_chief(strategy):
            vocab = Vocab((*SPECIAL, *map(str, range(PIECES - len(SPECIAL)))))
            write_run_record(training.output_dir, vocab, MODEL, OPTIMIZER, training)
        keras.utils.set_random_seed(1)
        with strategy.scope():
            task = TableTask(records, PIECES, LENGTH, STEP_SECONDS)
            optimizer = build_optimizer(OPTIMIZER)
            optimizer.build(task.model.trainable_variables)
        progress = Progress(NUM_STEPS, BATCH, LENGTH, 0.0, 0.0)
        trainer = Trainer(
            task, optimizer, strategy, training, num_train_steps=NUM_STEPS, random_seed=1,
            progress=progress,
        )  # fmt: skip
        trainer.restore()
        try:
            trainer.train()
        except Stopped as stop:
            return stop.exit_status
        except FloatingPointError as error:
            raise ValueError(error) from error
        except tf.errors.InvalidArgumentError as error:
            raise_input_fault(error, records)
        print("weights", weights_hash(trainer.directory.variables), flush=True)
    return 0


def weights_hash(variables: Mapping) -> str:
    """Returns the SHA-256 of all weights and slots, in the order of their names."""
    hashed = hashlib.sha256()
    for name in sorted(variables):
        hashed.update(np.asarray(variables[name].numpy()).tobytes())
    return hashed.hexdigest()


def load() -> None:
    """Imports all that a training needs, and computes nothing: a process may still fork.

    AutoGraph, which rewrites Python's `for` and `if` on tensors, is most of the start of so small a
    training: only the loop over steps needs it here.
    """
    import tensorflow as tf
    from tensorflow.python.autograph.impl import conversion

    from bert_tf.training import train_step

    conversion.is_allowlisted = lambda *_, **__: True

    class Plain(train_step.ReplicaFunction):
        def __init__(self, function, *options):
            super().__init__(tf.autograph.experimental.do_not_convert(function), *options)

    train_step.ReplicaFunction = Plain


def fork(
    folder: pathlib.Path,
    examples: pathlib.Path,
    log: pathlib.Path,
    environment: Mapping[str, str],
    distribution: str = "one_device",
) -> int:
    """Starts a training in a process of its own; returns its id.

    Forked after `load`, and before TensorFlow has computed anything, it begins in milliseconds.
    """
    sys.stdout.flush()
    if pid := os.fork():
        return pid
    with log.open("a") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.environ.update(environment)
    status = 99
    try:
        run(folder, examples, distribution)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def run(folder: pathlib.Path, examples: pathlib.Path, distribution: str) -> None:
    """Trains as a program does: notices, errors and exit status are its."""

    def work() -> int:
        with joined_workers(distribution, {}):
            return train(folder, examples, distribution)

    sys.argv = ["tiny_training"]
    config_flags.run(lambda _: stoppable(work))


if __name__ == "__main__":
    load()
    run(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), "one_device")
