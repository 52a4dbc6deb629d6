"""LoRA adapters in PEFT's form are merged as PEFT itself merges them."""

import json
import pathlib
import shutil

import numpy as np
import pytest
import safetensors.numpy

from bert_tf.checkpoints.formats import read_checkpoint, write_checkpoint
from tests.checkpoints import made_checkpoint
from tests.checkpoints.made_checkpoint import make_checkpoint
from tests.float_bounds import OTHER_FRAMEWORK, assert_close
from tests.programs import run
from tests.shared_data import golden_file

GOLDEN = golden_file("families", "lora")


@pytest.mark.parametrize("name", ["bert_classifier", "roberta_tagger"])
def test_adapters_of_peft_give_its_merged_weights(name):
    received = read_checkpoint(GOLDEN / name / "adapter")
    received.check()
    expected = read_checkpoint(GOLDEN / name / "merged")
    base = read_checkpoint(GOLDEN / name / "base")
    assert received.unused == () and received.config == expected.config
    assert set(expected.weights) <= set(received.weights)
    assert not {"masked_lm", "next_sentence"} & set(received.heads)
    num_changed = 0
    for weight_name, value in expected.weights.items():
        assert_close(received.weights[weight_name], value, OTHER_FRAMEWORK)
        before = base.weights.get(weight_name)
        num_changed += before is None or not np.allclose(before, value, atol=1e-3)
    assert num_changed >= 6


@pytest.fixture(name="made")
def fixture_made(tmp_path) -> pathlib.Path:
    """Writes a base with its vocabulary and an adapter of its query matrices."""
    write_checkpoint(make_checkpoint("pretrained", 4), tmp_path / "base", "huggingface")
    base = safetensors.numpy.load_file(tmp_path / "base" / "model.safetensors")
    rng = np.random.default_rng(0)
    matrices = {}
    for name, value in base.items():
        if name.endswith("query.weight"):
            module = f"base_model.model.{name.removesuffix('.weight')}"
            down = rng.normal(size=(2, value.shape[1])).astype(np.float32)
            up = rng.normal(size=(value.shape[0], 2)).astype(np.float32)
            matrices |= {f"{module}.lora_A.weight": down, f"{module}.lora_B.weight": up}
    (tmp_path / "adapter").mkdir()
    safetensors.numpy.save_file(matrices, tmp_path / "adapter" / "adapter_model.safetensors")
    values = {
        "peft_type": "LORA",
        "base_model_name_or_path": str(tmp_path / "base"),
        "r": 2,
        "lora_alpha": 5,
        "task_type": None,
        "auto_mapping": {"base_model_class": "BertForPreTraining"},
    }
    (tmp_path / "adapter" / "adapter_config.json").write_text(json.dumps(values))
    return tmp_path


def edit(folder: pathlib.Path, **values) -> None:
    made_checkpoint.edit(folder / "adapter" / "adapter_config.json", **values)


def rewrite(folder: pathlib.Path, change) -> None:
    path = folder / "adapter" / "adapter_model.safetensors"
    safetensors.numpy.save_file(change(safetensors.numpy.load_file(path)), path)


def check_sum(folder: pathlib.Path, received, scale: float) -> None:
    """The weights are those of the base, and the query matrices W + scale * B A."""
    base = read_checkpoint(folder / "base")
    matrices = safetensors.numpy.load_file(folder / "adapter" / "adapter_model.safetensors")
    assert received.weights.keys() == base.weights.keys()
    num_adapted = 0
    for name, value in base.weights.items():
        expected = value.astype(np.float64)
        if name.endswith("query/kernel"):
            index = name.split("/")[2].removeprefix("layer_")
            module = f"base_model.model.bert.encoder.layer.{index}.attention.self.query"
            down = matrices[f"{module}.lora_A.weight"].astype(np.float64)
            up = matrices[f"{module}.lora_B.weight"].astype(np.float64)
            expected = expected + scale * np.einsum("or,ri->io", up, down)
            num_adapted += 1
        assert_close(received.weights[name], expected, err_msg=name)
    assert num_adapted == base.config.num_hidden_layers


def test_the_sum_computed_by_hand(made):
    received = read_checkpoint(made / "adapter")
    check_sum(made, received, 5 / 2)
    # The vocabulary is the base's.
    assert received.vocab == read_checkpoint(made / "base").vocab
    assert received.source == str(made / "adapter")
    edit(made, use_rslora=True, fan_in_fan_out=True)
    check_sum(made, read_checkpoint(made / "adapter"), 5 / np.sqrt(2))


