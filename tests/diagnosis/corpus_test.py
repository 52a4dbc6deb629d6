"""Findings of a corpus: each fires on a made case and is silent on a clean one."""

import gzip
import json

import pytest

from bert_tf.data.corpus import list_parts
from bert_tf.diagnosis.corpus import PART_BYTES, count_corpus, draw_parts, list_readable, shorten
from bert_tf.diagnosis.corpus_findings import diagnose_corpus
from bert_tf.text.vocab import Vocab
from bert_tf.text.wordpiece import WordPiece
from tests.conftest import tiny_tokens
from tests.diagnosis.made_corpus import documents, sentence


def diagnose(folder, docs, tokens=None, do_lower_case=True, **options):
    """Writes documents as JSONL and looks at them; returns counts and findings by title."""
    path = folder / "corpus.jsonl"
    with path.open("w", encoding="utf8") as file:
        file.writelines(json.dumps({"text": "\n".join(d)}) + "\n" for d in docs)
    tokenizer = WordPiece(Vocab(tuple(tokens)), do_lower_case) if tokens else None
    counts = count_corpus(list_parts(str(path), part_bytes=PART_BYTES), tokenizer, **options)
    found = diagnose_corpus(str(path), counts).findings
    return counts, {finding.title: finding for finding in found}


def test_clean_corpus_has_no_finding(tmp_path):
    counts, found = diagnose(tmp_path, documents(150), tiny_tokens())
    assert found == {}
    assert (len(counts.words), counts.num_lines) == (150, 900)
    assert counts.scope == "all"
    # the mill number 1 0 0 0 0 0 stood on the slow river in the rain . : of 18 words these take
    # more than one piece: n ##u ##m ##b ##er and s ##t ##o ##o ##d.
    assert counts.fit.pieces_per_word == pytest.approx((18 + 4 + 4) / 18)


@pytest.mark.parametrize(("copies", "severity"), [(1, None), (3, "WARNING"), (30, "SERIOUS")])
def test_duplicate_documents(tmp_path, copies, severity):
    docs = documents(150)
    counts, found = diagnose(tmp_path, docs + docs[:copies])
    assert counts.copied_documents == copies  # 0.7 %, 2 % and 17 %
    finding = found.get("Documents that stand in the corpus twice or oftener")
    assert (finding.severity.name if finding else None) == severity
    if severity == "SERIOUS":
        assert finding.measured == "17 % (30 of 180)"


@pytest.mark.parametrize(("with_notice", "severity"), [(1, None), (10, "WARNING"), (75, "SERIOUS")])
def test_boilerplate(tmp_path, with_notice, severity):
    docs = documents(150)
    for document in docs[:with_notice]:
        document.append("All rights reserved by the king.")
    counts, found = diagnose(tmp_path, docs)
    finding = found.get("Boilerplate")
    assert (finding.severity.name if finding else None) == severity
    if severity:
        assert counts.shared_lines == [("All rights reserved by the king.", with_notice)]
        assert "All rights reserved" in finding.measured


def test_repeated_lines_are_counted_by_characters(tmp_path):
    docs = [[sentence(n), sentence(1000 + n)] for n in range(100, 200)]
    docs += [[sentence(n), "Yes."] for n in range(100, 200)]
    counts, found = diagnose(tmp_path, docs)
    size, longer = len(sentence(100)), len(sentence(1100))
    assert counts.copied_characters == 100 * size  # "Yes." is too short to be a copy
    share = 100 * size / (200 * size + 100 * longer + 400)
    assert share == pytest.approx(0.32, abs=0.01)
    assert found["Lines that repeat earlier ones"].severity.name == "SERIOUS"


@pytest.mark.parametrize(
    ("title", "text"),
    [
        ("Characters lost in decoding (U+FFFD)", "The caf\ufffd by the river is open today"),
        ("Wrongly decoded characters", "The cafÃ© by the river isnâ€™t open today"),
        ("Control characters", "The mill\x02 by the river is open today"),
        ("HTML in the text", "The <b>mill</b> &amp; the river are open today"),
    ],
)
def test_damage(tmp_path, title, text):
    docs = documents(150)
    harmless = "Über São João: 3 < 4, R&D, “A”–‘B’ NÃO, Ça va; Â Ã"
    for document in docs:
        document.append(harmless + " " + document[0])
    assert diagnose(tmp_path, docs)[1] == {}
    for document in docs[:30]:
        document[3] = f"{text}, {document[3]}"
    counts, found = diagnose(tmp_path, docs)
    assert list(found) == [title]
    assert list(counts.damage_counts.values()) == [30]  # of 1,050 lines: 2.9 %
    assert found[title].measured == "2.9 % of the lines (30)"


def test_sizes(tmp_path):
    titled = [["History.", *document] for document in documents(150)]
    assert diagnose(tmp_path, titled)[1] == {}  # a title is no boilerplate
    _, found = diagnose(tmp_path, [[sentence(n)] for n in range(200)])
    assert found["Documents of one sentence"].measured == "100 %"
    assert found["Documents below 50 words"].severity.name == "SERIOUS"
    _, found = diagnose(tmp_path, [*documents(20), *documents(1, lines=1000)])
    # 20 documents of 108 words (18 a line) beside one of 18,000.
    assert found["A document that is most of the corpus"].measured.startswith("89 % of the words")
    assert found["Too few documents for next sentence prediction"].severity.name == "WARNING"
    _, found = diagnose(tmp_path, documents(1))
    assert found["Too few documents for next sentence prediction"].severity.name == "SERIOUS"


