"""What all fine-tuning programs share, shown with the classifier: flags, loop, start, devices."""

import json
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

from bert_tf.checkpoints.formats import read_checkpoint, write_checkpoint
from bert_tf.config import TrainingConfig
from bert_tf.tasks.base.programs.defaults import with_evaluations
from bert_tf.tasks.classification.program import Classifier
from bert_tf.training.metrics_log import read_metrics
from tests.fine_tune import (
    FLAGS,
    files_of,
    fine_tune,
    log_of,
    read_results,
    read_tsv,
    refuse,
    texts,
    write_folder,
    write_table,
)
from tests.float_bounds import assert_close
from tests.tiny_model import write_tiny_model

NO_DROPOUT = {"hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_folder(tmp_path_factory.mktemp("fine_tuning"))


def flags_of(folder, output_dir, **changed):
    """Returns flags of 6 steps without dropout and an evaluation, some of them changed."""
    return {
        **FLAGS,
        **NO_DROPOUT,
        "do_train": "true",
        "do_eval": "true",
        "num_train_steps": 6,
        "num_warmup_steps": 0,
        "init_checkpoint": folder / "model",
        "train_file": folder / "train.csv",
        "eval_file": folder / "dev.csv",
        "output_dir": folder / output_dir,
        **changed,
    }


def tune(folder, output_dir, **changed):
    """Does such a run in this process; returns its directory."""
    assert fine_tune("run_classifier", **flags_of(folder, output_dir, **changed)) == 0
    return folder / output_dir


@pytest.fixture(scope="module")
def plain(folder):
    return tune(folder, "plain")


# Flags ------------------------------------------------------------------------------------------


PROGRAMS = ("run_classifier", "run_tagger", "run_squad", "run_multiple_choice")


WITHOUT_TENSORFLOW = """
import importlib, sys
from absl import flags
sys.modules["tensorflow"] = None  # An import of it fails.
for program in sys.argv[1].split():
    module = importlib.import_module(f"bert_tf.{program}")
    for arguments in sys.argv[2:]:
        flags.FLAGS.unparse_flags()
        for flag in flags.FLAGS:
            flags.FLAGS[flag].unparse()
        flags.FLAGS([program, *arguments.split()])
        try:
            module.main([])
        except ValueError as error:
            print(error)
"""


def test_flags_are_answered_without_tensorflow(tmp_path):
    out = f"--output_dir={tmp_path / 'out'}"
    train = f"--do_train {out} --init_checkpoint=somewhere"
    given = {
        "--do_train": "--output_dir ",
        out: "--do_train, --do_eval, --do_predict",
        train: "--train_file .*--do_train",
        f"{train} --train_file=x --early_stopping_evaluations=2": "--early_stopping_evaluations=2 ",
        f"{out} --do_train --train_file=x.csv": "--init_checkpoint",
    }
    command = [sys.executable, "-c", WITHOUT_TENSORFLOW, " ".join(PROGRAMS), *given]
    printed = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert printed.returncode == 0, printed.stderr
    lines = printed.stdout.splitlines()
    assert len(lines) == len(PROGRAMS) * len(given)
    for line, expected in zip(lines, [*given.values()] * len(PROGRAMS), strict=True):
        assert re.search(expected, line)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"max_seq_length": 65}, "--max_seq_length=65"),
        ({"hidden_size": 48}, "--hidden_size=48"),
        ({"frozen_layers": 2}, "--frozen_layers=2"),
        ({"train_batch_size": 9, "gradient_accumulation_steps": 2}, "--train_batch_size=9 .*2"),
        ({"init_checkpoint": "nowhere"}, "nowhere"),
        ({"train_file": "nowhere.csv"}, "'nowhere.csv'"),
        ({"do_train": "false"}, "/model.* classifier"),
        ({"do_predict": "true"}, "--predict_file "),
        ({"do_train": "false", "init_checkpoint": ""}, "--init_checkpoint"),
        (
            {"distribution": "mirrored", "num_devices": 2, "eval_batch_size": 7, "do_eval": "true"},
            "--eval_batch_size=7",
        ),
    ],
)
def test_what_cannot_be_done_is_refused(folder, changed, expected):
    message = refuse("run_classifier", **flags_of(folder, "refused", **changed))
    assert re.search(expected, message)
    assert not list((folder / "refused").glob("[!.]*"))


