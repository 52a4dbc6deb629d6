"""Somebody's model trained further as a user does it: own text, own words, resumed, given back."""

import dataclasses
import json
import pathlib
import re
import shutil

import numpy as np
import pytest

from bert_tf.checkpoints.formats import read_checkpoint, write_checkpoint
from bert_tf.text.vocab import Vocab
from tests.checkpoints.made_checkpoint import make_checkpoint
from tests.conftest import tiny_tokens
from tests.programs import FOUR_STEPS, fail, finish, pretrain, run
from tests.tiny_model import write_tiny_model

FLAGS = {**FOUR_STEPS, "max_seq_length": 32, "max_predictions_per_seq": 5}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Words and somebody's model."""
    path = tmp_path_factory.mktemp("continued")
    (path / "words.txt").write_text("Mathematician\nriver\n\nneighbour\nnewspaper\n")
    tokens = tiny_tokens()
    tokens[5:5] = ["[unused0]", "[unused1]"]
    made = make_checkpoint(
        "pretrained",
        vocab_size=len(tokens),
        hidden_size=32,
        num_attention_heads=4,
        num_hidden_layers=1,
        intermediate_size=64,
        max_position_embeddings=32,
        type_vocab_size=2,
        hidden_act="gelu_exact",
        layer_norm_eps=1e-5,
        hidden_dropout_prob=0.1,
        attention_probs_dropout_prob=0.2,
        do_lower_case=True,
    )
    made = dataclasses.replace(made, vocab=Vocab(tuple(tokens)))
    write_checkpoint(made, path / "theirs", "huggingface")
    return path


def go_on(folder, output_dir, **changed):
    flags = {**FLAGS, "init_checkpoint": folder / "theirs", **changed}
    return pretrain(folder / output_dir, **flags)


@pytest.fixture(scope="module")
def mine(folder):
    """Own words, a longer table, no dropout; returns the run's directory."""
    finish(
        go_on(
            folder,
            "mine",
            added_words_file=folder / "words.txt",
            max_position_embeddings=64,
            max_seq_length=48,
            max_predictions_per_seq=8,
            hidden_dropout_prob=0,
            attention_probs_dropout_prob=0,
        )
    )
    return folder / "mine"


def test_everything_comes_along_and_is_adapted(folder, mine):
    before, after = read_checkpoint(folder / "theirs"), read_checkpoint(mine)
    assert len(after.vocab) == len(before.vocab) + 1
    assert after.vocab.tokens[5:7] == ("mathematician", "neighbour")
    assert after.vocab.tokens[-1] == "newspaper"
    changed = {
        name
        for name, value in after.config.to_dict().items()
        if value != getattr(before.config, name)
    }
    assert changed == {
        "vocab_size",
        "max_position_embeddings",
        "hidden_dropout_prob",
        "attention_probs_dropout_prob",
    }
    assert after.config.hidden_act == "gelu_exact" and after.config.layer_norm_eps == 1e-5
    # Four small steps: the kernels are still nearly what they were.
    name = "bert/encoder/layer_0/output/dense/kernel"
    assert 0 < np.abs(after.weights[name] - before.weights[name]).max() < 0.02


@pytest.mark.slow
def test_it_resumes_without_what_it_began_with(folder, mine):
    before = (mine / "metrics.jsonl").read_bytes()
    for path in mine.glob("model.ckpt-4*"):
        path.unlink()
    moved = folder / "moved"
    (folder / "theirs").rename(moved)
    try:
        finish(run("run_pretraining", f"--flagfile={mine / 'run.flags'}"))
    finally:
        moved.rename(folder / "theirs")
    assert (mine / "metrics.jsonl").read_bytes() == before


@pytest.mark.slow
def test_a_changed_start_is_refused_and_a_named_one_evaluated(folder, mine):
    printed = fail(run("run_pretraining", f"--flagfile={mine / 'run.flags'}", init_checkpoint="x"))
    assert re.search(rf"--init_checkpoint .*\bx\b.*{folder / 'theirs'}", printed)
    flags = {"init_checkpoint": mine / "model.ckpt-2", "do_train": "false", "do_eval": "true"}
    flags |= {"max_position_embeddings": 64, "max_seq_length": 48, "max_predictions_per_seq": 8}
    printed = finish(go_on(folder, "mine", **flags))
    assert "step 0:" in printed


def test_contradictions_are_refused_at_once(folder):
    printed = fail(go_on(folder, "refused", hidden_size=60))
    assert re.search(r"--hidden_size=60,.*32", printed)
    assert not (folder / "refused").exists()
    for init_checkpoint in (folder / "theirs", ""):
        printed = fail(go_on(folder, "theirs", init_checkpoint=init_checkpoint))
        assert str(folder / "theirs") in printed


def test_masks_are_filled_by_anybodys_model(folder):
    shutil.make_archive(str(folder / "zipped"), "zip", folder / "theirs")
    text = "The [MASK] stood."
    printed = finish(run("fill_mask", init_checkpoint=folder / "zipped.zip", text=text))
    assert len(printed.split(text)[1].splitlines()) == 2


def test_conversion_prints_its_report(folder):
    printed = finish(
        run(
            "convert_checkpoint",
            input=folder / "theirs",
            output=folder / "converted",
            to="keras_hub",
            max_position_embeddings=16,
        )
    )
    config = json.loads((folder / "converted" / "config.json").read_text())["config"]
    assert config["max_sequence_length"] == 16
    for line in (
        "heads: pooler, masked_lm, next_sentence",
        "missing: none; mismatched: none; unused: none",
        "left out: next_sentence: keras_hub ",
        "bit-identical",
        " gelu_tanh ",
        "masked_lm_logits  ",
    ):
        assert line in printed, printed
    printed = fail(run("convert_checkpoint", input=folder / "theirs", output=folder / "converted"))
    assert f"{folder}/converted" in printed


def test_the_casing_is_stated_where_the_files_do_not(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    made = write_tiny_model(tmp_path / "theirs", num_hidden_layers=1)
    config = json.loads((made / "bert_config.json").read_text())
    del config["do_lower_case"]
    (made / "bert_config.json").write_text(json.dumps(config))
    assert read_checkpoint(made).config.do_lower_case  # By its pieces.
    flags = {"input": made, "to": "huggingface"}
    printed = finish(run("convert_checkpoint", "--nodo_lower_case", **flags, output="~/cased"))
    assert ", cased" in printed and f"{tmp_path}/cased" in printed
    assert not read_checkpoint(tmp_path / "cased").config.do_lower_case
    assert not pathlib.Path("~").exists()
    flags = {"input": tmp_path / "cased", "output": tmp_path / "uncased"}
    printed = fail(run("convert_checkpoint", "--do_lower_case", **flags))
    assert re.search(r"--do_lower_case=True,.*False", printed)
