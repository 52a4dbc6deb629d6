"""Findings of prepared examples: each fires on spoilt records and is silent on good ones."""

import json
import lzma
import re

import numpy as np
import pytest

from bert_tf.config import MaskingConfig
from bert_tf.corpus.tfrecords import encode_examples, write_records
from bert_tf.diagnosis.examples import diagnose_examples
from bert_tf.text.vocab import Vocab
from tests.damaged import flip_a_bit
from tests.shared_data import golden_file

PAD, UNK, CLS, SEP, MASK, UNUSED, WORD = range(7)
VOCAB = Vocab(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[unused0]", *map(str, range(2000))))
LENGTH, SLOTS = 32, 5
MASKING = MaskingConfig(max_predictions_per_seq=SLOTS)


def made_rows(count=1000, split=()) -> dict[str, np.ndarray]:
    """Returns good examples: [CLS] 13 [SEP] 16 [SEP], every other pair random.

    With `split` they are masked, 5 predictions each (15.6 %): of each ten as many as it says are
    [MASK], kept, random.
    """
    ids = np.random.default_rng(0).integers(WORD, len(VOCAB), [count, LENGTH])
    ids[:, 0], ids[:, [14, 31]] = CLS, SEP
    rows = {
        "input_ids": ids,
        "input_mask": np.ones_like(ids),
        "segment_ids": np.tile(np.arange(LENGTH) > 14, (count, 1)).astype(int),
        "next_sentence_labels": np.arange(count)[:, None] % 2,
    }
    if split:
        positions = np.tile([3, 7, 10, 20, 25], [count, 1])
        labels = np.take_along_axis(ids, positions, axis=1)
        number = np.arange(labels.size).reshape(labels.shape) % 10
        others = np.where(labels == WORD, WORD + 1, WORD)
        shown = np.where(number < split[0], MASK, np.where(number < sum(split[:2]), labels, others))
        np.put_along_axis(ids, positions, shown, axis=1)
        rows |= {"masked_lm_positions": positions, "masked_lm_ids": labels}
        rows["masked_lm_weights"] = np.ones(labels.shape, np.float32)
    return rows


def write(path, rows):
    write_records(path, encode_examples(rows))
    return path


def diagnose(folder, rows, masking=MASKING, vocab=VOCAB, **options):
    """Returns the findings by title."""
    place = "a", [write(folder / "a.tfrecord", rows)]
    found = diagnose_examples(*place, vocab, masking, **options)
    return {finding.title: finding for finding in found.findings}


@pytest.mark.parametrize("split", [(), (8, 1, 1)])
def test_good_examples_have_no_finding(tmp_path, split):
    assert diagnose(tmp_path, made_rows(split=split)) == {}
    assert diagnose(tmp_path, made_rows(split=split), vocab=None) == {}


def test_padding(tmp_path):
    rows = made_rows()
    rows["input_ids"][:, 20] = SEP
    for name in ("input_ids", "input_mask", "segment_ids"):
        rows[name][:, 21:] = 0
    found = diagnose(tmp_path, rows)
    assert list(found) == ["Padding"] and found["Padding"].measured.startswith("34 % ")


@pytest.mark.parametrize("prob", [0.15, 0.2, 0.4])
def test_masked_share(tmp_path, prob):
    masking = MaskingConfig(masked_lm_prob=prob, max_predictions_per_seq=SLOTS)
    found = diagnose(tmp_path, made_rows(split=(8, 1, 1)), masking)
    finding = found.get("The masked share is not the nominal one")
    severities = {0.15: None, 0.2: "WARNING", 0.4: "SERIOUS"}
    assert (finding.severity.name if finding else None) == severities[prob]
    assert not finding or finding.measured.startswith("16 % ")


@pytest.mark.parametrize(
    ("slots", "title", "measured"),
    [
        (4, "Predictions have no room: max_predictions_per_seq is 4", "20 %"),  # round(4.8) = 5
        (20, "Room for predictions is wasted: max_predictions_per_seq is 20", "75 %"),
    ],
)
def test_room_for_predictions(tmp_path, slots, title, measured):
    masking = MaskingConfig(max_predictions_per_seq=slots)
    assert diagnose(tmp_path, made_rows(), masking, is_room_given=False) == {}
    found = diagnose(tmp_path, made_rows(), masking)
    assert list(found) == [title] and found[title].measured == measured
    assert "--max_predictions_per_seq=5" in found[title].remedy


def test_room_for_a_share_that_is_drawn_or_moves(tmp_path):
    """Half of 32 pieces are 16; there were 5 in the way of the smallest share alone."""
    for name in ("masked_lm_prob_to", "masked_lm_prob_end"):
        masking = MaskingConfig(max_predictions_per_seq=8, **{name: 0.5})
        ((title, finding),) = diagnose(tmp_path, made_rows(), masking).items()
        assert title.endswith("max_predictions_per_seq is 8") and finding.measured == "50 %"
        assert "--max_predictions_per_seq=16 " in finding.remedy


@pytest.mark.parametrize(("split", "severity"), [((9, 1, 0), "WARNING"), ((10, 0, 0), "SERIOUS")])
def test_split_of_masks(tmp_path, split, severity):
    found = diagnose(tmp_path, made_rows(split=split))
    finding = found["Predicted tokens are not masked 80 / 10 / 10"]
    shares = " / ".join(f"{10 * n} %" for n in split)
    assert finding.severity.name == severity
    assert finding.measured.startswith(f"{shares} ")


@pytest.mark.parametrize(("every", "severity"), [(2, None), (4, "WARNING"), (20, "SERIOUS")])
def test_balance_of_labels(tmp_path, every, severity):
    rows = made_rows()
    rows["next_sentence_labels"][:, 0] = np.arange(1000) % every > 0
    finding = diagnose(tmp_path, rows).get("Labels of next sentence prediction are out of balance")
    assert (finding.severity.name if finding else None) == severity


def test_chance_is_no_finding(tmp_path):
    rows = made_rows(4, (9, 0, 1))  # Four pairs, all random; of 20 predictions none kept.
    rows["next_sentence_labels"][:] = 1
    assert diagnose(tmp_path, rows) == {}


@pytest.mark.parametrize(
    ("name", "place", "value", "fault"),
    [
        ("input_mask", 9, 0, "padding between tokens"),
        ("input_ids", 0, 77, "[CLS] at another position"),
        ("input_ids", 9, CLS, "[CLS] at another position"),
        ("input_ids", 31, 77, "no [SEP] at the end"),
        ("input_ids", 20, SEP, "a pair without two [SEP]"),
        ("segment_ids", 14, 1, "segments that change elsewhere than after [SEP]"),
        ("input_ids", 9, MASK, "[MASK] where nothing is predicted"),
        ("input_ids", 9, 9999, "ids outside of the vocabulary"),
        ("masked_lm_positions", 4, 14, "predictions at [CLS], [SEP] or padding"),
    ],
)
def test_what_is_out_of_place(tmp_path, name, place, value, fault):
    rows = made_rows(2000, (8, 1, 1) if name.startswith("masked") else ())
    rows[name][3, place] = value
    if name.startswith("masked"):
        rows["masked_lm_ids"][3, place] = SEP
    (finding,) = diagnose(tmp_path, rows).values()
    assert finding.severity.name == "WARNING"  # 1 of 2,000
    assert any(re.search(f"{re.escape(fault)}; record 3 ", detail) for detail in finding.details)


def test_unknown_and_unused_pieces(tmp_path):
    rows = made_rows()
    rows["input_ids"][:290, 5] = UNK  # of 29,000 pieces of text
    rows["input_ids"][:29, 6] = UNUSED
    found = diagnose(tmp_path, rows)
    assert found["Tokens that are [UNK]"].measured == "1.0 %"
    (unused,) = [finding for title, finding in found.items() if "[unused...]" in title]
    assert (unused.severity.name, unused.measured) == ("WARNING", "0.1 %")


def test_damage_is_named_and_the_rest_is_read(tmp_path):
    path = write(tmp_path / "a.tfrecord", made_rows(100))
    flip_a_bit(path)
    cut = write(tmp_path / "b.tfrecord", made_rows(10))
    cut.write_bytes(cut.read_bytes()[:-3])
    found = diagnose_examples("a", [path, cut], VOCAB, MASKING)
    (finding,) = found.findings
    told = " ".join([finding.measured, *finding.details])
    assert finding.severity.name == "SERIOUS" and told.startswith("2: ")
    assert re.search(rf"record (49|50) .*{path}", told) and f"{cut}: record 9" in told
    assert found.facts["examples"].startswith("100, 99 ")


def test_records_of_another_form_are_named(tmp_path):
    paths = [write(tmp_path / "a", made_rows(5)), write(tmp_path / "b", made_rows(5, (8, 1, 1)))]
    write_records(tmp_path / "c", [*encode_examples(made_rows(5)), b"\x0a\x00"])
    for place in (paths, [tmp_path / "c"], [write(tmp_path / "d", {"x": np.ones([2, 3], int)})]):
        (finding,) = diagnose_examples("a", place, VOCAB, MASKING).findings
        assert finding.severity.name == "SERIOUS" and str(place[-1]) in finding.measured


@pytest.mark.parametrize("name", ["default_128_dupe10", "wwm_64_dupe3"])
def test_googles_examples_and_the_wrong_vocabulary(tmp_path, name):
    path = golden_file("google-pretraining-records", f"{name}.jsonl.xz")
    with lzma.open(path, "rt") as file:
        lines = [json.loads(line) for line in file]
    rows = {key: np.array([np.ravel(line[key]) for line in lines]) for key in lines[0]}
    rows["masked_lm_weights"] = rows["masked_lm_weights"].astype(np.float32)
    uncased, cased = (
        Vocab.read(golden_file("vocab", f"bert-base-{kind}-vocab.txt"))
        for kind in ("uncased", "cased")
    )
    masking = MaskingConfig()
    assert diagnose(tmp_path, rows, masking, uncased) == {}
    found = diagnose(tmp_path, rows, masking, cased)
    (finding,) = [one for title, one in found.items() if "Misplaced" in title]
    assert any("ids outside of the vocabulary" in detail for detail in finding.details)
    # The same text with the cased vocabulary's ids: its words are [unused...] in the other.
    ids = np.array([cased.ids.get(token, cased.unk_id) for token in uncased.tokens])
    rows["input_ids"], rows["masked_lm_ids"] = ids[rows["input_ids"]], ids[rows["masked_lm_ids"]]
    assert any("[unused...]" in title for title in diagnose(tmp_path, rows, masking, uncased))
