"""Null in the files of a model folder: refused by name, or what transformers makes of it."""

import dataclasses
import json
import pathlib
import shutil

import numpy as np
import pytest

from bert_tf.checkpoints.cross_encoder_settings import stated_activation, stated_length
from bert_tf.checkpoints.families import FAMILIES
from bert_tf.checkpoints.families import xlnet as xlnet_family
from bert_tf.checkpoints.formats import read_checkpoint, write_checkpoint
from bert_tf.checkpoints.google import read_bert_config
from bert_tf.checkpoints.sentence_transformers import read_sentence_transformers
from bert_tf.checkpoints.tokenizer_files import read_tokenizer
from bert_tf.checkpoints.tokenizer_writing import write_tokenizer
from bert_tf.config import ModelConfig
from tests.checkpoints.made_checkpoint import edit, make_checkpoint, make_config, make_vocab
from tests.shared_data import golden_file
from tests.slow_variants import slow_unless

SIZES = {
    "vocab_size": 70,
    "hidden_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "layer_norm_eps": 1e-12,
    "hidden_act": "gelu_exact",
    "type_vocab_size": 0,
}
TYPED = {**SIZES, "type_vocab_size": 2}
OF_ROBERTA = {**TYPED, "position_offset": 2, "pad_token_id": 1, "pooler_act": "tanh"}
STRUCTURES = {
    "bert": TYPED,
    "roberta": OF_ROBERTA,
    "xlm-roberta": OF_ROBERTA,
    "camembert": OF_ROBERTA,
    "distilbert": {**SIZES, "pooler_act": "relu"},
    "roformer": {**TYPED, "position_type": "rotary_interleaved", "embedding_size": 20},
    "modernbert": {
        **SIZES,
        "layer_norm_eps": 1e-5,
        "block_type": "pre_norm",
        "gated_feed_forward": True,
        "position_type": "rotary",
        "rotary_theta": 160000.0,
        "biases": "output",
        "local_attention": 4,
        "classifier_pooling": "cls",
        "head_transform": True,
    },
    "albert": {**TYPED, "embedding_size": 20, "num_layer_groups": 2},
    "deberta-v2": {
        **SIZES,
        "layer_norm_eps": 1e-7,
        "position_type": "disentangled",
        "relative_buckets": 8,
        "relative_max_distance": 11,
        "pooler_act": "gelu_exact",
    },
    "electra": {**TYPED, "embedding_size": 20, "pooler_act": "gelu_exact"},
    "mpnet": {
        **SIZES,
        "position_type": "learned_relative",
        "position_offset": 2,
        "pad_token_id": 1,
        "pooler_act": "tanh",
    },
    "xlnet": {**SIZES, **xlnet_family.STRUCTURE},
}
# What the configuration classes of transformers 5.23 declare, and older names of it.
OF_ALL = """
architectures chunk_size_feed_forward dtype finetuning_task id2label label2id model_type
output_attentions output_hidden_states problem_type pruned_heads return_dict tie_word_embeddings
torch_dtype torchscript transformers_version use_cache is_decoder add_cross_attention
bos_token_id eos_token_id cls_token_id sep_token_id pad_token_id quantization_config
""".split()
OF_BERT = """
vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size hidden_act
hidden_dropout_prob attention_probs_dropout_prob max_position_embeddings type_vocab_size
initializer_range layer_norm_eps classifier_dropout
""".split()
KEYS = {
    "bert": [*OF_BERT, "position_embedding_type"],
    "roberta": [*OF_BERT, "position_embedding_type"],
    "xlm-roberta": [*OF_BERT, "position_embedding_type"],
    "camembert": [*OF_BERT, "position_embedding_type"],
    "distilbert": """
        vocab_size max_position_embeddings sinusoidal_pos_embds n_layers n_heads dim hidden_dim
        dropout attention_dropout activation initializer_range qa_dropout seq_classif_dropout
        hidden_size num_attention_heads num_hidden_layers
        """.split(),
    "roformer": [*OF_BERT, "embedding_size", "rotary_value"],
    "modernbert": """
        vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads
        hidden_activation max_position_embeddings initializer_range initializer_cutoff_factor
        norm_eps norm_bias attention_bias attention_dropout global_attn_every_n_layers layer_types
        rope_parameters rope_scaling global_rope_theta local_rope_theta local_attention
        embedding_dropout mlp_bias mlp_dropout decoder_bias classifier_pooling classifier_dropout
        classifier_bias classifier_activation deterministic_flash_attn sparse_prediction
        sparse_pred_ignore_index reference_compile repad_logits_with_grad head_dim
        """.split(),
    "albert": [
        *OF_BERT,
        *("embedding_size", "position_embedding_type", "num_hidden_groups", "inner_group_num"),
        "classifier_dropout_prob",
    ],
    "deberta-v2": """
        relative_attention position_buckets max_relative_positions pos_att_type share_att_key
        norm_rel_ebd position_biased_input pooler_hidden_act pooler_hidden_size pooler_dropout
        legacy conv_kernel_size conv_act conv_groups attention_head_size embedding_size cls_dropout
        """.split()
    + OF_BERT,
    "electra": [
        *OF_BERT,
        *("embedding_size", "position_embedding_type", "summary_type", "summary_use_proj"),
        *("summary_activation", "summary_last_dropout"),
    ],
    "mpnet": [
        *(key for key in OF_BERT if key != "type_vocab_size"),
        "relative_attention_num_buckets",
    ],
    "xlnet": """
        vocab_size d_model n_layer n_head d_inner d_head ff_activation untie_r attn_type
        initializer_range layer_norm_eps dropout mem_len reuse_len use_mems_eval use_mems_train
        bi_data clamp_len same_length summary_type summary_use_proj summary_activation
        summary_last_dropout summary_proj_to_labels start_n_top end_n_top n_token hidden_size
        num_attention_heads num_hidden_layers
        """.split(),
}
# Null leaves the outputs of an encoder as they are: training, loading or other tasks read these,
# or the default of the class is null.
OF_NO_OUTPUT = {
    *"architectures chunk_size_feed_forward dtype finetuning_task id2label label2id".split(),
    *"output_attentions output_hidden_states problem_type pruned_heads return_dict".split(),
    *"torch_dtype torchscript transformers_version use_cache quantization_config".split(),
    *"bos_token_id eos_token_id cls_token_id sep_token_id pad_token_id".split(),
    *"classifier_dropout sinusoidal_pos_embds qa_dropout seq_classif_dropout".split(),
    *"initializer_cutoff_factor layer_types rope_parameters rope_scaling embedding_dropout".split(),
    "classifier_dropout_prob",
    *"pooler_dropout cls_dropout conv_act conv_groups legacy".split(),
    *"deterministic_flash_attn sparse_prediction sparse_pred_ignore_index".split(),
    *"reference_compile repad_logits_with_grad head_dim summary_last_dropout".split(),
    *"mem_len reuse_len use_mems_eval use_mems_train start_n_top end_n_top".split(),
}
# Null has a meaning of its own in transformers.
MEANINGS = {
    ("roformer", "embedding_size"): {"embedding_size": 0},
    ("modernbert", "local_rope_theta"): {"local_rotary_theta": 0.0},
    ("xlnet", "summary_activation"): {"pooler_act": "linear"},
}


