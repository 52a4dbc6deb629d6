"""Cross-encoders of sentence-transformers: logits and scores equal, folders there and back."""

import json
import pathlib
import shutil

import numpy as np
import pytest

from bert_tf.checkpoints.cross_encoder import read_cross_encoder, write_cross_encoder
from bert_tf.checkpoints.formats import read_checkpoint, write_checkpoint
from bert_tf.inference.serving_models import find_kind
from bert_tf.tasks.reranking.model import BertReranker
from tests.checkpoints.made_checkpoint import make_checkpoint
from tests.float_bounds import OTHER_FRAMEWORK, assert_close
from tests.shared_data import golden_file, read_arrays


@pytest.fixture(scope="module")
def source() -> pathlib.Path:
    return golden_file("families", "sentence_transformers", "cross_encoder")


def test_equals_sentence_transformers(source: pathlib.Path) -> None:
    golden = read_arrays(source / "golden.npz")
    pairs = [tuple(pair) for pair in golden["in_pairs"].tolist()]
    model = BertReranker.from_pretrained(source)
    assert model.activation == "sigmoid" and model.max_seq_length == 40
    for pair, ids in zip(pairs, golden["in_input_ids"], strict=True):
        row = model.pack(*pair)
        assert row.ids == ids[: len(row.ids)].tolist() and not ids[len(row.ids) :].any()
    logits = model.pair_logits(*zip(*pairs, strict=True), 7)
    assert_close(logits, golden["out_logits"], OTHER_FRAMEWORK)
    assert_close(model.score(pairs, 7), golden["out_scores"], OTHER_FRAMEWORK)
    query, documents = pairs[0][0], [pair[1] for pair in pairs[:5]]
    logits = model.pair_logits([query] * 5, documents, 32)
    order = [answer["index"] for answer in model.rank(query, documents)]
    assert order == np.argsort(-logits).tolist()
    assert model.rank(query, []) == []
    with pytest.raises(ValueError, match="^documents .*'abc',"):
        model.rank(query, "abc")


def test_there_and_back(source: pathlib.Path, tmp_path: pathlib.Path) -> None:
    first = read_cross_encoder(source)
    write_cross_encoder(first._replace(activation="identity", max_seq_length=33), tmp_path / "new")
    found = read_cross_encoder(tmp_path / "new")
    assert (found.activation, found.max_seq_length) == ("identity", 33)
    for name, value in first.checkpoint.weights.items():
        np.testing.assert_array_equal(found.checkpoint.weights[name], value)
    values = json.loads((tmp_path / "new" / "config.json").read_text())
    expected = "torch.nn.modules.linear.Identity"
    assert values["sentence_transformers"]["activation_fn"] == expected
    assert values["sbert_ce_default_activation_function"] == expected


