"""Measures the input pipeline: pieces a second from TFRecords to masked batches.

    python -m benchmarks.input_pipeline

Writes random examples of full length to a temporary file and reads them for some seconds with each
kind of masking. Every row is printed as million pieces (tokens) a second, padding not counted.
"""

import pathlib
import tempfile
import time

import numpy as np
from absl import app, flags

from bert_tf.config import MaskingConfig
from bert_tf.data.pipeline import pretraining_dataset
from bert_tf.data.tfrecords import RecordFiles, encode_examples, write_records
from bert_tf.text.vocab import SPECIAL_TOKENS, Vocab

LENGTH = flags.DEFINE_integer("length", 128, "Pieces an example, T.")
BATCH = flags.DEFINE_integer("batch", 256, "Examples a batch, B.")
EXAMPLES = flags.DEFINE_integer("examples", 50_000, "Examples in the file.")
SECONDS = flags.DEFINE_float("seconds", 5.0, "Time of each measurement.")

PREDICTIONS = 20
VOCAB = Vocab(
    (*SPECIAL_TOKENS, *(f"w{n}" for n in range(24_000)), *(f"##p{n}" for n in range(6517)))
)
KINDS = {
    "read and parse alone (static)": MaskingConfig(masking="static"),
    "dynamic, pieces": MaskingConfig(),
    "dynamic, whole words": MaskingConfig(do_whole_word_mask=True),
    "tensorflow-text, pieces": MaskingConfig(masking="tf_text"),
    "tensorflow-text, whole words": MaskingConfig(masking="tf_text", do_whole_word_mask=True),
}


def make_examples(num_examples: int, length: int) -> dict[str, np.ndarray]:
    """Returns unmasked pairs of random pieces, every seventh of them continuing a word."""
    rng = np.random.default_rng(0)
    word_ids = rng.integers(5, 24_005, (num_examples, length))
    continues = rng.random((num_examples, length)) < 1 / 7
    word_ids[continues] = rng.integers(24_005, len(VOCAB), continues.sum())
    word_ids[:, 0] = VOCAB.cls_id
    word_ids[:, [length // 2, length - 1]] = VOCAB.sep_id
    segment_ids = np.arange(length) > length // 2
    return {
        "input_ids": word_ids,
        "input_mask": np.ones_like(word_ids),
        "segment_ids": np.tile(segment_ids.astype(int), (num_examples, 1)),
        "next_sentence_labels": rng.integers(0, 2, (num_examples, 1)),
    }


def measure(path: pathlib.Path, masking: MaskingConfig) -> float:
    """Returns pieces a second after a warm-up of one second."""
    dataset = pretraining_dataset(
        RecordFiles([path]),
        VOCAB,
        masking,
        max_seq_length=LENGTH.value,
        batch_size=BATCH.value,
        seed=0,
    )
    iterator = iter(dataset)
    for seconds in (1.0, SECONDS.value):
        start, num_batches = time.perf_counter(), 0
        while (elapsed := time.perf_counter() - start) < seconds:
            next(iterator)
            num_batches += 1
    return num_batches * BATCH.value * LENGTH.value / elapsed


def main(_: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        unmasked = pathlib.Path(folder, "unmasked.tfrecord")
        masked = pathlib.Path(folder, "masked.tfrecord")
        examples = make_examples(EXAMPLES.value, LENGTH.value)
        start = time.perf_counter()
        write_records(unmasked, encode_examples(examples))
        rate = examples["input_ids"].size / (time.perf_counter() - start)
        print(f"{'write, one process':32}{rate / 1e6:6.2f} million pieces a second", flush=True)
        full = np.ones((EXAMPLES.value, PREDICTIONS), np.int64)
        masks = {
            "masked_lm_positions": full,
            "masked_lm_ids": full,
            "masked_lm_weights": full * 1.0,
        }
        write_records(masked, encode_examples(examples | masks))
        for name, masking in KINDS.items():
            rate = measure(masked if masking.masking == "static" else unmasked, masking)
            print(f"{name:32}{rate / 1e6:6.2f} million pieces a second", flush=True)


if __name__ == "__main__":
    app.run(main)
