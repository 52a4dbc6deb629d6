"""Folders of static embedders, of Model2Vec and of sentence-transformers, against NumPy."""

import json
import pathlib

import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

import bert_tf
from bert_tf.checkpoints.formats import read_checkpoint, write_checkpoint
from bert_tf.checkpoints.static_embeddings import TABLE
from bert_tf.inference import serving_models
from bert_tf.text.byte_level import BYTE_CHARACTERS
from tests.float_bounds import OTHER_FRAMEWORK, assert_close
from tests.programs import finish, run
from tests.shared_data import read_arrays, shared_data

WORDS = ("the", "cat", "##s", "sat", "café", "mat", ".", "!", "a", "##b", "[CLS]", "[SEP]")
UNIGRAMS = ("<unk>", "▁", "▁the", "▁cat", "s", "▁sat", ".", "a", "b", "c", "t", "▁a")
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
KINDS = ("wordpiece", "cased", "unigram", "byte_bpe")
UNKNOWN = {"wordpiece": "[UNK]", "cased": "[UNK]", "unigram": "<unk>", "byte_bpe": ""}


def tokenizer_json(kind: str = "wordpiece") -> dict:
    """Returns the content of a tokenizer.json of this kind."""
    if kind == "unigram":
        scores = [(word, -float(index)) for index, word in enumerate(UNIGRAMS)]
        made = Tokenizer(models.Unigram(scores, unk_id=0))
        made.normalizer = normalizers.Lowercase()
        made.pre_tokenizer = pre_tokenizers.Metaspace()
        made.add_special_tokens(["<unk>"])
    elif kind == "byte_bpe":
        merges = [("c", "a"), ("ca", "t"), ("Ġ", "cat")]
        tokens = (*BYTE_CHARACTERS, "ca", "cat", "Ġcat")
        vocab = {token: index for index, token in enumerate(tokens)}
        made = Tokenizer(models.BPE(vocab, merges))
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    else:
        words = WORDS if kind == "wordpiece" else ("S", *WORDS)
        vocab = {token: index for index, token in enumerate(("[PAD]", "[UNK]", *words))}
        made = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
        lower = kind == "wordpiece"
        made.normalizer = normalizers.BertNormalizer(strip_accents=False, lowercase=lower)
        made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        made.add_special_tokens(["[UNK]"])
        # A token that the model does not have.
        made.add_tokens([AddedToken("newtok", normalized=False)])
    return json.loads(made.to_str())


def make_table(content: dict, dtype: type = np.float32) -> np.ndarray:
    size = Tokenizer.from_str(json.dumps(content)).get_vocab_size()
    return np.random.default_rng(size).normal(size=[size, SIZE]).astype(dtype)


