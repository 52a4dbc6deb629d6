"""Findings of a corpus: each fires on a spoilt text and is silent on a clean one."""

import collections
import gzip
import itertools
import json
import lzma
import re

import pytest

from bert_tf.config import DataConfig
from bert_tf.diagnosis import corpus
from bert_tf.diagnosis.corpus import diagnose_corpus, odd_character
from bert_tf.text.vocab import Vocab
from bert_tf.text.wordpiece import WordPiece
from tests.conftest import LETTERS, SPECIAL_TOKENS, tiny_tokens
from tests.shared_data import golden_file, shared_data


def sentence(number: int) -> str:
    """Returns a sentence of 18 words that no other number of six digits gives."""
    return f"The mill number {' '.join(str(number))} stood on the slow river in the rain."


def documents(count: int, lines: int = 6) -> list[list[str]]:
    """Returns documents of `lines` sentences, all different."""
    return [[sentence(100_000 + n * lines + i) for i in range(lines)] for n in range(count)]


def write(path, docs):
    path.write_text("".join(json.dumps({"text": "\n".join(d)}) + "\n" for d in docs), "utf8")
    return str(path)


def diagnose(folder, docs, tokens=(), do_lower_case=True):
    """Returns severity and measured value of each finding, by title."""
    tokenizer = WordPiece(Vocab(tuple(tokens)), do_lower_case) if tokens else None
    found = diagnose_corpus(write(folder / "corpus.jsonl", docs), DataConfig(), tokenizer)
    return {finding.title: (finding.severity.name, finding.measured) for finding in found.findings}


def test_a_clean_corpus_has_no_finding(tmp_path):
    assert diagnose(tmp_path, documents(150), tiny_tokens()) == {}


@pytest.mark.parametrize(("copies", "severity"), [(1, None), (3, "WARNING"), (30, "SERIOUS")])
def test_copies_of_documents_and_lines(tmp_path, copies, severity):
    docs = documents(150)
    found = diagnose(tmp_path, docs + docs[:copies])
    finding = found.get("Documents that occur more than once in the corpus")
    assert (finding[0] if finding else None) == severity
    if severity == "SERIOUS":
        assert finding[1] == "17 % (30 of 180)"
        assert found["Lines that repeat earlier ones"][1].startswith("17 % ")


@pytest.mark.parametrize(
    ("title", "text"),
    [
        ("Wrongly decoded characters", "The caf\ufffd by the river is open today"),
        ("Wrongly decoded characters", "The cafÃ© by the river isnâ€™t open today"),
        ("Wrongly decoded characters", "\x93The mill\x94 by the river is open today"),
        ("Control characters", "The mill\x02 by the river is open today"),
        ("HTML in the text", "The <b>mill</b> &amp; the river are open today"),
    ],
)
def test_damage(tmp_path, title, text):
    docs = documents(150)
    harmless = "Über São João: 3 < 4, R&D, “A”–‘B’ NÃO, Ça va; Â Ã"
    for document in docs:
        document.append(f"{harmless} {document[0]}")
    assert diagnose(tmp_path, docs) == {}
    for document in docs[:30]:
        document[3] = f"{text}, {document[3]}"
    found = diagnose(tmp_path, docs)
    assert list(found) == [title] and re.fullmatch(r"2\.9 % .*\(30\)", found[title][1])


ODD = "A character that is not part of the language"
RUNS = "Runs of one character, such as ---- or ...."


