"""The program that prints examples: its text, worked by hand, on both kinds of records."""

import re

import numpy as np
import pytest

from bert_tf import show_examples
from bert_tf.config import MaskingConfig
from bert_tf.corpus.pipeline import first_examples
from bert_tf.corpus.tfrecords import RecordFiles, encode_examples, write_records
from bert_tf.text.vocab import Vocab
from tests.programs import fail, finish, run

TOKENS = "[PAD] [UNK] [CLS] [SEP] [MASK] the mill stood slow ##ly play ##ing river".split()
VOCAB = Vocab(tuple(TOKENS))
A, B = "the mill stood slow ##ly".split(), "play ##ing the river".split()
WORD_IDS = [VOCAB.ids[t] for t in ["[CLS]", *A, "[SEP]", *B, "[SEP]"]] + [0, 0]
T = len(WORD_IDS)


def make_example(label: int = 1) -> dict[str, np.ndarray]:
    """Masks `mill` and `##ing`, keeps `stood`, and puts `slow` for `the` of the second segment."""
    word_ids = np.array(WORD_IDS)
    positions = np.array([2, 3, 8, 9, 0])
    answers = np.append(word_ids[positions[:4]], 0)
    word_ids[positions[:4]] = [VOCAB.ids[t] for t in ("[MASK]", "stood", "[MASK]", "slow")]
    return {
        "input_word_ids": word_ids,
        "input_mask": np.array([1] * 12 + [0] * 2),
        "input_type_ids": np.array([0] * 7 + [1] * 5 + [0] * 2),
        "masked_lm_positions": positions,
        "masked_lm_ids": answers,
        "masked_lm_weights": np.array([1.0, 1, 1, 1, 0]),
        "next_sentence_labels": np.array(label),
    }


def test_text_worked_by_hand():
    assert show_examples.format_example(make_example(), VOCAB, False).splitlines() == [
        "12 tokens, 4 predicted; B is random",
        "  A: the [MASK](mill) stood(kept) slowly",
        "  B: play[MASK](##ing) slow(random, was the) river",
    ]
    assert "; B follows A\n" in show_examples.format_example(make_example(0), VOCAB, False)


def test_one_segment_has_no_relation():
    example = make_example() | {"input_type_ids": np.zeros(T, int)}
    lines = show_examples.format_example(example, VOCAB, False).splitlines()
    assert lines[0] == "12 tokens, 4 predicted"
    assert len(lines) == 2


def test_colours_only_mark_predictions():
    plain = show_examples.format_example(make_example(), VOCAB, False)
    coloured = show_examples.format_example(make_example(), VOCAB, True)
    assert "\033[31m[MASK](mill)\033[0m \033[32mstood(kept)\033[0m" in coloured
    assert re.sub(r"\033\[\d+m", "", coloured) == plain


@pytest.fixture
def folder(tmp_path):
    """A folder with a vocabulary and three masked and three unmasked records."""
    names = {"input_word_ids": "input_ids", "input_type_ids": "segment_ids"}
    masked = {names.get(name, name): np.atleast_2d(v) for name, v in make_example().items()}
    unmasked = {name: v for name, v in masked.items() if not name.startswith("masked")}
    unmasked["input_ids"] = np.array([WORD_IDS])
    write_records(tmp_path / "masked.tfrecord", encode_examples(masked) * 3)
    write_records(tmp_path / "unmasked.tfrecord", encode_examples(unmasked) * 3)
    VOCAB.write(tmp_path / "vocab.txt")
    return tmp_path


def test_program_prints_unmasked_records_masked(folder):
    files = {"input_file": f"{folder}/un*.tfrecord", "vocab_file": folder / "vocab.txt"}
    printed = finish(run("show_examples", num_examples=2, **files))
    assert printed.count("Example") == 2
    assert printed.count("12 tokens, 2 predicted; B is random\n  A: ") == 2
    answers = [word for words in re.findall(r"\((.+?)\)", printed) for word in words.split()[-1:]]
    assert len(answers) == 4
    assert set(answers) <= {"kept", *A, *B}


def test_masked_records_are_shown_as_they_are(folder):
    records = RecordFiles([folder / "masked.tfrecord"])
    shown = list(first_examples(records, 0, MaskingConfig(), VOCAB, 10))
    assert len(shown) == 3
    for example in shown:
        text = show_examples.format_example(example, VOCAB, False)
        assert text == show_examples.format_example(make_example(), VOCAB, False)


def test_text_is_not_taken_for_records(folder):
    (folder / "text").write_text("no records here")
    with pytest.raises(ValueError, match="record 0 .*/text .*TFRecord"):
        list(first_examples(RecordFiles([folder / "text"]), 0, MaskingConfig(), VOCAB, 1))


def test_records_of_another_vocabulary_give_one_line(folder):
    Vocab(VOCAB.tokens[:-1]).write(folder / "vocab.txt")
    files = {"input_file": f"{folder}/masked.tfrecord", "vocab_file": folder / "vocab.txt"}
    printed = fail(run("show_examples", **files))
    message = f"ERROR: .*id 12 .*record 0 .*{folder}/masked.tfrecord.* vocabulary "
    assert re.search(message, printed)
