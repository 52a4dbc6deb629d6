"""Passages of text files in scripts without spaces between words."""

import pathlib

import pytest

from bert_tf.corpus.unspaced_text import word_spans
from bert_tf.search.documents import PASSAGE_WORDS, read_documents

ARTICLE = {
    "Chinese": (
        "人人生而自由，在尊严和权利上一律平等。他们赋有理性和良心，并应以兄弟关系的精神相对待。"
    ),
    "Japanese": (
        "人間は、理性と良心とを授けられており、互いに同胞の精神をもって行動しなければならない。"
    ),
    "Thai": "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ ต่างมีเหตุผลและมโนธรรม ",
    "Arabic": "يولد جميع الناس أحرارًا متساوين في الكرامة والحقوق، أليس كذلك؟ ",
    "Hindi": "उन्हें बुद्धि और अन्तरात्मा की देन प्राप्त है और परस्पर उन्हें भाईचारे का भाव चाहिए। ",
}


def passages(folder: pathlib.Path, text: str) -> list[str]:
    (folder / "a.txt").write_text(text, encoding="utf8")
    return [document.text for document in read_documents(str(folder / "a.txt"))]


@pytest.mark.parametrize("language", ARTICLE)
def test_one_long_line_becomes_passages_of_whole_sentences(
    tmp_path: pathlib.Path, language: str
) -> None:
    article = ARTICLE[language]
    line = article * 25
    found = passages(tmp_path, line)
    assert len(found) > 1
    assert "".join("".join(found).split()) == "".join(line.split())
    for passage in found:
        words = len(word_spans(passage))
        assert words <= PASSAGE_WORDS
        assert words > PASSAGE_WORDS / 4 or passage is found[-1]
        assert passage[-1] == article.strip()[-1] or language in ("Chinese", "Thai")
        assert passage[-1] in "。؟।มธิ"


def test_a_sentence_that_is_too_long_is_cut_after_a_comma(tmp_path: pathlib.Path) -> None:
    clause = "山" * 29 + "，"
    assert passages(tmp_path, clause * 5 + "完。") == [clause * 3, clause * 2 + "完。"]


def test_a_combining_mark_is_not_cut_from_its_letter(tmp_path: pathlib.Path) -> None:
    # Each kana and its voiced sound mark are two characters; the hundredth is a mark.
    found = passages(tmp_path, "あ" + "か\u3099" * 120)
    assert found == ["あ" + "か\u3099" * 49, "か\u3099" * 50, "か\u3099" * 21]


def test_wrapped_lines_of_chinese_are_joined_without_a_space(tmp_path: pathlib.Path) -> None:
    text = "人人生而自由，\n在尊严和权利上\n一律平等。\n\n完。\n"
    assert passages(tmp_path, text) == ["人人生而自由，在尊严和权利上一律平等。完。"]
