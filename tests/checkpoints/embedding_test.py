"""embedder.json: what is written is read, and what is damaged is named."""

import json
import pathlib

import pytest

from bert_tf.checkpoints.embedding import (
    DenseStep,
    EmbeddingConfig,
    read_embedding,
    write_embedding,
)


def test_what_is_written_is_read(tmp_path: pathlib.Path) -> None:
    assert read_embedding(tmp_path) is None
    config = EmbeddingConfig(("cls",), (DenseStep(8, 4),), True, 12, prompts={"query": "ß: "})
    write_embedding(tmp_path, config)
    assert read_embedding(tmp_path) == config


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ('{"pools": ["cls"]}', "does not describe an embedding: .*pools"),
        ('{"max_seq_length": "12"}', "max_seq_length is '12', expected int"),
        (json.dumps({"dense": [{"size": 3}]}), "does not describe an embedding: .*size"),
    ],
)
def test_a_damaged_file_is_named(tmp_path: pathlib.Path, text: str, message: str) -> None:
    (tmp_path / "embedder.json").write_text(text)
    with pytest.raises(ValueError, match=message) as caught:
        read_embedding(tmp_path)
    assert "embedder.json" in str(caught.value)
