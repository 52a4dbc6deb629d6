"""Tests of sentences in scripts other than Latin or without spaces, on hand-cut texts."""

import json
import pathlib
import random
import textwrap
import unicodedata

import pytest

from bert_tf.corpus.corpus import list_parts, read_documents
from bert_tf.corpus.corpus_format import SENTENCE_END
from bert_tf.corpus.manifests import describe_parts
from bert_tf.corpus.sentences import sentence_spans, split_sentences
from bert_tf.corpus.unspaced_text import LONGEST_RUN, cut_units, join_lines
from tests.shared_data import golden_file

# Article 1 of the Universal Declaration of Human Rights, and sentences about everyday things.
CASES = {
    "Chinese": [
        "人人生而自由，在尊严和权利上一律平等。",
        "他们赋有理性和良心，并应以兄弟关系的精神相对待。",
    ],
    "traditional": ["她問：「為什麼？」", "沒人答！？", "（註：見下文。）", "好。"],
    "Japanese": [
        "すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。",
        "人間は、理性と良心とを授けられており、互いに同胞の精神をもって行動しなければならない。",
    ],
    "half width": ["これは｡", "｢いいえ｡｣", "終わり"],
    "continued": ["「すごい！」、彼は言った。", "終わった。――完。"],
    "full stops": ["円周率は３．１４です．", "これは図1.2です."],
    "straight quotes": ['他说："好。"', "走了。", '"再见。"', "'是。'", "完"],
    "Western marks": ["你好!", "我是李明?", "版本3.5很好"],
    "Urdu": ["یہ کتاب ہے۔", "وہ قلم ہے۔", "کیا؟"],
    "Hindi": [
        "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है।",
        "उन्हें बुद्धि और अन्तरात्मा की देन प्राप्त है और परस्पर उन्हें भाईचारे के भाव से बर्ताव करना चाहिए।",
    ],
    "verse": ["पहला पद॥", "दूसरा पद॥"],
    "Khmer": ["មនុស្សទាំងអស់កើតមកមានសេរីភាព។", "មនុស្សមានវិចារណញ្ញាណ។"],
    "Burmese": ["ဤစာအုပ်၊ ထိုခဲတံ ကောင်း၏။", "သူ လာ၏။"],
    "Amharic": ["የሰው ልጅ ሁሉ ሲወለድ ነጻ ነው።", "እንዴት ነህ፧", "ደህና።"],
    "Armenian": ["Բոլոր մարդիկ ծնվում են ազատ։", "Նրանք ունեն բանականություն։"],
    "short Thai": ["สวัสดีครับ วันนี้อากาศดี"],
}
SPACED_CASES = {
    "Arabic": [
        "يولد جميع الناس أحرارًا متساوين في الكرامة والحقوق.",
        "وقد وهبوا عقلاً وضميرًا وعليهم أن يعامل بعضهم بعضًا بروح الإخاء.",
        "هل هذا صحيح؟",
        "قال د. أحمد: نعم!",
    ],
    "abbreviations in Thai": ["เมื่อ พ.ศ. 2490 เวลา 10.30 น. ที่นี่.", "แน่ใจไหม?", "ใช่"],
    "Hebrew": ["כל בני אדם נולדו בני חורין.", "כולם חוננו בתבונה ובמצפון."],
    "Korean": ["모든 인간은 태어날 때부터 자유롭다.", "인간은 이성과 양심을 부여받았다."],
    "Russian": ["Все люди рождаются свободными.", "Они наделены разумом."],
    "French": ["Il dit : « Oui. »", "Puis il part.", "Quoi ?", "« Rien ! », dit-il."],
    "German": ["Er rief: „Komm!“", "Dann ging er."],
}
THAI = (
    "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ ต่างมีเหตุผลและมโนธรรม "
    "และควรปฏิบัติต่อกันด้วยเจตนารมณ์แห่งภราดรภาพ"
)


@pytest.mark.parametrize("name", CASES)
def test_sentences_without_spaces_between(name: str) -> None:
    assert split_sentences("".join(CASES[name])) == CASES[name]
    assert split_sentences(" ".join(CASES[name])) == CASES[name]


@pytest.mark.parametrize("name", SPACED_CASES)
def test_sentences_with_spaces_between(name: str) -> None:
    assert split_sentences(" ".join(SPACED_CASES[name])) == SPACED_CASES[name]


@pytest.mark.parametrize(
    ("language", "sentences"),
    [
        ("de", ["Am 3. Oktober kam Hr. Meier, z. B. mit Obst.", "Abb. 2 zeigt es."]),
        ("fr", ["Il a vu M. Dupont et Mme. Durand.", "Voir fig. 3 et p. ex. Hugo."]),
        ("es", ["El Sr. García y la Sra. López salieron.", "Véase núm. 5 hoy."]),
        ("ru", ["Об этом пишет проф. Иванов, см. Рис. 2.", "Всё."]),
        ("zh", ["No.", "5是这样。", "很好。"]),
    ],
)
def test_abbreviations_are_those_of_the_language(language: str, sentences: list[str]) -> None:
    assert split_sentences(" ".join(sentences), language) == sentences
    assert split_sentences(" ".join(sentences)) != sentences


def test_english_and_auto_are_the_same() -> None:
    text = "Mr. Smith saw No. 5 in the U.S. army. He left. 今日は。明日は"
    assert split_sentences(text, "en") == split_sentences(text)


def test_a_language_that_is_unknown() -> None:
    with pytest.raises(ValueError, match=r"tlh.* de, en,"):
        split_sentences("Heghlu'meH QaQ jajvam.", "tlh")
    with pytest.raises(ValueError, match="--sentence_language=xx"):
        list_parts("missing.txt", language="xx")


