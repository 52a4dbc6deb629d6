"""Times training steps in packed rows beside padded ones, on Wikipedia and SST-2.

    python -m benchmarks.packed_rows --vocab_file=vocab.txt --input_file='wikipedia/*.jsonl.xz' \\
        --data_dir=glue/SST-2 --nojit_compile

Steps are whole: input, forward, backward, clipping, update; float32, dropout 0.1. The ways to train
take the same batches in turn, each in --rounds rounds after a first one that compiles. Printed are
real pieces, padding not counted, a second of processor time, for which other work on the machine
counts little, and a second on the clock, which is what counts on a GPU; medians, with the ratio to
the first line. Either corpus may be left out.
"""

import functools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from absl import app, flags, logging

from bert_tf.config import DataConfig, MaskingConfig, ModelConfig, OptimizerConfig
from bert_tf.data.packed_rows import pack_batch
from bert_tf.data.preparation import prepare_pretraining_data
from bert_tf.data.rows import length_buckets
from bert_tf.data.tfrecords import RecordFiles
from bert_tf.modeling.models import BertClassifier, BertPretrainer
from bert_tf.optimization.optimizers import build_optimizer
from bert_tf.tasks.classification import ClassificationTask, label_array, make_examples
from bert_tf.tasks.glue import glue_task, read_glue
from bert_tf.tasks.pretraining import PretrainingTask
from bert_tf.text.vocab import Vocab
from bert_tf.text.wordpiece import WordPiece
from bert_tf.training.train_step import TrainStep

VOCAB = flags.DEFINE_string("vocab_file", None, "Vocabulary of the texts.", required=True)
INPUT = flags.DEFINE_string("input_file", "", "Text to pre-train on; see run_pretraining.")
DATA = flags.DEFINE_string("data_dir", "", "Folder of SST-2.")
CACHE = flags.DEFINE_string("cache_dir", "/tmp/bert_tf_cache", "Where the examples are kept.")
LAYERS = flags.DEFINE_integer("num_hidden_layers", 4, "Layers.")
SIZE = flags.DEFINE_integer("hidden_size", 256, "Width; heads are of 32.")
BATCHES = flags.DEFINE_list("batch_sizes", ["64", "32"], "Examples of a step: Wikipedia, SST-2.")
STEPS = flags.DEFINE_integer("steps", 4, "Steps of a round.")
ROUNDS = flags.DEFINE_integer("rounds", 3, "Rounds.")
COMPILED = flags.DEFINE_bool("jit_compile", True, "Compare the ways under XLA, else the others.")
LENGTH = 128
EXAMPLES = 4000  # of SST-2


class Way(NamedTuple):
    """One way to train."""

    name: str
    packed: bool = False
    jit_compile: bool = False
    unpad: bool = False
    is_plain: bool = False  # all rows padded to LENGTH


PRETRAINING = [
    Way("padded, XLA", jit_compile=True),
    Way("packed, XLA", packed=True, jit_compile=True),
    Way("padded"),
    Way("packed", packed=True),
]
FINE_TUNING = [
    Way("padded to 128, XLA", jit_compile=True, is_plain=True),
    Way("padded to buckets, XLA", jit_compile=True),
    Way("packed in rows of 128, XLA", packed=True, jit_compile=True, is_plain=True),
    Way("padded to 128", is_plain=True),
    Way("padded to the longest"),
    Way("without padding but in attention", unpad=True),
    Way("packed in rows of 128", packed=True, is_plain=True),
    Way("packed in rows of the longest", packed=True),
]


def model_config() -> ModelConfig:
    size = SIZE.value
    return ModelConfig(
        len(Vocab.read(VOCAB.value)), size, LAYERS.value, size // 32, intermediate_size=4 * size
    )


@functools.cache
def pretraining_data() -> tuple[DataConfig, RecordFiles]:
    data = DataConfig(input_file=INPUT.value, vocab_file=VOCAB.value, short_seq_prob=0.1)
    prepared = prepare_pretraining_data(
        data,
        MaskingConfig(),
        vocab_size=model_config().vocab_size,
        do_lower_case=True,
        cache_dir=CACHE.value,
        do_eval=False,
    )
    return data, RecordFiles(prepared.train_files)


