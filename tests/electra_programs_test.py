"""ELECTRA as a user runs it: pre-training, resuming, its towers in other programs and formats."""

import dataclasses
import json
import re
import shutil
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.checkpoints.checkpoint import head_shapes
from bert_tf.checkpoints.electra_networks import (
    DIFFERENCE,
    GENERATOR_CONFIG,
    infer_config,
    one_network,
    original_names,
)
from bert_tf.checkpoints.formats import read_checkpoint, write_checkpoint
from bert_tf.checkpoints.teacher import read_teacher
from bert_tf.checkpoints.tf_bundle import bundle_prefix, read_bundle, write_bundle
from bert_tf.inference import serving_models as models
from bert_tf.network.encoder import BertEncoder
from bert_tf.pretraining.masked_words.model import BertPretrainer
from bert_tf.tasks.base.models.preprocessor import BertPreprocessor
from bert_tf.tasks.classification.model import BertClassifier
from bert_tf.tasks.embedding.splade_model import BertSplade
from bert_tf.tasks.tagging.model import BertTokenClassifier
from bert_tf.training.metrics_log import read_metrics
from tests import programs
from tests.checkpoints.made_checkpoint import make_batch, make_checkpoint
from tests.float_bounds import assert_close, close_to
from tests.programs import SMALL_BERT, fail, finish, run
from tests.shared_data import golden_file

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
    "pairs": "none",
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
    return tmp_path_factory.mktemp("electra")


def pretrain(folder, name, **changed):
    return programs.pretrain(folder / name, **{**FLAGS, **changed})


@pytest.fixture(scope="module")
def one(folder):
    return folder / "one", finish(pretrain(folder, "one"))


@pytest.mark.slow
def test_both_towers_learn_and_are_reported(one):
    path, _ = one
    lines = read_metrics(path / "metrics.jsonl")
    assert lines[-1]["masked_lm_loss"] < lines[0]["masked_lm_loss"] - 0.3
    assert lines[-1]["replaced_tokens_loss"] < lines[0]["replaced_tokens_loss"]
    assert lines[0]["loss"] == close_to(
        lines[0]["masked_lm_loss"] + lines[0]["replaced_tokens_loss"]
    )
    assert lines[0]["replaced_tokens_loss"] == pytest.approx(50 * np.log(2), rel=0.05)
    # Of 15 % of the pieces hardly one is drawn right.
    assert 0.1 < lines[0]["replaced_tokens_share"] < 0.2
    results = (path / "eval_results.txt").read_text()
    assert "replaced_tokens_recall = " in results and "unigram_masked_lm_loss = " in results


@pytest.mark.slow
def test_what_needs_a_masked_language_model_takes_the_generator(one, tmp_path):
    path, _ = one
    generator = read_checkpoint(path, electra_network="generator")
    width = generator.config.hidden_size
    model = BertPretrainer.from_pretrained(path)
    weights = {variable.path: variable for variable in model.weights}
    for name in ("cls/predictions/output_bias", "bert/encoder/layer_0/output/dense/bias"):
        np.testing.assert_array_equal(weights[name], generator.weights[name])
    assert BertSplade.from_pretrained(path).config.hidden_size == width
    served = models.load(str(path), "fill_mask")
    assert served.model.config.hidden_size == width
    assert models.load(str(path)).model.config.hidden_size == 2 * width  # It embeds.
    assert BertEncoder.from_pretrained(path).config.hidden_size == 2 * width
    # A file of the generator alone is not ambiguous.
    write_checkpoint(generator, tmp_path / "generator", "google")
    assert read_checkpoint(tmp_path / "generator").heads == ("masked_lm",)
    assert BertPreprocessor.from_pretrained(tmp_path / "generator", 16).max_seq_length == 16


