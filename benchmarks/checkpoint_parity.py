"""Converts a model and lets the other programs compute with it: prints the largest differences.

    python -m benchmarks.checkpoint_parity --model=bert-base-uncased --garden_python=.../bin/python

The model needs MLM and NSP heads, as transformers' BertForPreTraining has; outputs are compared at
real pieces of one batch with padding, in float32. Times are of reading and writing alone.
"""

import contextlib
import pathlib
import subprocess
import tempfile
import time
from collections.abc import Iterator

import numpy as np
from absl import app, flags

from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.checkpoints.formats import (
    as_computed,
    head_as_computed,
    read_checkpoint,
    write_checkpoint,
)
from bert_tf.modeling.conversion import fixed_batch, outputs_of

MODEL = flags.DEFINE_string("model", None, "A pre-trained model in any form.", required=True)
GARDEN_PYTHON = flags.DEFINE_string(
    "garden_python", "", "Python with tf-models-official 2.20; empty: without it."
)
FORMS = ("bert_tf", "google", "huggingface", "keras_hub")


@contextlib.contextmanager
def timed(name: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    print(f"{name:34}{time.perf_counter() - start:8.2f} s")


def report(name: str, batch: dict, ours: dict, theirs: dict) -> None:
    """Prints the largest absolute difference of each of their outputs."""
    real = batch["input_mask"].astype(bool)
    for key, value in theirs.items():
        received = np.asarray(ours[key])
        value = np.asarray(value)
        if value.shape[:2] == real.shape and value.ndim == 3:
            received, value = received[real], value[real]
        print(f"{name:34}{key:22}{np.abs(received - value).max():.1e}")


def run_transformers(folder: pathlib.Path, batch: dict) -> dict:
    import torch
    from transformers import BertForPreTraining

    model = BertForPreTraining.from_pretrained(folder).eval()
    names = {"input_ids": "word_ids", "attention_mask": "mask", "token_type_ids": "type_ids"}
    inputs = {key: torch.tensor(batch[f"input_{ours}"]).long() for key, ours in names.items()}
    with torch.no_grad():
        result = model(**inputs, output_hidden_states=True)
    rows = np.arange(len(batch["input_mask"]))[:, None]
    return {
        "sequence_output": result.hidden_states[-1].numpy(),
        "masked_lm_logits": result.prediction_logits.numpy()[rows, batch["masked_lm_positions"]],
        "next_sentence_logits": result.seq_relationship_logits.numpy(),
    }


def run_keras_hub(folder: pathlib.Path, batch: dict) -> dict:
    from keras_hub.models import BertBackbone

    names = {"token_ids": "word_ids", "padding_mask": "mask", "segment_ids": "type_ids"}
    inputs = {key: batch[f"input_{ours}"] for key, ours in names.items()}
    return dict(BertBackbone.from_preset(str(folder))(inputs))


def run_garden(folder: pathlib.Path, batch: dict) -> dict:
    """Runs the Garden's converter on Google's form, then its encoder, in its own Python."""
    np.savez(folder / "batch.npz", **batch)
    script = pathlib.Path(__file__).with_name("garden_checkpoint.py")
    subprocess.run([GARDEN_PYTHON.value, script, folder], check=True, capture_output=True)
    return dict(np.load(folder / "outputs.npz"))


def computed_by(checkpoint: Checkpoint, form: str) -> dict:
    head = head_as_computed(checkpoint.config, form)
    return outputs_of(checkpoint, as_computed(checkpoint.config, form), head)


def main(_: list[str]) -> None:
    with timed("read"):
        model = read_checkpoint(MODEL.value)
    model.check()
    batch = fixed_batch(model.config)
    with tempfile.TemporaryDirectory() as name:
        folders = {form: pathlib.Path(name, form) for form in FORMS}
        for form, folder in folders.items():
            with timed(f"write {form}"):
                write_checkpoint(model, folder, form)
            with timed(f"read {form}"):
                again = read_checkpoint(folder)
            same = all(np.array_equal(w, model.weights[n]) for n, w in again.weights.items())
            print(f"{form:34}{len(again.weights)} weights, the same to the bit: {same}")
        ours = computed_by(model, "huggingface")
        report("transformers", batch, ours, run_transformers(folders["huggingface"], batch))
        theirs = computed_by(model, "keras_hub")
        report("keras-hub BertBackbone", batch, theirs, run_keras_hub(folders["keras_hub"], batch))
        if GARDEN_PYTHON.value:
            theirs = computed_by(model, "google")
            report("Model Garden BertEncoder", batch, theirs, run_garden(folders["google"], batch))
            again = computed_by(read_checkpoint(folders["google"] / "tf2"), "google")
            report("read back from the Garden's file", batch, theirs, again)


if __name__ == "__main__":
    app.run(main)
