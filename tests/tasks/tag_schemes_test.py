"""Tags of entities in other spellings, by hand and through the reader of files."""

import logging

import pytest

from bert_tf.tasks.tagging.files import read_tagged, tag_names, with_entity_tags
from bert_tf.tasks.tagging.schemes import respelled_tags, with_entity_names

# Spelled tags of Paris, the next word of the same entity, and a word outside.
SPELLINGS = [
    ("B_LOC", "I_LOC", "O"),
    ("b-loc", "i-loc", "o"),
    ("B-LOC", "I-LOC", "0"),
    ("LOC-B", "LOC-I", "O"),
    ("B LOC", "I LOC", "O"),
    ("B\u2013LOC", "I\u2013LOC", "O"),
    ("B\u2011LOC", "I\u2212LOC", "o"),
    ("LOC_b", "LOC_i", "other"),
    ("B.LOC", "I.LOC", "O"),
    ("B:LOC", "I:LOC", "-"),
    ("B-LOC", "I_LOC", "O"),
    ("B-LOC", "I-loc", "O"),
    ("B-LOC", "M-LOC", "none"),
    ("[B-LOC]", "[I-LOC]", "[O]"),
    ('"LOC-B"', '"LOC-I"', '"O"'),
    ("\uff22\uff0dLOC", "\uff29\uff0dLOC", "\uff2f"),
    ("\u0412-LOC", "\u0406-LOC", "\u041e"),  # Cyrillic
    ("\u0392-LOC", "I-LOC", "\u039f"),  # Greek
]


@pytest.mark.parametrize("spelling", SPELLINGS, ids="-".join)
def test_entities_of_another_spelling_are_read_as_bio(spelling, tmp_path):
    begin, inside, outside = spelling
    path = tmp_path / "train.txt"
    path.write_text(f"New\t{begin}\nYork\t{inside}\nis\t{outside}\n\n", encoding="utf8")
    (sentence,) = with_entity_tags(read_tagged(str(path)))
    kind = "loc" if begin == "b-loc" else "LOC"
    assert sentence.tags == (f"B-{kind}", f"I-{kind}", "O")
    assert tag_names([sentence]) == ("O", f"B-{kind}", f"I-{kind}")


@pytest.mark.parametrize(
    "tags",
    [
        ("NN", "VB", "-LRB-", ".", ",", "``", "''", "(", ")", '""'),
        ("NOUN", "VERB", "ADP"),
        ("N", "O", "V", "^", "E", "L"),
        ("N-SG", "V-PRES"),
        ("0", "3", "4"),
        ("DET:I", "N:B", "_"),
        ("DET:I", "N:B", "-"),
        ("DET:B", "DET:I", "N:B", "N:I"),
        ("O", "COMMA", "PERIOD"),
        ("O", "B-LOC", "I-LOC"),
        ("B-LOC", "E-LOC", "S-LOC", "U-LOC", "L-LOC", "O"),
    ],
)
def test_other_tags_are_kept(tags):
    assert respelled_tags(tags) == {}


@pytest.mark.parametrize(
    ("tags", "named"), [(("O", "B-LOC", "PER"), "PER"), (("O", "LOC", "PER"), "LOC")]
)
def test_tags_that_look_like_entities_are_named(tags, named, caplog):
    with caplog.at_level(logging.WARNING):
        assert respelled_tags(tags) == {}
    assert repr(named) in caplog.text and "BIO" in caplog.text


def test_numbers_of_tags_are_named(caplog):
    with caplog.at_level(logging.WARNING):
        assert respelled_tags(("0", "3", "4")) == {}
    assert "0, 3, 4" in caplog.text and "BIO" in caplog.text


def test_the_labels_of_a_model_decide_the_case_of_types():
    assert respelled_tags(["b_loc", "o"], ["O", "B-LOC"]) == {"b_loc": "B-LOC", "o": "O"}
    assert respelled_tags(["b_loc", "o"], ["o", "b_loc"]) == {}
    assert with_entity_names(["o", "b_loc"]) == ["O", "B-loc"]
