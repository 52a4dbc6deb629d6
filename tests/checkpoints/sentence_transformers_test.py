"""Folders of sentence-transformers, read and written."""

import dataclasses
import json
import os
import shutil
import subprocess

import keras
import numpy as np
import pytest

from bert_tf.checkpoints.embedding import DenseStep, EmbeddingConfig
from bert_tf.checkpoints.formats import read_checkpoint, write_checkpoint
from bert_tf.checkpoints.load_tokenizer import load_tokenizer
from bert_tf.tasks.embedding.model import BertEmbedder, prompt_length
from bert_tf.text.tokenization import make_tokenizer
from bert_tf.text.vocab import Vocab
from bert_tf.text.wordpiece_options import WordPieceOptions
from tests.checkpoints.made_checkpoint import make_checkpoint
from tests.float_bounds import OTHER_FRAMEWORK, assert_close
from tests.shared_data import golden_file, read_arrays
from tests.slow_variants import slow_unless

FOLDERS = ("cls", "mean_normalize", "mean_dense_tanh")


def made_checkpoint():
    """Returns a checkpoint with room for 40 pieces."""
    return make_checkpoint(
        "encoder", type_vocab_size=2, max_position_embeddings=40, num_hidden_layers=1
    )


def golden(name):
    """Returns a reference folder, its texts and embeddings; skips where it is missing."""
    folder = golden_file("families", "sentence_transformers", name)
    arrays = read_arrays(folder / "golden.npz")
    return folder, [str(text) for text in arrays["in_sentences"]], arrays["out_embeddings"]


def copy(folder, path):
    """Copies a read-only folder so that it can be changed."""
    shutil.copytree(folder, path, copy_function=shutil.copyfile)
    for one in [path, *path.rglob("*")]:
        one.chmod(0o755 if one.is_dir() else 0o644)
    return path


def change(path, **values):
    """Changes keys of a JSON file; None takes one out."""
    content = json.loads(path.read_text()) | values
    path.write_text(json.dumps({key: v for key, v in content.items() if v is not None}))


@pytest.mark.parametrize("name", slow_unless("mean_dense_tanh", FOLDERS))
def test_embeddings_are_those_of_sentence_transformers(name):
    folder, texts, expected = golden(name)
    model = BertEmbedder.from_pretrained(folder)
    vectors = model.encode(texts, batch_size=7)
    assert vectors.dtype == np.float32
    assert_close(vectors, expected, OTHER_FRAMEWORK)


def test_the_tokenizer_reads_texts_as_the_library_does(tmp_path):
    """Special tokens in texts, and the longest word."""
    folder = copy(golden("mean_normalize")[0], tmp_path / "a")
    path = folder / "tokenizer.json"
    values = json.loads(path.read_text())
    for stated in (100, None, 200, 50):
        values["model"]["max_input_chars_per_word"] = stated
        if stated is None:
            del values["model"]["max_input_chars_per_word"]
        path.write_text(json.dumps(values))
        vocab = read_checkpoint(folder).vocab
        assert load_tokenizer(folder).vocab == vocab
        assert vocab.options == WordPieceOptions(
            max_word_characters=stated or 100, reads_special_tokens=True
        )
    path.unlink()
    assert read_checkpoint(folder).vocab.options.max_word_characters == 100
    model = BertEmbedder.from_pretrained(folder)
    ids = model.tokenizer.encode("[SEP]")
    assert ids == [model.tokenizer.vocab.sep_id]


@pytest.mark.parametrize(
    "name",
    slow_unless("mpnet/sentence", ["sentence_transformers/mean_dense_tanh", "mpnet/sentence"]),
)
@pytest.mark.parametrize(
    "form", slow_unless("sentence_transformers", ["sentence_transformers", "bert_tf", "keras"])
)
def test_a_saved_model_embeds_alike(tmp_path, form, name):
    folder = golden_file("families", *name.split("/"))
    texts = read_arrays(folder / "golden.npz")["in_sentences"].tolist()
    model = BertEmbedder.from_pretrained(folder)
    if form == "keras":
        model.save(tmp_path / "model.keras")
        again = keras.models.load_model(tmp_path / "model.keras")
    else:
        model.save_pretrained(tmp_path / "new", form)
        again = BertEmbedder.from_pretrained(tmp_path / "new")
    assert (again.config, again.embedding) == (model.config, model.embedding)
    np.testing.assert_array_equal(again.encode(texts[:5]), model.encode(texts[:5]))


