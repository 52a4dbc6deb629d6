"""`run_classifier --calibrate --choose_thresholds`: chosen once, used by all that read the run."""

import json

import numpy as np
import pytest

import bert_tf
from bert_tf.checkpoints.run_record import CALIBRATION_NAME, read_record
from bert_tf.tasks.classification.decisions import Decisions, calibrated
from tests.fine_tune import FLAGS, fine_tune, read_results, read_tsv, refuse, write_table
from tests.float_bounds import assert_close
from tests.tiny_model import write_tiny_model

CHOOSING = {"calibrate": "true", "choose_thresholds": "true"}


def rows_of(count: int) -> list[dict[str, str]]:
    """Returns texts of two classes, a third of them positive, every seventh with a wrong label."""
    rows = []
    for index in range(count):
        is_good = index % 3 == 0
        is_said = is_good != (index % 7 == 0)
        words = "very " * (index % 4)
        rows.append(
            {
                "text": f"the film was {words}{'good' if is_said else 'bad'}",
                "label": "yes" if is_good else "no",
            }
        )
    return rows


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("calibration")
    words = ("the", "film", "was", "good", "bad", "very")
    write_tiny_model(path / "model", *words, num_hidden_layers=1)
    write_table(path / "train.csv", rows_of(48))
    write_table(path / "dev.csv", rows_of(40))
    write_table(path / "new.csv", rows_of(20))
    return path


def flags_of(folder, **changed):
    return {
        "do_train": "true",
        "do_eval": "true",
        "num_train_steps": 12,
        "init_checkpoint": folder / "model",
        "train_file": folder / "train.csv",
        "eval_file": folder / "dev.csv",
        **changed,
    }


@pytest.fixture(scope="module")
def run(folder):
    path = folder / "run"
    given = flags_of(folder, **CHOOSING, output_dir=path, html_report="true")
    assert fine_tune("run_classifier", **given) == 0
    return path


def predict(folder, run, **options) -> tuple[np.ndarray, list[str]]:
    """Returns the probabilities and the answers of the program for new.csv."""
    given = {"do_predict": "true", "predict_file": folder / "new.csv", "output_dir": run, **options}
    assert fine_tune("run_classifier", **given) == 0
    answers = [row["answer"] for row in read_tsv(run / "predictions.tsv")]
    return np.loadtxt(run / "test_results.tsv", delimiter="\t"), answers


@pytest.mark.slow
def test_the_choice_is_used_by_all_that_reads_the_run(folder, run):
    chosen = read_record(run)
    temperature = float(chosen["temperature"])
    thresholds = json.loads(chosen["thresholds"])
    assert temperature != 1.0 and thresholds["yes"] == pytest.approx(1 - thresholds["no"])
    texts = [row["text"] for row in rows_of(20)]
    model = bert_tf.BertClassifier.from_pretrained(run)
    logits = model.compute_logits(texts) / temperature
    chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    probabilities, answers = predict(folder, run)
    assert_close(probabilities, chances)
    expected = ["yes" if row[1] > thresholds["yes"] else "no" for row in chances]
    assert answers == expected
    assert [row["label"] for row in bert_tf.load(run).classify(texts)] == expected
    # A threshold of the command replaces that of the run, for this command.
    _, answers = predict(folder, run, thresholds="yes=0")
    assert answers == ["yes"] * 20
    assert json.loads(read_record(run)["thresholds"]) == thresholds


@pytest.mark.slow
def test_the_temperature_lowers_the_loss_and_the_thresholds_raise_the_f1(folder, run, tmp_path):
    dev = rows_of(40)
    texts = [row["text"] for row in dev]
    is_yes = np.array([row["label"] == "yes" for row in dev])
    model = bert_tf.BertClassifier.from_pretrained(run)

    def f1(answers):
        chosen = np.array([answer["label"] == "yes" for answer in answers])
        return 2 * (chosen & is_yes).sum() / (chosen.sum() + is_yes.sum())

    own = f1(model.classify(texts))
    temperature = model.decisions.temperature
    rows = model.probabilities(texts)
    for threshold in np.linspace(0.0, 1.0, 101):
        answers = [{"label": "yes" if row["yes"] > threshold else "no"} for row in rows]
        assert f1(answers) <= own + 1e-9
    # The model in Python chooses the same.
    plain = bert_tf.BertClassifier.from_pretrained(run, temperature=1.0, thresholds=None)
    assert plain.decisions.temperature == 1.0
    labels = [row["label"] for row in dev]
    assert plain.calibrate(texts, labels) == pytest.approx(temperature, rel=1e-4)
    found = plain.choose_thresholds(texts, labels)
    assert found == pytest.approx(model.decisions.by_label(model.labels), rel=1e-4)
    plain.save_pretrained(tmp_path / "hf")
    read = bert_tf.BertClassifier.from_pretrained(tmp_path / "hf")
    assert read.decisions == plain.decisions
    plain.save(tmp_path / "mine.keras")
    read = bert_tf.BertClassifier.from_pretrained(tmp_path / "mine.keras")
    assert read.decisions == plain.decisions