@pytest.mark.parametrize(
    ("key", "name", "expected"),
    [
        (None, None, "sigmoid"),
        ("sbert_ce_default_activation_function", "torch.nn.modules.linear.Identity", "identity"),
        ("sbert_ce_default_activation_function", "torch.nn.modules.activation.Tanh", None),
    ],
)
def test_activations(
    source: pathlib.Path, tmp_path: pathlib.Path, key: str, name: str, expected: str | None
) -> None:
    shutil.copytree(source, tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    values = json.loads(path.read_text())
    del values["sentence_transformers"]
    path.write_text(json.dumps({**values, **({key: name} if key else {})}))
    if expected is None:
        with pytest.raises(ValueError, match="config.json: .*Tanh"):
            read_cross_encoder(tmp_path / "model")
    else:
        assert read_cross_encoder(tmp_path / "model").activation == expected


def to_release_6(folder: pathlib.Path, activation: str) -> None:
    """Adds the files that release 6.2.0 writes; its config.json keeps what stood there before."""
    kind = "sentence_transformers.base.modules.transformer.Transformer"
    modules = [{"idx": 0, "name": "0", "path": "", "type": kind}]
    (folder / "modules.json").write_text(json.dumps(modules))
    values = {"model_type": "CrossEncoder", "activation_fn": activation, "prompts": {}}
    path = folder / "config_sentence_transformers.json"
    path.write_text(json.dumps({**values, "default_prompt_name": None}))


def test_folders_of_release_6(source: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Scores are the golden logits, although config.json of the same folder says sigmoid."""
    golden = read_arrays(source / "golden.npz")
    pairs = [tuple(pair) for pair in golden["in_pairs"].tolist()]
    shutil.copytree(source, tmp_path / "model", copy_function=shutil.copyfile)
    to_release_6(tmp_path / "model", "torch.nn.modules.linear.Identity")
    scores = BertReranker.from_pretrained(tmp_path / "model").score(pairs)
    assert_close(scores, golden["out_logits"], OTHER_FRAMEWORK)
    path = tmp_path / "model" / "config.json"
    values = json.loads(path.read_text())
    del values["sentence_transformers"]  # As of a model that release 6 made.
    path.write_text(json.dumps(values))
    found = read_cross_encoder(tmp_path / "model")
    assert found.activation == "identity"
    assert find_kind(found.checkpoint, str(tmp_path / "model")) == "reranker"
    to_release_6(tmp_path / "model", "torch.nn.modules.activation.Tanh")
    with pytest.raises(ValueError, match="config_sentence_transformers.json: activation_fn .*Tanh"):
        read_cross_encoder(tmp_path / "model")


def test_names_that_are_resolved_bring_activation_and_length(
    source: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(source, tmp_path / "ce")
    path = tmp_path / "ce" / "config.json"
    identity = {"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}}
    path.write_text(json.dumps({**json.loads(path.read_text()), **identity}))
    monkeypatch.setenv("HOME", str(tmp_path))
    expected = read_cross_encoder(tmp_path / "ce")
    received = read_cross_encoder("~/ce")
    assert (received.activation, received.max_seq_length) == ("identity", expected.max_seq_length)
    shutil.make_archive(str(tmp_path / "packed"), "zip", tmp_path / "ce")
    with pytest.raises(ValueError, match="packed.zip: .*archive"):
        read_cross_encoder(tmp_path / "packed.zip")


def test_a_model_without_one_label_is_refused() -> None:
    with pytest.raises(ValueError, match="mean_normalize .*cross-encoder: .*--init_checkpoint="):
        read_cross_encoder(golden_file("families", "sentence_transformers", "mean_normalize"))


def test_several_labels_with_a_sigmoid_are_apart(tmp_path: pathlib.Path) -> None:
    made = make_checkpoint("classifier", 1, num_hidden_layers=1)
    write_checkpoint(made, tmp_path / "model", "huggingface")
    for activation, expected in (("linear.Identity", ""), ("activation.Sigmoid", "multi_label")):
        to_release_6(tmp_path / "model", f"torch.nn.modules.{activation}")
        assert read_checkpoint(tmp_path / "model").problem_type == expected


def test_a_second_text_without_types(source: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """As transformers 5.23 scores: a tokenizer whose inputs lack the types gives only type 0."""
    shutil.copytree(source, tmp_path / "model", copy_function=shutil.copyfile)
    (tmp_path / "model").chmod(0o755)
    path = tmp_path / "model" / "tokenizer_config.json"
    values = {"model_input_names": ["input_ids", "attention_mask"]}
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))
    pair = ("the first", "of them")
    model = BertReranker.from_pretrained(tmp_path / "model")
    usual = BertReranker.from_pretrained(source)
    assert model.pack(*pair).ids == usual.pack(*pair).ids
    assert not any(model.pack(*pair).type_ids) and any(usual.pack(*pair).type_ids)
    model.save_pretrained(tmp_path / "again")
    again = BertReranker.from_pretrained(tmp_path / "again")
    assert again.pack(*pair) == model.pack(*pair)
    assert again.score([pair]) == model.score([pair]) != usual.score([pair])
    values = json.loads((tmp_path / "again" / "tokenizer_config.json").read_text())
    assert "token_type_ids" not in values["model_input_names"]
