"""Sentences with masks: those given, or the run's own in place of sentences in another language."""

from bert_tf.config import DataConfig
from bert_tf.pretraining.shown_sentences import shown_sentences
from bert_tf.text.vocab import Vocab
from bert_tf.text.wordpiece import WordPiece
from tests.conftest import LETTERS, SPECIAL_TOKENS

FRENCH = ["Le programme affiche une liste complète.", "Oui.", "Cette option supprime un fichier !"]
ENGLISH = "The [MASK] stood on a river.|A [MASK]."


def tokenizer_of(words):
    pieces = [*words, *LETTERS, *(f"##{letter}" for letter in LETTERS), ".", "!"]
    return WordPiece(Vocab((*SPECIAL_TOKENS, *dict.fromkeys(pieces))), True)


def test_an_english_default_gives_way_to_the_text(tmp_path):
    path = tmp_path / "french.txt"
    path.write_text("\n".join(FRENCH), encoding="utf8")
    french = tokenizer_of("le programme affiche une liste complete cette option fichier un".split())
    data = DataConfig(input_file=str(path), show_masks=ENGLISH)
    shown = [
        "Le [MASK] affiche une liste complète.",
        "Cette option [MASK] un fichier !",
    ]
    assert shown_sentences(data, french) == shown
    # The held-out texts are preferred, and a vocabulary that knows the sentences keeps them.
    held_out = tmp_path / "held_out.txt"
    held_out.write_text("Le fichier est une liste complète.", encoding="utf8")
    data = DataConfig(input_file=str(path), eval_file=str(held_out), show_masks=ENGLISH)
    assert shown_sentences(data, french) == ["Le [MASK] est une liste complète."]
    english = tokenizer_of("the stood on a river".split())
    assert shown_sentences(data, english) == ["The [MASK] stood on a river.", "A [MASK]."]
    assert shown_sentences(DataConfig(input_file=str(path)), french) == []


def test_a_text_without_spaces(tmp_path):
    path = tmp_path / "japanese.txt"
    path.write_text("東京都の天気は晴れです。", encoding="utf8")
    tokenizer = tokenizer_of("東 京 都 の 天 気 は 晴 れ で す 。".split())
    data = DataConfig(input_file=str(path), show_masks=ENGLISH)
    (shown,) = shown_sentences(data, tokenizer)
    assert shown.count("[MASK]") == 1 and len(shown) == len("東京都の天気は晴れです。") + 5
