"""GLUE's files in every form they come in, written by hand here, and the real ones' counts."""

import logging
import pathlib

import numpy as np
import pytest

from bert_tf.tasks.classification.examples import TextExample
from bert_tf.tasks.classification.glue import (
    GLUE,
    MAX_BROKEN_ROWS,
    glue_submission_name,
    glue_submission_rows,
    glue_task,
    read_glue,
)
from bert_tf.tasks.classification.label_arrays import label_ids, label_values
from tests.shared_data import shared_data

# The first lines of GLUE's files: the columns of the texts, the label and the index matter.
PARSES = "sentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse\tsentence2_parse"
MNLI = f"index\tpromptID\tpairID\tgenre\t{PARSES}\tsentence1\tsentence2"
ANNOTATORS = "label1\tlabel2\tlabel3\tlabel4\tlabel5"
MRPC = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"
PAIR = "index\tsentence1\tsentence2"
QQP = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate"
STS = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2"


def write(path: pathlib.Path, *lines: str) -> pathlib.Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf8")
    return path


def brief(examples: list[TextExample]) -> list[tuple[str, str, str | None, str]]:
    return [example[:4] for example in examples]


@pytest.mark.parametrize(
    ("name", "split", "lines", "expected"),
    [
        ("cola", "train", ['gj04\t1\t\tSo "be" it.'], ('So "be" it.', None, "1", "0")),
        ("cola", "dev", ["gj04\t0\t*\tIt so be."], ("It so be.", None, "0", "0")),
        ("cola", "test", ["index\tsentence", '7\t"So'], ('"So', None, None, "7")),
        ("sst-2", "train", ["sentence\tlabel", "fine , \t1"], ("fine , ", None, "1", "0")),
        ("sst-2", "test", ["index\tsentence", "3\tfine"], ("fine", None, None, "3")),
        ("mrpc", "train", [MRPC, '1\t12\t13\t"a\tb'], ('"a', "b", "1", "0")),
        ("mrpc", "test", ["index" + MRPC[7:], "4\t12\t13\ta\tb"], ("a", "b", None, "4")),
        (
            "sts-b",
            "dev",
            [f"{STS}\tscore", "6\tg\tf\t2012\t0001\tn\tn\ta\tb\t3.800"],
            ("a", "b", "3.800", "6"),
        ),
        ("sts-b", "test", [STS, "6\tg\tf\t2012\t0001\tn\tn\ta\tb"], ("a", "b", None, "6")),
        ("qqp", "dev", [QQP, "9\t1\t2\ta?\tb?\t1"], ("a?", "b?", "1", "9")),
        ("qqp", "test", ["id\tquestion1\tquestion2", "9\ta?\tb?"], ("a?", "b?", None, "9")),
        (
            "mnli",
            "train",
            [f"{MNLI}\tlabel1\tgold_label", "5\tp\tq\tg\t1\t2\t3\t4\ta\tb\tneutral\tentailment"],
            ("a", "b", "entailment", "5"),
        ),
        (
            "mnli",
            "dev_mismatched",
            [f"{MNLI}\t{ANNOTATORS}\tgold_label", "5\tp\tq\tg\t1\t2\t3\t4\ta\tb" + "\tneutral" * 6],
            ("a", "b", "neutral", "5"),
        ),
        ("mnli", "test_matched", [MNLI, "5\tp\tq\tg\t1\t2\t3\t4\ta\tb"], ("a", "b", None, "5")),
        (
            "qnli",
            "dev",
            ["index\tquestion\tsentence\tlabel", "2\ta?\tb\tnot_entailment"],
            ("a?", "b", "not_entailment", "2"),
        ),
        ("rte", "dev", [f"{PAIR}\tlabel", "2\ta\tb\tentailment"], ("a", "b", "entailment", "2")),
        ("wnli", "dev", [f"{PAIR}\tlabel", "2\ta\tb\t0"], ("a", "b", "0", "2")),
        ("ax", "diagnostic", [PAIR, "1\ta\tb"], ("a", "b", None, "1")),
    ],
)
def test_files_of_glue(tmp_path, name, split, lines, expected):
    task = GLUE[name]
    path = write(tmp_path / task.folder / f"{split}.tsv", *lines)
    wanted = {"diagnostic": "test", "test_matched": "test"}.get(split, split)
    for folder in (tmp_path, path.parent):
        (example,) = read_glue(task, str(folder), wanted)
        assert example[:4] == expected
        assert example.source == f"{path} line {len(lines)}"


