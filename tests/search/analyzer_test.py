"""Words of a search, by hand from UAX 29, from Lucene's analyzers, and in several normal forms."""

import dataclasses
import pathlib
import unicodedata

import numpy as np
import pytest

from bert_tf.search.analyzer import STEMMERS, TOKEN_RULE, Analyzer
from bert_tf.search.bm25 import Bm25
from bert_tf.search.index import add_to_index, build_index, record_language
from bert_tf.search.manifest import Manifest
from bert_tf.search.searcher import Searcher
from bert_tf.search.segments import Batch
from tests import programs


def words(text: str, language: str = "other") -> list[str]:
    return Analyzer(language).words(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # WB4: marks belong to the character before them.
        ("हिन्दी भाषा", ["हिन्दी", "भाषा"]),
        ("বাংলা தமிழ் తెలుగు", ["বাংলা", "தமிழ்", "తెలుగు"]),
        ("አማርኛ ߒߞߏ ދިވެހި", ["አማርኛ", "ߒߞߏ", "ދިވެހި"]),
        ("q\u0323\u0307x n\u0303", ["q\u0323\u0307x", "ñ"]),
        (" \u0301 a", ["a"]),  # A mark alone is no word.
        # WB13a: underscores join; WB8 to WB10: digits join letters.
        ("snake_case 4x4 p53", ["snake_case", "4x4", "p53"]),
        ("don't 3.14 C++", ["don", "t", "3", "14", "c"]),
        ('צה״ל צה"ל', ["צה", "ל", "צה", "ל"]),
        # Symbols are not letters; widths are no difference.
        ("Acme™ ５㎏ １２", ["acme", "tm", "5", "kg", "12"]),
        ("٣٤ ३४ ๓๔", ["34", "34", "34"]),
        ("محمـــد مُحَمَّد", ["محمد", "محمد"]),
        ("x\u00adray co\u200bop\u2060s\ufeff", ["xray", "coops"]),
        ("\u200eleft\u200f \u202bright\u202c", ["left", "right"]),
        # Lucene's CJKBigramFilter; graphemes where vowels are marks.
        ("in 東京都 (水)", ["in", "東京", "京都", "水"]),
        ("C言語", ["c", "言語"]),
        ("ｶﾞｷﾞグ", ["ガギ", "ギグ"]),
        ("กินข้าว", ["กิน", "นข้", "ข้า", "าว"]),
        ("សាខ្មែ", ["សាខ្មែ"]),
        ("🙂 ❤️ 👨‍👩‍👧", []),
    ],
)
def test_words_by_hand(text: str, expected: list[str]) -> None:
    assert words(text) == [unicodedata.normalize("NFC", word) for word in expected]


SAME = {
    "am": ("other", "ሰላም", "ሰላም\u200b"),
    "ar": ("ar", "مُحَمَّد", "محمـــد"),
    "az": ("az", "İŞIQ", "işıq"),
    "bn": ("other", "ড়", "\u09dc"),
    "de": ("de", "STRASSE", "Straße"),
    "de other": ("other", "STRASSE", "Straße"),
    "el final": ("other", "ΟΔΟσ", "οδος"),
    "el": ("el", "ΑΘΉΝΑΣ", "αθηνας"),
    "el other": ("other", "ὈΔΥΣΣΕΎΣ", "Οδυσσεύς"),
    "en": ("en", "ﬁnding", "Finding"),
    "fa": ("fa", "كتابي", "کتابی"),
    "fr": ("fr", "E\u0301TE\u0301", "été"),
    "he": ("other", "שָׁלוֹם", "שלום"),
    "he presentation": ("other", "\ufb2aלום", "שלום"),
    "hi": ("hi", "क़लम", "\u0958लम"),
    "haw": ("other", "Hawaiʻi", "Hawai’i"),
    "ja": ("other", "ﾊﾟｿｺﾝ", "パソコン"),
    "ko": ("other", "한국어", "\u1112\u1161\u11ab\u1100\u116e\u11a8\u110b\u1165"),
    "lt": ("lt", "JI\u0307\u0301", "jí"),
    "ml": ("other", "ന്\u200dറെ", "ന്റെ"),
    "nl": ("nl", "ĲSLAND", "ijsland"),
    "ru": ("ru", "Москва\u0301", "МОСКВА"),
    "th": ("other", "น้ำ", "น้\u0e4dา"),
    "tr": ("tr", "ISPARTA", "ısparta"),
    "tr dotted": ("tr", "I\u0307STANBUL", "istanbul"),
    "tr in English": ("en", "İstanbul", "istanbul"),
    "uk": ("other", "п'ять", "пʼять"),
    "zh": ("other", "⽇本⼈", "日本人"),
    "zh variant": ("other", "葛\U000e0100城", "葛城"),
    "vi": ("other", "tiếng VIỆT", "tie\u0302\u0301ng vie\u0323\u0302t"),
}


