"""Masked words and next sentences: the same answers from the Keras model, files and servers."""

import functools
import pathlib

import pytest

import bert_tf
from bert_tf.inference import serving_models
from bert_tf.inference.predictor import Predictor
from tests import programs
from tests.export.made_models import ODD_TEXT, write_byte_bpe, write_model
from tests.roads.roads import (
    TOLERANCE,
    largest_difference,
    load_onnx,
    load_saved_model,
    rest_rows,
    saved_model,
)
from tests.slow_variants import slow_unless

LENGTH, TOP_K = 24, 3
RUN = {"max_seq_length": str(LENGTH)}
TEXTS = [
    "the [MASK] river [MASK]",
    "[MASK]",
    "a[MASK][MASK]b c",
    "[MASK] w40 w41 w42 don't \u00fcber \u4e2d " * 2,
    "the [MASK] " + "w50 " * 60,  # is cut
]
PAIRS = [("the river a b c", "w40 w41"), ("the", "a " * 60), ("w42 " * 40, "b " * 40), ("a", "")]
ROADS = ("run", "keras", "saved_model", "rest", "onnx")


class Roads:
    """A model on disk in all forms, and its answers by each."""

    def __init__(self, folder: pathlib.Path, kind: str) -> None:
        self.run = folder
        self.kind = kind
        self.model = bert_tf.BertPretrainer.from_pretrained(folder)

    @functools.cached_property
    def keras(self) -> pathlib.Path:
        path = self.run.parent / "mine.keras"
        self.model.save(path)
        return path

    @functools.cached_property
    def saved(self) -> pathlib.Path:
        return saved_model(self.run, self.run.parent, self.kind)

    def predictor(self, road: str) -> Predictor:
        if road == "saved_model":
            return load_saved_model(self.saved, self.kind, max_seq_length=LENGTH)
        if road == "onnx":
            found = load_onnx(self.run, self.run.parent, self.kind)
            return found["ONNX"] if found else pytest.skip("onnx or onnxruntime not installed")
        path = self.run if road == "run" else self.keras
        return bert_tf.load(path, self.kind, max_seq_length=LENGTH)

    def fill_mask(self, road: str, texts: list[str]) -> list:
        if road != "rest":
            return self.predictor(road).fill_mask(texts, top_k=TOP_K)
        return [masks_of(row) for row in rest_rows(self.saved, {"text": texts})]


def masks_of(row: dict) -> list:
    """Returns the answers in the outputs of a text, without padding."""
    masks = []
    for tokens, scores in zip(row["pieces"], row["probabilities"], strict=True):
        pairs = list(zip(tokens, scores, strict=True))[:TOP_K]
        if scores[0] > 0:
            masks.append([{"piece": token, "score": score} for token, score in pairs])
    return masks


@pytest.fixture(scope="module")
def roads(tmp_path_factory) -> Roads:
    folder = tmp_path_factory.mktemp("masks")
    return Roads(write_model(folder / "run", "fill_mask", RUN, num_hidden_layers=1), "fill_mask")


@pytest.fixture(scope="module")
def byte_roads(tmp_path_factory) -> Roads:
    folder = tmp_path_factory.mktemp("bytes")
    return Roads(write_byte_bpe(folder / "run", "fill_mask", RUN), "fill_mask")


@pytest.fixture(scope="module")
def multilingual_roads(tmp_path_factory) -> Roads:
    folder = tmp_path_factory.mktemp("multilingual") / "run"
    return Roads(write_model(folder, "fill_mask", RUN, True, num_hidden_layers=1), "fill_mask")


@pytest.mark.parametrize("road", slow_unless("keras", ROADS))
def test_masks_are_filled_alike(roads, road) -> None:
    expected = roads.model.fill_mask(TEXTS, top_k=TOP_K)
    assert [len(masks) for masks in expected] == [2, 1, 2, 2, 1]
    assert all(len(answers) == TOP_K for masks in expected for answers in masks)
    assert largest_difference(expected, roads.fill_mask(road, TEXTS)) < TOLERANCE


@pytest.mark.slow
@pytest.mark.parametrize("road", ROADS)
def test_masks_of_byte_level_bpe_are_filled_alike(byte_roads, road) -> None:
    texts = ["The [MASK] stood on <mask>", "[MASK]", "a[MASK]<mask>b c"]
    expected = byte_roads.model.fill_mask(texts, top_k=TOP_K)
    assert [len(masks) for masks in expected] == [2, 1, 2]
    assert largest_difference(expected, byte_roads.fill_mask(road, texts)) < TOLERANCE


