"""Late interaction: the golden vectors of three dialects, MaxSim, token pooling, wrong folders."""

import dataclasses
import itertools
import json
import pathlib
import shutil

import keras
import numpy as np
import pytest
import tokenizers

import bert_tf
from bert_tf.config import ModelConfig
from bert_tf.config.pooled_layers import DenseStep, NormStep
from bert_tf.metrics import maxsim as maxsims
from bert_tf.metrics.maxsim import TokenMatrix, maxsim
from bert_tf.network.attention import AttentionPattern
from bert_tf.network.layout import ComputedPadding
from bert_tf.tasks.embedding.token_pooling import pool_tokens_of_document
from tests.shared_data import read_arrays, shared_data
from tests.slow_variants import slow_unless, slow_where

pytestmark = pytest.mark.needs(data="fixtures/families/colbert")
GOLDEN_BOUND = 1e-5  # float32 against float64 of the golden vectors, see its README


def golden(*parts):
    return shared_data("fixtures", "families", "colbert", *parts)


@pytest.mark.parametrize("dialect", ["pylate", "st6", "stanford"])
def test_vectors_and_scores_are_those_of_sentence_transformers(dialect):
    expected = read_arrays(golden(dialect, "golden.npz"))
    predictor = bert_tf.load(golden(dialect))
    queries, documents = list(expected["in_queries"]), list(expected["in_documents"])
    encoded = {
        "query": predictor.encode_queries(queries),
        "document": predictor.encode_documents(documents),
    }
    for side, vectors in encoded.items():
        masks = expected[f"out_{side}_scoring_mask"].astype(bool)
        for found, wanted, mask in zip(
            vectors, expected[f"out_{side}_embeddings"], masks, strict=True
        ):
            assert found.dtype == np.float32
            np.testing.assert_allclose(found, wanted[mask], rtol=0, atol=GOLDEN_BOUND)
    scores = predictor.score(queries, documents)
    np.testing.assert_allclose(scores, expected["out_scores"], rtol=0, atol=GOLDEN_BOUND)
    alone = predictor.encode_documents(documents[4:5])[0]
    np.testing.assert_allclose(alone, encoded["document"][4], rtol=0, atol=GOLDEN_BOUND)


@pytest.mark.parametrize("most", [1, 1 << 20])
def test_maxsim_is_that_of_the_golden_file(monkeypatch, most):
    """A document without tokens comes last, and there is no NaN; also in parts of one document."""
    monkeypatch.setattr(maxsims, "MAX_PRODUCTS", most)
    file = read_arrays(golden("maxsim.npz"))

    def masked(name):
        masks = file[f"in_{name}_mask"].astype(bool)
        vectors = file["in_queries" if name == "query" else "in_documents"]
        return [one[mask] for one, mask in zip(vectors, masks, strict=True)]

    documents = TokenMatrix.of(masked("document"))
    for similarity, name in (("maxsim", "out_maxsim"), ("meanmaxsim", "out_mean_maxsim")):
        found = maxsim(masked("query"), documents, similarity)
        np.testing.assert_allclose(found, file[name], rtol=1e-6)
    empty = np.zeros([0, 6], np.float32)
    assert maxsim([empty], documents)[0, 0] == 0 and maxsim([], documents).shape == (0, 5)


@pytest.mark.parametrize("factor", [1.5, 2, 3])
@pytest.mark.parametrize("protected", [0, 1])
def test_pooling_makes_the_golden_clusters(factor, protected):
    file = read_arrays(golden("pooling.npz"))
    starts = np.cumsum(file["in_lengths"])[:-1]
    for form in ("normalised", "raw"):
        name = f"factor{factor}_protected{protected}_{form}"
        ends = np.cumsum(file[f"out_lengths_{name}"])[:-1]
        for vectors, wanted in zip(
            np.split(file["in_vectors"], starts), np.split(file[f"out_{name}"], ends), strict=True
        ):
            found = pool_tokens_of_document(vectors, factor, protected, form == "normalised")
            # The order of the clusters has no meaning: the first number sorts both.
            order = [np.lexsort(one.T[::-1].round(4)) for one in (found, wanted)]
            np.testing.assert_allclose(found[order[0]], wanted[order[1]], rtol=0, atol=1e-5)
            np.testing.assert_allclose(found[:protected], vectors[:protected], atol=1e-5)


