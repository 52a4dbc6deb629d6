"""google-research/bert's checkpoints: written back as they came, read as that program does."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.checkpoints.formats import read_checkpoint, write_checkpoint
from bert_tf.checkpoints.tf_bundle import read_bundle, write_bundle
from tests.checkpoints.made_checkpoint import assert_same, make_checkpoint
from tests.shared_data import golden_file

KEYS = """
attention_probs_dropout_prob hidden_act hidden_dropout_prob hidden_size initializer_range
intermediate_size max_position_embeddings num_attention_heads num_hidden_layers type_vocab_size
vocab_size
""".split()


def write(tmp_path, purpose="pretrained", seed=0, **changes):
    made = make_checkpoint(purpose, seed, **changes)
    write_checkpoint(made, tmp_path / "model", "google")
    return made, tmp_path / "model"


@pytest.mark.parametrize("through", ["bert_tf", "huggingface"])
def test_googles_own_checkpoint_comes_back_to_the_bit(tmp_path, through):
    folder = golden_file("google-tf1-checkpoint")
    write_checkpoint(read_checkpoint(folder), tmp_path / "between", through)
    write_checkpoint(read_checkpoint(tmp_path / "between"), tmp_path / "back", "google")
    before = tf.train.load_checkpoint(str(folder / "bert_model.ckpt"))
    after = tf.train.load_checkpoint(str(tmp_path / "back" / "bert_model.ckpt"))
    names = set(before.get_variable_to_shape_map()) - {"global_step"}
    assert len(names) == 62 and set(after.get_variable_to_shape_map()) == names
    for name in names:
        assert before.get_tensor(name).tobytes() == after.get_tensor(name).tobytes(), name
    config = json.loads((folder / "bert_config.json").read_text())
    written = json.loads((tmp_path / "back" / "bert_config.json").read_text())
    assert {key: written[key] for key in KEYS} == {key: config[key] for key in KEYS}


def test_prefix_index_and_folder_are_one(tmp_path):
    made, folder = write(tmp_path)
    for path in (folder, folder / "bert_model.ckpt", folder / "bert_model.ckpt.index"):
        assert_same(read_checkpoint(path), made)
    (folder / "checkpoint").unlink()
    assert_same(read_checkpoint(folder), made)
    # TensorFlow takes a prefix for a pattern.
    folder = folder.rename(tmp_path / "[model] *?")
    for path in (folder, folder / "bert_model.ckpt"):
        assert_same(read_checkpoint(path), made)


def test_training_state_is_left_out_and_the_classifier_has_googles_name(tmp_path):
    made, folder = write(tmp_path, "classifier")
    values = read_bundle(str(folder / "bert_model.ckpt"))
    assert {"output_weights", "output_bias"} <= set(values)
    extra = {f"{name}/adam_{m}": value for name, value in values.items() for m in "mv"}
    tensors = {**values, **extra, "global_step": np.int64(7), "loop_state": b"{}"}
    write_bundle(
        str(folder / "bert_model.ckpt"), {name: tf.constant(v) for name, v in tensors.items()}
    )
    assert_same(read_checkpoint(folder), made)


def test_configuration_elsewhere_and_missing(tmp_path):
    made, folder = write(tmp_path)
    (folder / "bert_config.json").rename(tmp_path / "elsewhere.json")
    with pytest.raises(
        ValueError, match="bert_model.ckpt: .*/bert_config.json; .* --bert_config_file"
    ):
        read_checkpoint(folder)
    assert_same(read_checkpoint(folder, str(tmp_path / "elsewhere.json")), made)


@pytest.mark.parametrize("act", ["gelu_exact", "gelu_tanh", "relu"])
def test_the_original_reads_its_own_name_of_gelu(tmp_path, act):
    made, folder = write(tmp_path, hidden_act=act)
    values = json.loads((folder / "bert_config.json").read_text())
    assert values["hidden_act"] == ("relu" if act == "relu" else "gelu")
    assert read_checkpoint(folder).config.hidden_act == act
    # As that program writes it, without a word of the form: its own, the tanh form.
    (folder / "bert_config.json").write_text(json.dumps({key: values[key] for key in KEYS}))
    read = read_checkpoint(folder).config
    assert read.hidden_act == ("relu" if act == "relu" else "gelu_tanh")
    assert read.layer_norm_eps == 1e-12 and read.do_lower_case == made.config.do_lower_case


def test_a_damaged_bundle_is_one_clear_error(tmp_path):
    _, folder = write(tmp_path)
    data = folder / "bert_model.ckpt.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:100])
    with pytest.raises(ValueError, match="bert_model.ckpt .*TensorFlow checkpoint: "):
        read_checkpoint(folder)
    index = folder / "bert_model.ckpt.index"
    index.write_bytes(index.read_bytes()[:-20])
    with pytest.raises(ValueError, match="bert_model.ckpt .*TensorFlow checkpoint: "):
        read_checkpoint(folder)


def test_more_layers_than_the_configuration_says(tmp_path):
    made, folder = write(tmp_path, num_hidden_layers=3)
    values = json.loads((folder / "bert_config.json").read_text())
    (folder / "bert_config.json").write_text(json.dumps({**values, "num_hidden_layers": 2}))
    with pytest.raises(ValueError, match=r"\(16\): bert/encoder/layer_2/"):
        read_checkpoint(folder).check()
    (folder / "bert_config.json").write_text(json.dumps({**values, "num_hidden_layers": 4}))
    with pytest.raises(ValueError, match=r"\(16\): bert/encoder/layer_3/"):
        read_checkpoint(folder).check()


def test_the_newest_of_several_is_named_by_the_checkpoint_file(tmp_path):
    made, folder = write(tmp_path)
    for end in ("index", "data-00000-of-00001"):
        (folder / f"bert_model.ckpt.{end}").rename(folder / f"model.ckpt-20.{end}")
        (folder / f"model.ckpt-10.{end}").write_bytes(b"older")
    # As a training on another machine leaves it.
    state = folder / "checkpoint"
    state.write_text('model_checkpoint_path: "/gone/model.ckpt-20"\n')
    assert_same(read_checkpoint(folder), made)
    state.unlink()
    (folder / "._model.ckpt-30.index").write_bytes(b"left by a Mac")
    assert_same(read_checkpoint(folder), made)  # The highest step.
    for number, end in enumerate(("10", "20")):
        (folder / f"model.ckpt-{end}.index").rename(folder / f"{number}.ckpt.index")
    with pytest.raises(ValueError, match=r"/model .*\['0.ckpt', '1.ckpt'\]"):
        read_checkpoint(folder)


def test_of_a_run_the_best_is_read_else_the_newest(tmp_path, caplog):
    last, folder = write(tmp_path)
    best = dataclasses.replace(last, weights={k: v + 1 for k, v in last.weights.items()})
    write_checkpoint(best, tmp_path / "best", "google")
    for end in ("index", "data-00000-of-00001"):
        (folder / f"bert_model.ckpt.{end}").rename(folder / f"model.ckpt-20.{end}")
        (tmp_path / "best" / f"bert_model.ckpt.{end}").rename(folder / f"model.ckpt-10.{end}")
    (folder / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-20"\n')
    assert_same(read_checkpoint(folder), last)
    (folder / "best_checkpoint.json").write_text(json.dumps({"step": 10, "score": 0.5}))
    assert_same(read_checkpoint(folder), best)
    (folder / "run.flags").write_text("--use_best_checkpoint=false\n")
    assert_same(read_checkpoint(folder), last)
    (folder / "run.flags").write_text("--use_best_checkpoint=true\n")
    assert_same(read_checkpoint(folder), best)
    assert not caplog.records
    (folder / "model.ckpt-10.index").unlink()  # Copied without it.
    assert_same(read_checkpoint(folder), last)
    assert "model.ckpt-10" in caplog.text and "model.ckpt-20" in caplog.text


def test_labels_are_lines(tmp_path):
    made = make_checkpoint("classifier")
    labels = ("a b", "\u2028", "ü")
    made = dataclasses.replace(made, labels=labels)
    write_checkpoint(made, tmp_path / "model", "google")
    assert read_checkpoint(tmp_path / "model").labels == labels
    with pytest.raises(ValueError, match=r"label 'b\\nc' .*labels.txt"):
        write_checkpoint(
            dataclasses.replace(made, labels=("a", "b\nc", "d")), tmp_path / "other", "bert_tf"
        )
    assert not (tmp_path / "other").exists()