# The loop ---------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "changed",
    [
        {"pad_to_max_length": "true"},
        {"jit_compile": "true"},
        {"gradient_accumulation_steps": 4},
        {"recompute": "true"},
    ],
)
def test_same_losses_however_they_are_computed(folder, plain, changed, monkeypatch):
    make_task, found = Classifier.make_task, []

    def make(program, *arguments, **options):
        found.append(options["unpad"])
        return make_task(program, *arguments, **options)

    monkeypatch.setattr(Classifier, "make_task", make)
    path = tune(folder, "-".join(changed), **changed)
    check_same_training(path, plain)
    assert found == [not {"pad_to_max_length", "jit_compile"} & changed.keys()]


def check_same_training(path, expected_path):
    lines, expected = (read_metrics(p / "metrics.jsonl") for p in (path, expected_path))
    assert [line["step"] for line in lines] == list(range(1, 7))
    for line, wanted in zip(lines, expected, strict=True):
        assert line == pytest.approx(wanted, rel=1e-3)
    assert read_results(path) == pytest.approx(read_results(expected_path), rel=1e-3)


@pytest.mark.slow
def test_seeds_in_one_command(folder):
    flags = {"num_seeds": 2, "random_seed": 7, "hidden_dropout_prob": 0.1, "num_train_steps": 2}
    path = tune(folder, "seeds", **flags)
    summary = read_json(path / "seeds.json")
    results = [read_results(path / f"seed-{seed}") for seed in (7, 8)]
    assert results[0]["loss"] != results[1]["loss"]
    for name in ("loss", "accuracy", "macro_f1"):
        values = [result[f"eval_{name}"] for result in results]
        assert summary["seeds"]["8"][name] == values[1]
        assert summary["summary"][name] == pytest.approx(
            {
                "mean": np.mean(values),
                "sd": np.std(values, ddof=1),
                "min": min(values),
                "max": max(values),
            }
        )
    shutil.rmtree(path / "seed-8")
    alone = flags_of(folder, "seeds", do_train="false", init_checkpoint="", **flags)
    assert "seeds/seed-8" in refuse("run_classifier", **alone)


def read_json(path):
    return json.loads(path.read_text())


def movements(path, before):
    """Returns how far each of the weights has moved, by name."""
    after = read_checkpoint(path).weights
    names = [name for name in before.weights if name.startswith("bert/")]
    return {name: np.abs(after[name] - before.weights[name]) for name in names}


@pytest.mark.slow
def test_layers_learn_at_rates_of_their_own_or_not_at_all(folder):
    model = write_tiny_model(folder / "two_layers", num_hidden_layers=2)
    before = read_checkpoint(model)
    one_step = {"num_train_steps": 1, "do_eval": "false", "learning_rate": 1e-3}
    one_step["init_checkpoint"] = model
    plain = movements(tune(folder, "even", **one_step), before)
    decayed = movements(tune(folder, "decayed", **one_step, layerwise_lr_decay=0.5), before)
    frozen = movements(tune(folder, "frozen", **one_step, frozen_layers=1), before)
    factors = {"embeddings": 0.125, "encoder/layer_0": 0.25, "encoder/layer_1": 0.5, "pooler": 1.0}
    for name, moved in plain.items():
        part = next(part for part in factors if name.startswith(f"bert/{part}/"))
        assert moved.max() > 0, name
        # Movements are differences of weights, which are rounded to the bits of the weights.
        scale = np.abs(before.weights[name]).max()
        assert_close(decayed[name], factors[part] * moved, scale=scale, err_msg=name)
        is_frozen = part in ("embeddings", "encoder/layer_0")
        assert (frozen[name].max() == 0) == is_frozen, name