def test_the_base_may_have_any_form(made):
    write_checkpoint(make_checkpoint("encoder with pooler", 4), made / "bare", "huggingface")
    edit(made, base_model_name_or_path=str(made / "bare"))
    path = made / "bare" / "model.safetensors"
    assert not any(name.startswith("bert.") for name in safetensors.numpy.load_file(path))
    bare = read_checkpoint(made / "adapter")
    (made / "base").rename(made / "pretrained")
    (made / "bare").rename(made / "base")
    check_sum(made, bare, 5 / 2)


def test_names_without_the_prefix_of_the_encoder(made):
    rewrite(made, lambda matrices: {k.replace(".bert.", "."): v for k, v in matrices.items()})
    received = read_checkpoint(made / "adapter")
    rewrite(
        made, lambda m: {k.replace("model.encoder", "model.bert.encoder"): v for k, v in m.items()}
    )
    check_sum(made, received, 5 / 2)


def test_an_adapter_of_the_word_table_and_a_base_with_its_copy(made):
    """Files of a pre-trained model may repeat the tied table, whose copy is not adapted."""
    path = made / "base" / "model.safetensors"
    weights = safetensors.numpy.load_file(path)
    table = weights["bert.embeddings.word_embeddings.weight"]
    weights["cls.predictions.decoder.weight"] = table
    safetensors.numpy.save_file(weights, path)
    rng = np.random.default_rng(1)
    down = rng.normal(size=(2, table.shape[0])).astype(np.float32)
    up = rng.normal(size=(table.shape[1], 2)).astype(np.float32)
    start = "base_model.model.bert.embeddings.word_embeddings.lora_embedding"
    rewrite(made, lambda _: {f"{start}_A": down, f"{start}_B": up})
    received = read_checkpoint(made / "adapter")
    received.check()
    expected = table + 2.5 * np.einsum("rv,dr->vd", down, up)
    found = received.weights["bert/embeddings/word_embeddings"]
    assert_close(found, expected)


@pytest.mark.slow
def test_the_program_merges_into_the_base_that_is_given(made):
    edit(made, base_model_name_or_path="/nowhere/bert")
    with pytest.raises(ValueError, match=r"/nowhere/bert.*--base_model"):
        read_checkpoint(made / "adapter")
    arguments = ("convert_checkpoint", f"--input={made / 'adapter'}", "--to=huggingface")
    result = run(*arguments, f"--output={made / 'merged'}", f"--base_model={made / 'base'}")
    assert result.returncode == 0, result.stderr
    check_sum(made, read_checkpoint(made / "merged"), 5 / 2)


def test_the_base_may_be_on_a_hub(made, monkeypatch):
    asked = []

    def local_path(name):
        asked.append(name)
        return made / "base"

    monkeypatch.setattr("bert_tf.checkpoints.lora.local_path", local_path)
    edit(made, base_model_name_or_path="google-bert/bert-base", revision="v1")
    check_sum(made, read_checkpoint(made / "adapter"), 5 / 2)
    edit(made, base_model_name_or_path="bert-base", revision=None)
    check_sum(made, read_checkpoint(made / "adapter"), 5 / 2)
    assert asked == ["hf://google-bert/bert-base@v1", "hf://bert-base"]


def test_base_model_is_for_adapters_alone(made):
    with pytest.raises(ValueError, match="--base_model"):
        read_checkpoint(made / "base", base_model=str(made / "base"))


def test_a_new_head_has_no_labels_of_the_base(made):
    """The base of the golden adapter has two labels, the head three rows."""
    received = read_checkpoint(GOLDEN / "bert_classifier" / "adapter")
    assert received.num_labels == 3 and received.labels == ()
    shutil.copytree(GOLDEN / "bert_classifier", made / "golden")
    path = made / "golden" / "base" / "config.json"
    values = json.loads(path.read_text())
    path.write_text(json.dumps({**values, "id2label": {"0": "a", "1": "b"}}))
    assert read_checkpoint(made / "golden" / "adapter").labels == ()
    path.write_text(json.dumps({**values, "id2label": {"0": "a", "1": "b", "2": "c"}}))
    assert read_checkpoint(made / "golden" / "adapter").labels == ("a", "b", "c")