@pytest.mark.parametrize("name", SAME)
def test_documents_and_queries_of_other_forms_find_each_other(name: str) -> None:
    language, first, second = SAME[name]
    forms = set()
    for text in (first, second):
        forms |= {text, *(unicodedata.normalize(form, text) for form in ("NFC", "NFD", "NFKD"))}
        forms.add(text[:1] + "\u00ad" + text[1:])
    documents = [*sorted(forms), "qqq"]
    scores, _ = Bm25(documents, language=language).search(documents, len(documents))
    found = (scores > 0).sum(axis=1).tolist()
    assert found == [len(forms)] * len(forms) + [1]


@pytest.mark.parametrize(
    ("language", "first", "second"),
    [
        ("hi", "किताब", "कातिब"),  # other vowel signs
        ("hi", "हिन्दी", "हानद"),
        ("tr", "ısı", "isi"),
        ("tr", "ISI", "isi"),
        ("fr", "pêche", "péché"),
        ("other", "ไป", "ปี"),
        ("ru", "й", "и"),
        ("other", "ќ", "к"),
        ("ar", "أب", "ثب"),
        ("other", "dün", "dun"),
        ("ta", "கல்", "கால்"),
    ],
)
def test_other_words_stay_other_words(language: str, first: str, second: str) -> None:
    texts = [first, second]
    scores, rows = Bm25(texts, language=language).search(texts, 2)
    assert rows[:, 0].tolist() == [0, 1] and (scores > 0).sum(axis=1).tolist() == [1, 1]


def test_lucene_splits_persian_words_at_the_non_joiner() -> None:
    assert words("می\u200cخواهم", "fa") == ["می", "خواهم"]
    assert words("می\u200cخواهم") == ["میخواهم"]


def test_many_marks_take_linear_time() -> None:
    # Python's normal forms would need minutes for them.
    assert words("a" + "\u0301\u0323" * 300_000) == words("a" + "\u0301\u0323" * 15)


def test_stop_words_have_the_normal_form() -> None:
    assert words("ＴＨＥ t\u00adhe The clock", "en") == ["clock"]


def test_words_do_not_depend_on_earlier_texts() -> None:
    analyzer = Analyzer("tr")
    text = "İstanbul ISPARTA ısparta " + "東京都" * 30
    assert analyzer.words(text) == analyzer.words(text) == words(text, "tr")


@pytest.mark.parametrize("language", STEMMERS)
def test_each_language_has_words(language: str) -> None:
    assert len(words("Words WORDS", language)) == 2


def test_an_unknown_language_is_refused() -> None:
    with pytest.raises(ValueError, match="'xx'"):
        Bm25(["a"], language="xx")


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    batch = Batch(["a", "b"], np.eye(2), ["Isparta", "ısparta"])
    build_index(tmp_path / "index", [batch], model="m", language="en")
    return tmp_path / "index"


def number_found(folder: pathlib.Path) -> int:
    return len(Searcher(str(folder), mode="words").search(["ISPARTA"], 2)[0].rows)


def test_an_index_records_its_rule(folder: pathlib.Path) -> None:
    add_to_index(folder, [Batch(["c"], np.ones([1, 2]), ["other"])], model="m")
    manifest = Manifest.read(folder)
    assert (manifest.token_rule, manifest.language) == (TOKEN_RULE, "en")
    assert number_found(folder) == 1


@pytest.mark.parametrize("mode", ["words", "hybrid"])
def test_an_index_without_the_rule_is_refused_until_it_is_recorded(
    folder: pathlib.Path, mode: str
) -> None:
    dataclasses.replace(Manifest.read(folder), token_rule="").write(folder)
    with pytest.raises(ValueError, match="bert_tf.build_index .*--language"):
        Searcher(str(folder), mode=mode)
    programs.finish(programs.run("bert_tf.build_index", output_dir=str(folder), language="tr"))
    assert Manifest.read(folder).language == "tr"
    assert number_found(folder) == 2
    record_language(folder, "en")
    assert number_found(folder) == 1


def test_an_index_of_another_rule_is_refused(folder: pathlib.Path) -> None:
    dataclasses.replace(Manifest.read(folder), token_rule="one_character").write(folder)
    with pytest.raises(ValueError, match="'one_character'"):
        Searcher(str(folder), mode="words")
    with pytest.raises(ValueError, match="'xx'"):
        record_language(folder, "xx")
