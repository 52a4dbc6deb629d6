"""What is wrong with the examples is said before TensorFlow is loaded, which takes seconds."""

import json
import subprocess
import sys

import pytest

from tests.shared_data import ROOT
from tests.slow_variants import slow_unless

RUN = """
import runpy, sys
status = 0
program = sys.argv.pop(1)
try:
    runpy.run_module("bert_tf." + program, run_name="__main__", alter_sys=True)
except SystemExit as end:
    status = end.code
print("status", status, "tensorflow" in sys.modules)
"""
GOOD_AND_BAD = {
    "run_classifier": ("t.csv", "text,label\na,x\nb,y\n", "c,\n"),
    "run_tagger": ("t.jsonl", '{"text": "Paris is", "label": [[0, 5, "LOC"]]}\n', '{"text": 1}\n'),
    "run_squad": (
        "t.jsonl",
        json.dumps(
            {
                "id": "1",
                "context": "Paris is big",
                "question": "what?",
                "answers": {"text": ["Paris"], "answer_start": [0]},
            }
        )
        + "\n",
        '{"id": "2", "context": "a", "question": "what?", "answers": {"text": ["b"]}}\n',
    ),
    "run_multiple_choice": (
        "t.jsonl",
        '{"context": "a", "choices": ["b", "c"], "label": 1.0}\n',
        '{"context": "a", "choices": ["b", "c"], "label": 2}\n',
    ),
    "run_retriever": ("t.csv", "query,positive,score\na,b,0.5\n", "a,b,high\n"),
    "run_reranker": ("t.csv", "query,document,label\na,b,1\n", "a,b,good\n"),
}


@pytest.mark.parametrize("program", slow_unless("run_classifier", GOOD_AND_BAD))
def test_bad_examples_are_found_before_tensorflow_is_loaded(tmp_path, program):
    vocab = tmp_path / "vocab.txt"
    vocab.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n")
    name, good, bad = GOOD_AND_BAD[program]
    path = tmp_path / name
    path.write_text(good + bad)
    flags = {
        "train_file": path,
        "vocab_file": vocab,
        "output_dir": tmp_path / "run",
        "num_train_steps": 1,
    }
    given = [f"--{key}={value}" for key, value in flags.items()]
    done = subprocess.run(
        [sys.executable, "-c", RUN, program, "--do_train", *given],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )
    line = good.count("\n") + 1
    assert f"ERROR: {path} line {line}" in done.stdout, done.stdout
    assert "status 1 False" in done.stdout and "Traceback" not in done.stdout, done.stdout
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("module", "flags", "named"),
    [
        (
            "bert_tf.build_index",
            ["--init_checkpoint={0}/model", "--input_file={0}/no.txt", "--output_dir={0}/index"],
            "no.txt",
        ),
        ("bert_tf.fill_mask", ["--init_checkpoint={0}/data", "--text=[MASK]"], "text.txt"),
        (
            "export.saved_model",
            ["--index={0}/data/text.txt", "--output_dir={0}/served"],
            "text.txt is no index",
        ),
        ("export.check", ["--saved_model={0}/data"], "bert_tf.json"),
        ("bert_tf.search", ["--index={0}/model", "--query=x"], "model"),
        ("bert_tf.search", ["--index={0}/data/text.txt", "--query=x"], "text.txt"),
        (
            "bert_tf.show_examples",
            ["--input_file={0}/none", "--vocab_file={0}/data/text.txt"],
            "none",
        ),
        ("bert_tf.convert_checkpoint", ["--input={0}/model", "--output={0}/data"], "data already"),
        (
            "export.tflite",
            ["--model_dir={0}/model", "--output_file={0}/data/text.txt"],
            "--output_file",
        ),
        (
            "export.saved_model",
            ["--model_dir={0}/model", "--output_dir={0}/data/text.txt/served"],
            "--output_dir",
        ),
    ],
)
def test_paths_are_checked_before_tensorflow_is_loaded(tmp_path, module, flags, named):
    for name in ("model/config.json", "data/text.txt"):
        path = tmp_path / name
        path.parent.mkdir()
        path.write_text("{}")
    arguments = [flag.format(tmp_path) for flag in flags]
    run = RUN.replace('"bert_tf." + ', "")
    done = subprocess.run(
        [sys.executable, "-c", run, module, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.stdout.splitlines()[-1] == "status 1 False", done.stderr
    assert named in done.stderr and "Traceback" not in done.stderr


def test_an_unknown_language_is_refused_before_tensorflow_is_loaded(tmp_path):
    flags = ["--sentence_language=xx", f"--output_dir={tmp_path / 'run'}"]
    done = subprocess.run(
        [sys.executable, "-c", RUN, "run_pretraining", *flags],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.stdout.splitlines()[-1] == "status 1 False", done.stderr
    assert "--sentence_language=xx" in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()
