"""Folders of static embedders, of Model2Vec and of sentence-transformers, against NumPy."""

import json
import pathlib

import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf
import tokenizers

import bert_tf
from bert_tf.checkpoints.formats import read_checkpoint, write_checkpoint
from bert_tf.checkpoints.static_embeddings import TABLE
from bert_tf.inference import serving_models
from bert_tf.text.byte_level import BYTE_CHARACTERS
from tests.float_bounds import OTHER_FRAMEWORK, assert_close
from tests.programs import finish, run
from tests.shared_data import shared_data

WORDS = ("the", "cat", "##s", "sat", "café", "mat", ".", "!", "a", "##b", "[CLS]", "[SEP]")
TEXTS = [
    "The cats sat.",
    "",
    "unknown words only",
    "the [UNK] cat [CLS] sat! newtok",
    "a ab abab café CAFÉ S",
    "cat " * 30,
    "x" * 50 + " cat",
]
SIZE = 6


def added(content: str, index: int, special: bool = True) -> dict:
    flags = {"single_word": False, "lstrip": False, "rstrip": False}
    return {"id": index, "content": content, **flags, "normalized": False, "special": special}


def wordpiece_json(lower: bool = True) -> dict:
    """Returns a tokenizer with an added token that its model does not have."""
    words = WORDS if lower else ("S", *WORDS)
    vocab = {token: index for index, token in enumerate(("[PAD]", "[UNK]", *words))}
    return {
        "version": "1.0",
        "added_tokens": [added("[UNK]", 1), added("newtok", len(vocab), special=False)],
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": False,
            "lowercase": lower,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": None,
        "decoder": None,
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": vocab,
        },
    }


def unigram_json() -> dict:
    words = ["<unk>", "▁", "▁the", "▁cat", "s", "▁sat", ".", "a", "b", "c", "t", "▁a"]
    metaspace = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    return {
        "version": "1.0",
        "added_tokens": [added("<unk>", 0)],
        "normalizer": {"type": "Lowercase"},
        "pre_tokenizer": metaspace,
        "post_processor": None,
        "decoder": metaspace,
        "model": {
            "type": "Unigram",
            "unk_id": 0,
            "vocab": [[word, -float(index)] for index, word in enumerate(words)],
            "byte_fallback": False,
        },
    }


def byte_bpe_json() -> dict:
    vocab = {char: index for index, char in enumerate(BYTE_CHARACTERS)}
    merges = [["c", "a"], ["ca", "t"], ["Ġ", "cat"]]
    for left, right in merges:
        vocab[left + right] = len(vocab)
    byte_level = {
        "type": "ByteLevel",
        "add_prefix_space": True,
        "trim_offsets": True,
        "use_regex": True,
    }
    return {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": byte_level,
        "decoder": byte_level,
        "model": {"type": "BPE", "vocab": vocab, "merges": merges},
    }


TOKENIZERS = {
    "wordpiece": wordpiece_json,
    "cased": lambda: wordpiece_json(lower=False),
    "unigram": unigram_json,
    "byte_bpe": byte_bpe_json,
}


def token_count(content: dict) -> int:
    return tokenizers.Tokenizer.from_str(json.dumps(content)).get_vocab_size()


