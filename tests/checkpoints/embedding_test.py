"""embedder.json: what is written is read, and what is damaged is named."""

import json
import pathlib

import pytest

from bert_tf.checkpoints.embedding import (
    read_embedding,
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "JSON: .*line 1 column 2"),
        ('{"pools": ["cls"]}', "EmbeddingConfig.*'pools'"),
        ('{"max_seq_length": "12"}', "max_seq_length .*'12', .*int"),
        (json.dumps({"dense": [{"size": 3}]}), "DenseStep.*'size'"),
    ],
)
def test_a_damaged_file_is_named(tmp_path: pathlib.Path, text: str, message: str) -> None:
    (tmp_path / "embedder.json").write_text(text)
    with pytest.raises(ValueError, match=message) as caught:
        read_embedding(tmp_path)
    assert "embedder.json" in str(caught.value)
