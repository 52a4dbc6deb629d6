"""MPNet with its tokenizer: sentence embeddings in Python, written back, and exported."""

import keras
import numpy as np
import pytest

import bert_tf
from bert_tf.tasks.embedding.model import BertEmbedder
from tests.float_bounds import OTHER_FRAMEWORK, assert_close
from tests.shared_data import golden_file


def golden() -> tuple[str, list[str], dict[str, np.ndarray]]:
    folder = golden_file("families", "mpnet", "sentence")
    values = dict(np.load(folder / "golden.npz"))
    return str(folder), values["in_sentences"].tolist(), values


def test_ids_and_embeddings_are_those_of_sentence_transformers():
    folder, sentences, values = golden()
    batch = bert_tf.load_tokenizer(folder)(sentences, max_length=60)
    np.testing.assert_array_equal(batch["input_word_ids"], values["in_input_ids"])
    np.testing.assert_array_equal(batch["input_mask"], values["in_attention_mask"])
    vectors = bert_tf.load(folder).encode(sentences)
    assert_close(vectors, values["out_embeddings"], OTHER_FRAMEWORK)


@pytest.mark.parametrize(
    "form",
    [
        "sentence_transformers",
        pytest.param("bert_tf", marks=pytest.mark.slow),
        pytest.param("keras", marks=pytest.mark.slow),
    ],
)
def test_a_saved_model_embeds_alike(tmp_path, form):
    folder, sentences, _ = golden()
    model = BertEmbedder.from_pretrained(folder)
    if form == "keras":
        model.save(tmp_path / "model.keras")
        again = keras.models.load_model(tmp_path / "model.keras")
    else:
        model.save_pretrained(tmp_path / "new", form)
        again = BertEmbedder.from_pretrained(tmp_path / "new")
    assert (again.config, again.embedding) == (model.config, model.embedding)
    np.testing.assert_array_equal(again.encode(sentences[:5]), model.encode(sentences[:5]))