def write_family(name: str, folder: pathlib.Path) -> dict:
    """Writes a masked LM of a family; returns its config.json."""
    made = make_checkpoint("masked_lm", 5, **STRUCTURES[name])
    made = dataclasses.replace(made, vocab=None, family=FAMILIES[name].title)
    write_checkpoint(made, folder, "huggingface")
    values = json.loads((folder / "config.json").read_text())
    assert values["model_type"] == name
    return values


@pytest.mark.parametrize("name", list(FAMILIES))
def test_each_key_of_each_family(tmp_path, name):
    folder = tmp_path / name
    good = write_family(name, folder)
    if name == "electra":
        good["architectures"] = ["ElectraForMultipleChoice"]
        (folder / "config.json").write_text(json.dumps(good))
    expected = read_checkpoint(folder)
    ours = {field.name for field in dataclasses.fields(ModelConfig)}
    for key in {*good, *KEYS[name], *OF_ALL} - ours | {*KEYS[name]}:
        edit(folder / "config.json", **{key: None})
        is_refused = key not in OF_NO_OUTPUT
        # Its positions count from padding.
        if key == "pad_token_id" and STRUCTURES[name] is OF_ROBERTA:
            is_refused = True
        if (name, key) in MEANINGS:
            found = FAMILIES[name].read_config({**good, key: None}, folder / "config.json")
            assert found == dataclasses.replace(expected.config, **MEANINGS[name, key]), key
        elif is_refused:
            with pytest.raises(ValueError, match=rf"\b{key}\b"):
                read_checkpoint(folder).check()
        else:
            found = read_checkpoint(folder)
            found.check()
            assert found.config == expected.config, key
            assert found.weights.keys() == expected.weights.keys(), key
            for weight in expected.weights:
                np.testing.assert_array_equal(found.weights[weight], expected.weights[weight])
        (folder / "config.json").write_text(json.dumps(good))


