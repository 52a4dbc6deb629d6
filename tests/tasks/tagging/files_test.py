"""Files of tagged words: each form by hand, every error, and real files read in a second way."""

import bz2
import gzip
import lzma
import pathlib
import random
from collections.abc import Iterable

import numpy as np
import pytest

from bert_tf.tasks.tagging.files import read_tagged, tag_ids, tag_names, write_tagged
from bert_tf.tasks.tagging.sentences import TaggedSentence

CONLL = """\
-DOCSTART- -X- -X- O

U.N. NNP I-NP B-ORG
heads  VBZ I-VP O

# NN I-NP O
"""
CONLLU_WORDS = [("I", "PRON"), ("ca", "AUX"), ("n't", "PART"), (".", "_"), ("No", "INTJ")]


def conllu(*rows: str) -> str:
    """Returns lines of ten columns; a row has id, form, upos and misc."""
    lines = []
    for row in rows:
        number, form, upos, misc = row.split()
        columns = (number, form, form.lower(), upos, f"x{upos}", "_", "0", "dep", "_", misc)
        lines.append("\t".join(columns) + "\n")
    return "".join(lines)


CONLLU = (
    "# sent_id = 1\n# text = I can't.\n"
    + conllu("1 I PRON _", "2-3 can't _ _", "2 ca AUX _", "3 n't PART A=1|Predicted=X|B=2")
    + conllu("3.1 do VERB _", "4 . _ SpaceAfter=No")
    + "\n"
    + conllu("1 No INTJ _")
    + "\n"
)


def save(path: pathlib.Path, text: str | bytes) -> str:
    path.write_bytes(text if isinstance(text, bytes) else text.encode("utf8"))
    return str(path)


def plain(sentences: Iterable[TaggedSentence]) -> list[list[tuple[str, str]]]:
    return [list(zip(s.words, s.tags or (), strict=True)) for s in sentences]


def words_of(sentences: Iterable[TaggedSentence]) -> list[list[str]]:
    return [list(sentence.words) for sentence in sentences]


# Plain columns --------------------------------------------------------------------------------


def test_conll_spelled_out(tmp_path):
    path = save(tmp_path / "a.txt", CONLL)
    first, second = read_tagged(path)
    assert first == TaggedSentence(("U.N.", "heads"), ("B-ORG", "O"), f"{path} line 3")
    assert second == TaggedSentence(("#",), ("O",), f"{path} line 6")
    assert plain(read_tagged(path, tag_column="1")) == [
        [("U.N.", "NNP"), ("heads", "VBZ")],
        [("#", "NN")],
    ]
    assert plain(read_tagged(path, word_column=-3, tag_column=-4))[1] == [("NN", "#")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\tO\n\t\nb c\tB-x y\n", [[("a", "O")], [("b c", "B-x y")]]),  # spaces are kept
        ("\n \n\n  a \t O\n\n\n", [[("a", "O")]]),
        ("a O\r\nb O\r\n\r\nc O\r\n", [[("a", "O"), ("b", "O")], [("c", "O")]]),
        ("\ufeffa O\nb\tO", [[("a", "O"), ("b", "O")]]),
        ("#a O\n# O\n", [[("#a", "O"), ("#", "O")]]),
        ("a O\n-DOCSTART- -X-\nb O\n", [[("a", "O")], [("b", "O")]]),
        ("-DOCSTART- -X- O\n\na\tO\n-DOCSTART-\tO\nb\tO\n", [[("a", "O")], [("b", "O")]]),
        ("-DOCSTART- -X- O\n\nb\tO\n-DOCSTART- -X- O\nc\tO\n", [[("b", "O")], [("c", "O")]]),
    ],
)
def test_layouts(tmp_path, text, expected):
    assert plain(read_tagged(save(tmp_path / "a", text))) == expected


def test_odd_white_space_stays_in_words(tmp_path):
    odd = [
        "a\u00a0b",
        "\u3000",
        "\u200b",
        "c\u2028d",
        "\x85",
        "\x1c",
        "e\x0bf\x0c",
        "g\rh",
        "\u2003i",
    ]
    spaces = save(tmp_path / "a", "".join(f"{word}  O\n" for word in odd))
    tabs = save(tmp_path / "b", "".join(f"{word}\tO\n" for word in odd))
    alone = save(tmp_path / "c", "".join(f"{word}\n" for word in odd))
    for path in (spaces, tabs, alone):
        assert words_of(read_tagged(path)) == [odd]