@pytest.mark.parametrize(
    ("added", "titles"),
    [
        ("─" * 8, {ODD, RUNS}),
        ("─ │ ─ │ ─ │", {ODD}),
        ("│ " * 4, {ODD, RUNS}),
        ("." * 9, {RUNS}),
        (". . . . . ", {RUNS}),
        ("-----", {RUNS}),
        ("=====", {RUNS}),
        ("_____", {RUNS}),
        ("\ufffd\ufffd\ufffd\ufffd", {ODD, RUNS, "Wrongly decoded characters"}),
        ("\0\0\0\0", {ODD, RUNS, "Control characters"}),
        ("жжжж", {ODD}),  # a letter of another script, which writes no word
        (".. and -- 1000 ...", set()),
    ],
)
def test_one_character_fills_the_text(tmp_path, added, titles):
    docs = [[f"{added} {line}" for line in document] for document in documents(150)]
    found = diagnose(tmp_path, docs)
    assert {title for title in found if title != "Long lines that end in mid-sentence"} == titles


@pytest.mark.parametrize(
    "line",
    [
        "東京都の天気は晴れです、そして、コーヒーを飲む。",
        "今天，天气，很好，我们，去，公园。",
        "བོད་སྐད་ཀྱི་ཡི་གེ་འདི་ནི་ཡིན།",
        "نامه‌های او، کتاب‌ها و می‌روم؛ چرا؟",
        "ሰላም፡ለዓለም፡ሕዝብ፡ሁሉ።",
        "« L’œuvre d’aujourd’hui », dit-il, « n’est pas là »…",
        "หนังสือเล่มนี้ดีมาก",
        "हिन्दी में लिखा गया पाठ है।",
        "The angle β is 30°, x = 4.",
    ],
)
def test_no_character_of_a_language_is_odd(line):
    odd = odd_character(collections.Counter(line * 3 + sentence(1) * (line[0] == "T") * 9))
    assert odd is None or odd.share < 0.02


def test_sizes_of_documents_and_lines(tmp_path):
    found = diagnose(tmp_path, [[sentence(n)] for n in range(100_000, 100_200)])
    assert found["Documents of one sentence"] == ("SERIOUS", "100 %")
    assert found["Documents of fewer than 50 words"] == ("SERIOUS", "100 %")
    found = diagnose(tmp_path, [*documents(20), documents(1, 1200)[0][200:]])
    # 20 documents of 108 words beside one of 18,000.
    assert found["One document makes up most of the corpus"] == ("SERIOUS", "89 %")
    assert found["Too few documents for next sentence prediction"][0] == "WARNING"
    found = diagnose(tmp_path, documents(1))
    assert found["Too few documents for next sentence prediction"] == ("SERIOUS", "1 documents")
    docs = [[line[:60] for line in document] for document in documents(150)]
    assert diagnose(tmp_path, docs)["Long lines that end in mid-sentence"] == ("SERIOUS", "100 %")


def test_characters_without_spaces_are_words(tmp_path):
    docs = []
    for document in range(150):
        digits = "".join("甲乙丙丁戊己庚辛壬癸"[int(digit)] for digit in f"{document:03}")
        docs.append([f"第{digits}章第{line}節東京都の天気は晴れです。" for line in range(6)])
    assert "Documents of fewer than 50 words" not in diagnose(tmp_path, docs)


def test_vocabulary_of_another_text(tmp_path):
    docs = documents(150)
    for document in docs[:50]:
        document[0] = document[0].replace("river", "Fluß ж")
    tokenizer = WordPiece(Vocab(tuple(tiny_tokens())), True)
    found = diagnose_corpus(write(tmp_path / "c.jsonl", docs), DataConfig(), tokenizer)
    (finding,) = found.findings
    # 100 of 900 lines x 26 pieces, and one piece more in 50 lines.
    assert re.fullmatch(r"0\.43 % .*\[UNK\]", finding.measured)
    assert {detail.split()[0] for detail in finding.details[:2]} == {"'ß'", "'ж'"}
    assert found.facts["tokens per word"] == "1.44"
    letters = [*SPECIAL_TOKENS, *LETTERS, *(f"##{c}" for c in LETTERS)]
    found = diagnose(tmp_path, documents(150), letters)
    # 41 letters, 6 digits and a stop for 18 words.
    assert found["A vocabulary that splits words into short tokens"] == ("SERIOUS", "2.667")


