"""The classifier as a user runs it: tables in, answers, scores and reports out."""

import re
import shutil

import numpy as np
import pytest

from bert_tf.training.metrics_log import read_metrics
from tests.fine_tune import (
    FLAGS,
    files_of,
    fine_tune,
    read_results,
    read_tsv,
    refuse,
    texts,
    write_folder,
    write_table,
)
from tests.float_bounds import assert_close, close_to
from tests.programs import finish, run

metrics = pytest.importorskip("sklearn.metrics")
stats = pytest.importorskip("scipy.stats")

NAMES = ["neg", "pos", "so-so"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_folder(tmp_path_factory.mktemp("classifier"))


def flags_of(folder, output_dir):
    """Returns flags that train on train.csv, judge dev.csv and predict it."""
    return FLAGS | {
        "do_train": "true",
        "do_eval": "true",
        "do_predict": "true",
        "init_checkpoint": folder / "model",
        "train_file": folder / "train.csv",
        "eval_file": folder / "dev.csv",
        "predict_file": folder / "dev.csv",
        "num_train_epochs": 6,
        "eval_steps": 10,
        "output_dir": folder / output_dir,
    }


@pytest.fixture(scope="module")
def own(folder):
    """A run on one's own table; returns (its directory, what it printed)."""
    printed = finish(run("run_classifier", **flags_of(folder, "own")))
    return folder / "own", printed


@pytest.mark.slow
def test_answers_of_one_table(folder, own):
    path, printed = own
    rows, predictions = texts(25), read_tsv(path / "predictions.tsv")
    answers = [row["answer"] for row in predictions]
    assert list(predictions[0]) == ["id", "answer", "score", "text"]
    assert [row["text"] for row in predictions] == [row["text"] for row in rows]
    assert [row["id"] for row in predictions] == [str(number) for number in range(25)]
    # One word tells the class: every answer is right, but for the two labels that are wrong.
    assert answers == [row["label"] for row in rows]
    probabilities = np.loadtxt(path / "test_results.tsv", delimiter="\t")
    assert probabilities.shape == (25, 3)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=1e-6)
    assert answers == [NAMES[place] for place in probabilities.argmax(axis=1)]
    scores = [float(row["score"]) for row in predictions]
    assert_close(scores, probabilities.max(axis=1))
    assert (path / "labels.txt").read_text().split("\n") == [*NAMES, ""]
    assert "train: 48 examples; labels: neg 16, pos 16, so-so 16" in printed
    assert re.search(r"48 rows, 7\.9 .* 10\.", printed)


@pytest.mark.slow
def test_results_and_reports_of_one_table(folder, own):
    path, printed = own
    true = [row["label"] for row in read_csv(folder / "dev.csv")]
    answers = [row["answer"] for row in read_tsv(path / "predictions.tsv")]
    probabilities = np.loadtxt(path / "test_results.tsv", delimiter="\t")
    results = read_results(path)
    losses = -np.log(probabilities[np.arange(25), [NAMES.index(label) for label in true]])
    assert results == close_to(
        {
            "global_step": results["global_step"],
            "loss": losses.mean(),
            "eval_loss": losses.mean(),
            "eval_accuracy": metrics.accuracy_score(true, answers),
            "eval_macro_f1": metrics.f1_score(true, answers, average="macro"),
            "eval_expected_calibration_error": calibration_error(
                probabilities.max(axis=1), np.array(true) == np.array(answers)
            ),
        },
        epsilon=1e-7,  # Files have six digits.
    )
    assert results["eval_accuracy"] == 23 / 25
    report = [line.split() for line in (path / "report.txt").read_text().splitlines()]
    assert report[0] == [f"{folder / 'dev.csv'},", "step", f"{results['global_step']:.0f}"]
    named = (path / "eval_results.txt").read_text().splitlines()[0]
    assert named == f"# Evaluated: {folder / 'dev.csv'}"
    for name, row in zip(NAMES, metrics.confusion_matrix(true, answers, labels=NAMES), strict=True):
        assert [name, *map(str, row)] in report
    for name, *scores in zip(
        NAMES, *metrics.precision_recall_fscore_support(true, answers), strict=True
    ):
        assert [name, *(f"{score:.4f}" for score in scores[:3]), str(scores[3])] in report
    worst = read_tsv(path / "worst_errors.tsv")
    assert {row["source"] for row in worst} == {f"{folder / 'dev.csv'} line {n}" for n in (25, 26)}
    shown = [float(row["loss"]) for row in worst]
    np.testing.assert_allclose(shown, np.sort(losses[-2:])[::-1], atol=1e-4)
    for row in worst:
        place = int(row["source"].split()[-1]) - 2
        assert (row["label"], row["answer"]) == (true[place], answers[place])
        assert row["text"] == texts(25)[place]["text"]


