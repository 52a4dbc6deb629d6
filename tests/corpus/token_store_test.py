"""The tokenised corpus on disk: what goes in comes out, and a restart does only what is missing."""

import tracemalloc

import numpy as np
import pytest

from bert_tf.corpus.corpus import list_parts, read_documents
from bert_tf.corpus.token_store import TokenStore, token_type, tokenize_corpus, write_part
from bert_tf.text.vocab import Vocab
from bert_tf.text.wordpiece import WordPiece

TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "##a", "##b", ".")


@pytest.fixture
def corpus(tmp_path):
    """60 documents of 1 to 4 sentences in three files, and a vocabulary."""
    generator = np.random.default_rng(1)
    for file in range(3):
        lines = []
        for _ in range(20):
            for _ in range(generator.integers(1, 5)):
                words = ["".join(generator.choice(["a", "b"], 3)) for _ in range(5)]
                lines.append(" ".join(words) + " .")
            lines.append("")
        (tmp_path / f"{file}.txt").write_text("\n".join(lines))
    Vocab(TOKENS).write(tmp_path / "vocab.txt")
    return tmp_path


def tokenize(corpus, folder, num_workers=1):
    parts = list_parts(f"{corpus}/?.txt", part_bytes=400)
    return tokenize_corpus(
        parts,
        corpus / folder,
        vocab_file=str(corpus / "vocab.txt"),
        do_lower_case=True,
        num_workers=num_workers,
    )


def sentences_of(store, document):
    """Returns the sentences of a document, lists of ids."""
    _, bounds, tokens = store.document(document)
    ends = np.array(bounds[1:-1], np.int64) - bounds[0]
    return [sentence.tolist() for sentence in np.split(tokens, ends)]


def test_holds_the_documents_in_order(corpus):
    store = tokenize(corpus, "tokens")
    tokenizer = WordPiece(Vocab(TOKENS), True)
    expected = [
        [tokenizer.encode_uncached(sentence) for sentence in document]
        for part in list_parts(f"{corpus}/?.txt")
        for document in read_documents(part)
    ]
    assert len(store.paths) > 3  # the files were cut in parts
    assert store.num_documents == len(expected) == 60
    assert store.num_tokens == sum(len(sentence) for document in expected for sentence in document)
    for index, document in enumerate(expected):
        assert sentences_of(store, index) == document


def test_workers_and_restarts_do_not_change_a_byte(corpus):
    paths = tokenize(corpus, "one").paths
    contents = [path.read_bytes() for path in paths]
    store = tokenize(corpus, "with-2", num_workers=2)
    assert [path.read_bytes() for path in store.paths] == contents

    paths[1].unlink()
    untouched = paths[0].stat().st_mtime_ns
    assert [path.read_bytes() for path in tokenize(corpus, "one").paths] == contents
    assert paths[0].stat().st_mtime_ns == untouched


def test_empty_sentences_and_documents_leave_no_trace(tmp_path):
    write_part(tmp_path / "0", [[[], [1, 2]], [[]], [], [[3], [], [4]]], 2)
    store = TokenStore([tmp_path / "0"])
    assert [sentences_of(store, i) for i in range(2)] == [[[1, 2]], [[3], [4]]]
    assert store.num_documents == 2


@pytest.mark.parametrize(("vocab_size", "last"), [(65536, 65535), (65537, 65536)])
def test_piece_type_holds_every_id(tmp_path, vocab_size, last):
    size = token_type(vocab_size).itemsize
    write_part(tmp_path / "0", [[[0, last]]], size)
    assert sentences_of(TokenStore([tmp_path / "0"]), 0) == [[0, last]]
    assert size == (2 if vocab_size == 65536 else 4)


def test_many_files_do_not_exhaust_descriptors(tmp_path, monkeypatch):
    monkeypatch.setattr("bert_tf.corpus.token_store.MAX_OPEN_FILES", 3)
    for number in range(10):
        write_part(tmp_path / str(number), [[[number]]], 2)
    store = TokenStore([tmp_path / str(number) for number in range(10)])
    order = [*range(10), 0, 9]
    assert [sentences_of(store, i) for i in order] == [[[i]] for i in order]
    assert len(store._descriptors) <= 3


def test_memory_does_not_grow_with_the_corpus(tmp_path, monkeypatch):
    monkeypatch.setattr("bert_tf.corpus.token_store.FLUSH_TOKENS", 1000)
    peaks = []
    for num_documents in (100, 3000):
        documents = ([[1] * 20] * 5 for _ in range(num_documents))
        tracemalloc.start()
        write_part(tmp_path / "0", documents, 2)
        store = TokenStore([tmp_path / "0"])
        for index in range(store.num_documents):
            store.document(index)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert store.num_tokens == 300_000
    assert peaks[1] - peaks[0] < 100_000  # of 600,000 bytes of pieces


def test_a_damaged_file_is_named(tmp_path):
    write_part(tmp_path / "0", [[[1, 2, 3]]], 2)
    data = (tmp_path / "0").read_bytes()
    (tmp_path / "0").write_bytes(data[2:])
    with pytest.raises(ValueError, match=r"/0 .*tokens"):
        TokenStore([tmp_path / "0"])
