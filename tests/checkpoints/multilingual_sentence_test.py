"""Multilingual sentence encoders: a plain BERT with XLM-RoBERTa's tokenizer."""

import numpy as np
import pytest

import bert_tf
from tests.shared_data import golden_file


def golden(name: str) -> tuple[str, dict[str, np.ndarray]]:
    folder = golden_file("families", "multilingual_sentence", name)
    return str(folder), dict(np.load(folder / "golden.npz"))


@pytest.mark.parametrize("name", ["paraphrase", pytest.param("e5", marks=pytest.mark.slow)])
def test_ids_and_embeddings_are_those_of_sentence_transformers(name):
    folder, values = golden(name)
    sentences = values["in_sentences"].tolist()
    batch = bert_tf.load_tokenizer(folder)(sentences, max_length=40)
    np.testing.assert_array_equal(batch["input_word_ids"], values["in_input_ids"])
    np.testing.assert_array_equal(batch["input_mask"], values["in_attention_mask"])
    model = bert_tf.load(folder)
    limit = 1e-5 * np.abs(values["out_embeddings"]).max()
    assert np.abs(model.encode(sentences) - values["out_embeddings"]).max() < limit
    if name == "e5":
        queries = model.encode_query(sentences)
        # sentence-transformers, too, gives a document no prompt that is named passage.
        passages = model.encode([f"passage: {text}" for text in sentences])
        assert np.abs(queries - values["out_embeddings_query"]).max() < limit
        assert np.abs(passages - values["out_embeddings_passage"]).max() < limit
