"""The main job as a user runs it: text in, a trained model out."""

import math
import re
import shutil
import signal
import time

import numpy as np
import pytest

import bert_tf
from bert_tf.checkpoints.formats import read_checkpoint
from bert_tf.text.vocab import Vocab
from bert_tf.training.metrics_log import read_metrics
from tests.conftest import CORPUS
from tests.fine_tune import read_results
from tests.float_bounds import assert_close, close_to
from tests.programs import SMALL_BERT, fail, finish, run, start
from tests.tiny_model import tiny_words

VOCAB_SIZE = SMALL_BERT["vocab_size"]
FLAGS = {
    "do_train": "true",
    **SMALL_BERT,
    "train_batch_size": 8,
    "eval_batch_size": 8,
    "max_eval_steps": 2,
    "optimizer": "adamw",
    "learning_rate": 1e-2,
    "num_warmup_steps": 5,
    "num_train_steps": 30,
    "log_steps": 10,
    "num_workers": 1,
    "jit_compile": "false",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("pretraining")
    (path / "corpus.txt").write_text(CORPUS + "\n", encoding="utf8")
    return path


def flags_of(folder, output_dir, **changed):
    """Returns FLAGS, some of them changed, on the corpus in `folder`."""
    flags = {**FLAGS, "input_file": folder / "corpus.txt", "output_dir": folder / output_dir}
    return {**flags, **changed}


def pretrain(folder, output_dir, **changed):
    """Runs run_pretraining with such flags in this process."""
    return run("run_pretraining", **flags_of(folder, output_dir, **changed))


@pytest.fixture(scope="module")
def one_device(folder):
    """A run with evaluations; returns (its directory, what it printed)."""
    shown = {"show_masks": "The [MASK] stood. | A [MASK] and a [MASK]."}
    printed = finish(pretrain(folder, "one", do_eval="true", eval_steps=15, **shown))
    return folder / "one", printed


def test_text_becomes_a_trained_model(one_device):
    path, printed = one_device
    lines = read_metrics(path / "metrics.jsonl")
    assert [line["step"] for line in lines] == list(range(1, 31))  # A short run has 20 or more.
    assert lines[0]["loss"] == pytest.approx(math.log(VOCAB_SIZE) + math.log(2), rel=0.01)
    assert lines[-1]["masked_lm_loss"] < lines[0]["masked_lm_loss"] - 0.5
    names = {file.name for file in path.iterdir()}
    assert names >= {"run.flags", "bert_config.json", "vocab.txt", "curves.png", "train"}
    assert names >= {"model.ckpt-30.index", "model.ckpt-15.index", "best_checkpoint.json"}
    results = read_results(path)
    google = {"global_step", "loss"} | {
        f"{task}_{what}" for task in ("masked_lm", "next_sentence") for what in ("accuracy", "loss")
    }
    assert set(results) - {name for name in results if name.startswith("unigram_")} == google
    assert results["global_step"] == 30
    evaluations = read_metrics(path / "eval_metrics.jsonl")
    assert [line["step"] for line in evaluations] == [15, 30]
    assert results["masked_lm_loss"] == evaluations[-1]["masked_lm_loss"]
    filled = read_metrics(path / "filled_masks.jsonl")
    assert [line["step"] for line in filled] == [15, 30]
    assert filled[0]["texts"] == ["The [MASK] stood.", "A [MASK] and a [MASK]."]
    assert [answer.count(",") for answer in filled[1]["filled"]] == [2, 4]
    for line in filled:
        assert f"step {line['step']}: {line['filled'][0]}" in printed
    assert "baseline: masked_lm_loss " in printed
    table = (path / "variables.txt").read_text(encoding="utf8").splitlines()
    (summary,) = [line for line in printed.splitlines() if "variables.txt" in line]
    assert table[0].split()[0] in summary
    assert any("bert/pooler/dense/kernel" in line for line in table)
    assert "bert/pooler/dense/kernel" not in printed
    assert "step 30/30" in printed and "examples/s" in printed and "left" in printed


def test_masks_are_filled_in(one_device):
    text = "The [MASK] stood on the slow [MASK]."
    printed = finish(run("fill_mask", output_dir=one_device[0], text=text, top_k=3))
    lines = printed[printed.index(text) :].splitlines()
    vocab = (one_device[0] / "vocab.txt").read_text(encoding="utf8").split("\n")
    assert len(lines) == 3
    for line in lines[1:]:
        pieces, probabilities = line.split()[::2], list(map(float, line.split()[1::2]))
        assert len(pieces) == 3 and set(pieces) <= set(vocab)
        assert probabilities == sorted(probabilities, reverse=True) and sum(probabilities) <= 1


@pytest.mark.slow
def test_whole_texts_are_filled_in_and_scored(one_device):
    model = {"output_dir": one_device[0]}
    text = "The [MASK] stood [GAP:1-2]."
    printed = finish(run("fill_mask", text=text, num_fillings=3, **model))
    lines = printed[printed.index(text) :].splitlines()[1:]
    shares = [float(line.split()[0]) for line in lines]
    assert len(lines) == 3 and sum(shares) == pytest.approx(1, abs=0.01)
    assert not any("[MASK]" in line or "[GAP" in line for line in lines)
    drawn = [run("fill_mask", text=text, temperature=1, seed=4, **model) for _ in range(2)]
    assert len({finish(one).splitlines()[-1] for one in drawn}) == 1
    printed = finish(run("score_text", text="The river stood.", rewrite_rounds=1, **model))
    words = [line.split() for line in printed.splitlines() if line.startswith("    ")]
    assert [word[1] for word in words] == ["The", "river", "stood", "."]
    total = next(line for line in printed.splitlines() if "The river stood." in line).split()[0]
    assert sum(float(word[0]) for word in words) == pytest.approx(float(total), abs=0.01)
    printed = finish(run("score_text", text="The river \u2603 .", rewrite_rounds=1, **model))
    line = next(line for line in printed.splitlines() if "The river \u2603 ." in line)
    assert "(1 unknown " in line
    total, mean = (float(line.split()[place]) for place in (0, 1))
    assert total / mean == pytest.approx(3, rel=0.01) and "     unknown  \u2603" in printed
    assert re.search("vocabulary .*\u2603", fail(run("score_text", text="\u2603", **model)))
    assert re.search(r"'None\.'.*\[MASK\]", fail(run("fill_mask", text="None.", rounds=2, **model)))


@pytest.mark.slow
def test_sentence_order_is_learned_under_its_own_name(folder):
    finish(pretrain(folder, "ordered", sentence_order="true", do_eval="true"))
    line = read_metrics(folder / "ordered/metrics.jsonl")[-1]
    assert line["loss"] == close_to(line["masked_lm_loss"] + line["sentence_order_loss"])
    results = (folder / "ordered/eval_results.txt").read_text()
    assert "sentence_order_accuracy = " in results and "next_sentence" not in results
    wrong = pretrain(folder, "wrong", sentence_order="true", use_next_sentence="false")
    assert re.search("sentence_order .*use_next_sentence", fail(wrong))


@pytest.mark.slow
def test_any_share_of_a_text_is_masked_and_learned(one_device, folder):
    """Masked diffusion, continued from a run of masked_lm; its unigram baseline is weighed, too."""
    flags = {"objective": "masked_diffusion", "use_next_sentence": "false", "do_eval": "true"}
    started = {"init_checkpoint": one_device[0], "pack_rows": "true"}
    finish(pretrain(folder, "diffusion", **flags, num_train_steps=60))
    finish(pretrain(folder, "continued", **flags, **started))
    before, after = (read_metrics(folder / "diffusion/metrics.jsonl")[i] for i in (0, -1))
    assert before["masked_lm_loss"] == pytest.approx(math.log(VOCAB_SIZE), rel=0.02)
    assert after["masked_lm_loss"] < before["masked_lm_loss"] - 0.5
    assert set(before) >= {"masked_lm_accuracy"} and "next_sentence_loss" not in before
    first, last = (read_metrics(folder / "continued/metrics.jsonl")[i] for i in (0, -1))
    assert last["masked_lm_loss"] < first["masked_lm_loss"] - 0.5 < before["masked_lm_loss"] - 0.5
    name = "bert/pooler/dense/kernel"  # No loss reaches it here.
    poolers = [
        read_checkpoint(path / f"model.ckpt-{step}").weights[name]
        for path, step in ((one_device[0], 30), (one_device[0], 15), (folder / "continued", 30))
    ]
    assert any(np.array_equal(poolers[2], pooler) for pooler in poolers[:2])
    record = (folder / "diffusion/run.flags").read_text()
    assert "--max_predictions_per_seq=32\n" in record and "--masked_share=1.0\n" in record
    results = (folder / "diffusion/eval_results.txt").read_text()
    assert "unigram_masked_lm_loss = " in results
    finish(pretrain(folder, "diffusion", **flags, num_train_steps=60))  # Goes on: is at its end.


def test_masked_diffusion_draws_its_own_masks(folder):
    for name, value, said in (
        ("mask_unit", "word", "=word"),
        ("mask_unit", "span:3", "=span"),
        ("mask_unit", "ngram:3", "=ngram"),
        ("masked_lm_prob", "0.2->0.5", "="),
        ("masking", "static", "=static"),
    ):
        done = pretrain(folder, "wrong", objective="masked_diffusion", **{name: value})
        assert re.search(f"--objective=masked_diffusion .*--{name}{said}", fail(done))
    assert not (folder / "wrong").exists()


@pytest.mark.parametrize("objective", ["permuted_lm", "masked_permuted_lm"])
def test_orders_of_prediction_are_drawn_for_rows_of_one_text(folder, objective):
    for name, value in {"pack_rows": "true", "masking": "static", "teacher": "model"}.items():
        done = pretrain(folder, "wrong", objective=objective, **{name: value})
        assert f"--{name}" in fail(done)
    if objective != "permuted_lm":
        done = pretrain(folder, "wrong", objective=objective, rank_special_tokens="true")
        assert "--masking_options=rank_special_tokens" in fail(done)
    assert not (folder / "wrong").exists()


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["permuted_lm", "masked_permuted_lm"])
def test_tokens_are_predicted_in_an_order_and_masks_filled(folder, objective):
    flags = {"objective": objective, "position_type": "learned_relative", "num_train_steps": 60}
    finish(pretrain(folder, objective, **flags, use_next_sentence="false"))
    first, last = (read_metrics(folder / objective / "metrics.jsonl")[i] for i in (0, -1))
    assert first["masked_lm_loss"] == pytest.approx(math.log(VOCAB_SIZE), rel=0.02)
    assert last["masked_lm_loss"] < first["masked_lm_loss"] - 0.5
    [answer] = bert_tf.load(str(folder / objective)).fill_mask(["the [MASK] is"])
    assert len(answer) == 1


