"""XLNet: the query stream and memories of transformers, and checkpoints of zihangdai/xlnet."""

import json
import pathlib
import shutil

import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf

from bert_tf.checkpoints.families.xlnet import XLNET
from bert_tf.checkpoints.formats import read_checkpoint, write_checkpoint
from bert_tf.checkpoints.tf_bundle import write_bundle
from bert_tf.checkpoints.weight_names import to_file_names
from bert_tf.network.encoder import BertEncoder
from bert_tf.network.pretrained import checkpoint_variables
from bert_tf.pretraining.masked_words.gap_filling import MaskedModel
from bert_tf.pretraining.masked_words.model import BertPretrainer
from bert_tf.tasks.classification.model import BertClassifier
from bert_tf.tasks.multiple_choice.model import BertMultipleChoice
from bert_tf.text.tokenization import make_tokenizer
from tests.checkpoints.made_checkpoint import edit, rewrite
from tests.float_bounds import assert_close
from tests.shared_data import golden_file, read_arrays

LIMIT = 1e-5
LM = golden_file("families", "xlnet", "lm_head")
CLASSIFIER = golden_file("families", "xlnet", "sequence_classification")
SEP, CLS = 4, 3


@pytest.fixture(scope="module")
def golden() -> dict[str, np.ndarray]:
    return read_arrays(LM / "golden.npz")


@pytest.fixture(scope="module")
def model() -> BertPretrainer:
    return BertPretrainer.from_pretrained(LM)


def assert_near(received, expected, name: str = "", limit: float = LIMIT) -> None:
    difference = np.abs(np.asarray(received) - expected).max() / np.abs(expected).max()
    assert difference < limit, (name, difference)


