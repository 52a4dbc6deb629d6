"""SQuAD's paragraphs from TensorFlow Datasets are those of the official JSON."""

import gzip
import json
import pathlib

import numpy as np
import pytest

from bert_tf.tasks.question_answering.questions import read_squad
from bert_tf.tasks.question_answering.sources import read_paragraphs

QUESTIONS = [
    ("a", "The mill stood.", "what stood?", [("mill", 4), ("The mill", 0)]),
    ("b", "The mill stood.", "what fell?", []),
    ("c", "Le café\u0301 \u6771\u4eac, \u201cici\u201d", "o\u00f9?", [("\u6771\u4eac", 9)]),
]


def write_json(path: pathlib.Path, version_2: bool) -> pathlib.Path:
    """Writes QUESTIONS as the official file has them, one paragraph a context."""
    paragraphs: dict[str, list] = {}
    for name, context, question, answers in QUESTIONS:
        if not answers and not version_2:
            continue
        listed = [{"text": text, "answer_start": start} for text, start in answers]
        qa = {"id": name, "question": question, "answers": listed}
        more = {"is_impossible": not answers} if version_2 else {}
        paragraphs.setdefault(context, []).append(qa | more)
    rows = [{"context": context, "qas": qas} for context, qas in paragraphs.items()]
    path.write_text(json.dumps({"version": "x", "data": [{"title": "t", "paragraphs": rows}]}))
    return path


def store(tfds, folder: pathlib.Path, name: str, version_2: bool) -> None:
    """Stores QUESTIONS with the features that TFDS gives its squad."""
    from tensorflow_datasets.core.utils import file_utils

    answer = {"text": tfds.features.Text(), "answer_start": tfds.features.Scalar(np.int32)}
    features = {
        "id": tfds.features.Text(),
        "title": tfds.features.Text(),
        "context": tfds.features.Text(),
        "question": tfds.features.Text(),
        "answers": tfds.features.Sequence(answer),
    }
    if version_2:
        features["is_impossible"] = tfds.features.Scalar(np.bool_)
    rows = []
    for key, context, question, answers in QUESTIONS:
        listed = [{"text": text, "answer_start": start} for text, start in answers]
        row = {"id": key, "title": "t", "context": context, "question": question}
        more = {"is_impossible": not answers} if version_2 else {}
        if answers or version_2:
            rows.append((key, row | {"answers": listed} | more))
    tfds.dataset_builders.store_as_tfds_dataset(
        name=name,
        version="1.0.0",
        data_dir=folder,
        split_datasets={"train": rows[:1], "validation": rows},
        features=tfds.features.FeaturesDict(features),
        disable_shuffling=True,
    )
    file_utils.add_data_dir(str(folder))


@pytest.fixture
def tfds(tmp_path):
    yield pytest.importorskip("tensorflow_datasets")
    from tensorflow_datasets.core.utils import file_utils

    file_utils.clear_registered_data_dirs()