def write_folder(folder: pathlib.Path, content: dict, tensors: dict, **config) -> pathlib.Path:
    """Writes a folder of Model2Vec, or without settings the files of a StaticEmbedding."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(content))
    safetensors.numpy.save_file(tensors, folder / "model.safetensors")
    if config:
        values = {"model_type": "model2vec", "normalize": True, "max_length": 512, **config}
        (folder / "config.json").write_text(json.dumps(values))
    return folder


def write_model2vec(folder: pathlib.Path, max_length: int | None = 512) -> tuple:
    """Returns a folder of Model2Vec with WordPiece, its tokenizer.json and table."""
    content = tokenizer_json()
    table = make_table(content)
    write_folder(folder, content, {"embeddings": table}, max_length=max_length)
    return folder, content, table


def write_modules(
    folder: pathlib.Path, content: dict, table: np.ndarray, *kinds: str, path: str = ""
) -> pathlib.Path:
    """Writes a folder of sentence-transformers."""
    write_folder(folder / path, content, {"embedding.weight": table})
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
    tokenizer = Tokenizer.from_str(json.dumps(content))
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
    values = read_arrays(folder / "golden.npz")
    vectors = bert_tf.load(folder).encode(values["in_texts"].tolist())
    assert np.abs(vectors - values["out_embeddings"]).max() < 1e-5


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("normalize", "length"), [(True, 512), (False, 3), (False, None)])
def test_model2vec_leaves_unknown_tokens_out_and_cuts_texts(kind, normalize, length, tmp_path):
    content = tokenizer_json(kind)
    table = make_table(content)
    options = {"normalize": normalize, "max_length": length}
    folder = write_folder(tmp_path / "model", content, {"embeddings": table}, **options)
    how = {"unknown": UNKNOWN[kind], "length": length or 0, "normalize": normalize}
    expected = means(content, table, **how)
    assert_close(bert_tf.load(folder).encode(TEXTS), expected, OTHER_FRAMEWORK)
    again = tmp_path / "again"
    write_checkpoint(read_checkpoint(folder), again, "model2vec")
    written = json.loads((again / "tokenizer.json").read_text())
    written_table = safetensors.numpy.load_file(again / "model.safetensors")["embeddings"]
    np.testing.assert_array_equal(written_table, table)
    assert_close(means(written, written_table, **how), expected)
    assert json.loads((again / "config.json").read_text())["max_length"] == length


@pytest.mark.parametrize("kind", KINDS)
def test_a_static_embedding_keeps_unknown_tokens(kind, tmp_path):
    content = tokenizer_json(kind)
    table = make_table(content)
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
    content = tokenizer_json()
    table = make_table(content, dtype)[:4]
    rng = np.random.default_rng(5)
    mapping = rng.integers(0, 4, len(make_table(content)))
    weights = rng.random(len(mapping)) if has_weights else np.ones(len(mapping))
    tensors = {"embeddings": table, "mapping": mapping}
    if has_weights:
        tensors["weights"] = weights
    folder = write_folder(tmp_path / "model", content, tensors, normalize=True)
    (folder / "pipeline.skops").write_bytes(b"not read")
    rows = table[mapping] * weights[:, None]
    expected = means(content, rows, "[UNK]", 512, normalize=True)
    assert_close(bert_tf.load(folder).encode(TEXTS), expected, OTHER_FRAMEWORK)


def test_modules_follow_the_mean_and_truncation_is_the_tokenizers(tmp_path):
    content = tokenizer_json()
    truncation = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    content["truncation"] = truncation
    table = make_table(content)
    folder = write_modules(tmp_path / "model", content, table, "Dense", "Normalize")
    kernel = np.random.default_rng(6).normal(size=[3, SIZE]).astype(np.float32)
    bias = np.ones(3, np.float32)
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


@pytest.mark.slow
def test_the_graph_cuts_texts_as_python_does(tmp_path):
    folder, content, table = write_model2vec(tmp_path / "model", max_length=4)
    serving = serving_models.load(str(folder))
    outputs = serving.from_texts(tf.constant(TEXTS))["embedding"].numpy()
    assert_close(outputs, means(content, table, "[UNK]", 4, normalize=True), OTHER_FRAMEWORK)
    assert serving.card()["max_characters"] == 4 * 3  # The median token has 3 characters.


@pytest.mark.slow
def test_a_lite_file_embeds_as_the_folder(tmp_path):
    folder, content, table = write_model2vec(tmp_path / "model", max_length=4)
    lite = tmp_path / "model.tflite"
    finish(run("export.tflite", "--no_gate", model_dir=folder, output_file=lite))
    expected = means(content, table, "[UNK]", 4, normalize=True)
    assert_close(bert_tf.load(lite).encode(TEXTS), expected, OTHER_FRAMEWORK)


def test_training_changes_rows_of_texts_alone_and_classifiers_start_from_them(tmp_path):
    folder, _, _ = write_model2vec(tmp_path / "model")
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


@pytest.mark.parametrize("part", ["model.safetensors", "mapping", "Left", "config.json", "Level"])
def test_errors_name_the_file(part, tmp_path):
    content = tokenizer_json()
    table = make_table(content)
    folder = write_folder(tmp_path / "a", content, {"embeddings": table}, max_length=512)
    if part == "model.safetensors":
        write_folder(folder, content, {"embeddings": table[1:]})
    elif part == "mapping":
        write_folder(folder, content, {"embeddings": table, "mapping": np.full(len(table), 99)})
    elif part == "Left":
        cut = {"direction": "Left", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
        folder = write_modules(tmp_path / "b", {**content, "truncation": cut}, table)
    elif part == "config.json":
        write_folder(folder, content, {"embeddings": table}, max_length=0)
    else:
        content["model"]["type"] = "WordLevel"
        write_folder(folder, content, {"embeddings": table})
    with pytest.raises(ValueError, match=str(folder)) as error:
        read_checkpoint(folder)
    assert part in str(error.value)


def test_layers_cannot_be_written_as_static_embeddings(tmp_path):
    made = read_checkpoint(shared_data("fixtures", "families", "static_embeddings", "teacher"))
    with pytest.raises(ValueError, match="3 layers"):
        write_checkpoint(made, tmp_path / "model", "model2vec")