@pytest.mark.slow
def test_each_tower_is_converted(one, tmp_path):
    path, _ = one
    for tower, kind in (("discriminator", "PreTraining"), ("generator", "MaskedLM")):
        more = {"tower": tower} if tower == "generator" else {}
        output = tmp_path / tower
        finish(run("convert_checkpoint", input=path, to="huggingface", output=output, **more))
        config = json.loads((output / "config.json").read_text())
        assert config["architectures"] == [f"ElectraFor{kind}"]
    for tower, folder, said in (
        ("generator", "discriminator", "ELECTRA's discriminator, .* generator "),
        (
            "discriminator",
            "generator",
            "/generator .*discriminator .*heads .*masked_lm",
        ),
    ):
        wrong = {"input": tmp_path / folder, "tower": tower, "output": tmp_path / "wrong"}
        assert re.search(said, fail(run("convert_checkpoint", **wrong)))
    given = {"input": path, "to": "google"}
    printed = finish(run("convert_checkpoint", **given, output=tmp_path / "both"))
    assert "tanh" not in printed  # google-research/electra has the exact form.
    assert read_checkpoint(tmp_path / "both", electra_network="both").generator is not None
    finish(run("convert_checkpoint", **given, output=tmp_path / "alone", tower="generator"))
    assert read_checkpoint(tmp_path / "alone", electra_network="both").heads == ("masked_lm",)


@pytest.mark.slow
def test_a_discriminator_where_a_generator_is_needed_is_named(one, tmp_path):
    path, _ = one
    folder = tmp_path / "discriminator"
    write_checkpoint(read_checkpoint(path), folder, "huggingface")
    said = f"{folder} .*ELECTRA's discriminator, .* generator "
    failed = fail(run("fill_mask", init_checkpoint=folder, text="The [MASK] stood."))
    assert re.search(said, failed) and "allow_missing" not in failed
    for call in (
        lambda: read_teacher(str(folder), ("masked_lm",), 16),
        lambda: BertPretrainer.from_pretrained(folder),
        lambda: BertSplade.from_pretrained(folder),
        lambda: models.load(str(folder), "fill_mask"),
    ):
        with pytest.raises(ValueError, match=said):
            call()
    # A new head on it is what allow_missing asks for.
    model = BertPretrainer.from_pretrained(folder, allow_missing=["cls/predictions/"])
    assert not model.use_next_sentence
    # A model of another family without the head: no flag that the program does not have.
    encoder = make_checkpoint("encoder with pooler", 1)
    write_checkpoint(encoder, tmp_path / "encoder", "bert_tf")
    failed = fail(run("fill_mask", init_checkpoint=tmp_path / "encoder", text="The [MASK]."))
    assert re.search("cls/predictions/.*pooler", failed) and "allow_missing" not in failed


@pytest.mark.slow
def test_what_does_not_go_together(folder):
    wrong = {
        "pairs": "next",
        "init_checkpoint": folder,
        "show_masks": "A [MASK].",
        "masking": "tf_text",
    }
    for name, value in wrong.items():
        assert f"--{name}" in fail(pretrain(folder, "wrong", **{name: value}))
    given = pretrain(folder, "wrong", masking="tf_text", masked_share=0.85, random_share=0)
    assert "masked_share=0.85" in fail(given)
    theirs = {"electra_reference_sampling": "true"}
    for more, said in (
        ({"random_share": 0.1}, "random_share=0"),
        ({"objective": "masked_lm"}, "masked_lm"),
    ):
        assert said in fail(pretrain(folder, "wrong", **theirs, **more))
    spans = pretrain(folder, "wrong", **theirs, span_length=3)
    assert "--mask_unit=span" in fail(spans).splitlines()[-1]
    said = fail(pretrain(folder, "wrong", random_share=0.5))
    assert re.search("masked_share 0.8 .*random_share 0.5 ", said)
    said = fail(pretrain(folder, "wrong", generator_hidden_size=1.5))
    assert "generator_hidden_size 1.5" in said
    with mock.patch(
        "bert_tf.pretraining.prepare.prepare_data", side_effect=AssertionError("prepared")
    ):
        said = fail(pretrain(folder, "wrong", hidden_size=1024, generator_hidden_size=0.3))
    assert re.search("generator_hidden_size=0.3 .*--hidden_size=1024 .* 307 .*4 heads", said)
    assert "generator_hidden_size=0.3125" in said
    assert not (folder / "wrong").exists()


@pytest.mark.slow
def test_shares_of_masks_are_electras_unless_given_or_recorded(one, folder):
    record = (one[0] / "run.flags").read_text()
    assert "--masked_share=0.85\n" in record and "--random_share=0.0\n" in record
    begun = folder / "begun"
    begun.mkdir()
    record = record.replace("share=0.85", "share=0.8").replace(
        "random_share=0.0", "random_share=0.1"
    )
    (begun / "run.flags").write_text(record)
    said = fail(pretrain(folder, "begun", learning_rate=1))
    assert re.search("--learning_rate .*1.0, .*0.01", said) and "share" not in said
    said = fail(pretrain(folder, "begun", masked_share=0.85))
    assert re.search(r"--masked_share .*0\.85, .*0\.8\b", said)