@pytest.mark.parametrize("version_2", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_data_set_holds_the_questions_of_the_file(tfds, tmp_path, version_2):
    store(tfds, tmp_path, "bert_tf_squad", version_2)
    path = write_json(tmp_path / "dev.json", version_2)
    for is_training in (True, False):
        expected = read_squad(path, is_training, version_2)
        assert read_squad("tfds:bert_tf_squad:validation", is_training, version_2) == expected
        assert len(expected) == 2 + version_2
    assert read_squad("tfds:bert_tf_squad", False, version_2) == expected[:1]  # train
    with pytest.raises(ValueError, match="tfds:bert_tf_squad .*'test'.* 'validation'"):
        read_squad("tfds:bert_tf_squad:test", False, version_2)
    wheres = [where for _, where in read_paragraphs("tfds:bert_tf_squad:validation")]
    assert wheres[1] == "tfds:bert_tf_squad:validation example 1"


def test_another_data_set_is_named(tfds, tmp_path):
    from tensorflow_datasets.core.utils import file_utils

    tfds.dataset_builders.store_as_tfds_dataset(
        name="bert_tf_texts",
        version="1.0.0",
        data_dir=tmp_path,
        split_datasets={"train": [(0, {"text": "a"})]},
        features=tfds.features.FeaturesDict({"text": tfds.features.Text()}),
        disable_shuffling=True,
    )
    file_utils.add_data_dir(str(tmp_path))
    with pytest.raises(ValueError, match="tfds:bert_tf_texts:train example 0: .*'answers'"):
        read_squad("tfds:bert_tf_texts", False, False)


def test_where_a_paragraph_stands(tmp_path):
    path = write_json(tmp_path / "dev.json", True)
    found = [(paragraph["context"], where) for paragraph, where in read_paragraphs(path)]
    assert found == [
        (QUESTIONS[0][1], f"{path}, data[0].paragraphs[0]"),
        (QUESTIONS[2][1], f"{path}, data[0].paragraphs[1]"),
    ]
    with pytest.raises(ValueError, match=r"nowhere\.json .*\[Errno 2\]"):
        list(read_paragraphs(tmp_path / "nowhere.json"))


def rows_of(version_2: bool) -> list[dict]:
    """Returns QUESTIONS as Hugging Face's data sets have them."""
    rows = []
    for name, context, question, answers in QUESTIONS:
        texts = [text for text, _ in answers]
        starts = [start for _, start in answers]
        row = {"id": name, "title": "t", "context": context, "question": question}
        if answers or version_2:
            rows.append(row | {"answers": {"text": texts, "answer_start": starts}})
    return rows


@pytest.mark.parametrize("version_2", [False, True])
@pytest.mark.parametrize("is_training", [False, True])
def test_rows_hold_the_questions_of_the_official_file(tmp_path, version_2, is_training):
    expected = read_squad(write_json(tmp_path / "a.json", version_2), is_training, version_2)
    rows = rows_of(version_2)
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    listed = []
    for row in rows:
        pairs = zip(row["answers"]["text"], row["answers"]["answer_start"], strict=True)
        answers = [{"text": text, "answer_start": start} for text, start in pairs]
        listed.append(row | {"answers": answers})
    official = json.dumps({"data": listed})
    paragraphs = [{"context": row["context"], "qas": [row]} for row in rows]
    forms = {
        "data.json": json.dumps({"data": rows}, indent=1),
        "marked.json": "\ufeff" + json.dumps({"data": rows}, indent=1),
        "list.json": json.dumps(rows),
        "lines.json": lines,
        "lines.jsonl": "\n" + lines,
        "objects.json": official,
        "paragraphs.json": json.dumps({"data": [{"paragraphs": paragraphs}]}),
    }
    for name, text in forms.items():
        (tmp_path / name).write_text(text, encoding="utf8")
        assert read_squad(tmp_path / name, is_training, version_2) == expected, name
    (tmp_path / "lines.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    assert read_squad(tmp_path / "lines.jsonl.gz", is_training, version_2) == expected
    (tmp_path / "one.json").write_text(json.dumps(rows[0]), encoding="utf8")
    assert read_squad(tmp_path / "one.json", is_training, version_2) == expected[:1]


def test_rows_that_are_wrong(tmp_path):
    path = tmp_path / "a.jsonl"
    good = rows_of(False)[0]
    for answers in ({"text": ["mill"]}, {"text": ["mill"], "answer_start": []}, ["mill"]):
        path.write_text(json.dumps(good) + "\n" + json.dumps(good | {"answers": answers}))
        with pytest.raises(ValueError, match=f"{path} line 2|question a"):
            read_squad(path, True, False)
    path.write_text(json.dumps(rows_of(True)[1]))
    with pytest.raises(ValueError, match="question b"):
        read_squad(path, True, False)
