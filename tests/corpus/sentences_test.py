"""Tests of the sentence splitter on hand-cut sentences."""

import unicodedata

import pytest

from bert_tf.corpus.sentences import split_sentences

CASES = [
    ["Mr. Smith went home.", "Dr. Brown stayed."],
    ["He met J. R. R. Tolkien.", "They talked."],
    ["The U.S. Army left.", "It won."],
    ["He lives in the U.S.", "The house is big."],
    ["See e.g. Smith (1990).", "Also i.e. Jones."],
    ["He left at 5 p.m. yesterday."],
    ["He left at 5 p.m.", "She stayed."],
    ["It was No. 5 on the list.", "No.", "We disagree."],
    ['"Why?" he asked.', '"Because."'],
    ['She said, "Go home."', "He went."],
    ["(This is odd.)", "Really!", "Yes?", "No."],
    ["Wait...", "What?!", "Oh."],
    ["He paused ... and went on."],
    ["Acme Inc. announced it.", "I like Acme Inc.", "The firm is old."],
    ["Pi is 3.14 or so.", "Version 2.1 is out."],
    ["It cost $5.", "20 people paid."],
    ["It was World War I.", "The war ended in 1918."],
    ["Fig. 3 shows it.", "See vol. 2, pp. 3-5."],
    ["He wrote to St. Paul.", "Gen. Lee came."],
    ["Visit www.example.com today.", "OK."],
    ["He said “Stop!”", "Then he left."],
    ["1. First item is here."],
    ["Born c. 1850 in Ohio.", "Died 1900."],
    ["He went to Washington, D.C. in 1990."],
    ["She has a Ph.D. in physics.", "He has one, too."],
    ["École was closed.", "Été came.", "Über alles."],
    ["He came. . . and went."],
    ["_He_ was late.", "_She_ was not."],
    ["Smith et al. (2010) found it.", "Others vs. Smith did not."],
    ["'I know.'", "'Do you?'"],
    ["In Jan. 1990 it rained.", "On Feb. 3 it did not."],
    ["John F. Kennedy was shot.", "He died."],
    ["Vitamin C is good.", "So is plan B.", "It works."],
    ["Er sagte: «Ja.»", "«Nein.»"],
    ["He was ill.", "John came."],
    ["über is lower case. straße too, so this is one sentence."],
]


@pytest.mark.parametrize("sentences", CASES, ids=lambda sentences: sentences[0])
def test_hand_cut(sentences):
    assert split_sentences(" ".join(sentences)) == sentences


@pytest.mark.parametrize("gap", ["  ", "\t", " \n ", "\u00a0"])
def test_any_white_space_parts(gap):
    assert split_sentences(f" One is here.{gap}Two is here. ") == ["One is here.", "Two is here."]


def test_wide_marks_need_no_space():
    text = "今日は。明日は！「はい。」次は？ Then English. 終わり"
    assert split_sentences(text) == [
        "今日は。",
        "明日は！",
        "「はい。」",
        "次は？",
        "Then English.",
        "終わり",
    ]


def test_line_breaks_end_sentences_and_empty_ones_are_dropped():
    assert split_sentences("Plot.\n\nA title\nHe came. \n\n") == ["Plot.", "A title", "He came."]
    assert split_sentences(" \n \t\n") == []


def test_no_character_but_white_space_is_lost():
    text = (
        'Dr. "No" (1962) ... is a film!? _Yes._ It cost $1.1 million; e.g. *this* one. 終。The End'
    )
    assert "".join("".join(split_sentences(text)).split()) == "".join(text.split())


@pytest.mark.parametrize(("language", "word"), [("fr", "févr"), ("de", "mär"), ("es", "núm")])
def test_abbreviations_are_known_in_any_normal_form(language, word):
    text = f"Il vint au {word}. 5 de là. Fin."
    composed = split_sentences(text, language)
    assert len(composed) == 2
    for form in ("NFD", "NFKD"):
        decomposed = split_sentences(unicodedata.normalize(form, text), language)
        assert decomposed == [unicodedata.normalize(form, sentence) for sentence in composed]
