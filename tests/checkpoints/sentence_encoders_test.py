"""Sentence encoders with the tokenizers of XLM-RoBERTa and of MPNet, in Python."""

import numpy as np
import pytest

import bert_tf
from tests.shared_data import golden_file, read_arrays


@pytest.mark.parametrize(
    ("family", "name", "max_length"),
    [
        ("mpnet", "sentence", 60),
        ("multilingual_sentence", "paraphrase", 40),
        pytest.param("multilingual_sentence", "e5", 40, marks=pytest.mark.slow),
    ],
)
def test_ids_and_embeddings_are_those_of_sentence_transformers(family, name, max_length):
    folder = golden_file("families", family, name)
    values = read_arrays(folder / "golden.npz")
    sentences = values["in_sentences"].tolist()
    batch = bert_tf.load_tokenizer(folder)(sentences, max_length=max_length)
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