def to_new_names(folder):
    """Writes a folder's modules and pooling as release 6 does."""
    path = folder / "modules.json"
    paths = {
        "Transformer": "base.modules.transformer",
        "Pooling": "sentence_transformer.modules.pooling",
        "Dense": "base.modules.dense",
        "Normalize": "base.modules.normalize",
    }
    modules = json.loads(path.read_text())
    for module in modules:
        kind = module["type"].rpartition(".")[2]
        module["type"] = f"sentence_transformers.{paths[kind]}.{kind}"
    path.write_text(json.dumps(modules))
    new = {"embedding_dimension": 36, "pooling_mode": "mean", "include_prompt": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(new))
    (folder / "sentence_bert_config.json").write_text('{"transformer_task": "feature-extraction"}')
    change(folder / "tokenizer_config.json", model_max_length=40)


@pytest.mark.parametrize(
    "name", ["mean_normalize", pytest.param("mean_dense_tanh", marks=pytest.mark.slow)]
)
def test_new_and_old_forms_are_the_same_model(tmp_path, name):
    folder, texts, expected = golden(name)
    new = copy(folder, tmp_path / "new")
    to_new_names(new)
    model = BertEmbedder.from_pretrained(new)
    assert model.embedding == read_checkpoint(folder).embedding
    old = copy(folder, tmp_path / "old")  # As before the first release.
    (old / "sentence_bert_config.json").rename(old / "sentence_roberta_config.json")
    assert read_checkpoint(old).embedding == model.embedding
    assert_close(model.encode(texts), expected, OTHER_FRAMEWORK)


@pytest.mark.slow
def test_the_transformer_may_lie_in_a_folder_of_its_own(tmp_path):
    folder, texts, expected = golden("cls")
    new = copy(folder, tmp_path / "new")
    (new / "0_Transformer").mkdir()
    own = ("modules.json", "config_sentence_transformers.json")
    for path in list(new.iterdir()):
        if path.is_file() and path.name not in own:
            path.rename(new / "0_Transformer" / path.name)
    modules = json.loads((new / "modules.json").read_text())
    modules[0]["path"] = "0_Transformer"
    (new / "modules.json").write_text(json.dumps(modules))
    assert_close(BertEmbedder.from_pretrained(new).encode(texts), expected, OTHER_FRAMEWORK)


def pooled(vectors, name, skipped):
    """Returns a pooling of one row's vectors [t, D], written out."""
    kept = vectors[skipped:]
    places = np.arange(1, len(vectors) + 1)[skipped:, None]
    return {
        "cls": kept[0],
        "lasttoken": vectors[-1],
        "max": kept.max(axis=0),
        "mean": kept.mean(axis=0),
        "mean_sqrt_len": kept.sum(axis=0) / np.sqrt(len(kept)),
        "weightedmean": (kept * places).sum(axis=0) / places.sum(),
    }[name]


@pytest.mark.parametrize("include_prompt", [pytest.param(True, marks=pytest.mark.slow), False])
def test_all_poolings_put_end_to_end(include_prompt):
    names = ("cls", "max", "mean", "mean_sqrt_len", "weightedmean", "lasttoken")
    embedding = EmbeddingConfig(
        names, prompts={"query": "the film "}, include_prompt=include_prompt, max_seq_length=12
    )
    model = BertEmbedder.from_checkpoint(made_checkpoint(), embedding=embedding)
    texts = ["good bad", "the film was very good"]
    vectors = model.encode_query(texts, batch_size=2)
    tokenizer = model.tokenizer
    skipped = 0 if include_prompt else 1 + len(tokenizer.encode("the film "))
    for text, vector in zip(texts, vectors, strict=True):
        row = model.pack("the film " + text)
        inputs = {
            "input_word_ids": np.array([row.ids], np.int32),
            "input_mask": np.ones([1, len(row.ids)], np.int32),
            "input_type_ids": np.array([row.type_ids], np.int32),
        }
        pieces = np.asarray(model.bert(inputs)["sequence_output"])[0]
        expected = np.concatenate([pooled(pieces, name, skipped) for name in names])
        assert_close(vector, expected)
    assert not np.allclose(vectors, model.encode(texts))  # without the prompt