def test_pooled_documents_have_a_vector_for_each_factor():
    predictor = bert_tf.load(golden("st6"))
    text = "Louis Guilloux wrote about Georges Palante."
    (whole,) = predictor.encode_documents([text])
    (pooled,) = predictor.encode_documents([text], pool_factor=2, protected_tokens=3)
    assert len(pooled) == 3 + (len(whole) - 3) // 2
    np.testing.assert_allclose(np.linalg.norm(pooled, axis=1), 1, rtol=1e-6)
    for name, values in (("pool_factor", (0.5,)), ("protected_tokens", (2, -1))):
        with pytest.raises(ValueError, match=name):
            predictor.encode_documents(["a"], *values)


ST6 = "config_sentence_transformers.json"
SIZES = "sentence_bert_config.json"


@pytest.mark.parametrize(
    ("dialect", "file", "values", "named"),
    [
        ("pylate", ST6, {"query_prefix": "[R] "}, r"\[R\]"),
        ("stanford", "artifact.metadata", {"doc_token_id": "[unused77]"}, r"\[unused77\]"),
        ("stanford", "artifact.metadata", {"similarity": "l2"}, "l2"),
        ("st6", SIZES, {"do_query_expansion": True}, "pre-release"),
        ("st6", SIZES, {"query_expansion": {"strategy": "most"}}, "strategy"),
        ("st6", SIZES, {"document_length": 0}, "document_length"),
        ("st6", ST6, {"similarity_fn_name": "cosine"}, "cosine"),
        ("st6", ST6, {"query_prefix": "[Q] "}, "query_prefix"),
        ("st6", "2_MultiVectorMask/config.json", {"skiplist_tasks": ["passage"]}, "passage"),
        ("st6", "1_Dense/config.json", {"module_input_name": "sentence_embedding"}, "input_name"),
        (
            "st6",
            "3_Normalize/config.json",
            {"module_input_name": "sentence_embedding"},
            "input_name",
        ),
    ],
)
def test_unknown_settings_are_errors(tmp_path, dialect, file, values, named):
    folder = changed(dialect, tmp_path / dialect, file, values)
    # A wrong side is found by the settings of the whole folder.
    place = folder if named == "passage" else folder / file
    with pytest.raises(ValueError, match=f"{place}: .*{named}"):
        bert_tf.load(folder)


def changed(dialect: str, folder: pathlib.Path, file: str, values: dict) -> pathlib.Path:
    """Returns a copy of a golden folder with other values in one of its files."""
    shutil.copytree(golden(dialect), folder, copy_function=shutil.copyfile)
    for path in (folder, *folder.rglob("*/")):
        path.chmod(0o755)
    path = folder / file
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))
    return folder


@pytest.mark.parametrize("length", [11, 40, None])
def test_queries_without_expansion_have_their_own_tokens(tmp_path, length):
    values = {"do_query_expansion": False, "query_length": length}
    folder = changed("pylate", tmp_path / "model", ST6, values)
    model = bert_tf.BertLateInteraction.from_pretrained(folder)
    tokens = model.embedding.tokens
    # Without a length it is the tokenizer's, 27.
    assert (tokens.expansion_length, tokens.query_length) == (0, length or 27)
    (vectors,) = model.encode_queries(["the first"])
    assert len(vectors) == 5  # [CLS] [Q] the first [SEP]