def test_records_without_text(tmp_path):
    counts, found = diagnose(tmp_path, [*documents(150), *[[""], ["  "]] * 50])
    assert (counts.num_records, counts.num_empty) == (250, 100)
    assert found["Records without text"].measured == "40 % (100 of 250)"


def test_unknown_pieces_name_the_characters(tmp_path):
    docs = documents(150)
    for document in docs[:50]:
        document[0] = document[0].replace("river", "Fluß ж")
    counts, found = diagnose(tmp_path, docs, tiny_tokens())
    # 100 of 900 x 26 pieces, and one more in 50 lines.
    assert counts.fit.num_unknown == 100
    finding = found["Pieces that the vocabulary does not know"]
    assert finding.measured == "0.43 % of the pieces are [UNK]"
    assert finding.details[0].startswith(("'ß' (U+00DF) in 50", "'ж' (U+0436) in 50"))
    assert "fluß" in finding.details[-1].lower()


def test_vocabulary_of_letters_is_poor(tmp_path):
    letters = [token for token in tiny_tokens() if len(token.removeprefix("##")) == 1]
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters]
    counts, found = diagnose(tmp_path, documents(150), tokens)
    # Letters of a line: the mill number stood on the slow river in the rain, 6 digits, a stop.
    pieces = len("themillnumberstoodontheslowriverintherain") + 6 + 1
    assert counts.fit.pieces_per_word == pytest.approx(pieces / 18)
    assert found["A vocabulary that cuts words in small pieces"].severity.name == "SERIOUS"


def test_casing(tmp_path):
    cased = [*tiny_tokens(), "The", "M", "##M"] + [c.upper() for c in "abcdefgh"]
    assert "upper case, but the text is" in casing(tmp_path, cased, True)
    assert "lower case, but the text keeps" in casing(tmp_path, tiny_tokens(), False)
    assert casing(tmp_path, cased, False) == casing(tmp_path, tiny_tokens(), True) == ""


def casing(folder, tokens, do_lower_case):
    found = diagnose(folder, documents(150), tokens, do_lower_case)[1]
    return found["Casing does not agree"].measured if "Casing does not agree" in found else ""


def test_damaged_files_are_findings_and_the_others_are_read(tmp_path):
    text = "\n\n".join("\n".join(document) for document in documents(150))
    (tmp_path / "a.txt").write_text(text, encoding="utf8")
    (tmp_path / "b.txt").write_bytes(text[:3000].encode() + b"\nbad \xff byte\n\n")
    (tmp_path / "c.txt.gz").write_bytes(gzip.compress(text.encode())[:-20])
    parts, problems = list_readable(f"{tmp_path}/*.txt*")
    counts = count_corpus(parts)
    counts.problems += problems
    assert len(counts.words) >= 150
    (finding,) = [f for f in diagnose_corpus("x", counts).findings if "cannot" in f.title]
    assert finding.severity.name == "SERIOUS"
    told = " ".join([finding.measured, *finding.details])
    assert "b.txt, line" in told and "c.txt.gz: the compressed file is truncated" in told


def test_a_place_of_which_nothing_can_be_read(tmp_path):
    (tmp_path / "picture").write_bytes(b"GIF89a\0\1\2")
    parts, problems = list_readable(str(tmp_path / "picture"))
    counts = count_corpus(parts, WordPiece(Vocab(tuple([*tiny_tokens(), "A", "B", "C"])), True))
    counts.problems += problems
    (finding,) = diagnose_corpus("x", counts).findings
    assert finding.severity.name == "SERIOUS" and "neither text nor TFRecords" in finding.measured
    with pytest.raises(ValueError, match="no file matches"):
        list_readable(f"{tmp_path}/nothing/*")


def test_sample_is_even_and_bounded(tmp_path):
    path = tmp_path / "corpus.jsonl"
    docs = documents(12_000, 8)
    path.write_text("".join(json.dumps({"text": "\n".join(d)}) + "\n" for d in docs), "utf8")
    parts = list_parts(str(path), part_bytes=PART_BYTES)
    assert len(parts) == 7
    chosen = draw_parts(parts, 3 << 20)
    # A third of 7 parts each: the middles, at 1.17, 3.5 and 5.83.
    assert sorted(part.start >> 20 for part in chosen) == [1, 3, 5]
    counts = count_corpus(parts, max_bytes=3 << 20)
    assert counts.scope == "a sample: 3 of 7 parts" and counts.is_sample
    assert counts.num_characters == pytest.approx(3 << 20, rel=0.1)
    packed = tmp_path / "packed.jsonl.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    counts = count_corpus(list_parts(str(packed)), max_bytes=1 << 20)
    assert counts.num_characters == pytest.approx(1 << 20, rel=0.01)
    assert counts.scope == "all; the first 1 MB of 1 of them"


def test_shortened_lines_are_printable():
    assert shorten("a\x02b\tc") == "a\\x02b\\tc"
    assert len(shorten("x" * 1000)) == 80