def test_what_is_no_text_is_named_before_anything_is_computed():
    embedder = BertEmbedder.from_checkpoint(made_checkpoint())
    for texts, message in ((["a", None], r"texts\[1\] .*None"), ("a b", "^texts .*'a b'")):
        with pytest.raises(ValueError, match=message):
            embedder.encode(texts)
    for size in (0, -1):  # -1 would leave zeros.
        with pytest.raises(ValueError, match=f"batch_size .*{size}, .*1 "):
            embedder.encode(["a"], batch_size=size)
    assert embedder.encode([]).shape == (0, embedder.dimension)
    two = embedder.encode(["a", "b"])
    np.testing.assert_array_equal(embedder.encode(text for text in ("a", "b")), two)


def test_prompts_by_name():
    prompts = {"query": "q: ", "passage": "p: "}
    embedding = EmbeddingConfig(prompts=prompts, default_prompt="passage")
    assert embedding.side_prompt("query") == "q: "
    assert embedding.prompt(None) == embedding.prompt("passage") == "p: "
    # Neither a prompt of another name nor the default one.
    assert embedding.side_prompt("document") == EmbeddingConfig().side_prompt("document") == ""
    assert EmbeddingConfig(prompts={"all": "a"}, default_prompt="all").side_prompt("query") == ""
    with pytest.raises(ValueError, match=r"'other'.*\['query', 'passage'\]"):
        embedding.prompt("other")


def test_what_a_folder_says_goes_there_and_back(tmp_path):
    dense = (DenseStep(8, 5, activation="relu"), DenseStep(5, 3, use_bias=False))
    embedding = EmbeddingConfig(
        ("max",), dense, True, 9, {"query": "é "}, "query", False, "dot", True
    )
    checkpoint = made_checkpoint()
    size = checkpoint.config.hidden_size
    dense = (dataclasses.replace(dense[0], in_features=size), dense[1])
    embedding = dataclasses.replace(embedding, dense=dense)
    rng = np.random.default_rng(5)
    weights = {
        name: rng.normal(size=shape).astype(np.float32)
        for name, shape in embedding.shapes().items()
    }
    checkpoint = dataclasses.replace(
        checkpoint, weights={**checkpoint.weights, **weights}, embedding=embedding
    )
    written = write_checkpoint(checkpoint, tmp_path / "new", "sentence_transformers")
    assert written.embedding == embedding
    for name, value in weights.items():
        np.testing.assert_array_equal(written.weights[name], value)
    types = [m["type"] for m in json.loads((tmp_path / "new" / "modules.json").read_text())]
    assert types == [
        f"sentence_transformers.models.{kind}"
        for kind in ("Transformer", "Pooling", "Dense", "Dense", "Normalize")
    ]


def test_no_length_above_the_models_is_written(tmp_path):
    checkpoint = dataclasses.replace(made_checkpoint(), embedding=EmbeddingConfig())
    written = write_checkpoint(checkpoint, tmp_path / "new", "sentence_transformers")
    assert written.embedding == EmbeddingConfig(max_seq_length=40)


def test_folders_that_cannot_be_computed_are_refused(tmp_path):
    folder, _, _ = golden("mean_dense_tanh")
    path = copy(folder, tmp_path / "new")

    def refusal():
        with pytest.raises(ValueError) as caught:
            read_checkpoint(path)
        return str(caught.value)

    change(path / "2_Dense" / "config.json", in_features=35)
    assert "linear.weight" in refusal() and "[25, 35]" in refusal()
    modules = json.loads((path / "modules.json").read_text())
    modules[1]["path"] = "../1_Pooling"
    (path / "modules.json").write_text(json.dumps(modules))
    assert "'../1_Pooling'" in refusal() and "modules.json" in refusal()
    modules[1]["type"] = "my_code.Pooling"
    (path / "modules.json").write_text(json.dumps(modules))
    assert "my_code.Pooling" in refusal()
    (path / "modules.json").write_text("{")
    assert "modules.json" in refusal()


