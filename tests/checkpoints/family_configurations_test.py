"""What the config.json of each family says, what it leaves out, and what is refused."""

import dataclasses
import json
import math
import pathlib

import numpy as np
import pytest

from bert_tf.checkpoints.families import FAMILIES, find_family
from bert_tf.checkpoints.formats import read_checkpoint, write_checkpoint
from bert_tf.config import ModelConfig
from bert_tf.network.activations import activation
from tests.checkpoints.golden_families import copy_of, golden_folder
from tests.checkpoints.made_checkpoint import make_checkpoint

BASE = {
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "hidden_act": "gelu_exact",
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
    "position_type": "learned",
}
# Fields without which a configuration is refused.
REQUIRED = {
    "deberta-v2": {
        "relative_attention": True,
        "share_att_key": True,
        "norm_rel_ebd": "layer_norm",
        "pos_att_type": "C2P",
    }
}
# What the configuration classes of transformers have where a config.json says nothing.
DEFAULTS = {
    "bert": BASE | {"vocab_size": 30522, "pad_token_id": 0},
    "roberta": BASE | {"vocab_size": 50265, "pad_token_id": 1},
    "xlm-roberta": BASE | {"vocab_size": 30522, "pad_token_id": 1, "position_offset": 2},
    "camembert": BASE | {"vocab_size": 30522, "pad_token_id": 1, "position_offset": 2},
    "distilbert": BASE | {"vocab_size": 30522, "num_hidden_layers": 6, "type_vocab_size": 0},
    "electra": BASE
    | {"hidden_size": 256, "num_attention_heads": 4, "intermediate_size": 1024}
    | {"vocab_size": 30522, "embedding_size": 128},
    "deberta-v2": BASE
    | {"vocab_size": 128100, "hidden_size": 1536, "num_hidden_layers": 24, "pad_token_id": 0}
    | {"num_attention_heads": 24, "intermediate_size": 6144, "layer_norm_eps": 1e-7}
    | {"type_vocab_size": 0, "position_type": "learned_disentangled", "pooler_act": "gelu_exact"}
    | {"relative_buckets": 1024, "relative_max_distance": 512, "pos_att_type": "c2p"},
    "albert": BASE
    | {"vocab_size": 30000, "hidden_size": 4096, "num_attention_heads": 64}
    | {"intermediate_size": 16384, "hidden_act": "gelu_tanh", "hidden_dropout_prob": 0}
    | {"attention_probs_dropout_prob": 0, "embedding_size": 128, "num_layer_groups": 1},
    "mpnet": BASE
    | {"vocab_size": 30527, "pad_token_id": 1, "position_offset": 2, "type_vocab_size": 0}
    | {"position_type": "learned_relative", "relative_buckets": 32, "relative_max_distance": 128},
    "roformer": BASE
    | {"vocab_size": 50000, "max_position_embeddings": 1536, "embedding_size": 0}
    | {"position_type": "rotary_interleaved", "rotary_theta": 10000},
    "modernbert": BASE
    | {"vocab_size": 50368, "num_hidden_layers": 22, "intermediate_size": 1152}
    | {"hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0, "layer_norm_eps": 1e-5}
    | {"max_position_embeddings": 8192, "type_vocab_size": 0, "position_type": "rotary"}
    | {"rotary_theta": 160000, "local_rotary_theta": 10000, "local_attention": 128}
    | {"global_attention_every": 3, "pad_token_id": 50283, "biases": "output"},
    "xlnet": BASE
    | {"vocab_size": 32000, "hidden_size": 1024, "num_hidden_layers": 24}
    | {"num_attention_heads": 16, "intermediate_size": 4096, "type_vocab_size": 0}
    | {"position_type": "transformer_xl", "pad_token_id": 5, "memory_length": 512}
    | {"memory_reuse": 0, "clamp_distance": 0, "pooled_token": "last", "query_vector": True},
}


@pytest.mark.parametrize("name", DEFAULTS)
def test_what_a_configuration_leaves_out(name):
    values = {"model_type": name, **REQUIRED.get(name, {})}
    made = FAMILIES[name].read_config(values, pathlib.Path("config.json"))
    assert {field: getattr(made, field) for field in DEFAULTS[name]} == DEFAULTS[name]


def test_a_shared_network_without_projection_is_of_no_family(tmp_path):
    made = make_checkpoint("masked_lm", num_hidden_layers=2, num_layer_groups=1)
    assert find_family(made.config) is None
    for form in ("huggingface", "google", "keras_hub"):
        with pytest.raises(ValueError, match=f"^{form} .*num_layer_groups .*1, .*0"):
            write_checkpoint(made, tmp_path / form, form)
    written = write_checkpoint(made, tmp_path / "own", "bert_tf")
    assert written.config == made.config


def test_an_albert_for_sentences_is_known_by_its_pooler(tmp_path):
    name = "albert/sequence_classification"
    received = read_checkpoint(copy_of(name, tmp_path, architectures=None))
    expected = read_checkpoint(golden_folder(name))
    assert received.heads == expected.heads == ("pooler", "classifier")
    assert not received.is_multiple_choice


def test_names_of_activations(tmp_path):
    """The formulas are those of the classes of transformers that the names stand for."""
    x = np.linspace(-4, 4, 33, dtype=np.float32)
    erf = np.vectorize(math.erf)
    exact = x * 0.5 * (1 + erf(x / math.sqrt(2)))
    tanh = 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    fast = 0.5 * x * (1 + np.tanh(x * 0.7978845608 * (1 + 0.044715 * x * x)))
    expected = dict.fromkeys(("gelu", "gelu_python"), exact)
    expected |= dict.fromkeys(("gelu_new", "gelu_pytorch_tanh", "gelu_python_tanh"), tanh)
    expected |= dict.fromkeys(("gelu_fast", "gelu_accurate"), fast)
    expected |= {"silu": x / (1 + np.exp(-x)), "relu": np.maximum(x, 0)}
    for name, values in expected.items():
        folder = copy_of("roberta/masked_lm", tmp_path, hidden_act=name)
        function = activation(read_checkpoint(folder).config.hidden_act)
        np.testing.assert_allclose(function(x), values, atol=1e-6)


def test_newer_configurations_say_the_same(tmp_path):
    name = "modernbert/masked_lm"
    expected = read_checkpoint(golden_folder(name)).config
    kinds = ["full_attention", "sliding_attention", "sliding_attention"] * 2
    rope = {
        "full_attention": {"rope_type": "default", "rope_theta": 160000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
    }
    newer = {"layer_types": kinds, "rope_parameters": rope}
    older = dict.fromkeys(("global_attn_every_n_layers", "global_rope_theta", "local_rope_theta"))
    assert read_checkpoint(copy_of(name, tmp_path, **newer, **older)).config == expected
    assert read_checkpoint(copy_of(name, tmp_path, **newer)).config == expected
    rope["sliding_attention"]["rope_theta"] = 500.0
    received = read_checkpoint(copy_of(name, tmp_path, rope_parameters=rope, **older)).config
    assert (received.rotary_theta, received.local_rotary_theta) == (160000.0, 500.0)


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("roberta/masked_lm", {"model_type": "funnel"}, "'funnel',.*.'bert', 'rob"),
        ("roberta/masked_lm", {"model_type": ["bert"]}, r"model_type .*\['bert'\], .*'roberta'"),
        ("roberta/masked_lm", {"model_type": "distilbert"}, "/copy: .*'distilbert', .*'roberta'"),
        ("roberta/masked_lm", {"position_embedding_type": "relative_key"}, "position_embedding_ty"),
        ("roberta/masked_lm", {"pad_token_id": 3}, "pad_token_id .*3, .*vocabulary.* 1;"),
        ("roberta/question_answering", {"is_decoder": True}, "is_decoder .*True"),
        ("distilbert/masked_lm", {"dim": "wide"}, "config.json: dim: .*int, .*'wide'"),
        ("distilbert/masked_lm", {"hidden_size": 8}, "dim .*48, .*hidden_size, .*8;"),
        ("distilbert/masked_lm", {"activation": "mish"}, "activation .*'mish', .*'gelu'"),
        ("positions/roformer_masked_lm", {"rotary_value": True}, "rotary_value .*True"),
        (
            "positions/roformer_masked_lm",
            {"num_attention_heads": 16},
            "rotary_interleaved .*head .* 3 ",
        ),
        ("positions/roformer_masked_lm", {"max_position_embeddings": 9}, "embed_positions.weight"),
        (
            "modernbert/masked_lm",
            {"layer_types": ["full_attention"] * 6},
            "layer_types .* n = 3, .*global_attn_every_n_layers",
        ),
        ("modernbert/masked_lm", {"local_attention": 0}, "local_attention .*0"),
        ("modernbert/masked_lm", {"global_attn_every_n_layers": 0}, "every_n_layers .*0, .*1"),
        ("modernbert/masked_lm", {"rope_scaling": {"factor": 2}}, "rope_scaling"),
        ("modernbert/masked_lm", {"classifier_activation": "mish"}, "classifier_activation"),
        ("modernbert/masked_lm", {"classifier_pooling": "max"}, "classifier_pooling .*'max'"),
        ("albert/pretraining", {"inner_group_num": 2}, "inner_group_num .*2, .*1,"),
        ("albert/pretraining", {"num_hidden_groups": 0}, "num_hidden_groups .*0"),
        ("albert/pretraining", {"num_hidden_groups": 6}, "num_hidden_groups 6 .*num_hidden_layers"),
        ("albert/pretraining", {"num_hidden_groups": 2}, r"ALBERT .*\(16\): bert/encoder/layer_1/"),
        ("albert/pretraining", {"hidden_act": "quick_gelu"}, "hidden_act .*quick_gelu"),
        ("albert/pretraining", {"hidden_act": "gelu_10"}, "hidden_act .*gelu_10"),
        ("mpnet/masked_lm", {"pad_token_id": 0}, "pad_token_id .*0, .*1,"),
        (
            "mpnet/masked_lm",
            {"relative_attention_num_buckets": 16},
            "relative_attention_num_buckets .*16, .*32",
        ),
        (
            "mpnet/masked_lm",
            {"relative_attention_num_buckets": 40},
            r"relative_attention_bias \[32, 3\] .*\[40, 3\]",
        ),
        ("deberta_v2/masked_lm", {"relative_attention": None}, "relative_attention .*true,"),
        ("deberta_v2/masked_lm", {"relative_attention": False}, "relative_attention .*False"),
        ("deberta_v2/masked_lm", {"share_att_key": False}, "share_att_key .*False"),
        ("deberta_v2/masked_lm", {"conv_kernel_size": 3}, "conv_kernel_size .*3"),
        ("deberta_v2/masked_lm", {"embedding_size": 20}, "embedding_size .*20, .*30,"),
        ("deberta_v2/masked_lm", {"pooler_hidden_size": 8}, "pooler_hidden_size .*8"),
        ("deberta_v2/masked_lm", {"attention_head_size": 8}, "attention_head_size .*8"),
        ("deberta_v2/masked_lm", {"norm_rel_ebd": "none"}, "norm_rel_ebd .*'none'"),
        ("deberta_v2/masked_lm", {"pos_att_type": ["p2p"]}, r"pos_att_type .*\['p2p'\]"),
        ("deberta_v2/masked_lm", {"pos_att_type": []}, r"pos_att_type .*\[\]"),
        ("deberta_v2/masked_lm", {"position_buckets": 50}, "position_buckets .*50, .* 2 .* 49: "),
        (
            "deberta_v2/masked_lm",
            {"position_buckets": 12},
            r"relative_embeddings/table \[20, 30\] .*\[24, 30\]",
        ),
        (
            "deberta_v2/masked_lm",
            {"max_relative_positions": 6},
            "position_buckets .*10, .* 2 .* 5: ",
        ),
        (
            "deberta_v2/masked_lm",
            {"position_biased_input": True},
            r"\(1\): bert/embeddings/position_embeddings",
        ),
        ("deberta_v2/masked_lm", {"pooler_hidden_act": "mish"}, "pooler_hidden_act .*'mish'"),
        ("modernbert/masked_lm", {"norm_bias": True}, r"\(14\): bert/embeddings/LayerNorm/beta"),
        (
            "modernbert/token_classification",
            {"mlp_bias": False},
            r"\(12\): model.layers.0.mlp.Wi.bias",
        ),
        ("xlnet/lm_head", {"attn_type": "uni"}, "config.json: attn_type"),
        ("xlnet/lm_head", {"bi_data": True}, "config.json: bi_data"),
        ("xlnet/lm_head", {"same_length": True}, "config.json: same_length"),
        ("xlnet/lm_head", {"untie_r": False}, "config.json: untie_r"),
        ("xlnet/lm_head", {"summary_type": "first"}, "config.json: summary_type"),
        ("xlnet/lm_head", {"summary_use_proj": False}, "config.json: summary_use_proj"),
        ("xlnet/lm_head", {"summary_activation": "mish"}, "config.json: summary_activation"),
        ("xlnet/lm_head", {"ff_activation": "mish"}, "config.json: ff_activation"),
        ("xlnet/lm_head", {"d_head": 7}, "config.json: d_head"),
        ("xlnet/lm_head", {"mem_len": -1}, "config.json: mem_len"),
        ("xlnet/lm_head", {"n_layer": "many"}, "config.json: .*n_layer"),
        (
            "xlnet/lm_head",
            {"architectures": ["XLNetForQuestionAnswering"]},
            "QuestionAnswering has",
        ),
    ],
)
def test_configurations_that_are_refused_by_name(tmp_path, name, values, message):
    folder = copy_of(name, tmp_path, **values)
    with pytest.raises(ValueError, match=message) as error:
        read_checkpoint(folder).check()
    assert str(folder) in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "values", "head_act"),
    [
        # transformers' masked LM of RoBERTa computes GELU whatever the layers compute.
        ("roberta/masked_lm", {"hidden_act": "relu"}, "gelu_exact"),
        ("mpnet/masked_lm", {"hidden_act": "relu"}, "gelu_exact"),
        ("modernbert/masked_lm", {"classifier_activation": "relu"}, "relu"),
    ],
)
def test_heads_with_an_activation_of_their_own(tmp_path, name, values, head_act):
    checkpoint = read_checkpoint(copy_of(name, tmp_path, **values))
    checkpoint.check()
    assert checkpoint.config.transform_act == head_act
    assert checkpoint.config.hidden_act == ("relu" if "hidden_act" in values else "gelu_exact")
    written = write_checkpoint(checkpoint, tmp_path / "written", "huggingface")
    assert written.config.transform_act == head_act


