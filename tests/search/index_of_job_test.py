"""An index that `embed_texts` wrote is told from another one at its path."""

import importlib
import pathlib
import sys
import types
from collections.abc import Iterator

import numpy as np
import pytest
from absl import flags

from bert_tf.search.bulk import Job
from bert_tf.search.index import add_to_index, build_index
from bert_tf.search.manifest import Manifest
from bert_tf.search.segments import Batch
from tests.programs import own_flags
from tests.search.bulk_stand_in import embed_all, make
from tests.search.bulk_test import write


@pytest.fixture
def program(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[types.ModuleType]:
    """The program with its flags, which other programs define, too."""
    monkeypatch.delitem(sys.modules, "bert_tf.embed_texts", raising=False)
    with own_flags():
        yield importlib.import_module("bert_tf.embed_texts")
    del sys.modules["bert_tf.embed_texts"]


def embedded(tmp_path: pathlib.Path) -> Job:
    """Returns a job of five documents whose shards are all embedded."""
    job = make(tmp_path, write(tmp_path / "a.jsonl", "abcde"))
    embed_all(job)
    return job


def test_another_index_at_the_path_is_refused(
    tmp_path: pathlib.Path, program: types.ModuleType
) -> None:
    folder = tmp_path / "index"
    flags.FLAGS(["embed_texts", f"--index_dir={folder}"])
    job = embedded(tmp_path)
    assert not program.check_index(job)
    program.write_index(job, list(job.shards()), "cosine")
    assert program.check_index(job)
    add_to_index(folder, [Batch(["x"], np.ones([1, 4]), ["x"])], model="m")
    assert program.check_index(job)
    folder.rename(tmp_path / "away")
    build_index(folder, [Batch([*"abcde"], np.ones([5, 4]), [*"abcde"])], model="m")
    with pytest.raises(ValueError, match=str(folder)):
        program.check_index(job)


def test_the_index_has_the_language_that_was_given(
    tmp_path: pathlib.Path, program: types.ModuleType
) -> None:
    folder = tmp_path / "index"
    job = embedded(tmp_path)
    flags.FLAGS(["embed_texts", f"--index_dir={folder}", "--language=de"])
    program.write_index(job, list(job.shards()), "cosine")
    assert Manifest.read(folder).language == "de" and program.check_index(job)
    flags.FLAGS(["embed_texts", f"--index_dir={folder}", "--language=en"])
    with pytest.raises(ValueError, match=str(folder)):
        program.check_index(job)