ORACLE = """
import json, sys
import numpy as np
from sentence_transformers import SentenceTransformer
model = SentenceTransformer(sys.argv[1], device="cpu")
texts = json.loads(sys.argv[2])
side = {"query": model.encode_query, "document": model.encode_document, "": model.encode}
np.save(sys.argv[3], np.stack([side[name](texts) for name in ("", "query", "document")]))
"""


def embedded_by_library(folder, texts, tmp_path):
    """Returns what encode, encode_query and encode_document of the library itself give.

    Skips unless SENTENCE_TRANSFORMERS_PYTHON names a Python that has it.
    """
    python = os.environ.get("SENTENCE_TRANSFORMERS_PYTHON")
    if not python:
        pytest.skip("set SENTENCE_TRANSFORMERS_PYTHON to a Python with sentence-transformers")
    script, out = tmp_path / "oracle.py", tmp_path / "out.npy"
    script.write_text(ORACLE)
    command = [python, str(script), str(folder), json.dumps(texts), str(out)]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": ""})
    return np.load(out)


def embedded_by_us(model, texts):
    methods = model.encode, model.encode_query, model.encode_document
    return np.stack([method(texts) for method in methods])


@pytest.mark.needs(variable="SENTENCE_TRANSFORMERS_PYTHON")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("prompts", "default"),
    [
        ({"query": "what is ", "passage": "this: "}, None),
        ({"query": "what is ", "passage": "this: "}, "passage"),
        ({"passage": "this: ", "corpus": "that "}, "corpus"),
        ({"query": "what is ", "document": "", "passage": "this: "}, "query"),
    ],
)
def test_prompts_of_sides_are_those_of_sentence_transformers(tmp_path, prompts, default):
    folder, texts, _ = golden("mean_normalize")
    path = copy(folder, tmp_path / "new")
    values = {"prompts": prompts, "default_prompt_name": default}
    change(path / "config_sentence_transformers.json", prompts=None)
    content = json.loads((path / "config_sentence_transformers.json").read_text())
    (path / "config_sentence_transformers.json").write_text(json.dumps(content | values))
    expected = embedded_by_library(path, texts[:5], tmp_path)
    found = embedded_by_us(BertEmbedder.from_pretrained(path), texts[:5])
    assert_close(found, expected, OTHER_FRAMEWORK)


@pytest.mark.needs(variable="SENTENCE_TRANSFORMERS_PYTHON")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("pooling", "dense"),
    [
        ("cls", ()),
        ("mean", (("tanh", 7), ("linear", 5))),
        ("max", (("gelu_exact", 6),)),
        ("mean_sqrt_len", ()),
        ("weightedmean", (("sigmoid", 7), ("relu", 9))),
    ],
)
def test_sentence_transformers_loads_what_is_written(tmp_path, pooling, dense):
    folder, texts, _ = golden("cls")
    config = read_checkpoint(folder).config
    sizes = [config.hidden_size, *(size for _, size in dense)]
    embedding = EmbeddingConfig(
        (pooling,),
        tuple(
            DenseStep(sizes[index], size, index == 0, act)
            for index, (act, size) in enumerate(dense)
        ),
        normalize=bool(dense),
        max_seq_length=23,
        prompts={"query": "what is ", "document": "this: "},
        include_prompt=pooling != "weightedmean",
    )
    keras.utils.set_random_seed(3)
    model = BertEmbedder.from_pretrained(folder, ["cls/"], embedding=embedding)
    model.save_pretrained(tmp_path / "new")
    expected = embedded_by_library(tmp_path / "new", texts, tmp_path)
    assert_close(embedded_by_us(model, texts), expected, OTHER_FRAMEWORK)


def test_pieces_of_a_prompt_are_counted_as_they_are_read():
    vocab = Vocab(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "The", "t", "##h", "##e"))
    tokenizer = make_tokenizer(vocab, False)
    for lowers, count in ((False, 1), (True, 3)):
        embedding = EmbeddingConfig(include_prompt=False, lower_case_texts=lowers)
        assert prompt_length(tokenizer, embedding, "The ") == 1 + count  # [CLS] among them.