def test_other_places_of_the_diagnostic_set(tmp_path):
    for name in ("diagnostic/diagnostic.tsv", "MNLI/diagnostic.tsv", "AX.tsv"):
        path = write(tmp_path / name, PAIR, "1\ta\tb")
        assert brief(read_glue(GLUE["ax"], str(tmp_path), "test")) == [("a", "b", None, "1")]
        path.unlink()


def test_sts_benchmark(tmp_path):
    row = "main-news\theadlines\t2015\t{}\t{}\ta\tb"
    write(
        tmp_path / "sts-dev.csv",
        row.format("0003", "3.800"),
        row.format("0001", 2) + "\tsource of a\tsource of b",
    )
    assert brief(read_glue(GLUE["sts-b"], str(tmp_path), "dev")) == [
        ("a", "b", "3.800", "0"),
        ("a", "b", "2", "1"),
    ]
    path = write(tmp_path / "sts-dev.csv", row.format("0003", "3.800"), "g\tf\t2015\t1\t2\ta")
    with pytest.raises(ValueError, match=f"{path} line 2 .* 6 .* 7: genre"):
        read_glue(GLUE["sts-b"], str(tmp_path), "dev")


def test_microsofts_files(tmp_path, caplog):
    rows = [f"{n % 2}\t{n}\t{n + 10}\tfirst {n}\tsecond {n}" for n in range(4)]
    write(tmp_path / "msr_paraphrase_train.txt", "\ufeff" + MRPC, *rows)
    write(tmp_path / "msr_paraphrase_test.txt", "\ufeff" + MRPC, '1\t7\t8\t"u\tv')
    firsts = {
        split: [example.text_a for example in read_glue(GLUE["mrpc"], str(tmp_path), split)]
        for split in ("train", "dev", "test")
    }
    assert firsts == {
        "train": ["first 0", "first 1", "first 2", "first 3"],
        "dev": ['"u'],
        "test": ['"u'],
    }
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2
    assert "dev_ids.tsv" in caplog.text and "msr_paraphrase_train.txt" in caplog.text
    caplog.clear()

    write(tmp_path / "dev_ids.tsv", "1\t11", "3\t13", "2\t99")
    train = read_glue(GLUE["mrpc"], str(tmp_path), "train")
    dev = read_glue(GLUE["mrpc"], str(tmp_path), "dev")
    assert [example.text_a for example in train] == ["first 0", "first 2"]
    assert brief(dev) == [("first 1", "second 1", "1", "0"), ("first 3", "second 3", "1", "1")]
    assert brief(read_glue(GLUE["mrpc"], str(tmp_path), "test")) == [('"u', "v", "1", "0")]
    assert not caplog.records

    write(tmp_path / "dev.tsv", MRPC, "0\t1\t2\tc\td")  # GLUE's own form goes first.
    assert brief(read_glue(GLUE["mrpc"], str(tmp_path), "dev")) == [("c", "d", "0", "0")]


def test_broken_rows_of_qqp_are_skipped(tmp_path, caplog):
    rows = ["5\t1\t2\ta\tb\t1", '6\t1\t2\t"What', 'is it?"\tc\t0', "7\t1\t2\td\te\t0"]
    path = write(tmp_path / "train.tsv", QQP, *rows)
    examples = read_glue(GLUE["qqp"], str(tmp_path), "train")
    assert brief(examples) == [("a", "b", "1", "5"), ("d", "e", "0", "7")]
    assert f"{path}: 2 " in caplog.text and f"{path} line 3" in caplog.text

    write(path, QQP, *rows[:1], *["8\t1"] * MAX_BROKEN_ROWS)
    assert len(read_glue(GLUE["qqp"], str(tmp_path), "train")) == 1
    write(path, QQP, *rows[:1], *["8\t1"] * (MAX_BROKEN_ROWS + 1))
    with pytest.raises(ValueError, match="train.tsv line 103 .* 2 .* 6: id.* 100 .*QQP"):
        read_glue(GLUE["qqp"], str(tmp_path), "train")
    write(tmp_path / "test.tsv", "id\tquestion1\tquestion2", "1\ta\tb", "2\tc")
    with pytest.raises(ValueError, match="test.tsv line 3 .* 2 .* 3: id"):
        read_glue(GLUE["qqp"], str(tmp_path), "test")


