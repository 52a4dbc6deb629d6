"""Findings of prepared examples: each fires on made records and is silent on good ones."""

import json
import lzma

import numpy as np
import pytest

from bert_tf.config import MaskingConfig
from bert_tf.data.tfrecords import encode_example, write_records
from bert_tf.diagnosis.examples_findings import diagnose_examples
from bert_tf.diagnosis.places import record_folders
from bert_tf.diagnosis.record_scan import scan_records
from bert_tf.text.vocab import Vocab
from tests.diagnosis.made_records import (
    CLS,
    MASK,
    SEP,
    SLOTS,
    UNK,
    made_rows,
    made_vocab,
    masked,
    shortened,
    write,
)
from tests.shared_data import shared_data

MASKING = MaskingConfig(max_predictions_per_seq=SLOTS)


def diagnose(folder, rows, masking=MASKING, vocab=True):
    """Returns the findings by title."""
    scan = scan_records([write(folder / "a.tfrecord", rows)])
    found = diagnose_examples("a", scan, made_vocab() if vocab else None, masking).findings
    return {finding.title: finding for finding in found}


@pytest.mark.parametrize("vocab", [True, False])
@pytest.mark.parametrize("is_masked", [True, False])
def test_good_examples_have_no_finding(tmp_path, is_masked, vocab):
    rows = made_rows(1000)
    assert diagnose(tmp_path, masked(rows) if is_masked else rows, vocab=vocab) == {}


@pytest.mark.parametrize(
    ("count", "length", "padding", "short"),
    [
        (600, 20, None, None),  # 600 x 12 of 32,000 places: 22 %
        (1000, 18, "44 % of all places", None),
        (1000, 17, "47 % of all places", None),
    ],
)
def test_padding(tmp_path, count, length, padding, short):
    found = diagnose(tmp_path, shortened(made_rows(1000), 1000 - count, length))
    assert (found["Padding"].measured if "Padding" in found else None) == padding


def test_short_examples(tmp_path):
    rows = made_rows(1000)
    for name in ("input_ids", "input_mask", "segment_ids"):
        rows[name][400:, 15:] = 0  # [CLS] 13 [SEP] alone: 15 of 32 pieces
    found = diagnose(tmp_path, rows)
    assert found["Examples of less than 16 pieces"].measured == "60 %"
    assert found["Examples of less than 16 pieces"].severity.name == "SERIOUS"
    # 600 x 17 of 32,000 places.
    assert found["Padding"].measured == "32 % of all places"


def test_cut_examples(tmp_path):
    rows = made_rows(1000)
    rows["input_ids"][:650, 30] = 77
    assert diagnose(tmp_path, rows) == {}
    rows["input_ids"][:800, 30] = 77
    assert diagnose(tmp_path, rows)["Examples cut in mid-sentence"].measured == "80 %"


@pytest.mark.parametrize(("prob", "severity"), [(0.15, None), (0.2, "WARNING"), (0.4, "SERIOUS")])
def test_masked_share(tmp_path, prob, severity):
    masking = MaskingConfig(masked_lm_prob=prob, max_predictions_per_seq=SLOTS)
    found = diagnose(tmp_path, masked(made_rows(1000)), masking)
    finding = found.get("Masked share is not the nominal one")
    assert (finding.severity.name if finding else None) == severity
    assert not finding or finding.measured == "16 % of the pieces are predicted"  # 5 of 32


@pytest.mark.parametrize(
    ("prob", "slots", "expected"),
    [
        (0.15, 5, None),  # round(32 x 0.15) = 5
        (0.15, 4, "20 % of the predictions have no room among 4"),
        (0.3, 5, "50 % of the predictions have no room among 5"),  # of 10
    ],
)
def test_predictions_without_room(tmp_path, prob, slots, expected):
    masking = MaskingConfig(masked_lm_prob=prob, max_predictions_per_seq=slots)
    finding = diagnose(tmp_path, made_rows(10), masking).get("max_predictions_per_seq is too small")
    assert (finding.measured if finding else None) == expected