@pytest.mark.parametrize("prefix", ["the ", "the", "[Q] "])
def test_a_prefix_that_is_a_word_is_not_found_inside_others(tmp_path, prefix):
    folder = changed("pylate", tmp_path / "model", ST6, {"query_prefix": prefix})
    theirs = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    ours = bert_tf.BertLateInteraction.from_pretrained(folder).tokenizer
    for text in ("other", "the bathe", "theatre"):
        assert ours.encode(text) == theirs.encode(text, add_special_tokens=False).ids
    assert len(ours.encode(prefix)) == 1


def test_long_queries_and_documents_are_both_told(caplog):
    predictor = bert_tf.load(golden("st6"))
    caplog.clear()
    predictor.score(["first " * 40, ""], ["first " * 40, "the"])
    queries, documents = [
        one.getMessage() for one in caplog.records if "1 of 2" in one.getMessage()
    ]
    assert "query_length=" in queries and "max_seq_length" not in queries and "empty" in queries
    assert "max_seq_length=" in documents


def test_models_are_not_taken_for_others():
    with pytest.raises(ValueError, match="BertLateInteraction"):
        bert_tf.BertEmbedder.from_pretrained(golden("st6"))
    dense = shared_data("fixtures", "families", "mpnet", "sentence")
    with pytest.raises(ValueError, match="embedding_type=colbert"):
        bert_tf.BertLateInteraction.from_pretrained(dense)
    with pytest.raises(ValueError, match="encode_queries"):
        bert_tf.load(golden("st6")).encode(["a"])
    with pytest.raises(ValueError, match="late_interaction"):
        bert_tf.load(golden("st6")).score(["a"])


FORMS = ("sentence_transformers", "pylate", "stanford")


@pytest.mark.parametrize(
    ("dialect", "form"),
    slow_where(
        lambda case: case not in (("st6", "pylate"), ("pylate", "stanford")),
        itertools.product(("pylate", "st6", "stanford"), FORMS),
    ),
)
def test_folders_are_read_back(tmp_path, dialect, form):
    """Stanford has a fixed rule for punctuation, and no tokens with a space at the end."""
    model = bert_tf.BertLateInteraction.from_pretrained(golden(dialect))
    if (dialect, form) in (("pylate", "stanford"), ("st6", "stanford")):
        with pytest.raises(ValueError, match=r"\[Q\]"):
            model.save_pretrained(tmp_path / form, form)
        return
    model.save_pretrained(tmp_path / form, form)
    read = bert_tf.BertLateInteraction.from_pretrained(tmp_path / form)
    assert read.embedding == model.embedding
    texts = ["What is [MASK]?", "[D] [Q] [unused1] x", ""]
    for found, wanted in zip(
        read.encode_documents(texts), model.encode_documents(texts), strict=True
    ):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.slow