@pytest.mark.slow
def test_a_deberta_is_trained_resumed_and_written(folder, tmp_path):
    """The discriminator in a Hugging Face folder has the sums of tables and differences."""
    shape = {"embedding_size": 0, "position_type": "disentangled", "type_vocab_size": 0}
    flags = {**shape, "embedding_sharing": "gradient_disentangled", "relative_buckets": 8}
    flags = {**flags, "num_train_steps": 10, "save_checkpoints_steps": 5}
    run_folder = folder / "deberta"
    finish(pretrain(folder, "deberta", **flags))
    shutil.copytree(run_folder, folder / "resumed")
    for path in (folder / "resumed").glob("model.ckpt-10*"):
        path.unlink()
    finish(pretrain(folder, "resumed", **flags))
    name = "model.ckpt-10.data-00000-of-00001"
    assert (run_folder / name).read_bytes() == (folder / "resumed" / name).read_bytes()
    values = read_bundle(str(run_folder / "model.ckpt-10"))
    difference = values[f"bert/embeddings/word_embeddings{DIFFERENCE}"]
    assert np.abs(difference).max() > 0
    output = tmp_path / "converted"
    finish(run("convert_checkpoint", input=run_folder, to="huggingface", output=output))
    config = json.loads((output / "config.json").read_text())
    assert (config["model_type"], config["architectures"]) == ("deberta-v2", ["DebertaV2Model"])
    table = read_checkpoint(output).weights["bert/embeddings/word_embeddings"]
    expected = values["generator/embeddings/word_embeddings"] + difference
    np.testing.assert_array_equal(table, expected)


@pytest.mark.slow
@pytest.mark.parametrize("pooling", ["pooler", "cls"])
def test_the_discriminator_is_fine_tuned(one, folder, pooling):
    """With Hugging Face's head, and with Google's."""
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
            output_dir=folder / pooling,
            classifier_pooling=pooling,
            learning_rate=3e-3,
            train_batch_size=8,
            num_train_epochs=20,
            max_seq_length=16,
            layerwise_lr_decay=0.8,
        )
    )
    results = (folder / pooling / "eval_results.txt").read_text()
    assert "eval_accuracy = 1.0" in results
    trained = read_checkpoint(folder / pooling)
    config = trained.config
    assert (config.pooler_act, config.classifier_pooling) == ("gelu_exact", pooling)
    assert ("pooler" in trained.heads) == (pooling == "pooler")


def both_towers(tmp_path):
    """Returns a copy of the original's golden file, with the configurations of its towers."""
    theirs = golden_file("families", "electra", "tf1")
    folder = tmp_path / "tf1"
    shutil.copytree(theirs, folder)
    folder.chmod(0o755)
    for tower, name in (("discriminator", "bert_config.json"), ("generator", GENERATOR_CONFIG)):
        config = read_checkpoint(theirs.parent / tower).config
        (folder / name).write_text(config.to_json())
    return folder


def their_tensors(folder):
    """Returns the original's tensors by its own names, without what only training needs."""
    prefix = bundle_prefix(folder)
    tensors = read_bundle(prefix).items()
    return {n: v for n, v in tensors if "/adam_" not in n and n != "global_step"}


@pytest.mark.slow
def test_the_originals_format_is_written_again_to_the_bit(tmp_path):
    """Both towers, then each alone; the names of google-research/electra are the golden file's."""
    folder = both_towers(tmp_path)
    expected = their_tensors(folder)
    both = read_checkpoint(folder, electra_network="both")
    written = write_checkpoint(both, tmp_path / "both", "google")
    received = their_tensors(tmp_path / "both")
    assert {n: v.tobytes() for n, v in received.items()} == {
        n: v.tobytes() for n, v in expected.items()
    }
    assert (written.config, written.generator.config) == (both.config, both.generator.config)
    assert json.loads((tmp_path / "both/bert_config.json").read_text())["gelu_form"] == "exact"
    for tower in ("discriminator", "generator"):
        one = read_checkpoint(folder, electra_network=tower)
        written = write_checkpoint(one, tmp_path / tower, "google")
        assert written.config == one.config and written.heads == one.heads
        received = their_tensors(tmp_path / tower)
        assert all(received[name].tobytes() == expected[name].tobytes() for name in received)
        # What only the other one has: its layers, projection and head.
        of_discriminator = ("electra/encoder/", "electra/embeddings_project/", "discriminator_")
        starts = ("generator",) if tower == "discriminator" else of_discriminator
        assert set(expected) - set(received) == {n for n in expected if n.startswith(starts)}