@pytest.mark.slow
def test_early_stopping_keeps_the_best(folder):
    # Nothing is learnt: the first evaluation stays the best, and two are no better.
    flags = {"learning_rate": 0, "num_train_steps": 30, "eval_steps": 2, "keep_checkpoint_max": 1}
    flags["early_stopping_evaluations"] = 2
    path = tune(folder, "stopped", **flags)
    assert [line["step"] for line in read_metrics(path / "eval_metrics.jsonl")] == [2, 4, 6]
    assert [line["step"] for line in read_metrics(path / "metrics.jsonl")] == list(range(1, 7))
    assert read_results(path)["global_step"] == 2
    assert {file.name for file in path.glob("*.index")} == {
        "model.ckpt-2.index",
        "model.ckpt-6.index",
    }
    before = {file.name: file.read_bytes() for file in path.glob("*.jsonl")}
    tune(folder, "stopped", **flags)
    assert {file.name: file.read_bytes() for file in path.glob("*.jsonl")} == before
    tune(folder, "stopped", **flags, use_best_checkpoint="false")
    assert read_results(path)["global_step"] == 6
    # Used alone: as in the training, unless it is said again.
    again = {"do_train": "false", "init_checkpoint": ""}
    best = tune(folder, "stopped", **again, use_best_checkpoint="true")
    assert read_results(best)["global_step"] == 2
    assert read_results(tune(folder, "stopped", **again))["global_step"] == 6
    # A checkpoint that is named is meant, although the directory has others.
    named = tune(folder, "stopped", do_train="false", init_checkpoint=path / "model.ckpt-6")
    assert read_results(named)["global_step"] == 0


@pytest.mark.slow
def test_the_last_step_is_judged_and_may_be_the_best(folder):
    """Whatever --eval_steps is; also in a run that was killed before that evaluation."""
    flags = {"best_metric": "loss", "eval_steps": 4, "learning_rate": 1e-3}
    path = tune(folder, "by_loss", **flags)
    lines = read_metrics(path / "eval_metrics.jsonl")
    assert [line["step"] for line in lines] == [4, 6]
    assert lines[1]["loss"] < lines[0]["loss"]
    assert read_json(path / "best_checkpoint.json") == {"step": 6, "score": -lines[1]["loss"]}
    assert read_results(path)["global_step"] == 6
    before = files_of(path)
    for name in ("eval_metrics.jsonl", "best_checkpoint.json"):
        kept = before[name].splitlines(keepends=True)[:1] if "metrics" in name else []
        (path / name).write_bytes(b"".join(kept))
    for name in ("eval_results.txt", "best_checkpoint.json"):
        (path / name).unlink()
    tune(folder, "by_loss", **flags)
    assert files_of(path) == before

    message = refuse("run_classifier", **flags_of(folder, "by_none", best_metric="f2"))
    assert re.search(r"--best_metric=f2: .*\['loss', 'accuracy', 'macro_f1'\]", message)
    assert not (folder / "by_none/run.flags").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("steps", "epoch", "evaluations", "given", "interval"),
    [
        (60, 2.0, 5, 0, 2),  # small data: after each epoch
        (1000, 1000.0, 5, 0, 100),  # one epoch: ten evaluations
        (3, 3.0, 5, 0, 1),
        (1000, 100.0, 5, 30, 30),
    ],
)
def test_a_run_is_evaluated_often_enough_to_stop_early(steps, epoch, evaluations, given, interval):
    training = TrainingConfig(early_stopping_evaluations=evaluations, eval_steps=given)
    assert with_evaluations(training, steps, epoch).eval_steps == interval


@pytest.mark.slow
def test_early_stopping_without_an_interval_judges_each_epoch(folder, caplog):
    flags = {"early_stopping_evaluations": 1, "num_train_steps": 8, "learning_rate": 0}
    flags |= {"train_batch_size": 16, "eval_steps": 0}
    printed = log_of(caplog, "run_classifier", **flags_of(folder, "epochs", **flags))
    assert re.search(r"--early_stopping_evaluations=1: .* 3 steps\.", printed)
    lines = read_metrics(folder / "epochs/eval_metrics.jsonl")
    assert [line["step"] for line in lines] == [3, 6]


# What a run goes on from ------------------------------------------------------------------------