def test_shares_of_masks_must_have_room_and_an_end(folder):
    """Of 32 pieces 5 may be predicted; Google's 76 of 512 are below 76.8, and stay allowed."""
    for name in ("masked_lm_prob", "masked_lm_prob_to", "masked_lm_prob_end"):
        printed = fail(pretrain(folder, "refused", **{name: 0.4}))
        assert re.search("0.4 .*32 tokens .*12.8 .*--max_predictions_per_seq=13", printed)
    of_google = {"max_seq_length": 512, "max_predictions_per_seq": 76}
    of_google["max_position_embeddings"] = 64  # Refused for this, later.
    assert re.search("--max_seq_length=512 .*64", fail(pretrain(folder, "refused", **of_google)))
    minutes = {"train_minutes": 5, "num_train_steps": 0, "num_warmup_steps": 0}
    for changed, said in ((minutes, "--train_for"), ({"batch_ramp_steps": 4}, "batch_ramp_steps")):
        printed = fail(pretrain(folder, "refused", masked_lm_prob_end=0.1, **changed))
        assert re.search(f"masked_lm_prob.*steps .*{said}", printed)
    assert not (folder / "refused").exists()


def test_minutes_and_steps_exclude_each_other(folder):
    for name, remedy in {"num_train_steps": "", "num_warmup_steps": "--warmup="}.items():
        others = {"num_train_steps": 0, "num_warmup_steps": 0, name: 7}
        printed = fail(pretrain(folder, "refused", train_minutes=5, **others))
        assert re.search(f"--train_for=5min .*--{name}=7.*{remedy}", printed)
    said = fail(pretrain(folder, "refused", num_train_steps=0))
    assert re.search("num_train_steps .*0; .*--train_for", said)
    assert not (folder / "refused").exists()


