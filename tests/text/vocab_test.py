"""Vocab: ids are lines, bad files are refused by name and line, reading inverts writing."""

import numpy as np
import pytest

from bert_tf.text.vocab import SPECIAL_TOKENS, Vocab
from tests.shared_data import golden_file


def test_ids_are_lines_and_continuations_are_marked() -> None:
    vocab = Vocab((*SPECIAL_TOKENS, "##", "##a", "a"))
    assert [vocab.ids[token] for token in vocab.tokens] == list(range(8)) and len(vocab) == 8
    ids = (vocab.pad_id, vocab.unk_id, vocab.cls_id, vocab.sep_id, vocab.mask_id)
    assert ids == (0, 1, 2, 3, 4)
    np.testing.assert_array_equal(vocab.is_continuation, [0, 0, 0, 0, 0, 0, 1, 0])
    assert vocab.is_continuation.dtype == bool


@pytest.mark.parametrize(
    ("name", "rows", "unk_id"),
    [
        ("bert-base-uncased", 30522, 100),
        ("bert-base-cased", 28996, 100),
        ("bert-base-chinese", 21128, 100),
        ("bert-base-multilingual-cased", 119547, 100),
    ],
)
def test_released_files_are_read_and_written_unchanged(tmp_path, name, rows, unk_id) -> None:
    source = golden_file("vocab", f"{name}-vocab.txt")
    vocab = Vocab.read(source)
    assert len(vocab) == rows
    assert (vocab.pad_id, vocab.unk_id, vocab.cls_id, vocab.sep_id, vocab.mask_id) == (
        (0, unk_id, unk_id + 1, unk_id + 2, unk_id + 3)
    )
    vocab.write(tmp_path / "vocab.txt")
    assert (tmp_path / "vocab.txt").read_bytes() == source.read_bytes()


def test_windows_line_ends_and_a_missing_last_newline_are_read(tmp_path) -> None:
    path = tmp_path / "vocab.txt"
    path.write_bytes("\r\n".join(SPECIAL_TOKENS).encode())
    assert Vocab.read(path).tokens == SPECIAL_TOKENS


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n", r"vocab\.txt.*\[MASK\]"),
        (b"[PAD]\n[UNK]\na\nb\na\n", "vocab.txt, line 5: 'a'.*3"),
        (b"[PAD]\n[UNK]\n\na\n", "vocab.txt, line 3.*''"),
        (b"[PAD]\n\xff\n", "vocab.txt.*UTF-8"),
        (b"", "vocab.txt, line 1.*''"),
    ],
)
def test_bad_files_are_refused(tmp_path, content, message) -> None:
    path = tmp_path / "vocab.txt"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        Vocab.read(path)


def test_a_piece_with_a_newline_is_refused() -> None:
    with pytest.raises(ValueError, match="line 6"):
        Vocab((*SPECIAL_TOKENS, "a\nb"))


def test_a_byte_order_mark_is_no_part_of_the_first_token(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n", encoding="utf-8-sig")
    assert Vocab.read(path).tokens[0] == "[PAD]"