@pytest.mark.parametrize(("split", "severity"), [((9, 1, 0), "WARNING"), ((10, 0, 0), "SERIOUS")])
def test_split_of_masks(tmp_path, split, severity):
    finding = diagnose(tmp_path, masked(made_rows(1000), split))[
        "Predicted pieces are not masked 80 / 10 / 10"
    ]
    assert finding.severity.name == severity
    shares = " / ".join(f"{10 * n} %" for n in split)
    assert finding.measured == f"{shares} are [MASK], kept, random"


def test_chance_is_no_finding(tmp_path):
    # Four pairs, all random; ten predictions, none kept: chance does that.
    rows = made_rows(4)
    rows["next_sentence_labels"][:] = 1
    assert diagnose(tmp_path, masked(rows, (9, 0, 1))) == {}


@pytest.mark.parametrize(("every", "severity"), [(2, None), (4, "WARNING"), (20, "SERIOUS")])
def test_balance_of_labels(tmp_path, every, severity):
    rows = made_rows(1000)
    rows["next_sentence_labels"][:, 0] = np.arange(1000) % every > 0
    found = diagnose(tmp_path, rows)
    finding = found.get("Labels of next sentence prediction are out of balance")
    assert (finding.severity.name if finding else None) == severity
    if every == 4:
        assert finding.measured == "75 % of the pairs are random"


def test_random_pairs_of_one_document(tmp_path):
    rows = made_rows(1000)
    # Numbers 1, 3, ... 39 repeat the two segments of 0, 2, ... 38, which truly follow each other.
    rows["input_ids"][1:40:2] = rows["input_ids"][0:40:2]
    for variant in (rows, masked(rows)):
        found = diagnose(tmp_path, variant)
        finding = found["Pairs of one document that are labelled random"]
        # 20 of 500; a segment whose few runs are all left out of the sample is not found.
        assert finding.severity.name == "SERIOUS"
        assert 0.7 * 4 <= float(finding.measured.split()[0]) <= 4
        assert finding.details[0].startswith("record ")
    # The same A with another B, or another A with the same B, is as it should be.
    rows = made_rows(1000)
    rows["input_ids"][1:40:2, :15] = rows["input_ids"][0:40:2, :15]
    rows["input_ids"][41:80:2, 15:] = rows["input_ids"][40:80:2, 15:]
    assert diagnose(tmp_path, rows) == {}


def test_copies_and_unknown_pieces(tmp_path):
    rows = made_rows(1000)
    for values in rows.values():
        values[900:] = values[:100]
    assert diagnose(tmp_path, rows)["Examples that stand in the data twice"].measured == "10 %"
    rows = made_rows(1000)
    rows["input_ids"][:290, 5] = UNK  # of 29,000 pieces of text
    assert diagnose(tmp_path, rows)["Pieces that are [UNK]"].measured == "1.0 % of the pieces"
    assert diagnose(tmp_path, rows, vocab=False) == {}


@pytest.mark.parametrize(
    ("name", "row", "place", "value", "fault"),
    [
        ("input_mask", 3, 9, 0, "padding between pieces"),
        ("input_ids", 3, 0, 77, "no [CLS] at the front"),
        ("input_ids", 3, 31, 77, "no [SEP] at the end"),
        ("input_ids", 3, 9, CLS, "[CLS] within the text"),
        ("input_ids", 3, 20, SEP, "a pair without two [SEP]"),
        ("segment_ids", 3, 14, 1, "segments that change elsewhere than behind [SEP]"),
        ("input_ids", 3, 9, MASK, "[MASK] where nothing is predicted"),
        ("input_ids", 3, 9, 2000, "ids outside of the vocabulary"),
    ],
)
def test_special_tokens_out_of_place(tmp_path, name, row, place, value, fault):
    rows = made_rows(2000)
    rows[name][row, place] = value
    finding = diagnose(tmp_path, rows)["Special tokens out of place"]
    assert finding.severity.name == "WARNING"  # 1 of 2,000
    assert any(f"{fault}; record 3 of " in detail for detail in finding.details)


