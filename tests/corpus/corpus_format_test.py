"""Tests of telling the formats apart."""

import struct

import pytest

from bert_tf.corpus.corpus_format import detect_format, is_tfrecord

SENTENCES = [
    "The rain had only ceased.",
    "He woke up early and left.",
    "Was it day?",
    "It was.",
] * 5
WRAPPED = """\
The rain had only ceased with the gray streaks of morning at Blazing
Star, and the settlement awoke to a moral sense of cleanliness, and
the finding of forgotten knives, tin cups, and smaller camp utensils,
where the heavy showers had washed away the debris and dust heaps.

Indeed, it was recorded in Blazing Star that a fortunate early riser
had once picked up on the highway a solid chunk of gold quartz which
the rain had freed from its incumbering soil.
"""


def form(text, is_cut=False):
    return detect_format("f.txt", text.encode(), is_cut)


@pytest.mark.parametrize(
    ("expected", "text"),
    [
        ("lines", "\n".join(SENTENCES)),
        ("lines", "\n".join(SENTENCES[:3]) + "\n\n" + "\n".join(SENTENCES)),
        ("lines", "the cat sat\non the mat it was a very old mat that it had found\nso what\n" * 9),
        ("lines", "Only one sentence."),
        ("lines", "The rain had ceased, and he left the old house.\n" * 9),  # all of one width
        ("prose", WRAPPED),
        ("prose", WRAPPED.replace("\n", "\r\n")),
        ("prose", "\n".join([" ".join(SENTENCES[:6])] * 4)),
        ("prose", "\n\n".join(SENTENCES)),
        ("prose", " = Title = \n \n It rained . It was dark . \n It rained . He left . \n"),
        ("jsonl", '\n\n{"text": "a"}\n{"text": "b"}\n'),
        ("jsonl", '\ufeff{ "text": "cut in the mid'),
        ("lines", "{{Infobox}} is how it starts.\nIt goes on.\n"),
    ],
)
def test_text(expected, text):
    assert form(text) == expected


def test_a_few_control_bytes_are_text():
    text = "\n".join(SENTENCES)
    assert form("\a" + text + "\x1a") == "lines"
    assert form("\x02Short.") == "lines"


def test_many_control_bytes_or_one_zero_are_binary():
    text = "\n".join(SENTENCES)
    assert len(text) == 364
    with pytest.raises(ValueError, match=r"f\.txt.* 0x00 .*364.*--input_format=lines"):
        form("\a" + text[1:] + "\0")
    with pytest.raises(ValueError, match=r"f\.txt.* 0x02 .* 87, 6 .* 370\b"):
        form(text[:87] + "\2" * 6 + text[87:])


def test_a_cut_last_line_does_not_count():
    assert (
        form("\n".join(SENTENCES[:8]) + "\nA. B. Cut in " + "the. Mid. " * 3, is_cut=True)
        == "lines"
    )


def slow_masked_crc32c(data):
    """CRC-32C bit by bit (RFC 3720), masked as in the TFRecord format."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def test_tfrecord():
    length = struct.pack("<Q", 1234)
    head = length + struct.pack("<I", slow_masked_crc32c(length))
    assert detect_format("f", head + bytes(1238), False) == "tfrecord"
    assert not is_tfrecord(head[:11])
    assert not is_tfrecord(length + bytes(4))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x89PNG\r\n\x1a\n\x00\x00", "f.bin.*TFRecords"),
        ("text".encode("utf-16"), "f.bin.*iconv -f UTF-16"),
        (b'[\n  {"text": 1}\n]', "f.bin.*JSON.*jq -c"),
        (b'{\n  "text": 1\n}', "f.bin.*JSON.*jq -c"),
        (b'[{"text": 1}]', "f.bin.*JSON.*jq -c"),
    ],
)
def test_errors(data, message):
    with pytest.raises(ValueError, match=message):
        detect_format("f.bin", data, False)
