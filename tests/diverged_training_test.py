"""Training that diverges: programs, `fit` and decisions end with an error, not with NaN."""

import keras
import numpy as np
import pytest

import bert_tf
from bert_tf.tasks.classification.decisions import Decisions, calibrated
from tests.fine_tune import LABELS, refuse, texts, write_folder, write_table
from tests.programs import SMALL_BERT, fail, run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = write_folder(tmp_path_factory.mktemp("diverged"))
    write_table(path / "few.csv", texts(12))
    return path


def diverging(folder, output_dir, **changed):
    return {
        "do_train": "true",
        "do_eval": "true",
        "init_checkpoint": folder / "model",
        "train_file": folder / "few.csv",
        "eval_file": folder / "dev.csv",
        "output_dir": folder / output_dir,
        "learning_rate": 1e30,
        "on_bad_loss": "skip",
        **changed,
    }


@pytest.mark.slow
def test_a_program_ends_with_an_error(folder):
    """One step, whose loss is finite and whose weights are useless."""
    steps = {"train_batch_size": 12, "num_train_epochs": 1}
    refuse("run_classifier", **diverging(folder, "run", **steps))
    assert not list((folder / "run").glob("model.ckpt-*.index"))


@pytest.mark.slow
def test_pretraining_ends_with_an_error(folder):
    vocab_file = folder / "model" / "vocab.txt"
    (folder / "own.txt").write_text("a b c d\ne f g h\n\n" * 40)
    shape = {**SMALL_BERT, "vocab_size": len(vocab_file.read_text().splitlines())}
    steps = {"num_train_steps": 1, "num_warmup_steps": 0, "train_batch_size": 4}
    files = {"input_file": folder / "own.txt", "vocab_file": vocab_file}
    given = {"learning_rate": 1e30, "on_bad_loss": "skip", "do_train": "true", **steps, **files}
    printed = fail(run("run_pretraining", output_dir=folder / "pretrained", **shape, **given))
    assert printed.count("ERROR: ") == 1
    assert not list((folder / "pretrained").glob("model.ckpt-*"))


@pytest.mark.slow
def test_few_shot_ends_with_an_error(folder):
    given = diverging(folder, "few", few_shot="true", do_eval="false")
    refuse("run_classifier", **given)
    assert not list((folder / "few").rglob("model.ckpt-*.index"))


def model_of(folder):
    return bert_tf.BertClassifier.from_pretrained(
        str(folder / "model"), labels=list(LABELS.values())
    )


@pytest.mark.parametrize(
    ("batch_size", "callbacks"),
    # Twelve texts in one step: its loss is finite. The other losses are not.
    [
        pytest.param(12, None, marks=pytest.mark.slow),
        (4, keras.callbacks.TerminateOnNaN()),
    ],
)
def test_fit_does_not_return_useless_weights(folder, callbacks, batch_size):
    rows = texts(12)
    columns = [[row[name] for row in rows] for name in ("text", "label")]
    options = {"learning_rate": 1e30, "epochs": 1, "verbose": 0, "batch_size": batch_size}
    with pytest.raises(FloatingPointError):
        model_of(folder).fit(*columns, callbacks=callbacks, **options)


def test_scores_without_a_value_are_not_calibrated():
    logits = np.array([[0.0, 1.0], [np.nan, 0.0]])
    with pytest.raises(ValueError):
        calibrated(Decisions(), logits, np.array([1, 0]), "single_label")