def test_one_column_is_words_without_tags(tmp_path):
    path = save(tmp_path / "a", "a\nb\n\n-DOCSTART-\n\nc\n")
    for tag_column in (-1, 0, "3"):
        assert read_tagged(path, tag_column=tag_column) == [
            TaggedSentence(("a", "b"), None, f"{path} line 1"),
            TaggedSentence(("c",), None, f"{path} line 6"),
        ]


def test_several_files_and_compression(tmp_path):
    save(tmp_path / "1.gz", gzip.compress(b"a O\n"))
    save(tmp_path / "2.xz", lzma.compress(b"b O\n"))
    save(tmp_path / "3.bz2", bz2.compress(b"c O\n"))
    other = save(tmp_path / "0.conllu", conllu("1 d X _"))
    sentences = read_tagged(f"{tmp_path}/[1-3].*, {other}")
    assert plain(sentences) == [[("a", "O")], [("b", "O")], [("c", "O")], [("d", "X")]]
    assert sentences[1].source == f"{tmp_path}/2.xz line 1"


# CoNLL-U --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a.conllu", "b.CONLLU.xz", "c.txt"])
def test_conllu_by_name_and_by_looks(tmp_path, name):
    data = CONLLU.encode("utf8")
    path = save(tmp_path / name, lzma.compress(data) if name.endswith("xz") else data)
    sentences = read_tagged(path)
    assert plain(sentences) == [CONLLU_WORDS[:4], CONLLU_WORDS[4:]]
    assert [s.source for s in sentences] == [f"{path} line 3", f"{path} line 10"]


def test_the_name_alone_makes_conllu(tmp_path):
    text = conllu("1 a X _").replace("\t0\tdep", "\tnone\tdep")
    for name in ("a.conllu", "A.CoNLLU"):
        assert plain(read_tagged(save(tmp_path / name, text))) == [[("a", "X")]]
    packed = save(tmp_path / "a.conllu.gz", gzip.compress(text.encode()))
    assert plain(read_tagged(packed)) == [[("a", "X")]]
    assert plain(read_tagged(save(tmp_path / "a", text))) == [[("1", "_")]]


@pytest.mark.parametrize(
    ("column", "tag"),
    [
        ("upos", "INTJ"),
        ("xpos", "xINTJ"),
        ("deprel", "dep"),
        ("4", "xINTJ"),
        ("-1", "INTJ"),
        (-3, "dep"),
    ],
)
def test_conllu_columns(tmp_path, column, tag):
    path = save(tmp_path / "a.conllu", CONLLU)
    assert read_tagged(path, word_column=3, tag_column=column)[1].tags == (tag,)


def test_conllu_without_tags(tmp_path):
    path = save(tmp_path / "a.conllu", CONLLU)
    assert [s.tags for s in read_tagged(path, tag_column="feats")] == [None, None]


def test_ten_plain_columns_are_no_conllu(tmp_path):
    path = save(tmp_path / "a", "\t".join("a b c d e f g h i O".split()) + "\n")
    assert plain(read_tagged(path)) == [[("a", "O")]]
    path = save(tmp_path / "b", "# a\n" + "\t".join("1 b c d e f g h i O".split()) + "\n")
    with pytest.raises(ValueError, match="b, line 2: .* 10 .* 2 "):
        read_tagged(path)


# Errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("a O\n\nb O\nc\n", {}, r"a, line 4: 'c' .* 1 .* 2 .* line 1 "),
        ("\na\tO\nb O\n", {}, r"a, line 3: 'b O' .* 1 .* 2 .* tabs, .*line 2 "),
        ("a\nb O\n", {}, "line 2: .* 2 .* 1 .* line 1 "),
        ("a\tO\n\tO\n", {}, "line 2: .* word, .*column 0"),
        ("a\tO\nb\t \n", {}, "line 2: .* tag, .*column 1"),
        ("a O\nb O\n\xff O\n".encode("latin1"), {}, r"a, line 3: .*\\xff.* 8 .*UTF-8"),
        ("", {}, "a: .*sentence"),
        ("\n-DOCSTART- O\n\n", {}, "a: .*sentence"),
        ("a O\n", {"tag_column": "2"}, "line 1: tag_column .*'2', .* 2 .* -2 .* 1"),
        ("a O\n", {"word_column": -3}, "line 1: word_column .*-3, .* -2 .* 1"),
        ("a O\n", {"tag_column": "upos"}, "tag_column .*'upos'.* -2 .* 1"),
        ("\na O\n", {"word_column": 1}, "a, line 2: .*column 1 .*word_column .*tag_column"),
        (lzma.compress(b"a O\n" * 999)[:-20], {}, "a: .*compressed"),
        (gzip.compress(b"a O\n" * 999, mtime=0)[:-20], {}, "a: .*compressed"),
        (b"\xfd7zXZ\x00" + b"\xff" * 99, {}, "a: .*compressed"),
        (b"BZh91AY&SY" + b"\xff" * 99, {}, "a: .*compressed"),
    ],
)
def test_errors(tmp_path, text, options, message):
    with pytest.raises(ValueError, match=message):
        read_tagged(save(tmp_path / "a", text), **options)


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("1 a b\n", {}, "line 1: .* 1 .* 10 .* tabs, .*CoNLL-U"),
        (conllu("1 a X _", "1 b X _"), {}, "line 2: .* id '1', .*2"),
        (conllu("1 a X _"), {"tag_column": "pos"}, "line 1: tag_column .*'pos', .* upos, xpos"),
        (conllu("1 a X _"), {"tag_column": 10}, "tag_column .*10, .* 2 .* 9 "),
        (conllu("1 a X _"), {"tag_column": "form"}, "tag_column .*'form', .* upos, xpos"),
        (conllu("1 a X _").replace("\tX\t", "\t\t"), {}, "line 1: .* tag, .*column 3"),
        ("# nothing\n\n", {}, "a.conllu: .*sentence"),
    ],
)
def test_errors_of_conllu(tmp_path, text, options, message):
    with pytest.raises(ValueError, match=message):
        read_tagged(save(tmp_path / "a.conllu", text), **options)


def test_missing_files(tmp_path):
    with pytest.raises(ValueError, match=f"'{tmp_path}/a'"):
        read_tagged(tmp_path / "a")
    with pytest.raises(ValueError, match="' , '"):
        read_tagged(" , ")
    with pytest.raises(ValueError, match=str(tmp_path)):
        read_tagged(tmp_path)


# Tags -----------------------------------------------------------------------------------------


def test_names_and_ids():
    sentences = [
        TaggedSentence(("a", "b"), ("I-x", "B-x"), "f line 1"),
        TaggedSentence(("c",), ("O",), "f line 4"),
    ]
    assert tag_names(sentences) == ("O", "B-x", "I-x")
    assert tag_names(sentences[:1]) == ("B-x", "I-x")
    ids = tag_ids(sentences, ("O", "B-x", "I-x"))
    assert [row.tolist() for row in ids] == [[2, 1], [0]]
    assert all(row.dtype == np.int32 for row in ids)
    with pytest.raises(ValueError, match="f line 1: word 2 .*'b', .*'B-x'.* O, I-x"):
        tag_ids(sentences, ("O", "I-x"))
    bare = [TaggedSentence(("a",), None, "f line 7")]
    for function in (tag_names, lambda rows: tag_ids(rows, ("O",))):
        with pytest.raises(ValueError, match="f line 7: .*tags.*CoNLL-U"):
            function([*sentences[1:], *bare])
    with pytest.raises(ValueError, match="sentences"):
        tag_names([])


# Writing --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "written"),
    [
        (
            CONLL,
            CONLL.replace(" -X- O", " -X- O O").replace("ORG", "ORG 1").replace("P O", "P O 2"),
        ),
        ("a\tO\r\n \r\nb c\tO", "a\tO\t1\r\n \r\nb c\tO\t2"),
        ("\ufeffa\n\n\n#", "a 1\n\n\n# 2"),
        ("a O \nb\tO\t\n", "a O  1\nb\tO\t 2\n"),
    ],
)
def test_written_columns(tmp_path, text, written):
    path, out = save(tmp_path / "a", text), tmp_path / "new" / "out"
    sizes = [len(sentence.words) for sentence in read_tagged(path)]
    tags = ["2"] * sum(sizes)
    tags[0] = "1"
    rows = [[tags.pop(0) for _ in range(size)] for size in sizes]
    write_tagged(path, out, rows)
    assert out.read_bytes().decode("utf8") == written
    assert plain(read_tagged(out)) == [
        list(zip(words, row, strict=True))
        for words, row in zip(words_of(read_tagged(path)), rows, strict=True)
    ]