WRONG_CONFIGS = {
    "IA3": {"peft_type": "IA3"},
    "peft_type": {"peft_type": None},
    "base_model_name_or_path": {"base_model_name_or_path": None},
    "lora_alpha": {"lora_alpha": 0},
    "r ": {"r": 10**18},
    "rank_pattern": {"rank_pattern": {"query": 4}},
    "use_dora": {"use_dora": True},
    "gating": {"gating": True},
    "alpha_pattern": {"alpha_pattern": {"(": 3}},
    "layer_replication": {"layer_replication": [[0, 1]]},
    "pissa": {"init_lora_weights": "pissa"},
    # PEFT ignores matrices of modules that these leave out.
    "target_modules": {"target_modules": ["value"]},
    "target_modules is '": {"target_modules": r".*layer\.[1-9]\..*query"},
    "exclude_modules": {"target_modules": ["query"], "exclude_modules": ["self.query"]},
    "layers_to_transform": {"target_modules": ["query"], "layers_to_transform": [1]},
    "layers_to_transform is 0": {
        "target_modules": ["query"],
        "layers_to_transform": 0,
        "layers_pattern": "blocks",
    },
    "modules_to_save": {"modules_to_save": ["classifier", "pooler"]},
}


@pytest.mark.parametrize("named", WRONG_CONFIGS)
def test_adapters_that_cannot_be_merged_are_one_line(made, named):
    edit(made, **WRONG_CONFIGS[named])
    with pytest.raises(ValueError, match=named) as error:
        read_checkpoint(made / "adapter")
    assert "\n" not in str(error.value) and str(made / "adapter") in str(error.value)


def test_settings_that_select_all_matrices_change_nothing(made):
    expected = read_checkpoint(made / "adapter").weights
    for settings in (
        {"target_modules": ["attention.self.query", "key"], "exclude_modules": ["value"]},
        {"target_modules": r"bert\.encoder\.layer\.\d+\..*(query|key)"},
        {"target_modules": "all-linear", "modules_to_save": ["classifier"]},
        {"target_modules": ["query"], "layers_to_transform": list(range(9))},
        {"layers_to_transform": list(range(9)), "layers_pattern": ["block", "layer"]},
    ):
        edit(made, **settings)
        received = read_checkpoint(made / "adapter").weights
        for name, value in expected.items():
            np.testing.assert_array_equal(received[name], value)


def with_magnitude(matrices: dict) -> dict:
    module = "base_model.model.bert.encoder.layer.0.attention.self.query"
    return {**matrices, f"{module}.lora_magnitude_vector": np.ones(3, np.float32)}


def wider(matrices: dict) -> dict:
    return {k: np.pad(v, ((0, 0), (0, 1))) if "lora_A" in k else v for k, v in matrices.items()}


WRONG_MATRICES = {
    r"layer\.0\.attention\.self\.query": wider,
    r"layer\.40\.": lambda m: {k.replace("layer.0.", "layer.40."): v for k, v in m.items()},
    "lora_magnitude_vector": with_magnitude,
    r"\['lora_A'\] .*lora_B": lambda m: {k: v for k, v in m.items() if "lora_A" in k},
    r"lora_A \[1, 20\] .*lora_B \[20, 2\]": lambda m: {
        k: v[:1] if "lora_A" in k else v for k, v in m.items()
    },
    "lora_B.bias": lambda m: {**m, "base_model.model.x.lora_B.bias": np.ones(2, np.float32)},
}


@pytest.mark.parametrize("named", WRONG_MATRICES)
def test_adapters_of_another_base_are_one_line(made, named):
    rewrite(made, WRONG_MATRICES[named])
    with pytest.raises(ValueError, match=named) as error:
        read_checkpoint(made / "adapter")
    assert "\n" not in str(error.value)


def test_an_adapter_of_an_adapter(made):
    shutil.copytree(made / "adapter", made / "second")
    edit(made, base_model_name_or_path=str(made / "second"))
    with pytest.raises(ValueError, match="second"):
        read_checkpoint(made / "adapter")


def test_an_adapter_without_weights(made):
    (made / "adapter" / "adapter_model.safetensors").unlink()
    with pytest.raises(ValueError, match=r"adapter_model\.safetensors"):
        read_checkpoint(made / "adapter")
