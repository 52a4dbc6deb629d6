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
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import keras
import tensorflow as tf
from absl import app, flags

from benchmarks.timing import in_turn, print_table
from bert_tf.config import DataConfig, MaskingConfig, ModelConfig, OptimizerConfig
from bert_tf.corpus.preparation import prepare_pretraining_data
from bert_tf.corpus.tfrecords import RecordFiles
from bert_tf.pretraining.masked_words.model import BertPretrainer
from bert_tf.pretraining.task import PretrainingTask
from bert_tf.tasks.base.examples.rows import length_buckets
from bert_tf.tasks.classification.glue import glue_task, read_glue
from bert_tf.tasks.classification.model import BertClassifier
from bert_tf.tasks.classification.task import ClassificationTask, label_array, make_examples
from bert_tf.text.vocab import Vocab
from bert_tf.text.wordpiece import WordPiece
from bert_tf.training.optimizers import build_optimizer
from bert_tf.training.packed_rows import pack_batch
from bert_tf.training.train_step import TrainStep

VOCAB = flags.DEFINE_string("vocab_file", None, "Vocabulary of the texts.", required=True)
INPUT = flags.DEFINE_string("input_file", "", "Text to pre-train on; see run_pretraining.")
DATA = flags.DEFINE_string("data_dir", "", "Folder of SST-2.")
SIZE = flags.DEFINE_integer("hidden_size", 256, "Width; heads are of 32.")
STEPS = flags.DEFINE_integer("steps", 4, "Steps of a round.")
ROUNDS = flags.DEFINE_integer("rounds", 3, "Rounds.")
COMPILED = flags.DEFINE_bool("jit_compile", True, "Compare the ways under XLA, else without it.")
CACHE = "/tmp/bert_tf_cache"
LENGTH, LAYERS = 128, 4
EXAMPLES = 4000  # of SST-2


class Way(NamedTuple):
    """One way to train."""

    name: str
    packed: bool = False
    unpad: bool = False
    is_plain: bool = False  # all rows padded to LENGTH
    is_compiled: bool = True  # also compared under XLA


PRETRAINING = [Way("padded"), Way("packed", packed=True)]
FINE_TUNING = [
    Way("padded to 128", is_plain=True),
    Way("padded to the longest; under XLA to buckets"),
    Way("without padding but in attention", unpad=True, is_compiled=False),
    Way("packed in rows of 128", packed=True, is_plain=True),
    Way("packed in rows of the longest", packed=True, is_compiled=False),
]


def model_config() -> ModelConfig:
    size = SIZE.value
    return ModelConfig(
        len(Vocab.read(VOCAB.value)), size, LAYERS, size // 32, intermediate_size=4 * size
    )


@functools.cache
def pretraining_data() -> tuple[DataConfig, RecordFiles]:
    data = DataConfig(input_file=INPUT.value, vocab_file=VOCAB.value, short_seq_prob=0.1)
    prepared = prepare_pretraining_data(
        data,
        MaskingConfig(),
        vocab_size=model_config().vocab_size,
        do_lower_case=True,
        cache_dir=CACHE,
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
    labels = label_array(examples, glue.labels, "single_label")
    rows = make_examples(examples, labels, "single_label", tokenizer, LENGTH).rows
    return ClassificationTask(
        BertClassifier(model_config(), len(glue.labels), unpad=way.unpad),
        rows,
        None,
        length_buckets(LENGTH, COMPILED.value, way.is_plain),
        1,
        kind="single_label",
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
    strategy = tf.distribute.get_strategy()
    step = TrainStep(task, optimizer, strategy, random_seed=1, jit_compile=COMPILED.value)

    def run() -> Any:
        iterator = iter(batches(task, way, batch_size))
        return step(iterator, tf.constant(0), tf.constant(STEPS.value)).numpy()

    return run


def rows(make_task: Callable[[Way], Any], ways: list[Way], batch_size: int) -> Iterator[list[str]]:
    """Yields a line a way."""
    rounds, pieces, places = {}, {}, {}
    for way in (way for way in ways if way.is_compiled or not COMPILED.value):
        keras.utils.set_random_seed(1)
        task = make_task(way)
        seen = list(batches(task, way, batch_size))
        pieces[way] = int(sum(batch["input_mask"].numpy().sum() for batch in seen))
        name = "packed_positions" if way.packed else "input_mask"
        places[way] = sum(batch[name].shape[0] * batch[name].shape[1] for batch in seen)
        rounds[way] = make_round(task, way, batch_size)
    first: list[float] = []
    for way, (seconds, processor_seconds) in in_turn(rounds, ROUNDS.value).items():
        rates = [pieces[way] / processor_seconds, pieces[way] / seconds]
        first = first or rates
        cells = [(f"{r:,.0f}", f"{r / one:.2f}") for r, one in zip(rates, first, strict=True)]
        yield [way.name, f"{100 * pieces[way] / places[way]:.0f} %", *cells[0], *cells[1]]


def main(_: list[str]) -> None:
    heads = ["", "real share", "real pieces a processor second", "ratio", "a second", "ratio"]
    if INPUT.value:
        print_table(heads, rows(pretraining_task, PRETRAINING, 64))
    if DATA.value:
        print_table(heads, rows(fine_tuning_task, FINE_TUNING, 32))


if __name__ == "__main__":
    app.run(main)