def test_written_conllu(tmp_path):
    path = save(tmp_path / "a.conllu", CONLLU)
    out = tmp_path / "out.conllu"
    write_tagged(path, out, [["A", "B|C=1", "D", "E"], ["F"]])
    expected = [line.split("\t") for line in CONLLU.split("\n")]
    misc = {2: "A", 4: r"B\pC=1", 5: "D", 7: "E", 9: "F"}
    for number, tag in misc.items():
        before = {5: "A=1|B=2|", 7: "SpaceAfter=No|"}.get(number, "")
        expected[number][9] = f"{before}Predicted={tag}"
    assert out.read_text() == "\n".join("\t".join(columns) for columns in expected)
    assert plain(read_tagged(out)) == plain(read_tagged(path))


def test_files_are_written_one_after_the_other(tmp_path):
    save(tmp_path / "1", "a O\r")
    save(tmp_path / "2", "b\tx\tO\n")
    save(tmp_path / "3", "c\n\n")
    save(tmp_path / "4", conllu("1 d X _"))
    out = tmp_path / "out"
    write_tagged(f"{tmp_path}/[1-4]", out, [["1"], ["2"], ["3"], ["4"]])
    last = conllu("1 d X Predicted=4")
    with pytest.raises(ValueError, match="/2, .*line 1: 2 .* 1,"):
        write_tagged(f"{tmp_path}/[1-4]", tmp_path / "no", [["1"], ["2", "2"], ["3"], ["4"]])
    assert out.read_bytes().decode() == f"a O 1\r\n\nb\tx\tO\t2\n\nc 3\n\n{last}"


def test_a_file_may_be_replaced_by_itself(tmp_path):
    path = save(tmp_path / "a", "a\nb\n")
    write_tagged(path, path, [["O", "B-x"]])
    write_tagged(path, path, [["O", "O"]])
    assert pathlib.Path(path).read_text() == "a O O\nb B-x O\n"


@pytest.mark.parametrize(
    "text", ["a b\nc d\n", "a\t\nc\t\n", "a\nc\n", conllu("1 a N _", "2 c _ _")]
)
def test_tags_that_are_not_looked_at(tmp_path, text):
    path = save(tmp_path / "a", text)
    assert read_tagged(path, tag_column=None) == [
        TaggedSentence(("a", "c"), None, f"{path} line 1")
    ]


@pytest.mark.parametrize(
    ("tags", "message"),
    [
        ([["O", "O"]], "a .*2 sentences, .* 1;"),
        ([["O", "O"], ["O", "O"]], "line 4: 2 .* 1,"),
        ([["O", "O"], ["a b"]], "line 4: tag 'a b'"),
        ([["O", "O"], [""]], "line 4: tag ''"),
        ([["O", "x\n"], ["O"]], "line 1: tag 'x"),
    ],
)
def test_wrong_tags_write_nothing(tmp_path, tags, message):
    path, out = save(tmp_path / "a", "a O\nb O\n\nc O\n"), tmp_path / "out"
    with pytest.raises(ValueError, match=message):
        write_tagged(path, out, tags)
    assert not out.exists()


def test_round_trip_of_random_files(tmp_path):
    draw = random.Random(5)
    letters = "ab#-_|1é漢\u00a0\u3000\u200b\u2028\x85\x0c\x1f\ufffd\U0001f600"
    for separator in (" ", "\t", "   ") * 20:
        columns = draw.randint(1, 11)
        word_column = draw.randrange(columns)
        expected, text = [], draw.choice(("", "\n", "-DOCSTART-\n"))
        for _ in range(draw.randint(1, 5)):
            rows = [
                ["".join(draw.choices(letters, k=draw.randint(1, 4))) for _ in range(columns)]
                for _ in range(draw.randint(1, 5))
            ]
            expected.append([row[word_column] for row in rows])
            end = draw.choice(("\n", "\r\n"))
            text += "".join(separator.join(row) + end for row in rows) + end * draw.randint(1, 2)
        path, out = save(tmp_path / "a", text), tmp_path / "out"
        assert words_of(read_tagged(path, word_column, 0 if word_column else -1)) == expected
        tags = [[f"T{draw.randrange(9)}" for _ in row] for row in expected]
        write_tagged(path, out, tags, word_column)
        again = read_tagged(out, word_column)
        assert words_of(again) == expected
        assert [list(sentence.tags or ()) for sentence in again] == tags
        assert out.read_bytes().count(b"\n") == text.count("\n")


# Real files -----------------------------------------------------------------------------------


def test_all_bad_lines_are_named_at_once(tmp_path):
    path = tmp_path / "a.conll"
    path.write_text("a X\nb\n\nc X Y\nd X\n")
    with pytest.raises(ValueError, match=f"2 of .*{path}, line 2.*{path}, line 4"):
        read_tagged(path)