def test_errors_of_reading(tmp_path):
    head = f"{PAIR}\tlabel"
    path = write(tmp_path / "RTE" / "dev.tsv", head, "0\ta\tb\tentailment", "1\ta\tb\tneutral")
    message = f"^{path} line 3: label 'neutral'.*RTE.* entailment, not_entailment"
    with pytest.raises(ValueError, match=message):
        read_glue(GLUE["rte"], str(tmp_path), "dev")
    write(path, head, "0\ta\tentailment")
    with pytest.raises(ValueError, match=f"^{path} line 2 .* 3 .* 4: index"):
        read_glue(GLUE["rte"], str(tmp_path), "dev")
    with pytest.raises(ValueError, match=f"^{path} line 2: .*'question'.* index.*QNLI"):
        read_glue(GLUE["qnli"], str(write(path, head, "0\ta\tb\t1").parent), "dev")
    write(path, PAIR, "0\ta\tb")
    with pytest.raises(ValueError, match="line 2: .*'label'.* sentence2.* dev .*RTE"):
        read_glue(GLUE["rte"], str(tmp_path), "dev")
    write(path, head)
    with pytest.raises(ValueError, match=f"^{tmp_path}: .*RTE.* dev "):
        read_glue(GLUE["rte"], str(tmp_path), "dev")
    looked = f"{tmp_path}/test.tsv, {tmp_path}/RTE/test.tsv. "
    with pytest.raises(ValueError, match=f"RTE.* test; .*{looked}.*tfds:glue"):
        read_glue(GLUE["rte"], str(tmp_path), "test")
    with pytest.raises(ValueError, match="MNLI.* dev_matched; .*/dev_matched.tsv"):
        read_glue(GLUE["mnli"], str(tmp_path), "dev")
    with pytest.raises(ValueError, match="RTE .*'val'.* train, dev, test"):
        read_glue(GLUE["rte"], str(tmp_path), "val")
    with pytest.raises(ValueError, match="AX .*'train'.* test"):
        read_glue(GLUE["ax"], str(tmp_path), "train")


def test_names_of_tasks():
    assert list(GLUE) == "cola sst-2 mrpc sts-b qqp mnli qnli rte wnli ax".split()
    assert [task.name for task in GLUE.values()] == list(GLUE)
    assert glue_task("SST-2") is glue_task("sst2") is glue_task(" sst_2") is GLUE["sst-2"]
    assert glue_task("stsb") is GLUE["sts-b"] and glue_task("CoLA") is GLUE["cola"]
    with pytest.raises(ValueError, match="'snli'.* cola, sst-2, mrpc"):
        glue_task("snli")


def test_labels_and_metrics():
    assert GLUE["mnli"].labels == ("contradiction", "entailment", "neutral")
    assert GLUE["rte"].labels == GLUE["qnli"].labels == ("entailment", "not_entailment")
    metrics = {"accuracy", "f1", "matthews", "pearson", "spearman"}
    for task in GLUE.values():
        assert task.best_metric in task.metrics and metrics.issuperset(task.metrics)
        assert bool(task.labels) == (task.best_metric != "spearman")


# TensorFlow Datasets ----------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path):
    """Returns a function that makes a configuration of the data set `bert_tf_glue`."""
    tfds = pytest.importorskip("tensorflow_datasets")
    from tensorflow_datasets.core.utils import file_utils

    def make(config, splits, label, texts):
        features = {"idx": np.int32, "label": label(tfds), **dict.fromkeys(texts, np.str_)}
        tfds.dataset_builders.store_as_tfds_dataset(
            name="bert_tf_glue",
            config=config,
            version="1.0.0",
            data_dir=tmp_path,
            split_datasets={
                split: [
                    (index, {"idx": index, "label": value, **{t: f"{t} {index}" for t in texts}})
                    for index, value in enumerate(labels)
                ]
                for split, labels in splits.items()
            },
            features=tfds.features.FeaturesDict(features),
            disable_shuffling=True,
        )

    file_utils.add_data_dir(str(tmp_path))
    yield make
    file_utils.clear_registered_data_dirs()


def classes(*names):
    return lambda tfds: tfds.features.ClassLabel(names=names)


