"""Measures the input pipeline: pieces a second from TFRecords to masked batches.

    python -m benchmarks.input_pipeline

Writes random examples of full length to a temporary file and reads them for some seconds with each
kind of masking.
"""

import pathlib
import tempfile
import time
from collections.abc import Iterator

import numpy as np
from absl import app

from benchmarks.timing import print_table
from bert_tf.config import MaskingConfig
from bert_tf.corpus.pipeline import pretraining_dataset
from bert_tf.corpus.tfrecords import RecordFiles, encode_examples, write_records
from bert_tf.text.vocab import SPECIAL_TOKENS, Vocab

N, T, P, B = 50_000, 128, 20, 256  # examples, pieces of each, predictions, examples a batch
WARM_UP, SECONDS = 1.0, 5.0
VOCAB = Vocab(
    (*SPECIAL_TOKENS, *(f"w{n}" for n in range(24_000)), *(f"##p{n}" for n in range(6517)))
)
KINDS = {
    "static (read and parse alone)": MaskingConfig(masking="static"),
    "dynamic, pieces": MaskingConfig(),
    "dynamic, whole words": MaskingConfig(do_whole_word_mask=True),
    "tensorflow-text, pieces": MaskingConfig(masking="tf_text"),
    "tensorflow-text, whole words": MaskingConfig(masking="tf_text", do_whole_word_mask=True),
}


def make_examples(is_masked: bool) -> dict[str, np.ndarray]:
    """Returns pairs of random pieces, every seventh of them continuing a word."""
    rng = np.random.default_rng(0)
    ids = rng.integers(5, 24_005, (N, T))
    continues = rng.random((N, T)) < 1 / 7
    ids[continues] = rng.integers(24_005, len(VOCAB), continues.sum())
    ids[:, 0] = VOCAB.cls_id
    ids[:, [T // 2, T - 1]] = VOCAB.sep_id
    examples = {
        "input_ids": ids,
        "input_mask": np.ones_like(ids),
        "segment_ids": np.tile((np.arange(T) > T // 2).astype(int), (N, 1)),
        "next_sentence_labels": rng.integers(0, 2, (N, 1)),
    }
    if is_masked:
        places = np.ones((N, P), np.int64)
        examples |= {"masked_lm_positions": places, "masked_lm_ids": places}
        examples["masked_lm_weights"] = places.astype(np.float32)
    return examples


def rate(path: pathlib.Path, masking: MaskingConfig) -> float:
    """Returns pieces a second."""
    records = RecordFiles([path])
    batches = iter(
        pretraining_dataset(records, VOCAB, masking, max_seq_length=T, batch_size=B, seed=0)
    )
    for seconds in (WARM_UP, SECONDS):
        start, count = time.perf_counter(), 0
        while (elapsed := time.perf_counter() - start) < seconds:
            next(batches)
            count += 1
    return count * B * T / elapsed


def rows() -> Iterator[list[str]]:
    with tempfile.TemporaryDirectory() as folder:
        paths = {is_masked: pathlib.Path(folder, f"{is_masked}") for is_masked in (False, True)}
        for is_masked, path in paths.items():
            write_records(path, encode_examples(make_examples(is_masked)))
        for name, masking in KINDS.items():
            yield [name, f"{rate(paths[masking.masking == 'static'], masking) / 1e6:.1f} M"]


def main(_: list[str]) -> None:
    print_table(["masks", "tokens/s"], rows())


if __name__ == "__main__":
    app.run(main)