def calibration_error(confidence, is_right):
    """Returns the expected calibration error with 15 bins of equal width."""
    bins = np.ceil(confidence * 15)
    gaps = [abs((is_right[bins == b] - confidence[bins == b]).sum()) for b in np.unique(bins)]
    return sum(gaps) / len(confidence)


def read_csv(path):
    """Returns the rows of a table without quotes."""
    header, *lines = path.read_text().splitlines()
    return [dict(zip(header.split(","), line.split(","), strict=True)) for line in lines]


def test_the_best_checkpoint_is_used_and_the_others_noted(own):
    path, printed = own
    lines = read_metrics(path / "eval_metrics.jsonl")
    assert [line["step"] for line in lines] == [10, 20, 30, 36]  # The last is one, too.
    best = max(lines, key=lambda line: (line["accuracy"], -line["step"]))
    results = read_results(path)
    assert results["global_step"] == best["step"]
    assert f"step {best['step']}." in printed
    assert results["eval_loss"] == best["loss"]
    assert (path / "curves.png").exists()
    assert [line["step"] for line in read_metrics(path / "metrics.jsonl")] == list(range(1, 37))


def use(path, *arguments, **values):
    """Uses a finished run as one does by hand: what it knows is not said again."""
    assert fine_tune("run_classifier", *arguments, f"--output_dir={path}", **values) == 0


@pytest.mark.slow
def test_another_file_has_results_of_its_own(folder, own):
    """A labelled file that is predicted is judged, too; nothing of the run is overwritten."""
    path = shutil.copytree(own[0], folder / "other")
    before = files_of(path, "predictions.tsv", "test_results.tsv")
    for place, count in enumerate(("there", "elsewhere"), 5):
        (folder / count).mkdir()
        rows = [{**row, "label": "pos"} for row in texts(place)] + texts(4)
        write_table(folder / count / "test.csv", rows)
        use(path, "--do_predict", f"--predict_file={folder / count / 'test.csv'}")
        end = "_test" if count == "there" else "_test_2"
        answers = [row["answer"] for row in read_tsv(path / "predictions.tsv")]
        assert answers == [row["label"] for row in texts(place) + texts(4)]
        results = read_results(path, f"eval_results{end}.txt")
        right = np.mean([a == row["label"] for a, row in zip(answers, rows, strict=True)])
        assert results["eval_accuracy"] == right < 1
        assert results["global_step"] == read_results(path)["global_step"]
        first = (path / f"eval_results{end}.txt").read_text().splitlines()[0]
        assert first == f"# Evaluated: {folder / count / 'test.csv'}"
        wrong = read_tsv(path / f"worst_errors{end}.tsv")
        assert len(wrong) == np.round((1 - right) * len(rows))
        assert f"{count}/test.csv line" in wrong[0]["source"]
        assert str(folder / count) in (path / f"report{end}.txt").read_text()
        assert files_of(path).items() >= before.items()
    assert len(files_of(path)) == len(before) + 2 + 6
    # An evaluation of the same file, of the run's own file, and a file that cannot be judged.
    known = files_of(path)
    use(path, "--do_eval", f"--eval_file={folder / 'elsewhere/test.csv'}")
    use(path, "--do_eval")
    assert files_of(path) == known
    text = "a\tb\nc\rd\\n"
    for labels in ((None,), ("odd", "pos"), ("pos", None, "neg"), ("pos", "pos")):
        rows = [{"text": text, "label": label} for label in labels]
        table = write_table(folder / "bare.jsonl", rows)
        use(path, "--do_predict", f"--predict_file={table}")
        assert files_of(path).keys() == known.keys()
    assert read_tsv(path / "predictions.tsv")[0]["text"] == r"a\tb\nc\rd\\n"