def test_evaluations_need_examples(folder):
    stopping = {"early_stopping_evaluations": 2, "eval_steps": 0}
    said = fail(pretrain(folder, "refused", **stopping))
    assert re.search("--early_stopping_evaluations=2 .*--eval_steps", said)
    none = {"do_eval": "false", "eval_steps": 5, "eval_fraction": 0}
    assert re.search("--eval_steps=5 .*--eval_file", fail(pretrain(folder, "none", **none)))


@pytest.mark.slow
def test_a_run_with_minutes_ends_in_time_and_goes_on_after_a_kill(folder):
    minutes = {"train_minutes": 0.5, "num_train_steps": 0, "num_warmup_steps": 0}
    flags = flags_of(folder, "timed", do_eval="true", save_checkpoints_steps=50, **minutes)
    process = start("run_pretraining", **flags)
    path = folder / "timed/metrics.jsonl"
    while not list((folder / "timed").glob("model.ckpt-*.index")):
        assert process.poll() is None
        time.sleep(0.1)
    process.kill()
    process.communicate()
    printed = finish(run("run_pretraining", **flags))
    assert re.search(r" step \d+:", printed)
    lines = read_metrics(path)
    rates = [line["learning_rate"] for line in lines]
    assert rates[-1] < 0.1 * max(rates) and rates.index(max(rates)) < 0.3 * len(rates)
    assert lines[-1]["masked_lm_loss"] < lines[0]["masked_lm_loss"]


