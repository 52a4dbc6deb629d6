"""Models by their names on hubs, against a server of this process that speaks the protocol."""

import dataclasses
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from huggingface_hub import constants

from bert_tf.checkpoints import hub, keras_hub
from bert_tf.checkpoints.embedding import EmbeddingConfig
from bert_tf.checkpoints.formats import read_checkpoint, write_checkpoint
from bert_tf.checkpoints.load_tokenizer import load_tokenizer
from bert_tf.inference.kinds import find
from bert_tf.inference.serving_models import find_kind, find_length, load
from bert_tf.tasks.classification.model import BertClassifier
from tests import programs
from tests.checkpoints.hub_server import REVISION, HubServer, serve
from tests.checkpoints.made_checkpoint import make_checkpoint
from tests.export.made_models import write_model
from tests.shared_data import golden_file
from tests.tiny_model import write_tiny_model

OTHER = "f" * 40
NAME = "hf://org/tiny"
UNREAD = ("README.md", "pytorch_model.bin", "tf_model.h5", "onnx/model.onnx", "onnx/config.json")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A model as Hugging Face has it."""
    folder = tmp_path_factory.mktemp("tiny")
    source = write_tiny_model(folder / "google", "the", "river", num_hidden_layers=1)
    write_checkpoint(read_checkpoint(source), folder / "tiny", "huggingface")
    return folder / "tiny"


def contents(folder: pathlib.Path) -> dict[str, bytes]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


@pytest.fixture
def server(tiny, tmp_path, monkeypatch):
    """The hub, with a model among other files, and an empty cache."""
    files = {**dict.fromkeys(UNREAD, b"not to be read"), **contents(tiny)}
    with serve({"org/tiny": files}) as server:
        url = f"{server.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", url)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        yield server


def fails(name: str) -> str:
    """Returns the line that says why a model cannot be had."""
    with pytest.raises(ValueError) as error:
        hub.local_path(name)
    assert "\n" not in str(error.value) and name in str(error.value)
    return str(error.value)


def test_a_checkpoint_is_read_by_its_name(server: HubServer, tiny):
    found, expected = read_checkpoint(NAME), read_checkpoint(tiny)
    assert found.source == NAME and found.config == expected.config
    assert found.vocab == expected.vocab
    for name, value in expected.weights.items():
        np.testing.assert_array_equal(found.weights[name], value)
    assert server.downloaded() == sorted(contents(tiny))
    server.requests.clear()
    read_checkpoint(pathlib.Path(NAME))  # one slash
    assert server.requests == ["GET /api/models/org/tiny/revision/main"]


def test_a_run_says_what_its_model_is_for(server: HubServer, tmp_path):
    flags = {"problem_type": "multi_label", "max_seq_length": "24", "long_texts": "tail"}
    run = write_model(tmp_path / "run", "multi_label", flags, num_hidden_layers=1)
    server.files["org/run"] = contents(run)
    model = BertClassifier.from_pretrained("hf://org/run")
    assert (model.problem_type, model.long_texts, model.max_seq_length) == (
        "multi_label",
        "tail",
        24,
    )
    served = load("hf://org/run")
    assert (served.kind, served.max_seq_length, served.long_texts) == (
        "multi_label",
        24,
        "tail",
    )
    best = ["best_checkpoint.json", "model.ckpt-9.data-00000-of-00001", "model.ckpt-9.index"]
    files = ["bert_config.json", *best, "run.flags"]
    assert hub.needed_files([*files, "eval_results.txt"]) == files


def test_a_tokenizer_needs_no_weights(server: HubServer):
    batch = load_tokenizer(NAME)("the river")
    assert batch["input_mask"].tolist() == [1, 1, 1, 1]
    assert "model.safetensors" not in server.downloaded()
    read_checkpoint(NAME)
    assert server.downloaded().count("vocab.txt") == 1
    assert server.downloaded().count("model.safetensors") == 1


def test_a_revision_is_a_branch_a_tag_or_a_commit(server: HubServer):
    server.revisions |= {"v1.0": OTHER, "refs/pr/7": OTHER}
    server.files[f"org/tiny@{OTHER}"] = {"config.json": b"{}", "vocab.txt": b"other"}
    for revision in ("v1.0", OTHER):
        folder = hub.local_path(f"{NAME}@{revision}")
        assert folder.name == OTHER and (folder / "vocab.txt").read_text() == "other"
    assert hub.local_path(NAME).name == REVISION
    server.requests.clear()
    hub.local_path(f"{NAME}@{REVISION}")
    assert not server.requests  # A commit does not change.


def test_offline_the_cache_is_all_there_is(server: HubServer, monkeypatch):
    load_tokenizer(NAME)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    server.requests.clear()
    load_tokenizer(NAME)
    message = fails(NAME)
    assert "HF_HUB_OFFLINE" in message and "config.json" in message and "--local-dir" in message
    assert f"{server.url}/org/tiny/tree/main" in message
    assert "HF_HUB_OFFLINE" in fails("hf://org/other")
    assert not server.requests


def test_without_an_answer_the_cache_is_all_there_is(server: HubServer, monkeypatch):
    hub.local_path(NAME)
    nobody = "http://127.0.0.1:9"
    monkeypatch.setattr(constants, "ENDPOINT", nobody)
    assert hub.local_path(NAME).name == REVISION
    message = fails("hf://org/other")
    assert nobody in message and "config.json" in message


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("hf://org/none", "private"),
        ("hf://org/gated", "terms"),
        (f"{NAME}@v9", "/org/tiny/tree/main"),
        (f"{NAME}@", "hf://org/name@revision"),
        (f"{NAME}/model.safetensors", "hf://org/name@revision"),
        ("hf://", "hf://org/name@revision"),
        ("hf://org/a--b", "model name"),
        ("hf://org/images", "cat.png"),
        ("kaggle://keras/bert", "kaggle://OWNER/MODEL"),
    ],
)
def test_a_name_that_is_of_no_model(server: HubServer, name, remedy):
    server.gated = ("org/gated",)
    server.files["org/images"] = {"cat.png": b"cat"}
    assert remedy in fails(name)


def test_a_damaged_download_is_told_and_mended(server: HubServer):
    weights = server.files["org/tiny"]["model.safetensors"]
    for content in (weights[:-1] + b"?", weights[:-1]):
        server.broken = {"model.safetensors": content}
        with pytest.raises(ValueError, match=f"checksum|{len(content)} .*model.safetensors"):
            hub.local_path(NAME)
    server.broken = {}
    folder = hub.local_path(NAME)
    assert (folder / "model.safetensors").read_bytes() == weights
    (folder / "model.safetensors").resolve().write_bytes(weights[:100])  # A disk that was full.
    with pytest.raises(ValueError, match=f"model.safetensors .* 100 bytes .* {len(weights)};"):
        hub.local_path(NAME)
    assert (hub.local_path(NAME) / "model.safetensors").read_bytes() == weights


SENTENCE_TRANSFORMER = """
1_Pooling/config.json 2_Dense/config.json 2_Dense/model.safetensors config.json
config_sentence_transformers.json model.safetensors modules.json sentence_bert_config.json
special_tokens_map.json tokenizer.json tokenizer_config.json vocab.txt
""".split()
OTHERS = """
.gitattributes 2_Dense/pytorch_model.bin README.md data_config.json onnx/model.onnx
onnx/tokenizer.json openvino/openvino_model.bin pytorch_model.bin rust_model.ot tf_model.h5
train_script.py model_fp16.safetensors
""".split()
SHARDS = [f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]
KERAS = """
assets/tokenizer/vocabulary.txt config.json metadata.json model.weights.h5 task.json
""".split()


@pytest.mark.parametrize(
    ("needed", "others"),
    [
        (SENTENCE_TRANSFORMER, OTHERS),
        (["config.json", "model.safetensors.index.json", *SHARDS], ["pytorch_model.bin"]),
        (["config.json", "pytorch_model.bin"], ["model.fp16.safetensors", "tf_model.h5"]),
        (["config.json", "tf_model.h5"], ["flax_model.msgpack"]),
        (
            ["adapter_config.json", "adapter_model.safetensors", "vocab.txt"],
            ["adapter_model.bin", "optimizer.pt"],
        ),
        (["0_Transformer/config.json", "0_Transformer/pytorch_model.bin"], ["similarity.csv"]),
        (KERAS, ["README.md"]),
        (["bert_config.json", "bert_model.ckpt.data-00000-of-00001", "bert_model.ckpt.index"], []),
    ],
)
def test_only_what_is_read_is_fetched(needed, others):
    assert hub.needed_files([*needed, *others]) == sorted(needed)


def test_whatever_the_readers_look_for_is_fetched(tmp_path, monkeypatch):
    """Their methods of paths are watched; what a folder lacks is looked for, too."""
    forms = ("bert_tf", "google", "huggingface", "keras_hub", "sentence_transformers")
    embedder = make_checkpoint("encoder", num_hidden_layers=1)
    embedder = dataclasses.replace(embedder, embedding=EmbeddingConfig(max_seq_length=7))
    for form in forms:
        write_checkpoint(embedder, tmp_path / form, form)
    generator = read_checkpoint(golden_file("families", "electra", "generator"))
    write_checkpoint(generator, tmp_path / "electra", "google")
    asked = set()

    def watch(name):
        method = getattr(pathlib.Path, name)

        def watched(path, *arguments, **options):
            asked.update([path] if path.is_relative_to(tmp_path) else [])
            return method(path, *arguments, **options)

        monkeypatch.setattr(pathlib.Path, name, watched)

    for name in ("exists", "is_file", "open"):
        watch(name)
    for form in (*forms, "electra"):
        folder = tmp_path / form
        checkpoint = read_checkpoint(
            folder, electra_network="generator" if form == "electra" else ""
        )
        assert form == "electra" or checkpoint.embedding
        if checkpoint.vocab:
            load_tokenizer(folder)
        kind = find_kind(checkpoint, str(folder))
        find(kind).recorded(checkpoint, str(folder))
        find_length(checkpoint, str(folder), 0, kind)
    names = {"/".join(path.relative_to(tmp_path).parts[1:]) for path in asked} - {""}
    assert {"embedder.json", "generator_config.json", "run.flags", "vocab.txt"} <= names
    fetched = {
        name
        for name in names
        for group in hub.WEIGHTS
        if name in hub.needed_files([name, group[0]])
    }
    assert names - fetched == {"bert_tf.json"}  # Of exported models, which are not on hubs.


@pytest.mark.slow
def test_a_preset_of_keras_hub_is_read_by_its_name(tiny, tmp_path, monkeypatch):
    # As kagglehub lays out its cache; a version that is there is not asked for.
    monkeypatch.setenv("KAGGLEHUB_CACHE", str(tmp_path))
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    variation = tmp_path / "models/keras/bert/keras/bert_tiny_en_uncased"
    handle = keras_hub.known_presets()["bert_tiny_en_uncased"]
    version = handle.rpartition("/")[2]
    assert handle == f"keras/bert/keras/bert_tiny_en_uncased/{version}"
    expected = read_checkpoint(tiny)
    write_checkpoint(expected, variation / version, "keras_hub")
    (variation / f"{version}.complete").touch()
    for name in ("keras_hub://bert_tiny_en_uncased", f"kaggle://{handle}"):
        assert read_checkpoint(name).weights.keys() == {
            weight for weight in expected.weights if "seq_relationship" not in weight
        }
    assert load_tokenizer(variation / version).vocab == expected.vocab
    name = "keras/bert/keras/other/1"
    assert f"https://www.kaggle.com/models/{name}" in fails(f"kaggle://{name}")
    with pytest.raises(ValueError, match="bert_base_en_uncased"):
        hub.local_path("keras_hub://bert_base_klingon")


def test_programs_take_names(server: HubServer, tmp_path):
    done = programs.run("convert_checkpoint", input=NAME, output=tmp_path / "out", to="huggingface")
    assert f"read {NAME} (huggingface)" in programs.finish(done)
    done = programs.run("fill_mask", init_checkpoint=NAME, text="the [MASK]")
    assert "the [MASK]" in programs.finish(done)
    done = programs.run("fill_mask", init_checkpoint="hf://org/none", text="the [MASK]")
    assert "hf://org/none" in programs.fail(done)


@pytest.mark.slow
def test_variables_of_the_environment_hold(server: HubServer, tmp_path):
    code = f"import bert_tf; print(len(bert_tf.load_tokenizer({NAME!r}).vocab))"
    environment = {
        **os.environ,
        "HF_HOME": str(tmp_path / "home"),
        "HF_ENDPOINT": server.url,
        "HF_HUB_OFFLINE": "0",
    }
    for offline in ("0", "1"):
        environment["HF_HUB_OFFLINE"] = offline
        result = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True
        )
        assert result.returncode == 0, result.stderr
        assert int(result.stdout) > 5
    assert list((tmp_path / "home" / "hub").glob("models--org--tiny"))