# Other labels, pairs, GLUE -----------------------------------------------------------------------


def tune(folder, output_dir, **changed):
    """Does a run of the program in this process; returns its directory."""
    given = {**flags_of(folder, output_dir), "eval_steps": 0, **changed}
    assert fine_tune("run_classifier", **given) == 0
    return folder / output_dir


def table_of(folder, name, suffix, rows):
    """Writes the rows as a table; returns the flags that train on it, judge it and predict it."""
    path = write_table(folder / f"{name}{suffix}", rows)
    return dict.fromkeys(["train_file", "eval_file", "predict_file"], path)


@pytest.mark.slow
def test_several_labels_of_each_text(folder):
    words = {"good": "praise", "bad": "blame", "very": "strong"}
    rows = []
    for number in range(32):
        chosen = [word for place, word in enumerate(words) if number >> place & 1]
        text = f"the film was {' '.join(chosen)}"
        rows.append({"id": number, "said": text, "of": [words[word] for word in chosen]})
    files = table_of(folder, "several", ".jsonl", rows)
    columns = {"text_column": "said", "label_column": "of", "problem_type": "multi_label"}
    path = tune(folder, "several", **files, **columns, num_train_epochs=40)
    names = (path / "labels.txt").read_text().splitlines()
    assert names == ["blame", "praise", "strong"]
    true = np.array([[name in row["of"] for name in names] for row in rows])
    probabilities = np.loadtxt(path / "test_results.tsv", delimiter="\t")
    answers = [row["answer"] for row in read_tsv(path / "predictions.tsv")]
    predicted = probabilities > 0.5
    assert answers == ["|".join(np.array(names)[row]) for row in predicted]
    losses = -np.log(np.where(true, probabilities, 1 - probabilities)).mean(axis=1)
    results = read_results(path)
    assert results == close_to(
        {
            "global_step": 160,
            "loss": losses.mean(),
            "eval_loss": losses.mean(),
            "eval_accuracy": metrics.accuracy_score(true, predicted),
            "eval_micro_f1": metrics.f1_score(true, predicted, average="micro"),
            "eval_macro_f1": metrics.f1_score(true, predicted, average="macro"),
            "eval_expected_calibration_error": calibration_error(
                np.maximum(probabilities, 1 - probabilities).ravel(), (true == predicted).ravel()
            ),
        },
        epsilon=1e-6,  # Files have six digits, and a probability near 1 loses some.
    )
    assert results["eval_micro_f1"] > 0.8
    report = [line.split() for line in (path / "report.txt").read_text().splitlines()]
    assert ["strong", "16"] in [[line[0], line[-1]] for line in report if line]
    wrong = (true != predicted).any(axis=1)
    assert len(read_tsv(path / "worst_errors.tsv")) == wrong.sum()