def write_folder(folder: pathlib.Path, content: dict, tensors: dict, **config) -> pathlib.Path:
    """Writes a folder of Model2Vec."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(content))
    safetensors.numpy.save_file(tensors, folder / "model.safetensors")
    values = {"model_type": "model2vec", "normalize": True, "max_length": 512, **config}
    (folder / "config.json").write_text(json.dumps(values))
    return folder


def write_modules(
    folder: pathlib.Path, content: dict, table: np.ndarray, *kinds: str, path: str = ""
) -> pathlib.Path:
    """Writes a folder of sentence-transformers."""
    inner = folder / path
    inner.mkdir(parents=True)
    (inner / "tokenizer.json").write_text(json.dumps(content))
    safetensors.numpy.save_file({"embedding.weight": table}, inner / "model.safetensors")
    modules = []
    for index, kind in enumerate(("StaticEmbedding", *kinds)):
        place = f"{index}_{kind}" if index else path
        name = f"sentence_transformers.models.{kind}"
        modules.append({"idx": index, "name": str(index), "path": place, "type": name})
    (folder / "modules.json").write_text(json.dumps(modules))
    return folder


def means(
    content: dict, rows: np.ndarray, unknown: str = "", length: int = 0, normalize: bool = False
) -> np.ndarray:
    """Computes embeddings as the libraries do; `rows` has a vector for each token."""
    tokenizer = tokenizers.Tokenizer.from_str(json.dumps(content))
    tokens = tokenizer.get_vocab()
    vectors = []
    for text in TEXTS:
        if length:
            text = text[: length * int(np.median([len(token) for token in tokens]))]
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        ids = ids[:length] if length else ids
        kept = [index for index in ids if index != tokens.get(unknown)]
        vector = rows[kept].astype(float).mean(axis=0) if kept else np.zeros(rows.shape[1])
        norm = np.linalg.norm(vector)
        vectors.append(vector / norm if normalize and norm else vector)
    return np.array(vectors)


@pytest.mark.parametrize("name", ["model2vec", "sentence_transformers"])
def test_embeddings_are_those_of_the_libraries(name):
    folder = shared_data("fixtures", "families", "static_embeddings", name)
    values = np.load(folder / "golden.npz")
    vectors = bert_tf.load(folder).encode(values["in_texts"].tolist())
    assert np.abs(vectors - values["out_embeddings"]).max() < 1e-5


@pytest.mark.parametrize("kind", TOKENIZERS)
@pytest.mark.parametrize(("normalize", "length"), [(True, 512), (False, 3), (False, None)])
def test_model2vec_leaves_unknown_tokens_out_and_cuts_texts(kind, normalize, length, tmp_path):
    content = TOKENIZERS[kind]()
    rng = np.random.default_rng(3)
    table = rng.normal(size=[token_count(content), SIZE]).astype(np.float32)
    options = {"normalize": normalize, "max_length": length}
    folder = write_folder(tmp_path / "model", content, {"embeddings": table}, **options)
    unknown = content["model"].get("unk_token", "<unk>")
    expected = means(content, table, unknown, length or 0, normalize)
    assert_close(bert_tf.load(folder).encode(TEXTS), expected, OTHER_FRAMEWORK)
    again = tmp_path / "again"
    write_checkpoint(read_checkpoint(folder), again, "model2vec")
    written = json.loads((again / "tokenizer.json").read_text())
    written_table = safetensors.numpy.load_file(again / "model.safetensors")["embeddings"]
    np.testing.assert_array_equal(written_table, table)
    assert_close(means(written, written_table, unknown, length or 0, normalize), expected)
    assert json.loads((again / "config.json").read_text())["max_length"] == length


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_a_static_embedding_keeps_unknown_tokens(kind, tmp_path):
    content = TOKENIZERS[kind]()
    rng = np.random.default_rng(4)
    table = rng.normal(size=[token_count(content), SIZE]).astype(np.float32)
    folder = write_modules(tmp_path / "model", content, table, path="0_StaticEmbedding")
    expected = means(content, table)
    assert_close(bert_tf.load(folder).encode(TEXTS), expected, OTHER_FRAMEWORK)
    write_checkpoint(read_checkpoint(folder), tmp_path / "again", "sentence_transformers")
    written = json.loads((tmp_path / "again" / "tokenizer.json").read_text())
    assert_close(means(written, table), expected)
    if kind != "byte_bpe":  # Bytes have no unknown token, which Model2Vec would leave out.
        with pytest.raises(ValueError, match="model2vec"):
            write_checkpoint(read_checkpoint(folder), tmp_path / "other", "model2vec")


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("has_weights", [False, True])
def test_rows_shared_by_tokens_and_factors_of_tokens(dtype, has_weights, tmp_path):
    content = wordpiece_json()
    rng = np.random.default_rng(5)
    size = token_count(content)
    table = rng.normal(size=[4, SIZE]).astype(dtype)
    mapping = rng.integers(0, 4, size)
    weights = rng.random(size)
    tensors = {"embeddings": table, "mapping": mapping}
    rows = table[mapping].astype(float)
    if has_weights:
        tensors["weights"] = weights
        rows = rows * weights[:, None]
    folder = write_folder(tmp_path / "model", content, tensors)
    (folder / "pipeline.skops").write_bytes(b"not read")
    expected = means(content, rows, "[UNK]", 512, normalize=True)
    assert_close(bert_tf.load(folder).encode(TEXTS), expected, OTHER_FRAMEWORK)


def test_modules_follow_the_mean_and_truncation_is_the_tokenizers(tmp_path):
    content = wordpiece_json()
    truncation = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    content["truncation"] = truncation
    rng = np.random.default_rng(6)
    table = rng.normal(size=[token_count(content), SIZE]).astype(np.float32)
    folder = write_modules(tmp_path / "model", content, table, "Dense", "Normalize")
    kernel, bias = rng.normal(size=[3, SIZE]).astype(np.float32), np.ones(3, np.float32)
    dense = folder / "1_Dense"
    dense.mkdir()
    safetensors.numpy.save_file(
        {"linear.weight": kernel, "linear.bias": bias}, dense / "model.safetensors"
    )
    act = "torch.nn.modules.activation.Tanh"
    sizes = {"in_features": SIZE, "out_features": 3, "bias": True, "activation_function": act}
    (dense / "config.json").write_text(json.dumps(sizes))
    expected = np.tanh(means(content, table) @ kernel.T + bias)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    assert_close(bert_tf.load(folder).encode(TEXTS), expected, OTHER_FRAMEWORK)


def test_the_graph_cuts_texts_as_python_does(tmp_path):
    content = wordpiece_json()
    table = np.random.default_rng(7).normal(size=[token_count(content), SIZE]).astype(np.float32)
    folder = write_folder(tmp_path / "model", content, {"embeddings": table}, max_length=4)
    serving = serving_models.load(str(folder))
    outputs = serving.from_texts(tf.constant(TEXTS))["embedding"].numpy()
    assert_close(outputs, means(content, table, "[UNK]", 4, normalize=True), OTHER_FRAMEWORK)
    assert serving.card()["max_characters"] == 4 * 3  # The median token has 3 characters.


@pytest.mark.slow
def test_a_lite_file_embeds_as_the_folder(tmp_path):
    content = wordpiece_json()
    table = np.random.default_rng(8).normal(size=[token_count(content), SIZE]).astype(np.float32)
    folder = write_folder(tmp_path / "model", content, {"embeddings": table}, max_length=4)
    lite = tmp_path / "model.tflite"
    finish(run("export.tflite", "--no_gate", model_dir=folder, output_file=lite))
    expected = means(content, table, "[UNK]", 4, normalize=True)
    assert_close(bert_tf.load(lite).encode(TEXTS), expected, OTHER_FRAMEWORK)


def test_training_changes_rows_of_texts_alone_and_classifiers_start_from_them(tmp_path):
    content = wordpiece_json()
    table = np.random.default_rng(9).normal(size=[token_count(content), SIZE]).astype(np.float32)
    folder = write_folder(tmp_path / "model", content, {"embeddings": table})
    model = bert_tf.BertEmbedder.from_pretrained(folder)
    pairs = [("the cat", "cats"), ("sat", "mat"), ("!", "."), ("ab", "newtok")]
    history = model.fit(
        pairs, epochs=8, batch_size=4, matryoshka_dims=(3, SIZE), learning_rate=0.1, verbose=0
    )
    assert history.history["loss"][-1] < history.history["loss"][0]
    before = read_checkpoint(folder)
    after = model.to_checkpoint()
    # Rows of tokens that are not in the texts only decay; the special rows stay zeros.
    rows = after.vocab.ids
    start, end = before.weights[TABLE], after.weights[TABLE]
    for token in ("[CLS]", "café", "[UNK]"):
        factor = end[rows[token]] / start[rows[token]]
        assert 0 < factor.min() and factor.max() < 1.01 * factor.min()
    assert not end[rows["<static:cls>"]].any() and not end[rows["<static:sep>"]].any()
    model.save_pretrained(tmp_path / "trained")
    again = bert_tf.load(tmp_path / "trained").encode(TEXTS)
    assert_close(again, model.encode(TEXTS), OTHER_FRAMEWORK)
    classifier = bert_tf.BertClassifier.from_pretrained(folder, num_labels=2)
    labels = [0, 1, 1, 0]
    classifier.fit([first for first, _ in pairs], labels, epochs=20, learning_rate=0.1, verbose=0)
    answers = classifier.classify([first for first, _ in pairs])
    assert [int(answer["label"]) for answer in answers] == labels


def test_errors_name_the_file(tmp_path):
    content = wordpiece_json()
    size = token_count(content)
    table = np.zeros([size, SIZE], np.float32)
    cut = {"direction": "Left", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    wrong_mapping = np.full(size, size)
    cases = {
        "model.safetensors": write_folder(tmp_path / "a", content, {"embeddings": table[1:]}),
        "mapping": write_folder(
            tmp_path / "b", content, {"embeddings": table, "mapping": wrong_mapping}
        ),
        "Left": write_modules(tmp_path / "c", {**content, "truncation": cut}, table),
        "config.json": write_folder(tmp_path / "d", content, {"embeddings": table}, max_length=0),
        "unk": write_folder(
            tmp_path / "e",
            {**content, "model": {**content["model"], "type": "WordLevel"}},
            {"embeddings": table},
        ),
    }
    for part, folder in cases.items():
        with pytest.raises(ValueError, match=str(folder)) as error:
            read_checkpoint(folder)
        if part != "unk":
            assert part in str(error.value)


def test_layers_cannot_be_written_as_static_embeddings(tmp_path):
    made = read_checkpoint(shared_data("fixtures", "families", "static_embeddings", "teacher"))
    with pytest.raises(ValueError, match="3 layers"):
        write_checkpoint(made, tmp_path / "model", "model2vec")