@pytest.mark.parametrize("key", [*ModelConfig.names(), "gelu_form"])
def test_each_key_of_a_bert_config(tmp_path, key):
    values = {**ModelConfig(hidden_act="gelu_exact").to_dict(), "hidden_act": "gelu"}
    path = tmp_path / "bert_config.json"
    path.write_text(json.dumps({**values, key: None}))
    with pytest.raises(ValueError, match=rf"bert_config.json: {key}\b"):
        read_bert_config(tmp_path, "", "model")


@pytest.mark.parametrize("key", ["rope_type", "rope_theta"])
def test_null_inside_rope_parameters(tmp_path, key):
    write_family("modernbert", tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    values = json.loads(path.read_text())
    del values["global_rope_theta"], values["local_rope_theta"]
    part = {"rope_type": "default", "rope_theta": 5000.0}
    values["rope_parameters"] = {"full_attention": {**part, key: None}, "sliding_attention": part}
    path.write_text(json.dumps(values))
    with pytest.raises(ValueError, match=key):
        read_checkpoint(tmp_path / "model")


@pytest.mark.parametrize(
    ("file", "key"),
    [
        ("tokenizer_config.json", "do_lower_case"),
        ("tokenizer_config.json", "tokenize_chinese_chars"),
        ("tokenizer_config.json", "do_basic_tokenize"),
        ("tokenizer_config.json", "unk_token"),
        ("tokenizer.json", "lowercase"),
        ("tokenizer.json", "handle_chinese_chars"),
        ("tokenizer.json", "unk_token"),
        ("tokenizer.json", "continuing_subword_prefix"),
        ("tokenizer.json", "vocab"),
    ],
)
def test_null_in_the_files_of_a_tokenizer(tmp_path, file, key):
    config = make_config(np.random.default_rng(0), do_lower_case=True)
    write_tokenizer(tmp_path, make_vocab(70, True), config)
    path = tmp_path / file
    values = json.loads(path.read_text())
    parts = [values, values.get("normalizer", {}), values.get("model", {})]
    owner = next((part for part in parts if key in part), values)
    owner[key] = None
    path.write_text(json.dumps(values))
    with pytest.raises(ValueError, match=file):
        read_tokenizer(tmp_path, 70)


@pytest.mark.parametrize(
    ("module", "key"),
    [
        ("1_Pooling", "word_embedding_dimension"),
        ("1_Pooling", "include_prompt"),
        ("1_Pooling", "pooling_mode"),
        ("1_Pooling", "pooling_mode_mean_tokens"),
        ("2_Dense", "in_features"),
        ("2_Dense", "bias"),
        ("2_Dense", "activation_function"),
        ("2_Dense", "use_residual"),
        ("2_Dense", "module_input_name"),
    ],
)
def test_null_in_the_modules_of_sentence_transformers(tmp_path, module, key):
    source = golden_file("families", "sentence_transformers", "mean_dense_tanh")
    shutil.copytree(source, tmp_path / "model", copy_function=shutil.copyfile)
    edit(tmp_path / "model" / module / "config.json", **{key: None})
    with pytest.raises(ValueError, match=key):
        read_sentence_transformers(tmp_path / "model")


@pytest.mark.parametrize(
    ("file", "values"),
    [
        ("config_sentence_transformers.json", {"prompts": {"query": 5}}),
        ("config_sentence_transformers.json", {"prompts": ["query"]}),
        ("config_sentence_transformers.json", {"similarity_fn_name": "hamming"}),
        ("sentence_bert_config.json", {"max_seq_length": -1}),
        ("sentence_bert_config.json", {"max_seq_length": "128"}),
        ("sentence_bert_config.json", {"max_seq_length": True}),
        ("sentence_bert_config.json", {"do_lower_case": "no"}),
        ("1_Pooling/config.json", {"word_embedding_dimension": 5}),
        ("1_Pooling/config.json", {"pooling_mode_mean_tokens": "yes"}),
        ("2_Dense/config.json", {"out_features": 0}),
    ],
)
def test_refusals_of_sentence_transformers_name_the_key(tmp_path, file, values):
    source = golden_file("families", "sentence_transformers", "mean_dense_tanh")
    shutil.copytree(source, tmp_path / "model", copy_function=shutil.copyfile)
    edit(tmp_path / "model" / file, **values)
    with pytest.raises(ValueError, match=f"{file}.*{next(iter(values))}"):
        read_sentence_transformers(tmp_path / "model")


@pytest.mark.parametrize("length", ["512", True, 0, -1, [5]])
def test_a_maximum_length_that_is_no_number(tmp_path, length):
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"model_max_length": length}))
    with pytest.raises(ValueError, match="model_max_length"):
        stated_length(tmp_path)