def test_parts_know_their_language(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "Am 3. Mai kam er. Er blieb."}\n', encoding="utf8")
    (part,) = list_parts(str(path), language="de")
    assert list(read_documents(part)) == [["Am 3. Mai kam er.", "Er blieb."]]
    (usual,) = list_parts(str(path))
    assert list(read_documents(usual)) == [["Am 3.", "Mai kam er.", "Er blieb."]]
    # A manifest differs only if the language differs from that of older manifests.
    assert describe_parts([part]) == [[*describe_parts([usual])[0], "de"]]


def test_a_long_run_is_cut_at_its_last_space() -> None:
    first, second, third = THAI.split(" ")
    assert split_sentences(THAI) == [f"{first} {second}", third]
    # A sign of repetition belongs to the word before the space.
    run = "ก" * (LONGEST_RUN - 20)
    assert split_sentences(f"{run} {'ข' * 10} ๆ{'ค' * 30}") == [run, f"{'ข' * 10} ๆ{'ค' * 30}"]


def test_a_long_run_without_a_space_is_cut_between_graphemes() -> None:
    word = "เกี๊ยว่น้ำ"  # `เ` is written before its consonant; tones and vowels combine.
    for shift in range(len(word)):
        text = "ก" * shift + word * 40
        sentences = split_sentences(text)
        assert "".join(sentences) == text
        assert len(sentences) > 3
        for sentence, following in zip(sentences, sentences[1:], strict=False):
            assert len(sentence) <= LONGEST_RUN
            assert not unicodedata.combining(following[0])
            assert following[0] not in "\u0e31\u0e33\u0e34\u0e35"
            assert sentence[-1] != "เ"
    # A Khmer sign joins the consonant after it to the one before.
    for shift in range(3):
        sentences = split_sentences("ក" * shift + "ក\u17d2ត" * 100)
        assert [sentence[0] for sentence in sentences] == ["ក"] * 4


def test_a_space_near_the_start_of_a_long_run_is_no_place_to_cut() -> None:
    near = "ก" * (LONGEST_RUN // 5) + " " + "ข" * LONGEST_RUN
    assert [len(one) for one in split_sentences(near)] == [LONGEST_RUN + 1, LONGEST_RUN // 5]
    further = "ก" * (LONGEST_RUN // 3) + " " + "ข" * LONGEST_RUN
    assert split_sentences(further) == further.split(" ")


def test_a_grapheme_longer_than_a_part_is_cut() -> None:
    assert split_sentences("ก" + "\u0e48" * 250) == [
        "ก" + "\u0e48" * 99,
        "\u0e48" * 100,
        "\u0e48" * 51,
    ]


def test_parts_end_after_commas_where_there_is_no_space() -> None:
    text = "山" * 8 + "，" + "川" * 9
    units = [(index, index + 1) for index in range(len(text))]
    assert cut_units(text, units, 10) == [0, 9]
    assert cut_units(text.replace("，", "海"), units, 10) == [0, 10]
    assert cut_units(text, units[:10], 10) == [0]


def test_lines_of_chinese_and_japanese_are_joined_without_a_space() -> None:
    assert (
        join_lines(["人人生而自由，", "在尊严和权利上", "Linux", "系统。"])
        == "人人生而自由，在尊严和权利上 Linux 系统。"
    )
    assert join_lines(["모든", "인간은"]) == "모든 인간은"
    assert join_lines(["Two", "words"]) == "Two words"
    assert join_lines([]) == ""


@pytest.mark.parametrize(
    ("paragraph", "width", "separator"),
    [
        ("".join(CASES["Chinese"]) * 6, 39, ""),
        (" ".join(CASES["Hindi"]) + " ", 90, " "),
        (" ".join(SPACED_CASES["Arabic"]) + " ", 70, " "),
    ],
    ids=["Chinese", "Hindi", "Arabic"],
)
def test_wrapped_text_is_recognized(
    tmp_path: pathlib.Path, paragraph: str, width: int, separator: str
) -> None:
    lines = textwrap.wrap(paragraph * 8, width)
    path = tmp_path / "a.txt"
    path.write_text("\n".join(lines), encoding="utf8")
    (part,) = list_parts(str(path))
    assert part.format == "prose"
    expected = split_sentences(separator.join(lines))
    assert list(read_documents(part)) == [expected]
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"text": "\n".join(lines)}), encoding="utf8")
    (part,) = list_parts(str(path))
    assert list(read_documents(part)) == [expected]


@pytest.mark.parametrize("line", ["ہے۔", "है।", "終わり。」", "ነው።", "どうか？", "好：", "End.)"])
def test_lines_that_end_a_sentence(line: str) -> None:
    assert SENTENCE_END.search(line)
    assert not SENTENCE_END.search(line[0])


def test_spans_are_offsets_into_the_text_as_written() -> None:
    path = golden_file("families", "xlm_roberta", "tokenization", "tokenizer_golden.json")
    texts = [entry["text"] for entry in json.loads(path.read_text(encoding="utf8"))]
    draw = random.Random(5)
    sentences = [one for case in [*CASES.values(), *SPACED_CASES.values()] for one in case]
    for _ in range(200):
        gaps = [draw.choice(["", " ", "\n", "\u3000", " \r\n\t"]) for _ in range(8)]
        texts.append("".join(gap + draw.choice([*sentences, THAI]) for gap in gaps))
    for text in texts:
        end = 0
        for start, stop in sentence_spans(text):
            assert not text[end:start].strip()
            assert text[start:stop] == text[start:stop].strip() != ""
            end = stop
        assert not text[end:].strip()