def test_a_window_above_the_positions_and_nothing_tied(tmp_path):
    """A window of twice the positions sees every token; untied heads matter only where one is."""
    values = {"local_attention": 500, "tie_word_embeddings": False}
    wide = read_checkpoint(copy_of("modernbert/masked_lm", tmp_path, **values))
    assert wide.config.local_attention == 2 * wide.config.max_position_embeddings
    wide.check()


@pytest.mark.parametrize("values", [{"local_rope_theta": 0}, {"local_rope_theta": 0.0}])
def test_zero_is_no_missing_number(tmp_path, values):
    folder = copy_of("modernbert/masked_lm", tmp_path, rope_parameters=None, **values)
    with pytest.raises(ValueError, match="local_rope_theta"):
        read_checkpoint(folder)


def test_another_rope_is_refused(tmp_path):
    rope = {"full_attention": {"rope_type": "yarn", "rope_theta": 160000.0}}
    with pytest.raises(ValueError, match="rope_type .*'yarn', .*'default'"):
        read_checkpoint(copy_of("modernbert/masked_lm", tmp_path, rope_parameters=rope))
    rope = {"full_attention": {"rope_theta": 5.0}}
    with pytest.raises(ValueError, match="global_rope_theta .*160000.0, .*rope_parameters .*5.0 "):
        read_checkpoint(copy_of("modernbert/masked_lm", tmp_path, rope_parameters=rope))


