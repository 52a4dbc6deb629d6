"""Byte-level BPE through all programs: text in, a trained model, fine-tuned, served with it."""

import pathlib
import re

import numpy as np
import pytest

import bert_tf
from bert_tf.config import ModelConfig
from tests.fine_tune import read_results, texts, write_table
from tests.float_bounds import assert_close
from tests.programs import SMALL_BERT, fail, finish, pretrain, run

FLAGS = {
    **SMALL_BERT,
    "vocab_size": 320,
    "do_train": "true",
    "do_eval": "true",
    "train_batch_size": 8,
    "eval_batch_size": 8,
    "max_eval_steps": 1,
    "num_train_steps": 2,
    "num_warmup_steps": 1,
    "log_steps": 1,
    "num_workers": 1,
    "jit_compile": "false",
}
TUNING = {
    name: FLAGS[name]
    for name in ("do_train", "do_eval", "num_train_steps", "log_steps", "jit_compile")
}
TUNING |= {"train_batch_size": 4, "eval_batch_size": 4, "max_seq_length": 32}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> pathlib.Path:
    return tmp_path_factory.mktemp("byte_bpe")


@pytest.fixture(scope="module")
def pretrained(folder) -> pathlib.Path:
    """A model with a vocabulary of its own, trained with whole words masked."""
    finish(pretrain(folder / "run", **FLAGS, tokenizer="byte_bpe", do_whole_word_mask="true"))
    return folder / "run"


@pytest.mark.slow
def test_text_becomes_a_model(pretrained, folder) -> None:
    names = {path.name for path in pretrained.iterdir()}
    assert "tokenizer.json" in names and "vocab.txt" not in names
    config = ModelConfig.read(pretrained / "bert_config.json")
    tokenizer = bert_tf.load_tokenizer(pretrained)
    vocab = tokenizer.vocab
    assert (config.tokenizer, config.do_lower_case) == ("byte_bpe", False)
    assert config.pad_token_id == vocab.pad_id and len(vocab) == config.vocab_size
    pieces = tokenizer("A boat", "It")["input_word_ids"].tolist()
    assert pieces[0] == vocab.cls_id and pieces.count(vocab.sep_id) == 1 + vocab.num_separators
    # The same command resumes it, with and without the flag.
    printed = finish(pretrain(folder / "run", **FLAGS, do_whole_word_mask="true"))
    assert "step 2" in printed
    printed = fail(pretrain(folder / "run", **FLAGS, tokenizer="wordpiece"))
    assert re.search("byte_bpe.*--tokenizer=wordpiece", printed)


@pytest.mark.slow
def test_examples_are_shown(pretrained, folder) -> None:
    records = folder / "examples.tfrecord"
    given = {"vocab_file": pretrained / "tokenizer.json", "max_seq_length": 32}
    finish(
        run(
            "create_pretraining_data",
            input_file=folder / "corpus.txt",
            output_file=records,
            use_next_sentence="false",
            num_workers=1,
            **given,
        )
    )
    printed = finish(
        run("show_examples", input_file=records, vocab_file=given["vocab_file"], num_examples=2)
    )
    assert "Example 1:" in printed and "\u0120" not in printed
    assert "<mask>(" in printed
    printed = run("doctor", str(records), vocab_file=given["vocab_file"], report_file="").printed
    assert "Misplaced" not in printed


@pytest.mark.slow
def test_classes_are_learned_with_its_vocabulary(pretrained, folder) -> None:
    write_table(folder / "train.csv", texts(12))
    path = folder / "classes"
    finish(
        run(
            "run_classifier",
            **TUNING,
            train_file=folder / "train.csv",
            eval_file=folder / "train.csv",
            do_predict="true",
            predict_file=folder / "train.csv",
            output_dir=path,
            init_checkpoint=pretrained,
        )
    )
    assert (path / "tokenizer.json").read_bytes() == (pretrained / "tokenizer.json").read_bytes()
    assert "accuracy" in " ".join(read_results(path))
    lines = (path / "test_results.tsv").read_text().splitlines()
    expected = np.array([line.split("\t") for line in lines], float)
    answers = bert_tf.load(path).probabilities([row["text"] for row in texts(12)])
    assert_close([list(row.values()) for row in answers], expected)
