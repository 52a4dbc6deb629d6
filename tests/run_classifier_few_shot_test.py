"""`run_classifier --few_shot`: an embedder is trained on pairs, then a head on its vectors."""

import pytest

import bert_tf
from bert_tf.tasks.base.programs.run import Run
from bert_tf.tasks.classification import few_shot_program
from bert_tf.training.metrics_log import read_metrics
from tests.fine_tune import (
    fine_tune,
    interrupt,
    read_results,
    read_tsv,
    refuse,
    texts,
    write_folder,
    write_table,
)
from tests.float_bounds import assert_close


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = write_folder(tmp_path_factory.mktemp("few_shot"))
    write_table(path / "few.csv", texts(12))
    write_table(path / "texts.csv", [{"text": row["text"]} for row in texts(9)])
    return path


def flags_of(folder, output_dir, **changed):
    return {
        "few_shot": "true",
        "do_train": "true",
        "pairs_per_example": 8,
        "num_train_epochs": 4,
        "init_checkpoint": folder / "model",
        "train_file": folder / "few.csv",
        "output_dir": folder / output_dir,
        **changed,
    }


@pytest.mark.slow
def test_trains_resumes_and_is_a_run_like_any_other(folder, monkeypatch):
    path = folder / "run"
    given = flags_of(folder, "run", do_eval="true", eval_file=folder / "dev.csv")
    runs = interrupt(monkeypatch, "run_classifier", **given)
    steps = [line["step"] for line in read_metrics(path / "embedder" / "metrics.jsonl")]
    assert steps == list(range(1, 25))  # 12 examples x 4 pairs x 4 epochs in batches of 8
    assert fine_tune("run_classifier", **given) == 0
    assert runs == ["embedder", "run", "embedder", "run"]
    # The embedder was finished and is not trained again.
    assert len(read_metrics(path / "embedder" / "metrics.jsonl")) == 24
    assert read_results(path)["eval_accuracy"] == pytest.approx(23 / 25)
    # All is done: only the evaluation is repeated.
    assert fine_tune("run_classifier", **given) == 0
    assert runs[4:] == ["run"]
    # The run directory is one of run_classifier.
    model = bert_tf.BertClassifier.from_pretrained(path)
    assert model.config.classifier_pooling == "mean" and model.max_seq_length == 16
    predicted = {"do_predict": "true", "predict_file": folder / "dev.csv", "output_dir": path}
    assert fine_tune("run_classifier", "--jit_compile=false", **predicted) == 0
    rows = read_tsv(path / "predictions.tsv")
    answers = model.classify([row["text"] for row in rows])
    assert [row["answer"] for row in rows] == [answer["label"] for answer in answers]
    scores = [float(row["score"]) for row in rows]
    assert_close(scores, [answer["score"] for answer in answers])


@pytest.mark.slow
def test_unlabelled_texts_come_first(folder, monkeypatch):
    starts = {}
    execute = Run.execute

    def noted(self, strategy=None):
        starts[self.folder.name] = self.configs.training.init_checkpoint
        return execute(self, strategy)

    monkeypatch.setattr(Run, "execute", noted)
    given = flags_of(folder, "first", unlabelled_file=folder / "texts.csv", num_train_epochs=1)
    assert fine_tune("run_classifier", **given) == 0
    path = folder / "first"
    assert starts == {
        "domain": str(folder / "model"),
        "embedder": str(path / "domain"),
        "first": str(folder / "model"),
    }
    assert bert_tf.load(path).classify(["the film was good"])


def test_defaults_are_those_of_setfit(folder, monkeypatch):
    seen = {}

    def stop(self, strategy=None):
        seen[self.folder.name] = self.configs
        raise KeyboardInterrupt

    monkeypatch.setattr(Run, "execute", stop)
    given = flags_of(folder, "defaults")
    for name in ("pairs_per_example", "num_train_epochs"):
        del given[name]
    with pytest.raises(KeyboardInterrupt):
        fine_tune("run_classifier", "--jit_compile=false", **given)
    configs = seen["embedder"]
    assert configs.optimizer.learning_rate == 2e-5
    assert configs.training.train_batch_size == 6  # of 12 texts; 16 of more
    assert configs.tuning.num_train_epochs == 1.0
    assert configs.task.retrieval_loss == "same_label"


@pytest.mark.parametrize(
    "changed, named",
    [
        ({"do_train": "false", "do_eval": "true", "eval_file": "dev.csv"}, "--do_train"),
        ({"problem_type": "regression"}, "--problem_type=regression"),
        ({"folds": 3}, "--folds=3"),
        ({"num_seeds": 2}, "--num_seeds=2"),
        ({"class_weights": "balanced"}, "--class_weights=balanced"),
        ({"eval_steps": 2, "eval_file": "dev.csv"}, "--eval_steps=2"),
    ],
)
def test_flags_without_effect_are_refused(folder, changed, named):
    message = refuse("run_classifier", **flags_of(folder, "refused", **changed))
    assert "--few_shot" in message and named in message
    assert not (folder / "refused").exists()


def test_a_run_needs_an_embedder(folder):
    given = flags_of(folder, "refused", init_checkpoint="")
    assert "--init_checkpoint" in refuse("run_classifier", **given)


def test_wrong_labels_are_refused_before_training(folder, monkeypatch):
    monkeypatch.setattr(few_shot_program, "run_few_shot", None)
    rows = texts(12)
    for name, labels, named in (
        ("once", ["a", "b"] * 5 + ["a", "once"], "'once'"),
        ("one", ["a"] * 12, "'a'"),
        ("case", ["Joy", "joy"] * 6, "'joy'"),
    ):
        changed = [{**row, "label": label} for row, label in zip(rows, labels, strict=True)]
        table = write_table(folder / f"{name}.csv", changed)
        assert named in refuse("run_classifier", **flags_of(folder, name, train_file=table))
        assert not (folder / name).exists()


def test_flags_of_few_shot_alone_are_refused(folder):
    given = flags_of(folder, "alone", unlabelled_file=folder / "texts.csv")
    del given["few_shot"], given["pairs_per_example"]
    assert "unlabelled_file" in refuse("run_classifier", **given)