def pretraining_task(way: Way) -> PretrainingTask:
    (data, records), vocab = pretraining_data(), Vocab.read(VOCAB.value)
    model = BertPretrainer(model_config())
    return PretrainingTask(model, records, None, vocab, data, MaskingConfig())


def fine_tuning_task(way: Way) -> ClassificationTask:
    glue = glue_task("sst-2")
    examples = read_glue(glue, DATA.value, "train")[:EXAMPLES]
    tokenizer = WordPiece(Vocab.read(VOCAB.value), do_lower_case=True)
    labels = label_array(examples, glue.labels, "class")
    rows = make_examples(examples, labels, "class", tokenizer, LENGTH).rows
    return ClassificationTask(
        BertClassifier(model_config(), len(glue.labels), unpad=way.unpad),
        rows,
        None,
        length_buckets(LENGTH, way.jit_compile, way.is_plain),
        1,
        kind="class",
        labels=glue.labels,
        metric_names=glue.metrics,
    )


def batches(task: Any, way: Way, batch_size: int) -> tf.data.Dataset:
    data = task.train_dataset(batch_size, 0, 0, 1).take(STEPS.value)
    return data.map(pack_batch).prefetch(2) if way.packed else data


def make_round(task: Any, way: Way, batch_size: int) -> Callable[[], Any]:
    """Returns what does the steps of a round."""
    optimizer = build_optimizer(OptimizerConfig(num_warmup_steps=0))
    optimizer.build(task.model.trainable_variables)
    step = TrainStep(
        task,
        optimizer,
        tf.distribute.get_strategy(),
        random_seed=1,
        jit_compile=way.jit_compile,
    )

    def run() -> Any:
        iterator = iter(batches(task, way, batch_size))
        return step(iterator, tf.constant(0), tf.constant(STEPS.value)).numpy()

    return run


def compare(make_task: Callable[[Way], Any], ways: list[Way], batch_size: int) -> None:
    """Prints a table, a line a way."""
    ways = [way for way in ways if way.jit_compile == COMPILED.value]
    rounds, pieces, rows = {}, {}, {}
    for way in ways:
        keras.utils.set_random_seed(1)
        task = make_task(way)
        seen = list(batches(task, way, batch_size))
        pieces[way] = int(sum(batch["input_mask"].numpy().sum() for batch in seen))
        name = "packed_places" if way.packed else "input_mask"
        rows[way] = sum(batch[name].shape[0] * batch[name].shape[1] for batch in seen)
        rounds[way] = make_round(task, way, batch_size)
        rounds[way]()
    seconds: dict[Way, list[tuple[float, float]]] = {way: [] for way in ways}
    for _ in range(ROUNDS.value):
        for way in ways:
            start = time.process_time(), time.monotonic()
            rounds[way]()
            seconds[way].append((time.process_time() - start[0], time.monotonic() - start[1]))
            logging.info("%s: %.1f processor seconds, %.1f s", way.name, *seconds[way][-1])
    print("\n| | real share | real pieces a processor second | ratio | a second | ratio |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    rates = {
        way: [pieces[way] / np.median(s) for s in zip(*seconds[way], strict=True)] for way in ways
    }
    for way, (rate, wall_rate) in rates.items():
        ratios = rate / rates[ways[0]][0], wall_rate / rates[ways[0]][1]
        print(
            f"| {way.name} | {100 * pieces[way] / rows[way]:.0f} % "
            f"| {rate:,.0f} | {ratios[0]:.2f} | {wall_rate:,.0f} | {ratios[1]:.2f} |",
            flush=True,
        )


def main(_: list[str]) -> None:
    for path, make_task, ways, batch_size in zip(
        (INPUT.value, DATA.value),
        (pretraining_task, fine_tuning_task),
        (PRETRAINING, FINE_TUNING),
        map(int, BATCHES.value),
        strict=True,
    ):
        if path:
            compare(make_task, ways, batch_size)


if __name__ == "__main__":
    app.run(main)