def test_other_layers_are_written_for_one_library_only(tmp_path):
    source = bert_tf.BertLateInteraction.from_pretrained(golden("st6"))
    tokens = dataclasses.replace(
        source.embedding.tokens,
        query_length=12,
        attends=True,
        skiplist=("the", "."),
        skiplist_sides=("query", "document"),
        kept_token_ids=tuple(range(2, 400)),
        pool_factor=1.5,
    )
    dense = (
        DenseStep(24, 20, activation="gelu_exact", residual=True),
        NormStep(20, "l2"),
        DenseStep(20, 20, use_bias=False, residual=True),
    )
    prompts = {"query": "find: "}
    fields = {"tokens": tokens, "dense": dense, "prompts": prompts, "similarity": "meanmaxsim"}
    embedding = dataclasses.replace(source.embedding, **fields)
    model = bert_tf.BertLateInteraction(source.config, embedding, source.vocab)
    model.save_pretrained(tmp_path / "st")
    read = bert_tf.BertLateInteraction.from_pretrained(tmp_path / "st")
    assert read.embedding == embedding
    for found, wanted in zip(read.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(found, wanted)
    for form in ("pylate", "stanford"):
        with pytest.raises(ValueError, match=form):
            model.save_pretrained(tmp_path / form, form)
    model.save(tmp_path / "mine.keras")
    again = keras.models.load_model(tmp_path / "mine.keras")
    np.testing.assert_array_equal(again.score(["a"], ["b"]), model.score(["a"], ["b"]))


@pytest.mark.slow
@pytest.mark.needs("sentence_transformers")
@pytest.mark.parametrize("form", FORMS)
def test_sentence_transformers_computes_the_same(tmp_path, form):
    library = pytest.importorskip("sentence_transformers", minversion="6.2")
    source = bert_tf.BertLateInteraction.from_pretrained(golden("stanford"))
    model = source
    if form == FORMS[0]:
        tokens = dataclasses.replace(source.embedding.tokens, query_length=14, pool_factor=2.0)
        dense = (DenseStep(24, 20, activation="gelu_exact", residual=True), NormStep(20, "l2"))
        embedding = dataclasses.replace(source.embedding, tokens=tokens, dense=dense)
        model = bert_tf.BertLateInteraction(source.config, embedding, source.vocab)
    model.save_pretrained(tmp_path / form, form)
    other = library.MultiVectorEncoder(str(tmp_path / form), device="cpu")
    expected = read_arrays(golden("stanford", "golden.npz"))
    for side, encode in (("queries", other.encode_query), ("documents", other.encode_document)):
        texts = list(expected[f"in_{side}"])
        own = getattr(model, f"encode_{side}")(texts)
        for found, wanted in zip(own, encode(texts, convert_to_numpy=True), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=0, atol=GOLDEN_BOUND)


@pytest.mark.slow
@pytest.mark.parametrize("side", slow_unless("query", ["query", "document"]))
def test_exported_models_embed_their_side(tmp_path, side):
    model = bert_tf.BertLateInteraction.from_pretrained(golden("stanford"))
    model.export(tmp_path / "serving", side=side)
    served = bert_tf.load(tmp_path / "serving")
    # The longest has 99 tokens: it is cut where the side is.
    texts = [str(text) for text in read_arrays(golden("stanford", "golden.npz"))["in_queries"]]
    methods = {"query": "encode_queries", "document": "encode_documents"}
    expected = getattr(model, methods[side])(texts)
    for found, wanted in zip(getattr(served, methods.pop(side))(texts), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=0, atol=GOLDEN_BOUND)
    (other,) = methods.values()
    with pytest.raises(ValueError, match=f"side={'document' if side == 'query' else 'query'}"):
        getattr(served, other)(texts)


def test_tokens_beyond_the_window_of_all_others_attend_to_none():
    """To tokens that fill up a query none attends, and ModernBERT's layers are local."""
    config = ModelConfig(local_attention=4, num_attention_heads=2, hidden_size=8)
    mask = np.array([[1, 1, 1, 0, 0, 0, 0]], np.int32)
    drawn = np.random.default_rng(1).normal(size=[3, 1, 7, 2, 4]).astype(np.float32)
    query, key, value = drawn
    pattern = AttentionPattern(ComputedPadding(mask), config, is_local=True)
    found = pattern.attend(query, key, value, None)[0]  # [T, N, H]
    for token in range(7):
        seen = [other for other in range(3) if abs(other - token) <= 2]
        expected = np.zeros([2, 4], np.float32)
        for head in range(2):
            scores = key[0, seen, head] @ query[0, token, head] / 2  # the root of 4
            weights = np.exp(scores) / np.exp(scores).sum()
            expected[head] = weights @ value[0, seen, head]
        np.testing.assert_allclose(found[token], expected, rtol=1e-5, atol=1e-6)
    assert not np.any(found[5:]) and np.any(found[4])


def test_the_number_of_clusters_is_that_of_a_division_that_is_rounded_once():
    pytest.importorskip("scipy")
    vectors = np.random.default_rng(1).normal(size=(11, 8)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    assert len(pool_tokens_of_document(vectors, 1.1, 0)) == 10  # 11 // 1.1 is 9.