@pytest.mark.slow
def test_numbers(folder):
    words = ["bad", "fine", "good"]
    rows = [
        {"text": f"the film was {words[number % 3]}", "label": f"{number % 3 * 1.25}"}
        for number in range(32)
    ]
    files = table_of(folder, "numbers", ".csv", rows)
    flags = {"problem_type": "regression", "num_train_epochs": 20, "num_worst_errors": 3}
    path = tune(folder, "numbers", **files, **flags)
    true = [float(row["label"]) for row in rows]
    predictions = read_tsv(path / "predictions.tsv")
    scores = np.loadtxt(path / "test_results.tsv")
    assert_close([float(row["answer"]) for row in predictions], scores)
    squares = (scores - true) ** 2
    results = read_results(path)
    assert results["eval_pearson"] == pytest.approx(stats.pearsonr(true, scores)[0], rel=1e-5)
    assert results["eval_spearman"] == pytest.approx(stats.spearmanr(true, scores)[0], rel=1e-5)
    assert results["loss"] == pytest.approx(squares.mean(), rel=1e-4)
    assert results["eval_mean_squared_error"] == pytest.approx(squares.mean(), rel=1e-4)
    assert results["eval_pearson"] > 0.9
    # The head starts at the mean of the labels; from 0 the loss would be 2.6.
    assert read_metrics(path / "metrics.jsonl")[0]["loss"] < 1.6
    assert not (path / "labels.txt").exists() and not (path / "report.txt").exists()
    for source in (path, path / "model.ckpt-80"):
        alone = {"do_train": "false", "init_checkpoint": source, "output_dir": folder / "as_class"}
        alone["problem_type"] = "single_label"
        message = refuse("run_classifier", **{**flags_of(folder, ""), **files, **alone})
        assert str(path) in message and re.search("regression.* single_label", message)
    converted = {"input": path, "output": folder / "converted", "to": "huggingface"}
    finish(run("convert_checkpoint", **converted))
    theirs = {**alone, "init_checkpoint": folder / "converted"}
    message = refuse("run_classifier", **{**flags_of(folder, ""), **files, **theirs})
    assert re.search("regression.* single_label", message) and "--problem_type" in message
    worst = read_tsv(path / "worst_errors.tsv")
    np.testing.assert_allclose(
        [float(row["loss"]) for row in worst], np.sort(squares)[::-1][:3], atol=1e-4
    )
    before = (path / "test_results.tsv").read_bytes()
    (path / "test_results.tsv").unlink()
    use(path, "--do_predict", f"--predict_file={files['predict_file']}")
    assert (path / "test_results.tsv").read_bytes() == before


