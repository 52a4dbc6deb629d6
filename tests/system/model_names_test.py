"""Models that do not exist are refused before TensorFlow is loaded; well-known names get a hub."""

import subprocess
import sys

import pytest

from bert_tf.checkpoints.formats import read_checkpoint
from bert_tf.system.model_names import check_model, proposed_name
from tests.early_errors_test import RUN
from tests.shared_data import ROOT

NAMES = {
    "all-MiniLM-L6-v2": "hf://sentence-transformers/all-MiniLM-L6-v2",
    "all-mpnet-base-v2": "hf://sentence-transformers/all-mpnet-base-v2",
    "paraphrase-multilingual-MiniLM-L12-v2": (
        "hf://sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2"
    ),
    "bert-base-uncased": "hf://google-bert/bert-base-uncased",
    "bert-base-cased": "hf://google-bert/bert-base-cased",
    "roberta-base": "hf://FacebookAI/roberta-base",
    "xlm-roberta-base": "hf://FacebookAI/xlm-roberta-base",
    "distilroberta-base": "hf://distilbert/distilroberta-base",
    "distilbert-base-uncased": "hf://distilbert/distilbert-base-uncased",
    "ms-marco-MiniLM-L-6-v2": "hf://cross-encoder/ms-marco-MiniLM-L6-v2",
    "deberta-v3-small": "hf://microsoft/deberta-v3-small",
    "modernbert-base": "hf://answerdotai/ModernBERT-base",
    "ModernBERT-base": "hf://answerdotai/ModernBERT-base",
    "albert-base-v2": "hf://albert/albert-base-v2",
    "electra-small-discriminator": "hf://google/electra-small-discriminator",
    "sentence-transformers/all-MiniLM-L6-v2": "hf://sentence-transformers/all-MiniLM-L6-v2",
    "runs/model": "",
    "my-model": "",
}


@pytest.mark.parametrize("name", NAMES)
def test_well_known_names_get_their_hub(name):
    assert proposed_name(name) == NAMES[name]


def test_a_name_without_a_hub_is_answered_by_the_full_name():
    with pytest.raises(ValueError, match="hf://google-bert/bert-base-uncased"):
        read_checkpoint("bert-base-uncased")


def test_models_without_weights(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    check_model(str(tmp_path))
    with pytest.raises(ValueError, match=r"config\.json"):
        check_model(str(tmp_path), has_weights=True)
    (tmp_path / "model.safetensors").touch()
    for name in ("", "model.safetensors"):
        check_model(str(tmp_path / name), has_weights=True)
    table = tmp_path / "train.tsv"
    table.touch()
    with pytest.raises(ValueError, match=r"train\.tsv"):
        check_model(str(table), has_weights=True)


def test_prefixes_and_hub_names_are_models(tmp_path):
    (tmp_path / "model.ckpt-7.index").touch()
    check_model(str(tmp_path / "model.ckpt-7"))
    check_model("hf://a/b")
    with pytest.raises(ValueError, match=r"model\.ckpt-8"):
        check_model(str(tmp_path / "model.ckpt-8"))
    (tmp_path / "data" / "inner").mkdir(parents=True)
    check_model(str(tmp_path / "data"))  # A version may be inside.
    (tmp_path / "data" / "inner").rmdir()
    (tmp_path / "data" / "train.csv").touch()
    with pytest.raises(ValueError, match=r"train\.csv"):
        check_model(str(tmp_path / "data"))


@pytest.mark.parametrize(
    ("program", "flag", "others"),
    [
        (
            "bert_tf.run_classifier",
            "init_checkpoint",
            (
                "--do_train",
                "--train_file={folder}/a.csv",
                "--do_eval=false",
                "--output_dir={folder}/r",
            ),
        ),
        ("bert_tf.fill_mask", "init_checkpoint", ("--text=a",)),
        pytest.param("bert_tf.search", "index", ("--query=a",), marks=pytest.mark.slow),
        pytest.param(
            "bert_tf.build_index",
            "init_checkpoint",
            ("--input_file={folder}/a.jsonl", "--output_dir={folder}/i"),
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "bert_tf.convert_checkpoint", "input", ("--output={folder}/o",), marks=pytest.mark.slow
        ),
        pytest.param(
            "export.saved_model", "model_dir", ("--output_dir={folder}/o",), marks=pytest.mark.slow
        ),
        pytest.param(
            "export.tflite",
            "model_dir",
            ("--output_file={folder}/o.tflite",),
            marks=pytest.mark.slow,
        ),
        pytest.param("export.demo", "model_dir", (), marks=pytest.mark.slow),
    ],
)
def test_a_path_that_does_not_exist_costs_no_tensorflow(tmp_path, program, flag, others):
    (tmp_path / "a.csv").write_text("text,label\na,x\nb,y\n")
    (tmp_path / "a.jsonl").write_text('{"id": "1", "text": "a"}\n')
    others = [flag.format(folder=tmp_path) for flag in others]
    script = RUN.replace('"bert_tf." + program', "program")
    done = subprocess.run(
        [sys.executable, "-c", script, program, f"--{flag}=roberta-base", *others],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout.splitlines()[-1] == "status 1 False", done.stderr
    assert (
        f"--{flag}: roberta-base" in done.stderr and "hf://FacebookAI/roberta-base" in done.stderr
    )


def test_output_into_a_closed_pipe_ends_quietly():
    done = subprocess.run(
        f"{sys.executable} -m bert_tf.fill_mask --help | head -n 1; echo ${{PIPESTATUS[0]}}",
        shell=True,
        executable="/bin/bash",
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines()[-1] in ("0", "141")