@pytest.mark.slow
def test_report_and_results(run):
    temperature = read_record(run)["temperature"]
    report = (run / "report.txt").read_text()
    assert f"{float(temperature):.4f}" in report
    assert 0 < read_results(run)["eval_expected_calibration_error"] < 1
    assert (run / "reliability.png").is_file()
    page = (run / "report.html").read_text()
    worst = read_tsv(run / "worst_errors.tsv")
    assert page.count("<article>") == len(worst) > 0
    for row in worst:
        assert row["source"] in page
    assert page.count(">good</span>") + page.count(">bad</span>") == len(worst)


@pytest.mark.slow
def test_the_same_command_keeps_the_choice_and_a_longer_training_removes_it(folder, run, tmp_path):
    before = (run / CALIBRATION_NAME).read_bytes()
    results = read_results(run)
    given = flags_of(folder, output_dir=run)
    assert fine_tune("run_classifier", **given) == 0  # without --calibrate
    assert (run / CALIBRATION_NAME).read_bytes() == before
    assert read_results(run) == results
    short = {"output_dir": tmp_path / "new", "num_train_steps": 2}
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / CALIBRATION_NAME).write_text("--temperature=9.0\n")
    assert fine_tune("run_classifier", **flags_of(folder, **short)) == 0
    assert not (tmp_path / "new" / CALIBRATION_NAME).exists()


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"thresholds": "maybe=0.3"}, ("--thresholds", "'maybe'")),
        ({"calibrate": "true", "eval_file": "", "do_eval": "false"}, ("--eval_file",)),
        ({"problem_type": "regression", "calibrate": "true"}, ("--calibrate", "regression")),
        (
            {"problem_type": "regression", "label_smoothing": 0.1},
            ("--label_smoothing=0.1", "--problem_type=regression"),
        ),
        (
            {"problem_type": "regression", "focal_gamma": 2.0},
            ("--focal_gamma=2", "--problem_type=regression"),
        ),
    ],
)
def test_wrong_flags(folder, tmp_path, changed, named):
    message = refuse(
        "run_classifier", **{**FLAGS, **flags_of(folder, output_dir=tmp_path / "run", **changed)}
    )
    for name in named:
        assert name in message
    assert not (tmp_path / "run" / "run.flags").exists()


@pytest.mark.slow
def test_there_is_nothing_to_keep_the_choice_with(folder, run, tmp_path):
    given = {
        "do_eval": "true",
        "calibrate": "true",
        "eval_file": folder / "dev.csv",
        "init_checkpoint": run,
        "output_dir": tmp_path / "other",
    }
    message = refuse("run_classifier", **given)
    assert "--calibrate" in message and str(tmp_path / "other") in message


def test_more_than_two_classes_have_no_thresholds(folder, tmp_path):
    rows = [*rows_of(6), {"text": "the film", "label": "perhaps"}]
    files = dict.fromkeys(["train_file", "eval_file"], write_table(tmp_path / "x.csv", rows))
    given = flags_of(folder, output_dir=tmp_path / "run", choose_thresholds="true", **files)
    message = refuse("run_classifier", **given)
    assert "--choose_thresholds" in message and "3" in message


@pytest.mark.slow
def test_all_reports_are_of_the_calibrated_model(folder, run, caplog):
    caplog.set_level("INFO")
    evaluated = {"do_eval": "true", "eval_file": folder / "dev.csv", "output_dir": run}
    assert fine_tune("run_classifier", **evaluated, html_report="true") == 0
    given = {"do_predict": "true", "predict_file": folder / "dev.csv", "output_dir": run}
    assert fine_tune("run_classifier", **given) == 0
    probabilities = np.loadtxt(run / "test_results.tsv", delimiter="\t")
    labels = [["no", "yes"].index(row["label"]) for row in rows_of(40)]
    expected = -np.mean(np.log(probabilities[np.arange(40), labels]))
    results = read_results(run)
    assert results["eval_loss"] == pytest.approx(expected, rel=1e-4)
    assert results["eval_uncalibrated_loss"] > results["eval_loss"]
    page = (run / "report.html").read_text()
    assert f"<td>{results['eval_loss']:.4f}</td>" in page
    assert not any("Decisions(" in record.getMessage() for record in caplog.records)


def test_a_calibration_error_that_rises_is_named(caplog):
    # 14 examples with p = .88 of the first class, which half of them are; one with p = .12 that is.
    logits = np.array([[2.0, 0.0]] * 3 + [[-9.0, 9.0]])
    for labels, is_named in (([0, 0, 1, 1], False), ([0, 0, 0, 0], True)):
        caplog.clear()
        decisions = calibrated(Decisions(), logits, np.array(labels), "single_label")
        errors = []
        for temperature in (1.0, decisions.temperature):
            found = Decisions(temperature).probabilities(logits, "single_label")
            right = found.argmax(axis=1) == labels
            # The bins of a confidence hold the same examples before and after.
            errors.append(3 / 4 * abs(right[:3].mean() - found[0].max()))
            errors[-1] += 1 / 4 * abs(float(right[3]) - found[3].max())
        assert (errors[1] > errors[0]) == is_named == bool(caplog.records)
