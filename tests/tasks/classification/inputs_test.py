"""Texts of --unlabelled_file: of a table with labels, of a column with another name, of lines."""

import dataclasses
import types

import pytest

from bert_tf.config.fine_tuning_config import ClassifierConfig
from bert_tf.tasks.classification.inputs import read_unlabelled

FILES = {
    "labels.csv": "text,label\na cat,bad\na dog,good\n",
    "numbers.csv": "text,label\na cat,0.5\na dog,7\n",
    "empty.csv": "text,label\na cat,\na dog,bad\n",
    "scores.csv": "score,text,similarity\nhigh,a cat,x\nlow,a dog,y\n",
    "named.csv": "review,label,sentence\na cat,bad,x\na dog,good,y\n",
    "pair.csv": "query,text,label\nx,a cat,bad\ny,a dog,good\n",
    "lists.jsonl": '{"text": "a cat", "label": ["bad"]}\n{"text": "a dog"}\n',
    "lines.txt": "a cat\na dog\n",
}


@pytest.mark.parametrize("skip_unlabelled", [False, True])
@pytest.mark.parametrize("name", FILES)
def test_labels_are_ignored(tmp_path, name, skip_unlabelled):
    path = tmp_path / name
    path.write_text(FILES[name])
    column = "review" if name == "named.csv" else "text"
    task = dataclasses.replace(
        ClassifierConfig(),
        unlabelled_file=str(path),
        text_column=column,
        skip_unlabelled=skip_unlabelled,
    )
    examples = read_unlabelled(types.SimpleNamespace(task=task))
    assert [(example.query, example.positive) for example in examples] == [
        ("a cat", "a cat"),
        ("a dog", "a dog"),
    ]
    assert not any(example.scores for example in examples)