@pytest.mark.slow
def test_a_head_for_squad_is_written_under_the_originals_names(tmp_path):
    checkpoint = read_checkpoint(both_towers(tmp_path), electra_network="discriminator")
    rng = np.random.default_rng(0)
    shapes = {
        name: shape
        for head in ("joint_squad", "answerable")
        for name, shape in head_shapes(checkpoint.config, head).items()
    }
    heads = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    whole = dataclasses.replace(checkpoint, weights={**checkpoint.weights, **heads})
    written = write_checkpoint(whole, tmp_path / "squad", "google")
    assert {"joint_squad", "answerable"} < set(written.heads)
    names = {n for n in their_tensors(tmp_path / "squad") if n.startswith("task_specific/")}
    layers = ("dense", "qa_hidden", "dense_1", "dense_2", "dense_3")
    parts = [f"{layer}/{part}" for layer in layers for part in ("kernel", "bias")]
    assert names == {f"task_specific/squad/{part}" for part in parts}


@pytest.mark.slow
def test_heads_of_the_originals_other_tasks(tmp_path):
    """A dense layer on the first piece, for chunk on each: logits worked in NumPy, and back."""
    checkpoint = read_checkpoint(both_towers(tmp_path), electra_network="discriminator")
    weights = {n: v for n, v in checkpoint.weights.items() if not n.startswith("cls/")}
    rng = np.random.default_rng(0)
    kernel, bias = (rng.normal(size=s).astype(np.float32) for s in ([48, 3], [3]))
    batch = make_batch(checkpoint.config, rng)
    plain = dataclasses.replace(checkpoint, weights=weights)
    vectors = np.asarray(BertEncoder.from_checkpoint(plain)(batch)["sequence_output"])
    expected = vectors @ kernel + bias  # [B, T, 3]
    theirs = {name: tf.constant(v) for name, v in original_names(weights, "discriminator").items()}
    for task, model_class in (("mnli", BertClassifier), ("chunk", BertTokenClassifier)):
        folder = tmp_path / task
        folder.mkdir()
        shutil.copy(tmp_path / "tf1/bert_config.json", folder)
        head = {f"task_specific/{task}/dense/kernel": tf.constant(kernel)}
        head[f"task_specific/{task}/dense/bias"] = tf.constant(bias)
        write_bundle(str(folder / "model.ckpt-9"), {**theirs, **head})
        received = np.asarray(model_class.from_pretrained(folder)(batch))
        assert_close(received, expected[:, 0] if task == "mnli" else expected)
        read = read_checkpoint(folder)
        written = write_checkpoint(read, tmp_path / f"{task}_again", "google")
        assert written.config == read.config and read.num_labels == 3
        names = [n for n in their_tensors(tmp_path / f"{task}_again") if n.startswith("task_")]
        name = {"mnli": "classifier"}.get(task, task)
        assert sorted(names) == [f"task_specific/{name}/dense/{p}" for p in ("bias", "kernel")]


@pytest.mark.slow
def test_towers_of_the_original_checkpoint(tmp_path):
    """Names of google-research/electra; the numbers are those of the two folders beside it."""
    theirs = golden_file("families", "electra", "tf1")
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
    checkpoint = read_checkpoint(theirs, electra_network="generator")
    with pytest.raises(ValueError, match="ELECTRA's generator, .* discriminator "):
        one_network({f"generator/encoder/{n}": v for n, v in checkpoint.weights.items()}, *OTHER)
    wide = {"bert/encoder/layer_0/intermediate/dense/kernel": np.zeros([100, 400])}
    with pytest.raises(ValueError, match="width 100 .*64.*--bert_config_file"):
        infer_config({**checkpoint.weights, **wide}, "somewhere")
    narrow = checkpoint.config  # Its heads are not told by it.
    assert (narrow.hidden_size, narrow.table_width, narrow.hidden_act) == (30, 36, "gelu_exact")