@pytest.mark.slow
def test_predictions_alone(folder, plain):
    """From the run's directory, from it as a start, from one of its checkpoints."""
    unlabelled = [{"text": row["text"]} for row in texts(9)]
    flags = {
        "do_train": "false",
        "do_eval": "false",
        "do_predict": "true",
        "predict_file": write_table(folder / "unlabelled.csv", unlabelled),
        "predict_batch_size": 4,
    }
    copy = shutil.copytree(plain, folder / "copy")
    (copy / "eval_results.txt").unlink()
    starts = {
        "copy": "",
        "from_run": plain,
        "from_checkpoint": plain / "model.ckpt-6",
    }
    found = []
    for name, source in starts.items():
        tune(folder, name, **flags, init_checkpoint=source)
        found.append((folder / name / "test_results.tsv").read_text())
        assert len(read_tsv(folder / name / "predictions.tsv")) == 9
    assert found[0] == found[1] == found[2]
    record = f"--flagfile={copy / 'run.flags'}"
    alone = {"output_dir": copy, "do_train": "false", "do_eval": "false", "do_predict": "true"}
    alone["predict_file"] = folder / "dev.csv"
    assert fine_tune("run_classifier", record, **alone) == 0
    labelled = (copy / "test_results.tsv").read_text().splitlines()
    np.testing.assert_allclose(
        np.loadtxt(labelled[:9]), np.loadtxt(found[0].splitlines()), rtol=1e-4
    )
    # Its labels are known, so it is judged as well, as what the run evaluates.
    for name in ("eval_results.txt", "report.txt", "worst_errors.tsv"):
        assert (copy / name).read_bytes() == (plain / name).read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize(
    "changed",
    [
        {"optimizer": "muon", "ema_decay": 0.5, "frozen_layers": 0},
        {"precision": "mixed_float16"},
    ],
)
def test_predictions_need_no_flags_of_the_training(folder, changed, request):
    name = request.node.callspec.id
    path = tune(folder, name, **changed)
    expected = read_results(path)
    alone = {"do_train": "false", "output_dir": path, "eval_file": folder / "dev.csv"}
    assert fine_tune("run_classifier", **alone, do_eval="true") == 0
    assert read_results(path) == pytest.approx(expected, rel=1e-2)


@pytest.mark.slow
def test_a_head_without_names_has_numbers(folder, plain):
    alone = {"do_train": "false", "do_eval": "false", "do_predict": "true"}
    alone["predict_file"] = folder / "dev.csv"
    nameless = folder / "nameless_model"
    write_checkpoint(read_checkpoint(plain), nameless, "bert_tf")
    names = (nameless / "labels.txt").read_text().split()
    (nameless / "labels.txt").unlink()
    named, numbered = (
        read_tsv(tune(folder, name, **alone, init_checkpoint=start) / "predictions.tsv")
        for name, start in {"named": plain, "numbered": nameless}.items()
    )
    assert [row["answer"] for row in named] == [names[int(row["answer"])] for row in numbered]


@pytest.mark.slow
def test_other_labels_need_a_new_head(folder, plain):
    rows = [{**row, "label": "yes" if row["label"] == "pos" else "no"} for row in texts(16)]
    yes_no = write_table(folder / "yes_no.csv", rows)
    flags = {"train_file": yes_no, "eval_file": yes_no, "init_checkpoint": plain}
    flags["num_train_steps"] = 1
    message = refuse("run_classifier", **flags_of(folder, "yes_no", **flags))
    assert re.search(r" 3 labels \['neg', 'pos', 'so-so'\], .*2 \['no', 'yes'\]", message)
    assert "--new_head" in message
    path = tune(folder, "yes_no", **flags, new_head="true", learning_rate=0)
    assert (path / "labels.txt").read_text() == "no\nyes\n"
    weights, before = read_checkpoint(path).weights, read_checkpoint(plain).weights
    for name, value in before.items():
        if name.startswith("bert/"):
            np.testing.assert_array_equal(weights[name], value)
    # The same labels go on with the head that is there.
    path = tune(folder, "further", init_checkpoint=plain, num_train_steps=1, learning_rate=0)
    assert read_results(path)["loss"] == pytest.approx(read_results(plain)["loss"], rel=1e-6)


@pytest.mark.slow
def test_a_model_from_nothing(folder):
    shape = {"num_hidden_layers": 1, "hidden_size": 16, "num_attention_heads": 2}
    shape |= {"intermediate_size": 32, "max_position_embeddings": 16}
    vocab_file = folder / "model/vocab.txt"
    alone = {"do_eval": "false", "num_train_steps": 1}
    path = tune(folder, "new", init_checkpoint="", vocab_file=vocab_file, **shape, **alone)
    config = read_json(path / "bert_config.json")
    assert {name: config[name] for name in shape} == shape
    assert config["vocab_size"] == len(vocab_file.read_text().splitlines())
    lines = read_metrics(path / "metrics.jsonl")
    assert lines[0]["loss"] == pytest.approx(np.log(3), rel=0.05)