@pytest.mark.parametrize(
    ("kind", "lower", "is_wrong"),
    [
        ("cased", True, True),
        ("cased", False, False),
        ("lower", True, False),
        ("lower", False, True),
        ("without case", False, False),
    ],
)
def test_casing(tmp_path, kind, lower, is_wrong):
    words = ["".join(letters) for letters in itertools.product("abcdefghijk", repeat=3)]
    pieces = {
        "cased": [*words, *map(str.title, words[:50])],
        "lower": words,
        "without case": [chr(0x4E00 + number) for number in range(1300)],
    }
    tokens = dict.fromkeys([*tiny_tokens(), *pieces[kind]])
    found = diagnose(tmp_path, documents(150), [*tokens], lower)
    assert ("The casing does not match the vocabulary" in found) == is_wrong


def test_damaged_files_are_findings_and_the_others_are_read(tmp_path):
    text = "\n\n".join("\n".join(document) for document in documents(150))
    (tmp_path / "a.txt").write_text(text, encoding="utf8")
    (tmp_path / "b.txt").write_bytes(text[:3000].encode() + b"\nbad \xff byte\n\n")
    (tmp_path / "c.txt.gz").write_bytes(gzip.compress(text.encode())[:-20])
    (tmp_path / "d.txt").write_bytes(b"GIF89a\0\1\2")
    found = diagnose_corpus(f"{tmp_path}/*.txt*", DataConfig(), None)
    (finding,) = [one for one in found.findings if "cannot be read" in one.title]
    assert finding.severity.name == "SERIOUS" and int(found.facts["documents"]) >= 150
    told = " ".join([finding.measured, *finding.details])
    assert all(name in told for name in ("b.txt, line", "c.txt.gz", "d.txt"))
    for name in ("d.txt", "e.txt"):
        with pytest.raises(ValueError, match=name):
            diagnose_corpus(str(tmp_path / name), DataConfig(), None)


def test_of_much_text_an_even_sample_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus, "PART_BYTES", 1 << 16)
    monkeypatch.setattr(corpus, "MAX_CHARACTERS", 2 << 16)
    path = write(tmp_path / "corpus.jsonl", documents(1000))
    found = diagnose_corpus(path, DataConfig(), None)
    assert "3 of 7 parts" in found.facts["read"]  # a part holds less than its bytes
    packed = tmp_path / "packed.jsonl.gz"
    packed.write_bytes(gzip.compress((tmp_path / "corpus.jsonl").read_bytes()))
    found = diagnose_corpus(str(packed), DataConfig(), None)
    assert 1 << 17 < int(found.facts["characters"].replace(",", "")) < 1.01 * (1 << 17)


@pytest.mark.slow
def test_real_text_and_the_same_spoilt(tmp_path):
    with lzma.open(shared_data("corpus", "wikipedia", "wiki-00.jsonl.xz"), "rt") as file:
        texts = [json.loads(file.readline())["text"] for _ in range(200)]
    vocab = Vocab.read(golden_file("vocab", "bert-base-uncased-vocab.txt"))
    docs = [text.split("\n") for text in texts]
    assert diagnose(tmp_path, docs, vocab.tokens) == {}
    cased = Vocab.read(golden_file("vocab", "bert-base-cased-vocab.txt"))
    assert "The casing does not match the vocabulary" in diagnose(tmp_path, docs, cased.tokens)
    chinese = Vocab.read(golden_file("vocab", "bert-base-chinese-vocab.txt"))
    found = diagnose(tmp_path, docs, chinese.tokens)
    assert found["A vocabulary that splits words into short tokens"][0] == "WARNING"
    spoilt = [text.encode().decode("cp1252", "replace").split("\n") for text in texts]
    assert diagnose(tmp_path, spoilt)["Wrongly decoded characters"][0] == "SERIOUS"
