"""Tests of the corpus gathered from installed sources, on a small library made here."""

import pytest

from bert_tf.corpus import builtin_corpus
from bert_tf.corpus.builtin_corpus import gather_builtin_corpus, is_prose

MODULE = '''
"""Reads and writes the files of the `zoo`.

The format was made by :class:`~zoo.keepers.Keeper` for the *old* zoo, see
`the guide <https://example.com>`_ and [the notes](https://example.com/notes).

Example::

    this is = code(that is not kept)

>>> the_session is not kept either
And the output of it is not kept.
"""

class Animal(Being):
    r"""An animal of the zoo.

    .. code-block:: python

        The code is not kept.

    .. note::
        A note is kept as it is prose.

    Args:
      name: The name that the keepers call
        it by.
      weight (float): Its weight in kilograms.

    Parameters
    ----------
    age : int, optional
        The age of the animal in years.

    ```python
    The fenced code is not kept.
    ```
    """

    def feed(self):
        \'\'\'Feeds the animal with ``hay``.  An animal of the zoo.\'\'\'
        # The hay is bought from a farm that is not
        # far away. It is delivered by the farmer
        # on every second day of the week.
        text = """this string is not a docstring."""
'''
EXPECTED = """\
Reads and writes the files of the zoo.
The format was made by Keeper for the old zoo, see the guide and the notes.
An animal of the zoo.
A note is kept as it is prose.
The name that the keepers call it by.
Its weight in kilograms.
The age of the animal in years.
Feeds the animal with hay.
The hay is bought from a farm that is not far away.
It is delivered by the farmer on every second day of the week.
"""
TOPICS = "topics = {'b': 'The second topic is here.', 'a': 'The first topic is here.'}\n"


@pytest.fixture
def library(tmp_path, monkeypatch):
    """A standard library of one module and the language reference; no packages."""
    (tmp_path / "lib" / "pydoc_data").mkdir(parents=True)
    (tmp_path / "lib" / "test").mkdir()
    (tmp_path / "lib" / "test" / "zoo.py").write_text('"""The tests are not read at all."""')
    (tmp_path / "lib" / "zoo.py").write_text(MODULE)
    monkeypatch.setattr(builtin_corpus.sysconfig, "get_path", lambda name: tmp_path / "lib")
    monkeypatch.setattr(builtin_corpus, "PACKAGES", ("surely_not_installed",))
    return tmp_path / "lib"


def test_prose_is_kept_and_all_else_dropped(library, tmp_path):
    path = gather_builtin_corpus(tmp_path / "corpus.txt")
    assert path.read_text() == EXPECTED + "\n"


def test_documents_are_topics_and_groups_of_at_least_the_minimum(library, tmp_path, monkeypatch):
    (library / "pydoc_data" / "topics.py").write_text(TOPICS)
    monkeypatch.setattr(builtin_corpus, "MIN_SENTENCES", 2)
    documents = gather_builtin_corpus(tmp_path / "corpus.txt").read_text().split("\n\n")
    assert [document.count("\n") + 1 for document in documents[:-1]] == [2, 2, 8]
    assert documents[0] == "The first topic is here.\nThe second topic is here."


def test_no_sources_is_an_error_and_leaves_no_file(library, tmp_path):
    (library / "zoo.py").unlink()
    with pytest.raises(ValueError, match="input_file"):
        gather_builtin_corpus(tmp_path / "corpus.txt")
    assert not (tmp_path / "corpus.txt").exists()


def test_a_real_package_is_found_without_import(tmp_path, library, monkeypatch):
    monkeypatch.setattr(builtin_corpus, "PACKAGES", ("absl",))
    text = gather_builtin_corpus(tmp_path / "corpus.txt").read_text()
    sentences = [line for line in text.split("\n") if line]
    assert len(sentences) > 300 and len(set(sentences)) == len(sentences)
    assert "absl" in text or "flag" in text


@pytest.mark.parametrize(
    "sentence",
    [
        "Short one.",
        "no capital at the start of this.",
        "There is no full stop at the end of this",
        "x = y + 3 is what it is.",
        "See https://example.com for more of this.",
        "Foo Bar Baz Qux Quux Corge Grault.",
        "Copyright 2020 by the authors of this.",
        "The a1_b2 c3_d4 e5_f6 g7_h8 are in.",
    ],
)
def test_not_prose(sentence):
    assert not is_prose(sentence)
