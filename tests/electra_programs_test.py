"""ELECTRA as a user runs it: pre-training, resuming, its towers in other programs and formats."""

import json
import shutil

import numpy as np
import pytest

from bert_tf.checkpoints.electra_towers import infer_config, one_tower
from bert_tf.checkpoints.formats import read_checkpoint, write_checkpoint
from bert_tf.modeling.encoder import BertEncoder
from bert_tf.training.metrics_log import read_metrics
from tests.conftest import CORPUS
from tests.programs import SMALL_BERT, fail, finish, run
from tests.shared_data import shared_data

OTHER = ("discriminator", "somewhere")
FLAGS = {
    "do_train": "true",
    "do_eval": "true",
    **SMALL_BERT,
    "num_hidden_layers": 1,
    "hidden_act": "gelu_exact",
    "pooler_act": "gelu_exact",
    "embedding_size": 16,
    "objective": "replaced_tokens",
    "generator_hidden_size": 0.5,
    "use_next_sentence": "false",
    "masked_share": 0.85,
    "random_share": 0,
    "train_batch_size": 8,
    "eval_batch_size": 8,
    "max_eval_steps": 2,
    "optimizer": "adamw",
    "learning_rate": 1e-2,
    "num_warmup_steps": 5,
    "num_train_steps": 30,
    "log_steps": 10,
    "save_checkpoints_steps": 15,
    "num_workers": 1,
    "jit_compile": "false",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("electra")
    (path / "corpus.txt").write_text(CORPUS + "\n", encoding="utf8")
    return path


def pretrain(folder, name, **changed):
    flags = {**FLAGS, "input_file": folder / "corpus.txt", "output_dir": folder / name, **changed}
    return run("run_pretraining", **flags)


@pytest.fixture(scope="module")
def one(folder):
    return folder / "one", finish(pretrain(folder, "one"))


def test_both_towers_learn_and_are_reported(one):
    path, _ = one
    lines = read_metrics(path / "metrics.jsonl")
    assert lines[-1]["masked_lm_loss"] < lines[0]["masked_lm_loss"] - 0.3
    assert lines[-1]["replaced_tokens_loss"] < lines[0]["replaced_tokens_loss"]
    assert lines[0]["loss"] == pytest.approx(
        lines[0]["masked_lm_loss"] + lines[0]["replaced_tokens_loss"]
    )
    assert lines[0]["replaced_tokens_loss"] == pytest.approx(50 * np.log(2), rel=0.05)
    # Of 15 % of the pieces hardly one is drawn right.
    assert 0.1 < lines[0]["replaced_tokens_share"] < 0.2
    results = (path / "eval_results.txt").read_text()
    assert "replaced_tokens_recall = " in results and "unigram_masked_lm_loss = " in results


def test_each_tower_is_read_by_what_needs_it(one, tmp_path):
    path, _ = one
    discriminator, generator = (
        read_checkpoint(path, tower=tower) for tower in ("discriminator", "generator")
    )
    for checkpoint in (discriminator, generator):
        checkpoint.check()
    assert discriminator.heads == ("discriminator",) and generator.heads == ("masked_lm",)
    assert 2 * generator.config.hidden_size == discriminator.config.hidden_size
    for name in ("word_embeddings", "LayerNorm/gamma"):
        name = f"bert/embeddings/{name}"
        np.testing.assert_array_equal(discriminator.weights[name], generator.weights[name])
    for checkpoint, kind in ((discriminator, "PreTraining"), (generator, "MaskedLM")):
        written = write_checkpoint(checkpoint, tmp_path / kind, "huggingface")
        config = json.loads((tmp_path / kind / "config.json").read_text())
        assert config["architectures"] == [f"ElectraFor{kind}"]
        assert written.config == checkpoint.config
    printed = finish(run("fill_mask", output_dir=path, text="The [MASK] stood.", top_k=3))
    assert len(printed.strip().splitlines()[-1].split()) == 6


def test_what_does_not_go_together(folder):
    wrong = {
        "use_next_sentence": "true",
        "init_checkpoint": folder,
        "show_masks": "A [MASK].",
        "masking": "tf_text",
    }
    for name, value in wrong.items():
        more = {"masked_share": 0.8, "random_share": 0.1} if name == "masking" else {}
        assert f"--{name}" in fail(pretrain(folder, "wrong", **{name: value}, **more))
    assert "masked_share 0.85" in fail(pretrain(folder, "wrong", masking="tf_text"))
    theirs = {"electra_reference_sampling": "true"}
    for more, said in (
        ({"random_share": 0.1}, "give --random_share=0"),
        ({"objective": "masked_lm"}, "no effect with objective masked_lm"),
    ):
        assert said in fail(pretrain(folder, "wrong", **theirs, **more))
    spans = pretrain(folder, "wrong", **theirs, span_length=3)
    assert "does not go with --span_length" in fail(spans)
    assert "add up to more than 1" in fail(pretrain(folder, "wrong", random_share=0.5))
    assert not (folder / "wrong").exists()


@pytest.mark.slow
def test_a_resumed_run_is_the_same_to_the_bit(one, folder):
    shutil.copytree(one[0], folder / "again")
    for path in (folder / "again").glob("model.ckpt-30*"):
        path.unlink()
    finish(pretrain(folder, "again"))
    ours, expected = (path / "metrics.jsonl" for path in (folder / "again", one[0]))
    assert ours.read_bytes() == expected.read_bytes()
    name = "model.ckpt-30.data-00000-of-00001"
    assert (folder / "again" / name).read_bytes() == (one[0] / name).read_bytes()


@pytest.mark.slow
def test_micro_batches_train_like_the_whole(folder):
    """Fakes depend on the row alone, so only rounding and dropout differ; that is off here."""
    still = {"hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0, "num_train_steps": 10}
    lines = []
    for name, count in (("whole", 1), ("parts", 4)):
        finish(pretrain(folder, name, gradient_accumulation_steps=count, **still))
        lines.append(read_metrics(folder / name / "metrics.jsonl")[-1])
    for key, value in lines[0].items():
        assert lines[1][key] == pytest.approx(value, rel=2e-4), key


@pytest.mark.slow
@pytest.mark.parametrize("reference", ["false", "true"])
def test_two_devices_train_like_one(folder, reference):
    """Losses of both towers, and what is drawn and found, of every step and of the evaluation."""
    few = {"num_train_steps": 5, "log_steps": 1, "learning_rate": 1e-3, "num_warmup_steps": 0}
    reports = []
    for name, more in {"one": {}, "two": {"distribution": "mirrored", "num_devices": 2}}.items():
        name = f"{name}_{reference}"
        finish(pretrain(folder, name, **few, **more, electra_reference_sampling=reference))
        results = (folder / name / "eval_results.txt").read_text().splitlines()
        lines = read_metrics(folder / name / "metrics.jsonl")
        reports.append([*lines, {k: float(v) for k, v in (r.split(" = ") for r in results)}])
    assert len(reports[0]) == len(reports[1]) == 6
    assert set(reports[0][0]) >= {"masked_lm_loss", "replaced_tokens_loss", "replaced_tokens_share"}
    for one, two in zip(*reports, strict=True):
        assert two == pytest.approx(one, rel=1e-5)


@pytest.mark.slow
def test_the_discriminator_is_fine_tuned(one, folder):
    rows = [f"{label},the river {word}\n" for label, word in (("a", "stood"), ("b", "moved"))] * 20
    (folder / "rows.csv").write_text("label,text\n" + "".join(rows))
    finish(
        run(
            "run_classifier",
            do_train="true",
            do_eval="true",
            train_file=folder / "rows.csv",
            eval_file=folder / "rows.csv",
            init_checkpoint=one[0],
            output_dir=folder / "classified",
            learning_rate=3e-3,
            train_batch_size=8,
            num_train_epochs=20,
            max_seq_length=16,
            layerwise_lr_decay=0.8,
        )
    )
    results = (folder / "classified/eval_results.txt").read_text()
    assert "eval_accuracy = 1.0" in results
    config = read_checkpoint(folder / "classified").config
    assert config.pooler_act == "gelu_exact"


def test_towers_of_the_original_checkpoint(tmp_path):
    """Names of google-research/electra; the numbers are those of the two folders beside it."""
    theirs = shared_data("fixtures", "families", "electra", "tf1")
    for tower in ("discriminator", "generator"):
        expected = read_checkpoint(theirs.parent / tower)
        config = tmp_path / f"{tower}.json"
        config.write_text(expected.config.to_json())
        received = read_checkpoint(theirs, str(config), tower)
        received.check()
        assert received.heads == expected.heads and set(received.weights) == set(expected.weights)
        for name, value in expected.weights.items():
            assert received.weights[name].tobytes() == value.tobytes(), name
    encoder = BertEncoder.from_checkpoint(received)
    assert encoder.config.table_width == 36
    checkpoint = read_checkpoint(theirs, tower="generator")
    with pytest.raises(ValueError, match="holds only ELECTRA's generator, but its discriminator"):
        one_tower({f"generator/encoder/{n}": v for n, v in checkpoint.weights.items()}, *OTHER)
    wide = {"bert/encoder/layer_0/intermediate/dense/kernel": np.zeros([100, 400])}
    with pytest.raises(ValueError, match="its width 100 is not a multiple of 64"):
        infer_config({**checkpoint.weights, **wide}, "somewhere")
    narrow = checkpoint.config  # Its heads are not told by it.
    assert (narrow.hidden_size, narrow.table_width, narrow.hidden_act) == (30, 36, "gelu_exact")