@pytest.mark.parametrize(("length", "expected"), [(None, 512), (1e30, 512), (100, 100), (9e9, 512)])
def test_maximum_lengths(tmp_path, length, expected):
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"model_max_length": length}))
    assert stated_length(tmp_path) == expected


def test_null_of_sentence_transformers_that_means_the_default(tmp_path):
    source = golden_file("families", "sentence_transformers", "mean_normalize")
    shutil.copytree(source, tmp_path / "model", copy_function=shutil.copyfile)
    expected = read_sentence_transformers(tmp_path / "model")
    path = tmp_path / "model" / "config_sentence_transformers.json"
    edit(path, similarity_fn_name=None, default_prompt_name=None)
    found = read_sentence_transformers(tmp_path / "model")
    assert expected.embedding is not None
    assert found.embedding == dataclasses.replace(expected.embedding, similarity="cosine")


def test_null_as_the_activation_of_a_cross_encoder(tmp_path):
    identity = "torch.nn.modules.linear.Identity"
    path = tmp_path / "config.json"
    # The newer key is there, so that the older one is not looked at.
    older = {"sbert_ce_default_activation_function": identity}
    path.write_text(json.dumps({"sentence_transformers": {"activation_fn": None}, **older}))
    assert stated_activation(tmp_path) == ""
    path.write_text(json.dumps(older))
    assert stated_activation(tmp_path) == "identity"
    path.write_text(json.dumps({"sbert_ce_default_activation_function": None}))
    assert stated_activation(tmp_path) == ""
    path.write_text(json.dumps({"sentence_transformers": [], **older}))
    with pytest.raises(ValueError, match="sentence_transformers"):
        stated_activation(tmp_path)


@pytest.mark.parametrize("name", slow_unless("roberta", STRUCTURES))
def test_wrong_values_of_each_key(tmp_path, name):
    """Each is read, or the folder is named; large numbers take neither time nor memory."""
    folder = tmp_path / name
    good = write_family(name, folder)
    for key in {*good, *KEYS[name], *OF_ALL}:
        for value in ([], {}, [None], "?", -1, 1.5, True, 10**9, 10**30):
            edit(folder / "config.json", **{key: value})
            try:
                read_checkpoint(folder).check()
            except ValueError as error:
                assert str(folder) in str(error), (key, value)
        (folder / "config.json").write_text(json.dumps(good))