@pytest.mark.slow
def test_tensorflow_datasets(store):
    acceptable = classes("unacceptable", "acceptable")
    store("cola", {"train": [1, 0], "test": [-1]}, acceptable, ["sentence"])
    assert brief(read_glue(GLUE["cola"], "tfds:bert_tf_glue", "train")) == [
        ("sentence 0", None, "1", "0"),
        ("sentence 1", None, "0", "1"),
    ]
    (example,) = read_glue(GLUE["cola"], "tfds:bert_tf_glue", "test")
    assert example.label is None
    assert example.source == "tfds:bert_tf_glue/cola:test example 0"

    nli = classes("entailment", "neutral", "contradiction")
    splits = {"validation_matched": [0, 2], "validation_mismatched": [1]}
    store("mnli", splits, nli, ["premise", "hypothesis"])
    dev = read_glue(GLUE["mnli"], "tfds:bert_tf_glue", "dev")
    assert [example.label for example in dev] == ["entailment", "contradiction"]
    assert brief(read_glue(GLUE["mnli"], "tfds:bert_tf_glue", "dev_mismatched")) == [
        ("premise 0", "hypothesis 0", "neutral", "0")
    ]

    store("stsb", {"validation": [3.8, -1.0]}, lambda tfds: np.float32, ["sentence1", "sentence2"])
    assert brief(read_glue(GLUE["sts-b"], "tfds:bert_tf_glue", "dev")) == [
        ("sentence1 0", "sentence2 0", "3.8", "0"),
        ("sentence1 1", "sentence2 1", None, "1"),
    ]

    store("rte", {"validation": [1]}, classes("entailment", "not_entailment"), ["text"])
    with pytest.raises(ValueError, match="rte:validation example 0: .*'sentence1'"):
        read_glue(GLUE["rte"], "tfds:bert_tf_glue", "dev")


@pytest.mark.parametrize("task", GLUE.values(), ids=list(GLUE))
def test_features_and_classes_are_those_of_tfds(task, store, monkeypatch):
    """Rows made from what the package says of its GLUE become GLUE's labels."""
    tfds = pytest.importorskip("tensorflow_datasets")
    features = tfds.builder(f"glue/{task.name.replace('-', '')}").info.features
    names = features["label"].names if task.labels else None
    texts = [name for name in features if name not in ("idx", "label")]
    label = classes(*names) if names else lambda tfds: np.float32
    split = "test" if task.name == "ax" else "train"
    store(task.name.replace("-", ""), {split: [0, 1]}, label, texts)
    examples = read_glue(task, "tfds:bert_tf_glue", split)
    expected = {"rte": ["entailment", "not_entailment"], "sts-b": ["0.0", "1.0"]}
    expected["qnli"] = expected["rte"]
    expected["mnli"] = expected["ax"] = ["entailment", "neutral"]
    assert [example.label for example in examples] == expected.get(task.name, ["0", "1"])
    assert all(bool(example.text_b) == bool(task.text_b) for example in examples)
    assert set(texts) == {text.split()[0] for text in examples[0][:2] if text}


# Submission and real files ----------------------------------------------------------------------


def test_submission():
    assert glue_submission_rows(GLUE["rte"], ["0", "1"], [1, 0]) == [
        "index\tprediction",
        "0\tnot_entailment",
        "1\tentailment",
    ]
    assert glue_submission_rows(GLUE["cola"], ["7"], np.array([1])) == ["index\tprediction", "7\t1"]
    scores = np.array([-0.2, 3.14159, 5.5], np.float32)
    assert glue_submission_rows(GLUE["sts-b"], ["0", "1", "2"], scores)[1:] == [
        "0\t0.000",
        "1\t3.142",
        "2\t5.000",
    ]
    names = [glue_submission_name(task) for task in GLUE.values()]
    expected = "CoLA SST-2 MRPC STS-B QQP MNLI-m QNLI RTE WNLI AX".split()
    assert names == [f"{name}.tsv" for name in expected]
    assert glue_submission_name(GLUE["mnli"], "test_mismatched") == "MNLI-mm.tsv"


@pytest.mark.needs(data="glue")
@pytest.mark.parametrize(
    ("name", "folder", "counts"),
    [
        pytest.param("sst-2", "SST-2", (67349, 872, 1821), marks=pytest.mark.slow),
        ("cola", "CoLA", (8551, 1043, 1063)),
        ("rte", "RTE", (2490, 277, 3000)),
        ("wnli", "WNLI", (635, 71, 146)),
        ("sts-b", "STS-B", (5749, 1500)),
        ("mrpc", "MRPC-original", (4076, 1725, 1725)),
    ],
)
def test_real_files(name, folder, counts):
    task = GLUE[name]
    for split, count in zip(task.splits, counts, strict=False):
        examples = read_glue(task, str(shared_data("glue", folder)), split)
        assert len(examples) == count
        assert len({example.id for example in examples}) == count
        assert all(example.text_a.strip() for example in examples)
        seconds = [(example.text_b or "").strip() for example in examples]
        assert all(bool(second) == bool(task.text_b) for second in seconds)
        if task.labels:
            is_unlabelled = split == "test" and name != "mrpc"
            labels = {-1} if is_unlabelled else set(range(len(task.labels)))
            assert set(label_ids(examples, task.labels)) == labels
        else:
            values = label_values(examples)
            assert (values.min(), values.max()) == (0, 5)