def plain_inputs(golden: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {
        "input_word_ids": golden["in_input_ids"],
        "input_mask": golden["in_attention_mask"],
        "input_type_ids": golden["in_token_type_ids"],
    }


def ordered_inputs(golden: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns the inputs with the golden's order: its perm_mask follows from the ranks."""
    ranks = golden["in_permutation_rank"]
    mapping = golden["in_target_mapping"]  # [B, K, T]
    is_target = mapping.any(axis=1)
    is_hidden = is_target | np.isin(golden["in_input_ids"], [SEP, CLS])
    key_ranks = np.where(is_hidden, ranks, -1)
    query_ranks = np.where(is_target, ranks, ranks + 1)
    hidden = key_ranks[:, None] >= query_ranks[:, :, None]
    np.testing.assert_array_equal(hidden, golden["in_perm_mask"])
    positions = np.where(mapping.any(axis=2), mapping.argmax(axis=2), -1).astype(np.int32)
    return {
        **plain_inputs(golden),
        "key_ranks": key_ranks.astype(np.int32),
        "query_ranks": query_ranks.astype(np.int32),
        "query_positions": positions,
    }


def moved_right(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Moves the padding of left-padded rows to their end."""
    padding = inputs["input_mask"].argmax(axis=1)  # [B]
    length = inputs["input_mask"].shape[1]
    columns = (np.arange(length) + padding[:, None]) % length
    moved = {}
    for name, values in inputs.items():
        if name == "query_positions":
            moved[name] = np.where(values >= 0, values - padding[:, None], -1).astype(np.int32)
        else:
            moved[name] = np.take_along_axis(values, columns, axis=1)
    return moved


def full_rows(ids: np.ndarray) -> dict[str, np.ndarray]:
    return {
        "input_word_ids": ids,
        "input_mask": np.ones_like(ids),
        "input_type_ids": np.zeros_like(ids),
    }


@pytest.mark.parametrize("padding", [pytest.param("left", marks=pytest.mark.slow), "right"])
def test_both_streams_are_the_golden_ones(model, golden, padding):
    inputs = ordered_inputs(golden)
    real = golden["in_attention_mask"] == 1
    expected = golden["out_hidden_states_h"][:, real]
    is_target = inputs["query_positions"] >= 0
    if padding == "right":
        inputs = moved_right(inputs)
    encoded = model.bert(inputs)
    states = np.stack([np.asarray(state) for state in encoded["encoder_outputs"]])
    assert_near(states[:, inputs["input_mask"] == 1], expected)
    states = np.stack([np.asarray(state) for state in encoded["query_outputs"]])
    assert_near(states[:, is_target], golden["out_hidden_states_g"][:, is_target])


def test_logits_loss_and_gradients_are_the_golden_ones(model, golden):
    inputs = ordered_inputs(golden)
    variables = checkpoint_variables(model)
    labels = golden["in_labels"]
    is_label = labels >= 0
    with tf.GradientTape() as tape:
        logits = model(inputs)["masked_lm_logits"]
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
            np.where(is_label, labels, 0), logits
        )
        loss = tf.reduce_sum(tf.where(is_label, losses, 0.0)) / is_label.sum()
    assert_near(np.asarray(logits)[is_label], golden["out_logits"][is_label])
    assert_near(loss, golden["out_loss"])
    found = tape.gradient(loss, {name: variable.value for name, variable in variables.items()})
    gradients = {}
    for name, gradient in found.items():
        gradients[name] = tf.convert_to_tensor(gradient).numpy()
    rows = XLNET.rows(model.config.num_hidden_layers, "masked_lm")
    by_name = to_file_names(rows, gradients, model.config.num_attention_heads)
    expected = {key: value for key, value in golden.items() if key.startswith("grad_")}
    assert len(expected) == 14
    for key, value in expected.items():
        assert_near(by_name[key.removeprefix("grad_")], value, key, 1e-4)


def test_hidden_states_with_and_without_types(model, golden):
    inputs = plain_inputs(golden)
    real = inputs["input_mask"] == 1
    found = np.asarray(model.bert(inputs)["sequence_output"])
    assert_near(found[real], golden["out_plain_last_hidden_state"][real])
    # All types the same: the term is the same for all keys.
    inputs["input_type_ids"] = np.full_like(inputs["input_type_ids"], 5)
    found = np.asarray(model.bert(inputs)["sequence_output"])
    assert_near(found[real], golden["out_no_types_last_hidden_state"][real])


def test_memories_are_the_golden_ones(model, golden):
    first = model.bert(full_rows(golden["in_segment1_input_ids"]), memories=[])
    assert_near(first["sequence_output"], golden["out_segment1_last_hidden_state"])
    time_major = np.stack([np.swapaxes(memory, 0, 1) for memory in first["memories"]])
    assert_near(time_major, golden["out_segment1_mems"])
    segment = full_rows(golden["in_segment2_input_ids"])
    second = model.bert(segment, memories=first["memories"])
    assert_near(second["sequence_output"], golden["out_segment2_last_hidden_state"])
    time_major = np.stack([np.swapaxes(memory, 0, 1) for memory in second["memories"]])
    assert_near(time_major, golden["out_segment2_mems"])
    positions = np.tile(np.arange(segment["input_mask"].shape[1], dtype=np.int32), (3, 1))
    ranks = {"key_ranks": positions, "query_ranks": positions, "query_positions": positions}
    causal = model.bert({**segment, **ranks}, memories=first["memories"])
    assert_near(causal["query_output"], golden["out_segment2_causal_query_stream"])


def test_a_query_vector_does_not_stand_for_masks_that_are_seen(model, golden):
    inputs = ordered_inputs(golden)
    inputs = {key: value for key, value in inputs.items() if "ranks" not in key}
    inputs["query_content_ids"] = np.maximum(inputs["query_positions"], 0)
    with pytest.raises(ValueError, match="query_vector"):
        model.bert(inputs)


def test_memories_need_full_plain_rows_of_this_network(model, golden):
    inputs = plain_inputs(golden)
    with pytest.raises(ValueError, match="input_mask"):
        model.bert(inputs, memories=[])
    rows = full_rows(golden["in_segment1_input_ids"])
    memories = model.bert(rows, memories=[])["memories"]
    with pytest.raises(ValueError, match="2 tensors.* 3 "):
        model.bert(rows, memories=memories[:2])
    with pytest.raises(ValueError, match="output_attentions"):
        model.bert(rows, memories=memories, output_attentions=True)
    with pytest.raises(ValueError, match="unpad"):
        BertEncoder(model.config, unpad=True)(rows, memories=[])


def test_reused_tokens_are_the_first_of_a_segment(tmp_path, golden):
    folder = copy_of(LM, tmp_path, mem_len=None, reuse_len=4)
    encoder = BertEncoder.from_pretrained(folder)
    rows = full_rows(golden["in_segment1_input_ids"])
    found = encoder(rows, memories=[])
    states = found["encoder_outputs"]
    for memory, state in zip(found["memories"], states, strict=False):
        np.testing.assert_array_equal(memory, state[:, :4])
    again = encoder(rows, memories=found["memories"])
    assert all(memory.shape[1] == 8 for memory in again["memories"])


def test_the_last_real_token_is_pooled_in_every_layout():
    golden = read_arrays(CLASSIFIER / "golden.npz")
    inputs = moved_right(plain_inputs(golden))
    for unpad in (False, True):
        model = BertClassifier.from_pretrained(CLASSIFIER, unpad=unpad)
        assert_near(model(inputs), golden["out_logits"])


def test_multiple_choice_reads_the_same_weights(tmp_path):
    folder = copy_of(CLASSIFIER, tmp_path, architectures=["XLNetForMultipleChoice"])
    names = ("logits_proj.weight", "logits_proj.bias")
    rewrite(folder, lambda weights: {**weights, **{name: weights[name][:1] for name in names}})
    checkpoint = read_checkpoint(folder)
    assert checkpoint.is_multiple_choice
    golden = read_arrays(CLASSIFIER / "golden.npz")
    inputs = {name: values[None] for name, values in plain_inputs(golden).items()}
    scores = BertMultipleChoice.from_pretrained(folder)(inputs)
    assert_near(scores[0], golden["out_logits"][:, 0])
    written = write_checkpoint(checkpoint, tmp_path / "again", "huggingface")
    assert written.is_multiple_choice


def test_a_mask_is_filled_from_the_other_tokens(model):
    """The token at the mask, and at a second mask, matter to no prediction."""
    tokenizer = make_tokenizer(read_checkpoint(LM).vocab, False)
    mask = tokenizer.vocab.mask
    (found,) = MaskedModel(model, tokenizer).fill_mask([f"of {mask} and {mask}"], top_k=3)
    assert len(found) == 2
    ids = np.array([[7, 9, 11, 8, 4, 3]], np.int32)
    inputs = {**full_rows(ids), "masked_lm_positions": np.array([[1, 3, 0]], np.int32)}
    expected = model(inputs)["masked_lm_logits"][:, :2]
    for position in (1, 3):
        changed = ids.copy()
        changed[0, position] += 20
        received = model({**inputs, "input_word_ids": changed})["masked_lm_logits"][:, :2]
        assert_close(received, expected)
    changed = ids.copy()
    changed[0, 0] += 20  # Position 0 fills the row up, and is visible.
    received = model({**inputs, "input_word_ids": changed})["masked_lm_logits"][:, :2]
    assert np.abs(received - expected).max() > 1e-3


def copy_of(golden_folder: pathlib.Path, tmp_path: pathlib.Path, **values: object) -> pathlib.Path:
    folder = tmp_path / "copy"
    shutil.copytree(golden_folder, folder, dirs_exist_ok=True)
    edit(folder / "config.json", **values)
    return folder


def original_values(weights: dict[str, np.ndarray], tied: bool) -> dict[str, np.ndarray]:
    """Returns the variables of zihangdai/xlnet for weights of Hugging Face."""
    values = {
        "model/transformer/word_embedding/lookup_table": weights[
            "transformer.word_embedding.weight"
        ],
        "model/transformer/mask_emb/mask_emb": weights["transformer.mask_emb"],
        "global_step": np.int64(3),
    }
    for name in ("r_w_bias", "r_r_bias", "r_s_bias", "seg_embed"):
        stack = np.stack([weights[f"transformer.layer.{i}.rel_attn.{name}"] for i in range(3)])
        is_shared = tied and name != "seg_embed"
        values[f"model/transformer/{name}"] = stack[0] if is_shared else stack
    for index in range(3):
        layer = f"model/transformer/layer_{index}"
        theirs = f"transformer.layer.{index}"
        for letter in "qkvor":
            values[f"{layer}/rel_attn/{letter}/kernel"] = weights[f"{theirs}.rel_attn.{letter}"]
        for part in ("rel_attn", "ff"):
            values[f"{layer}/{part}/LayerNorm/gamma"] = weights[
                f"{theirs}.{part}.layer_norm.weight"
            ]
            values[f"{layer}/{part}/LayerNorm/beta"] = weights[f"{theirs}.{part}.layer_norm.bias"]
        for part in ("layer_1", "layer_2"):
            values[f"{layer}/ff/{part}/kernel"] = weights[f"{theirs}.ff.{part}.weight"].T
            values[f"{layer}/ff/{part}/bias"] = weights[f"{theirs}.ff.{part}.bias"]
    if "lm_loss.bias" in weights:
        values["model/lm_loss/bias"] = weights["lm_loss.bias"]
    else:
        summary = "sequence_summary.summary"
        values["model/sequnece_summary/summary/kernel"] = weights[f"{summary}.weight"].T
        values["model/sequnece_summary/summary/bias"] = weights[f"{summary}.bias"]
        values["model/classification_imdb/logit/kernel"] = weights["logits_proj.weight"].T
        values["model/classification_imdb/logit/bias"] = weights["logits_proj.bias"]
    moments = {f"{name}/Adam": value for name, value in values.items() if "kernel" in name}
    return values | moments


def write_original(
    golden_folder: pathlib.Path, folder: pathlib.Path, tied: bool = False
) -> dict[str, np.ndarray]:
    """Writes a checkpoint of zihangdai/xlnet; returns the weights under Hugging Face's names."""
    folder.mkdir()
    weights = safetensors.numpy.load_file(golden_folder / "model.safetensors")
    values = original_values(weights, tied)
    tensors = {name: tf.constant(value) for name, value in values.items()}
    write_bundle(str(folder / "xlnet_model.ckpt"), tensors)
    config = json.loads((golden_folder / "config.json").read_text())
    names = ("d_head", "d_inner", "d_model", "ff_activation", "n_head", "n_layer")
    fields = {name: config[name] for name in names}
    fields |= {"n_token": config["vocab_size"], "untie_r": not tied}
    (folder / "xlnet_config.json").write_text(json.dumps(fields))
    if (golden_folder / "spiece.model").exists():
        shutil.copy(golden_folder / "spiece.model", folder)
    return weights


@pytest.mark.parametrize("golden_folder", [LM, CLASSIFIER], ids=["lm_head", "classifier"])
def test_checkpoints_of_the_original(tmp_path, golden_folder):
    write_original(golden_folder, tmp_path / "model")
    expected = read_checkpoint(golden_folder)
    received = read_checkpoint(tmp_path / "model")
    received.check()
    assert (received.form, received.family, received.heads) == ("google", "XLNet", expected.heads)
    # The program of the original has the tanh form of GELU.
    assert (received.config.hidden_act, received.config.memory_length) == ("gelu_tanh", 0)
    assert received.vocab == expected.vocab
    assert received.weights.keys() == expected.weights.keys()
    for name, value in expected.weights.items():
        np.testing.assert_array_equal(received.weights[name], value, err_msg=name)


def test_tied_biases_of_the_original_are_copied_to_every_layer(tmp_path):
    weights = write_original(LM, tmp_path / "model", tied=True)
    received = read_checkpoint(tmp_path / "model")
    received.check()
    for index in range(3):
        found = received.weights[f"bert/encoder/layer_{index}/attention/self/r_w_bias"]
        np.testing.assert_array_equal(found, weights["transformer.layer.0.rel_attn.r_w_bias"])


def test_the_original_needs_its_configuration(tmp_path):
    write_original(CLASSIFIER, tmp_path / "model")
    (tmp_path / "model" / "xlnet_config.json").rename(tmp_path / "config.json")
    with pytest.raises(ValueError, match="xlnet_config.json"):
        read_checkpoint(tmp_path / "model")
    received = read_checkpoint(tmp_path / "model", str(tmp_path / "config.json"))
    received.check()
