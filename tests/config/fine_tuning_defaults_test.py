"""Settings that nobody chose follow the model and the data, in `fit` and in the programs."""

import contextlib
from unittest import mock

import keras
import numpy as np
import pytest
from absl import flags
from absl.testing import flagsaver

from bert_tf.checkpoints.run_record import recorded
from bert_tf.config.fine_tuning_config import ClassifierConfig
from bert_tf.config.fine_tuning_defaults import (
    MOST_LENGTH,
    default_batch_size,
    default_epochs,
    default_learning_rate,
    default_length,
)
from bert_tf.tasks.base.programs import run
from bert_tf.tasks.base.programs.program import read_configs
from bert_tf.tasks.classification.model import BertClassifier
from bert_tf.tasks.multiple_choice.model import BertMultipleChoice
from bert_tf.tasks.question_answering.model import BertSpanLabeler
from tests.fine_tune import WORDS, fine_tune, log_of, texts, write_table
from tests.tiny_model import write_tiny_model

FOLLOWING = ("max_seq_length", "learning_rate", "num_train_epochs")
# 5e-5 * (768 / 32) ** 2 = 5e-5 * 576 is above the highest rate.
TINY_RATE = 5e-4


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model of width 32 and 512 positions, and 100 texts, of which one has 200 words."""
    folder = tmp_path_factory.mktemp("defaults")
    write_tiny_model(folder / "model", *WORDS, num_hidden_layers=1, max_position_embeddings=512)
    rows = texts(100)
    rows[7]["text"] = "film " * 200
    write_table(folder / "train.csv", rows)
    write_table(folder / "dev.csv", texts(12))
    return folder


def values_of(folder, output_dir, **changed):
    return {
        "do_train": "true",
        "jit_compile": "false",
        "init_checkpoint": folder / "model",
        "train_file": folder / "train.csv",
        "output_dir": folder / output_dir,
        **changed,
    }


@contextlib.contextmanager
def without_training():
    """Lets a program do everything up to its record."""
    with mock.patch.object(run.Run, "train_and_use"):
        yield


def record_of(path) -> dict[str, float]:
    return {name: float(recorded(str(path), name)) for name in FOLLOWING}


def prepare(*arguments, program="run_classifier", **values) -> dict[str, float]:
    """Returns the settings that a run records; with arguments, FLAGS of the tests do not count."""
    with without_training():
        assert fine_tune(program, *arguments, "--nodo_eval", **values) == 0
    return record_of(values["output_dir"])


# The rules ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("width", "rate"),
    [
        (128, 5e-4),  # 5e-5 * 6 ** 2 = 1.8e-3, above the highest
        (256, 4.5e-4),  # 5e-5 * 3 ** 2
        (312, 3e-4),  # 5e-5 * 2.4615 ** 2 = 5e-5 * 6.059
        (384, 2e-4),  # 5e-5 * 2 ** 2
        (768, 5e-5),
        (1024, 2.8e-5),  # 5e-5 * 0.75 ** 2 = 5e-5 * 0.5625
    ],
)
def test_rate_falls_with_the_width(width, rate):
    assert default_learning_rate(width) == rate


@pytest.mark.parametrize(
    ("num_examples", "epochs"),
    [
        (0, 30),
        (100, 30),  # 400 / 10 = 40, above the most
        (400, 20),
        (1200, 12),  # 400 / 34.64 = 11.5
        (3000, 8),  # 400 / 54.77 = 7.3
        (10_000, 4),
        (20_000, 3),  # 400 / 141.4 = 2.8
        (400_000, 3),
    ],
)
def test_epochs_fall_as_examples_grow(num_examples, epochs):
    assert default_epochs(num_examples) == epochs


@pytest.mark.parametrize(
    ("longest", "num_positions", "length"),
    [
        (20, 512, 128),
        (128, 512, 128),
        (129, 512, 136),
        (300, 512, 304),
        (2000, 512, 512),
        (2000, 8192, 512),
        (300, 200, 200),
        (20, 64, 64),
    ],
)
def test_length_follows_the_longest_text(longest, num_positions, length):
    assert default_length(longest, min(num_positions, MOST_LENGTH)) == length


@pytest.mark.parametrize(
    ("longest", "size"), [(0, 32), (128, 32), (129, 16), (256, 16), (257, 8), (512, 8)]
)
def test_batches_of_long_texts_are_small(longest, size):
    assert default_batch_size(longest) == size


@pytest.mark.parametrize(
    ("num_examples", "num_classes", "epochs"),
    [
        (1200, 0, 12),
        (1200, 3, 13),  # 11.547 * (1 + log10(1.5) / 2) = 11.547 * 1.088
        (3000, 150, 15),  # 7.303 * (1 + log10(75) / 2) = 7.303 * 1.9375
        (10_000, 20, 6),  # 4 * 1.5
        (40_000, 200, 4),  # 2 * 2
        (400_000, 200, 3),
    ],
)
def test_epochs_grow_with_the_classes(num_examples, num_classes, epochs):
    assert default_epochs(num_examples, num_classes) == epochs


# fit ------------------------------------------------------------------------------------------


def start_model(folder, **options):
    names = {"labels": ["pos", "neg", "so-so"], **options}
    return BertClassifier.from_pretrained(folder / "model", **names)


def fit(model, count: int, monkeypatch, length: int = 5, **options):
    """Returns what Keras' own `fit` would be called with."""
    with monkeypatch.context() as patch:
        called = mock.Mock()
        patch.setattr(keras.Model, "fit", called)
        x, y = ["film " * length] * count, ["pos", "neg"] * (count // 2)
        model.fit(x, y, **options)
    return called.call_args.kwargs


def schedule_of(model) -> tuple[float, int]:
    """Returns the peak rate and the steps of the schedule that `fit` chose."""
    optimizer = model.optimizer
    return float(optimizer.learning_rate), optimizer.rate_factor.get_config()["num_train_steps"]


def test_fit_follows_model_and_data(folder, monkeypatch):
    model = start_model(folder)
    given = fit(model, 400, monkeypatch)
    # 20 for two classes, 20 * (1 + log10(1.5) / 2) = 21.8 for three.
    assert (given["epochs"], given["steps_per_epoch"]) == (22, 13)
    assert schedule_of(model) == (np.float32(TINY_RATE), 286)
    # Another fit with more examples, longer ones.
    given = fit(model, 1200, monkeypatch, length=140)
    assert (given["epochs"], given["steps_per_epoch"]) == (13, 75)  # Batches of 16.
    assert schedule_of(model) == (np.float32(TINY_RATE), 975)


def test_arguments_of_fit_win(folder, monkeypatch):
    model = start_model(folder)
    options = {"epochs": 2, "learning_rate": 3e-5, "batch_size": 100}
    given = fit(model, 400, monkeypatch, length=140, **options)
    assert (given["epochs"], given["steps_per_epoch"]) == (2, 4)
    assert schedule_of(model) == (np.float32(3e-5), 8)
    assert fit(model, 400, monkeypatch, steps_per_epoch=7)["epochs"] == 1
    model.compile(keras.optimizers.SGD(0.1))
    given = fit(model, 400, monkeypatch, length=140)
    assert (given["epochs"], given["steps_per_epoch"]) == (1, 13)  # Keras' own defaults.


def test_arrays_of_ids_have_the_same_epochs(folder, monkeypatch):
    model = start_model(folder, preprocessor=None)
    inputs = dict.fromkeys(("input_word_ids", "input_mask", "input_type_ids"), np.ones((384, 4)))
    with monkeypatch.context() as patch:
        patch.setattr(keras.Model, "fit", called := mock.Mock())
        model.fit(inputs, np.zeros(384, int))
    assert called.call_args.kwargs["epochs"] == 23  # 400 / 19.6 * 1.088 = 22.2


def test_models_read_all_positions_up_to_512(folder, tmp_path):
    assert start_model(folder).max_seq_length == 512
    long = write_tiny_model(tmp_path / "long", max_position_embeddings=600)
    assert BertMultipleChoice.from_pretrained(long, new_head=True).max_seq_length == 512
    assert BertSpanLabeler.from_pretrained(long, new_head=True).max_seq_length == 384
    assert start_model(folder, max_seq_length=16).max_seq_length == 16


def test_a_model_that_cuts_texts_says_what_helps(folder, caplog):
    model = start_model(folder, max_seq_length=16)
    model.classify(["film " * 30, "film"])
    (message,) = [record.getMessage() for record in caplog.records if "16" in record.getMessage()]
    assert "max_seq_length=32" in message and 'long_texts="windows"' in message
    choice = BertMultipleChoice.from_pretrained(folder / "model", new_head=True, max_seq_length=16)
    caplog.clear()
    choice.choose(["film " * 30], [["a", "film"]])
    (message,) = [record.getMessage() for record in caplog.records if "16" in record.getMessage()]
    assert "max_seq_length=34" in message


# The programs ---------------------------------------------------------------------------------


def test_a_run_records_what_follows_from_its_data(folder):
    found = prepare(**values_of(folder, "new"))
    # 200 words, [CLS] and [SEP].
    assert found == {"max_seq_length": 208, "learning_rate": TINY_RATE, "num_train_epochs": 30}
    assert recorded(str(folder / "new"), "num_train_steps") == str(100 * 30 // 32)


def test_flags_win(folder):
    given = {"max_seq_length": 24, "learning_rate": 2e-5, "num_train_epochs": 2.0}
    assert prepare(**values_of(folder, "given", **given)) == given
    one = prepare(**values_of(folder, "one", learning_rate=2e-5))
    assert one == {"max_seq_length": 208, "learning_rate": 2e-5, "num_train_epochs": 30}
    steps = prepare(**values_of(folder, "steps", num_train_steps=7))
    assert steps["num_train_epochs"] == 3 and steps["learning_rate"] == TINY_RATE
    assert recorded(str(folder / "steps"), "num_train_steps") == "7"


def test_a_run_that_goes_on_keeps_what_it_recorded(folder):
    """Such as a run made before defaults followed the data, whose values were the flags' own."""
    old = {"max_seq_length": 128, "learning_rate": 5e-5, "num_train_epochs": 3.0}
    assert prepare(**values_of(folder, "old", **old)) == old
    assert prepare(**values_of(folder, "old")) == old
    before = {"max_seq_length": 16, "learning_rate": 3e-3, "num_train_epochs": 2.0}
    assert prepare(**values_of(folder, "other", **before)) == before
    assert prepare(**values_of(folder, "other")) == before
    # The runs of several seeds keep what the first recorded.
    path = folder / "seeds/seed-1"
    prepare(**values_of(folder, "seeds/seed-1", random_seed=1, **before))
    with without_training():
        values = values_of(folder, "seeds", random_seed=1, num_seeds=2)
        with mock.patch.object(run, "write_summary"):
            assert fine_tune("run_classifier", "--nodo_eval", **values) == 0
    assert record_of(path) == record_of(path.with_name("seed-2")) == before


def test_an_evaluation_reads_texts_as_long_as_they_are(folder):
    """Of weights without a run's record; else at the recorded length."""
    prepare(**values_of(folder, "trained", max_seq_length=16))
    with flagsaver.flagsaver():
        flags.FLAGS(["", "--do_eval", f"--output_dir={folder / 'trained'}"])
        assert read_configs(ClassifierConfig).data.max_seq_length == 16


@pytest.mark.parametrize("program", ["run_tagger", "run_squad", "run_multiple_choice"])
def test_other_programs_follow_too(folder, program):
    files = {
        "run_tagger": ("words.txt", "film O\nwas O\ngood B\n\n" * 400),
        "run_multiple_choice": ("choices.jsonl", CHOICE * 400),
        "run_squad": ("squad.json", SQUAD),
    }
    name, text = files[program]
    (folder / name).write_text(text)
    values = values_of(folder, program, train_file=folder / name)
    found = prepare(program=program, **values)
    length, epochs = (384, 30) if program == "run_squad" else (128, 20)
    expected = {"max_seq_length": length, "learning_rate": TINY_RATE, "num_train_epochs": epochs}
    assert found == expected


CHOICE = '{"context": "film", "choices": ["good", "bad"], "label": 1}\n'
SQUAD = """{"version": "1.1", "data": [{"title": "a", "paragraphs": [
{"context": "the film was good", "qas": [{"id": "1", "question": "was",
"answers": [{"text": "film", "answer_start": 4}]}]}]}]}"""


def test_programs_warn_of_cut_texts_with_the_flag_that_helps(folder, caplog):
    with without_training():
        log = log_of(
            caplog,
            "run_classifier",
            "--nodo_eval",
            **values_of(folder, "cut", max_seq_length=16),
        )
    assert "--max_seq_length=202" in log and "--long_texts=windows" in log
    (folder / "choices.jsonl").write_text(CHOICE.replace('"film"', f'"{"film " * 40}"') * 2)
    with without_training():
        log = log_of(
            caplog,
            "run_multiple_choice",
            "--nodo_eval",
            **values_of(
                folder, "cut choices", train_file=folder / "choices.jsonl", max_seq_length=16
            ),
        )
    assert "--max_seq_length=44" in log


def test_googles_flagfile_sets_what_would_follow_the_data(folder):
    google = "--flagfile=configs/google_fine_tuning.flags"
    values = values_of(folder, "google")
    expected = {"max_seq_length": 128, "learning_rate": 5e-5, "num_train_epochs": 3}
    assert prepare(google, **values) == expected