@pytest.mark.slow
@pytest.mark.parametrize("road", ROADS)
def test_masks_of_sentencepiece_are_filled_alike(multilingual_roads, road) -> None:
    texts = ["The [MASK] stood on <mask>", "[MASK]", "a[MASK]<mask>b c", ODD_TEXT]
    expected = multilingual_roads.model.fill_mask(texts, top_k=TOP_K)
    assert [len(masks) for masks in expected] == [2, 1, 2, 1]
    assert largest_difference(expected, multilingual_roads.fill_mask(road, texts)) < TOLERANCE


def test_the_program_shows_the_same(roads) -> None:
    flags = [f"--text={text}" for text in TEXTS[:3]]
    done = programs.run("bert_tf.fill_mask", *flags, init_checkpoint=roads.run, top_k=TOP_K)
    lines = [line[4:] for line in programs.finish(done).splitlines() if line.startswith("    ")]
    expected = []
    for masks in roads.model.fill_mask(TEXTS[:3], top_k=TOP_K):
        for answers in masks:
            expected.append("  ".join(f"{a['piece']} {a['score']:.3f}" for a in answers))
    assert lines == expected


@pytest.mark.parametrize(
    "road", ["run", "keras", pytest.param("saved_model", marks=pytest.mark.slow)]
)
def test_what_cannot_be_filled_is_refused_alike(roads, byte_roads, road) -> None:
    answering = [roads.predictor(road), roads.model]
    for one in answering:
        assert one.fill_mask([]) == []
        for wrong in ("no mask", "", "w50 " * 60 + "[MASK]", "[MASK] " * 30):
            with pytest.raises(ValueError, match=r"texts\[1\] .* \d+ \[MASK\], \d+ .* 24 tokens"):
                one.fill_mask(["the [MASK]", wrong], top_k=TOP_K)
        for top_k in (0, -1):
            with pytest.raises(ValueError, match=f"top_k .*{top_k}, .*1 "):
                one.fill_mask(["the [MASK]"], top_k=top_k)
    if road == "saved_model":
        with pytest.raises(ValueError, match="top_k .*6,"):
            answering[0].fill_mask(["the [MASK]"], top_k=6)
    with pytest.raises(ValueError, match=r"texts\[0\] .* 2 \[MASK\], 1 .* 24 tokens"):
        byte_roads.predictor(road).fill_mask(["<mask> " + "a b " * 30 + "<mask>"], top_k=1)


@pytest.mark.slow
def test_next_sentences_are_scored_alike(tmp_path) -> None:
    folder = write_model(tmp_path / "run", "next_sentence", RUN, num_hidden_layers=1)
    roads = Roads(folder, "next_sentence")
    expected = roads.model.score(PAIRS)
    columns = tuple(map(list, zip(*PAIRS, strict=True)))
    assert roads.model.score(columns) == expected and roads.model.score([]) == []
    assert len(set(expected)) == len(PAIRS)
    found = {road: roads.predictor(road).score(PAIRS) for road in ("run", "keras", "saved_model")}
    rows = rest_rows(roads.saved, {"text": columns[0], "text_b": columns[1]})
    found["rest"] = [row["is_next"] for row in rows]
    for road, scores in found.items():
        assert largest_difference(expected, scores) < TOLERANCE, road
    for one in (roads.model, roads.predictor("run")):
        with pytest.raises(ValueError, match="texts"):
            one.score(["a single text"])


def test_a_model_without_the_head_scores_no_pairs(roads) -> None:
    model = bert_tf.BertPretrainer.from_pretrained(roads.run, use_next_sentence=False)
    with pytest.raises(ValueError, match="use_next_sentence"):
        model.score(PAIRS)


def test_litert_refuses_both_kinds_by_name(roads, tmp_path) -> None:
    from export.lite.conversion import convert

    pairs = str(write_model(tmp_path / "run", "next_sentence", RUN))
    for folder, kind in ((str(roads.run), "fill_mask"), (pairs, "next_sentence")):
        with pytest.raises(ValueError, match=kind):
            convert(serving_models.load(folder, kind, unpad=False), "none")