@pytest.mark.slow
def test_xla_trains_alike(one_device, folder):
    finish(pretrain(folder, "compiled", jit_compile="true", do_eval="true"))
    paths = folder / "compiled", one_device[0]
    lines, expected = (read_metrics(path / "metrics.jsonl") for path in paths)
    assert [line["step"] for line in lines] == list(range(1, 31))
    for line, wanted in zip(lines, expected, strict=True):
        assert line == pytest.approx(wanted, rel=1e-3)
    assert_close(lines[0]["loss"], expected[0]["loss"])
    results, wanted = map(read_results, paths)
    assert results == pytest.approx(wanted, rel=1e-2)


@pytest.mark.slow
def test_a_resumed_run_is_the_same_to_the_bit(one_device, folder):
    """From the checkpoint at step 15, as after a kill: weights, slots, log and results."""
    path = shutil.copytree(one_device[0], folder / "resumed")
    for file in (*path.glob("model.ckpt-30*"), path / "eval_results.txt"):
        file.unlink()
    printed = finish(pretrain(folder, "resumed", do_eval="true", eval_steps=15))
    assert " step 15" in printed
    names = ("metrics.jsonl", "eval_metrics.jsonl", "eval_results.txt")
    for name in (*names, "model.ckpt-30.data-00000-of-00001"):
        assert (path / name).read_bytes() == (one_device[0] / name).read_bytes(), name


def interrupt_at(text, process):
    """Presses Ctrl-C when the program prints `text`; returns all that it printed."""
    printed = ""
    with process:
        try:
            for line in process.stdout:
                printed += line
                if text in line:
                    process.send_signal(signal.SIGINT)
                    break
            printed += process.communicate(timeout=60)[0]
        finally:
            process.kill()  # Without effect on one that ended.
    assert process.returncode == 130, printed
    return printed


@pytest.mark.slow
def test_ctrl_c_saves_and_names_the_command(folder):
    flags = flags_of(folder, "stopped", num_train_steps=100000, log_steps=1)
    process = start("run_pretraining", **flags)
    printed = interrupt_at("step 2/", process)
    assert re.search(r" step \d+\. ", printed)
    assert f"--flagfile={folder / 'stopped' / 'run.flags'}" in printed
    assert list((folder / "stopped").glob("model.ckpt-*.index"))


@pytest.mark.slow
def test_ctrl_c_while_data_are_made_ends_in_one_line(folder):
    flags = flags_of(folder, "early", cache_dir=folder / "other_cache", num_workers=2)
    process = start("run_pretraining", **flags)
    printed = interrupt_at("--vocab_file", process)
    assert printed.splitlines()[-1].startswith("Interrupted")
    assert "Traceback" not in printed


def test_a_vocabulary_in_the_home_folder_is_looked_at_first(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    Vocab(tiny_words()).write(tmp_path / "vocab.txt")
    flags = {"input_file": "none", "output_dir": tmp_path / "run", "vocab_file": "~/vocab.txt"}
    printed = fail(run("run_pretraining", "--do_train", tokenizer="byte_bpe", **flags))
    assert re.search("/vocab.txt .*wordpiece .*--tokenizer=byte_bpe", printed)