def test_faults_of_masks_and_padding(tmp_path):
    rows = masked(shortened(made_rows(100), 50, 28))
    rows["input_ids"][60, 30] = 77
    rows["masked_lm_positions"][61, 4] = 14
    rows["masked_lm_ids"][61, 4] = SEP
    finding = diagnose(tmp_path, rows)["Special tokens out of place"]
    assert finding.severity.name == "SERIOUS"  # 2 of 100
    told = " ".join(finding.details)
    assert "pieces in the padding; record 60" in told
    assert "predictions at [CLS], [SEP] or padding; record 61" in told


def test_damage_is_named_and_the_rest_is_read(tmp_path):
    rows = made_rows(100)
    path = write(tmp_path / "a.tfrecord", rows)
    data = bytearray(path.read_bytes())
    size = len(data) // 100  # all records are about as long
    data[5 * size + size // 2] ^= 1  # within the data of record 5 or thereabouts
    path.write_bytes(data[:-3])
    other = write(tmp_path / "b.tfrecord", {"x": np.ones([2, 3], int)})
    (tmp_path / "c.tfrecord").write_bytes(b"\0" * 100)
    scan = scan_records([path, other, tmp_path / "c.tfrecord"])
    assert len(scan.places) == 98 and scan.num_records == 101
    found = diagnose_examples("a", scan, made_vocab(), MASKING).findings
    damage, form = found[:2]
    told = " ".join([damage.measured, *damage.details])
    assert damage.severity.name == form.severity.name == "SERIOUS"
    assert f"record 99 of {path} (byte" in told and "the file ends within it" in told
    assert "the checksum of its data differs" in told
    assert f"record 0 of {tmp_path}/c.tfrecord (byte 0): the checksum of its length" in told
    assert form.measured.startswith(f"2: record 0 of {other} (byte 0) holds no pre-training")


def test_a_place_without_examples_is_refused(tmp_path):
    write_records(tmp_path / "a.tfrecord", [encode_example({"x": np.ones([3], int)})])
    with pytest.raises(ValueError, match="No example can be read .* record 0 of .*a.tfrecord"):
        scan_records([tmp_path / "a.tfrecord"])


def test_record_files_of_a_folder_are_found(tmp_path):
    for name in ("train-1", "eval-2", "tokens-3"):
        (tmp_path / name).mkdir()
    first = write(tmp_path / "train-1" / "a", made_rows(2))
    damaged = tmp_path / "train-1" / "b.tfrecord"
    damaged.write_bytes(b"\0" * 30)
    (tmp_path / "train-1" / "manifest.json").write_text("{}", "utf8")
    second = write(tmp_path / "eval-2" / "c", made_rows(2))
    (tmp_path / "tokens-3" / "text.txt").write_text("A text.\n", "utf8")
    places = {str(tmp_path / "train-1"): [first, damaged], str(tmp_path / "eval-2"): [second]}
    assert record_folders(str(tmp_path)) == places
    assert record_folders(str(tmp_path / "train-1")) == dict([next(iter(places.items()))])
    assert record_folders(f"{tmp_path}/eval-2/*") == {f"{tmp_path}/eval-2/*": [second]}
    assert record_folders(str(tmp_path / "tokens-3")) == {}


@pytest.mark.parametrize("name", ["default_128_dupe10", "wwm_64_dupe3"])
def test_googles_examples_have_no_finding(tmp_path, name):
    path = shared_data("fixtures", "google-pretraining-records", f"{name}.jsonl.xz")
    vocab = Vocab.read(shared_data("vocab", "bert-base-uncased-vocab.txt"))
    records = []
    with lzma.open(path, "rt") as file:
        for line in file:
            row = {key: np.array(values) for key, values in json.loads(line).items()}
            row["masked_lm_weights"] = row["masked_lm_weights"].astype(np.float32)
            records.append(encode_example(row))
    write_records(tmp_path / "a", records)
    scan = scan_records([tmp_path / "a"])
    assert diagnose_examples("a", scan, vocab, MaskingConfig()).findings == []
