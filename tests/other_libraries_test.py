"""The examples of docs/other_libraries.md, run with the libraries themselves."""

import re

import numpy as np
import pytest

import bert_tf
from tests.docs_test import ROOT
from tests.shared_data import golden_file, shared_data
from tests.tiny_model import write_tiny_model

WORDS = ("owls", "eat", "mice", "cats", "sleep", "rain", "falls", "on", "the", "sea", "fish")
TEXTS = ["owls eat mice", "cats sleep", "rain falls on the sea", "fish sleep on the sea"]
QUESTION = "owls eat mice"
LIBRARIES = {
    "qdrant_client": "Qdrant",
    "faiss": "FAISS",
    "langchain_core": "LangChain",
    "llama_index": "LlamaIndex",
    "bertopic": "BERTopic and KeyBERT",
}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    write_tiny_model(folder / "model", *WORDS)
    return {
        "model": bert_tf.load(folder / "model", "embeddings"),
        "reranker": bert_tf.load(golden_file("families", "sentence_transformers", "cross_encoder")),
    }


def examples_of(title: str) -> list[str]:
    page = (ROOT / "docs/other_libraries.md").read_text()
    section = page.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    return re.findall(r"```python\n(.*?)```", section, re.DOTALL)


@pytest.mark.slow
@pytest.mark.parametrize("package", LIBRARIES)
def test_examples_find_the_text_that_is_the_question(package, models):
    pytest.importorskip(package)
    colbert = shared_data("fixtures", "families", "colbert", "st6")
    topics = [f"{text} {i}" for text in TEXTS for i in range(20)]  # Enough for BERTopic.
    names = {
        "bert_tf": bert_tf,  # The page's first example imports it.
        **models,
        "texts": topics if package == "bertopic" else list(TEXTS),
        "question": QUESTION,
        "__name__": "example",
    }
    for code in examples_of(LIBRARIES[package]):
        exec(code.replace('"colbert"', repr(str(colbert))), names)  # noqa: S102
        if "colbert" in names:
            query = np.array(names["query"])
            scores = [(query @ one.T).max(axis=1).sum() for one in names["documents"]]
            for point in names["found"]:
                assert point.score == pytest.approx(scores[point.id], abs=1e-4)
            continue
        if "best" in names:
            assert sorted(one["document"] for one in names["best"]) == sorted(TEXTS)
        if "rows" in names:
            assert names["rows"][0][0] == 0
        if package == "bertopic":
            assert len(names["topics"]) == len(topics)
            found = {word for words in names["keywords"] for word, _ in words}
            assert found & set(WORDS)
        first = names["found"][0] if "found" in names else None
        for get in ("page_content", "text"):
            if hasattr(first, get):
                assert getattr(first, get) == QUESTION
        if hasattr(first, "payload"):
            assert first.payload["text"] == QUESTION