MODERN = {
    "block_type": "pre_norm",
    "gated_feed_forward": True,
    "type_vocab_size": 0,
    "position_type": "rotary",
    "biases": "output",
}
MPNET = {
    "type_vocab_size": 0,
    "position_type": "learned_relative",
    "position_offset": 2,
    "pad_token_id": 1,
}


@pytest.mark.parametrize(
    ("fields", "family"),
    [
        ({}, "bert"),
        ({"position_offset": 2, "pad_token_id": 1}, "roberta"),
        ({"type_vocab_size": 0}, "distilbert"),
        ({"position_type": "rotary_interleaved", "embedding_size": 20}, "roformer"),
        (MODERN, "modernbert"),
        ({"position_type": "alibi"}, ""),
        ({"embedding_norm": False}, ""),
        ({"pooled_token": "last"}, ""),
        ({"position_type": "sinusoidal"}, ""),
        ({"position_offset": 2, "pad_token_id": 0}, ""),
        (MPNET, "mpnet"),
        ({**MPNET, "type_vocab_size": 2}, ""),
        ({**MPNET, "relative_bias_per_layer": True}, ""),
        ({**MPNET, "relative_buckets": 64}, ""),
        ({**MODERN, "gated_feed_forward": False}, ""),
        ({**MODERN, "type_vocab_size": 2}, ""),
    ],
)
def test_the_structure_tells_the_family(tmp_path, fields, family):
    fields = {"hidden_size": 24, "num_attention_heads": 3, "layer_norm_eps": 1e-12, **fields}
    fields["hidden_act"] = "gelu_exact"
    found = find_family(ModelConfig(**fields))
    assert found == FAMILIES.get(family)
    made = make_checkpoint("masked_lm", 3, num_hidden_layers=2, **fields)
    if fields.get("position_offset"):  # Its padding is another.
        made = dataclasses.replace(made, vocab=None)
    made.check()
    if family:
        write_checkpoint(made, tmp_path / "model", "huggingface")
        assert (tmp_path / "model" / "config.json").read_text().count(f'"{family}"')
    if not family:
        with pytest.raises(ValueError, match="^huggingface .* nearest .* bert_tf"):
            write_checkpoint(made, tmp_path / "model", "huggingface")
    if family != "bert":
        for form in ("google", "keras_hub"):
            with pytest.raises(ValueError, match=f"^{form} .* bert_tf"):
                write_checkpoint(made, tmp_path / form, form)
    own = write_checkpoint(made, tmp_path / "own", "bert_tf")
    assert own.config.position_type == made.config.position_type


@pytest.mark.parametrize("terms", ["c2p|p2c", ["c2p", "p2c"], "p2c"])
def test_terms_of_deberta_are_a_list_or_a_text(tmp_path, terms):
    received = read_checkpoint(copy_of("deberta_v2/masked_lm", tmp_path, pos_att_type=terms))
    parts = terms.split("|") if isinstance(terms, str) else terms
    assert received.config.pos_att_type == ",".join(parts)
    written = write_checkpoint(received, tmp_path / "written", "huggingface")
    assert written.config == received.config


def test_a_deberta_without_buckets_has_a_row_for_each_distance(tmp_path):
    name = "deberta_v2/sequence_classification"
    fields = {"position_buckets": -1, "max_relative_positions": 10}
    received = read_checkpoint(copy_of(name, tmp_path, **fields))
    received.check()
    assert (received.config.relative_buckets, received.config.relative_max_distance) == (20, 10)
    write_checkpoint(received, tmp_path / "written", "huggingface")
    values = json.loads((tmp_path / "written" / "config.json").read_text())
    assert {key: values[key] for key in fields} == fields