@pytest.mark.slow
def test_pairs_with_weights_of_classes(folder):
    """The second text alone tells the class."""
    rows = [
        {
            "first": "the film was",
            "second": f"{'good' if number % 2 else 'bad'}",
            "is": str(number % 2),
        }
        for number in range(32)
    ]
    files = table_of(folder, "pairs", ".tsv", rows)
    columns = {"text_column": "first", "text_b_column": "second", "label_column": "is"}
    path = tune(folder, "pairs", **files, **columns, num_train_epochs=20)
    assert read_results(path)["eval_accuracy"] == 1
    answers = [row["answer"] for row in read_tsv(path / "predictions.tsv")]
    assert answers == [row["is"] for row in rows]
    before = files_of(path)
    use(path, "--do_eval", "--do_predict")  # With the columns of the run, and its files.
    assert files_of(path) == before
    assert read_tsv(path / "predictions.tsv")[0]["text_b"] == "bad"

    # A step over all of a table with wrong labels, without dropout: its losses' weighted mean.
    probabilities = np.loadtxt(path / "test_results.tsv", delimiter="\t")
    for row in rows[::3]:
        row["is"] = "1" if row["is"] == "0" else "0"
    true = np.array([int(row["is"]) for row in rows])
    losses, weights = -np.log(probabilities[np.arange(32), true]), np.where(true, 3, 0.5)
    assert not np.isclose(losses.mean(), np.average(losses, weights=weights), rtol=1e-3)
    one_step = {"num_train_steps": 1, "train_batch_size": 32, "class_weights": "1=3, 0=0.5"}
    one_step |= {"hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0, "do_eval": "false"}
    flags = {**columns, **one_step, "init_checkpoint": path, "do_predict": "false"}
    flags["train_file"] = write_table(folder / "wrong.tsv", rows)
    (line,) = read_metrics(tune(folder, "weighted", **flags) / "metrics.jsonl")
    assert line["loss"] == pytest.approx(np.average(losses, weights=weights), rel=1e-3)


def nli(index, label):
    """Returns the cells of a row in MNLI's form before its labels."""
    word = {"contradiction": "bad", "entailment": "good", "neutral": "fine"}[label]
    return [str(index), "p", "q", "g", *"1234", "the film was", f"very {word}"]


@pytest.mark.slow
def test_mnli_and_the_diagnostic_set(folder):
    head = "index\tpromptID\tpairID\tgenre\tb1\tb2\tp1\tp2\tsentence1\tsentence2"
    names = ["contradiction", "entailment", "neutral"]
    sizes = {"train": 48, "dev_matched": 12, "dev_mismatched": 9}
    data = folder / "MNLI"
    data.mkdir()
    for split, size in sizes.items():
        rows = [[*nli(n, names[n % 3]), names[n % 3]] for n in range(size)]
        if split == "dev_mismatched":
            rows[0][-1] = "entailment"  # Wrong, so that both accuracies differ.
        lines = [f"{head}\tgold_label", *map("\t".join, rows)]
        (data / f"{split}.tsv").write_text("\n".join(lines) + "\n")
    for split in ("test_matched", "test_mismatched"):
        shift = split == "test_mismatched"
        lines = [head, *("\t".join(nli(n + 100, names[(n + shift) % 3])) for n in range(6))]
        (data / f"{split}.tsv").write_text("\n".join(lines) + "\n")
    glue = {"task_name": "MNLI", "data_dir": folder, "train_file": "", "eval_file": ""}
    glue["predict_file"] = ""
    path = tune(folder, "mnli", **glue, num_train_epochs=10)
    results = read_results(path)
    assert results["eval_accuracy"] == 1 and results["eval_mismatched_accuracy"] == 8 / 9
    assert results["loss"] == results["eval_loss"] < results["eval_mismatched_loss"]
    for name, shift in (("MNLI-m.tsv", 0), ("MNLI-mm.tsv", 1)):
        expected = [f"{n + 100}\t{names[(n + shift) % 3]}" for n in range(6)]
        assert (path / name).read_text().splitlines() == ["index\tprediction", *expected]
    files = {"predictions.tsv", "predictions_mismatched.tsv", "report_mismatched.txt"}
    assert files <= {file.name for file in path.iterdir()}
    assert len(read_tsv(path / "worst_errors_mismatched.tsv")) == 1

    (folder / "AX.tsv").write_text("index\tsentence1\tsentence2\n7\tthe film was\tvery bad\n")
    alone = {**glue, "task_name": "ax", "init_checkpoint": path, "num_train_epochs": 1}
    path = tune(folder, "ax", **alone, do_train="false", do_eval="false")
    assert (path / "AX.tsv").read_text() == "index\tprediction\n7\tcontradiction\n"

    rows = [{"sentence1": "the film was", "sentence2": f"very {w}"} for w in ("good", "bad")]
    rows = [{**row, "gold_label": names[1]} for row in rows] + [{**rows[0], "gold_label": names[0]}]
    mine, path = write_table(folder / "mine.csv", rows), folder / "mnli"
    before = (path / "MNLI-m.tsv").read_bytes()
    use(path, "--do_predict", f"--predict_file={mine}")
    found = [row["answer"] for row in read_tsv(path / "predictions.tsv")]
    assert found == [names[1], names[0], names[1]]
    assert read_results(path, "eval_results_mine.txt")["eval_accuracy"] == pytest.approx(1 / 3)
    assert (path / "MNLI-m.tsv").read_bytes() == before


@pytest.mark.slow
def test_what_stays_of_long_texts(folder, own):
    """The word that tells the class stands first, last or amid; 40 others surround it."""
    label = dict(zip(["good", "bad", "fine"], ["pos", "neg", "so-so"], strict=True))
    texts = {
        "head": [f"the film was {word} {'very ' * 40}" for word in label],
        "tail": [f"{'very ' * 40} the film was {word}" for word in label],
    }
    alone = {"do_train": "false", "do_predict": "false", "init_checkpoint": own[0]}
    losses = {}
    for place, lines in texts.items():
        rows = [{"text": t, "label": n} for t, n in zip(lines, label.values(), strict=True)]
        table = write_table(folder / f"{place}.csv", rows)
        for long_texts in ("head", "tail", "windows"):
            flags = {**alone, "eval_file": table, "long_texts": long_texts}
            path = tune(folder, f"{place}-{long_texts}", **flags)
            losses[place, long_texts] = read_results(path)["loss"]
    # Both then are all "very".
    assert losses["head", "tail"] == pytest.approx(losses["tail", "head"], rel=1e-5)
    assert losses["head", "head"] < losses["head", "tail"] - 0.1
    assert losses["tail", "tail"] < losses["tail", "head"] - 0.1
    assert losses["tail", "windows"] < losses["tail", "head"]
