"""Codes of small vectors beside those of sentence-transformers."""

import numpy as np
import pytest

from bert_tf.metrics.quantization import (
    Ranges,
    binary_codes,
    hamming_scores,
    signs,
    vector_lengths,
)
from tests.float_bounds import assert_close
from tests.shared_data import shared_data


@pytest.fixture(scope="module")
def golden() -> dict[str, np.ndarray]:
    with np.load(shared_data("fixtures", "families", "quantization", "golden.npz")) as values:
        return dict(values)


def test_int8_codes(golden: dict[str, np.ndarray]) -> None:
    corpus = golden["in_corpus"]
    ranges = Ranges.of(corpus[: int(golden["in_calibration_rows"])])
    np.testing.assert_array_equal(ranges.low, golden["out_ranges"][0])
    codes = ranges.codes(corpus)
    np.testing.assert_array_equal(codes, golden["out_int8"])
    np.testing.assert_array_equal(Ranges.of(corpus).codes(corpus), golden["out_own_ranges_int8"])
    restored = codes * ranges.steps + ranges.offsets
    assert_close(restored, golden["out_dequantized_int8"])
    assert_close(golden["in_queries"] @ restored.T, golden["out_rescored_int8"])


def test_binary_codes(golden: dict[str, np.ndarray]) -> None:
    corpus, queries = golden["in_corpus"], golden["in_queries"]
    codes = binary_codes(corpus)
    np.testing.assert_array_equal(codes, golden["out_ubinary"])
    found = signs(codes, corpus.shape[1])
    assert_close(queries @ found.T, golden["out_rescored_plus_minus_1"])
    assert_close(queries @ (found > 0).T, golden["out_rescored_ubinary"])
    np.testing.assert_array_equal(
        -hamming_scores(binary_codes(queries), codes), golden["out_hamming"]
    )


@pytest.mark.parametrize("width", [1, 2, 3, 4, 6, 8, 48])
def test_bits_that_differ(width: int) -> None:
    random = np.random.default_rng(width)
    codes = random.integers(0, 256, [40, width]).astype(np.uint8)
    queries = random.integers(0, 256, [3, width]).astype(np.uint8)
    expected = np.unpackbits(queries[:, None] ^ codes, axis=2).sum(axis=2)
    np.testing.assert_array_equal(-hamming_scores(queries, codes), expected)


def test_codes_by_hand() -> None:
    calibration = np.float32([[0, 5, -10], [255, 5, 500]])
    ranges = Ranges.of(calibration)
    assert ranges.low.tolist() == [0, 5, -10] and ranges.steps.tolist() == [1, 1, 2]
    codes = ranges.codes(np.float32([[-3, 5, -10], [1.99, 6, 245], [300, 4, 500]]))
    assert codes.tolist() == [[-128, -128, -128], [-127, -127, -1], [127, -128, 127]]
    assert (codes * ranges.steps + ranges.offsets)[:, 0].tolist() == [0, 1, 255]
    bits = binary_codes(np.array([[1, 0, -1, 2, 0, 0, 0, 0.1, 3], [0] * 8 + [1e-9]]))
    assert bits.tolist() == [[0b10010001, 128], [0, 128]]
    assert signs(bits, 9)[0].tolist() == [1, -1, -1, 1, -1, -1, -1, 1, 1]
    assert hamming_scores(bits[:1], bits).tolist() == [[0, -3]]


def test_lengths() -> None:
    assert vector_lengths(np.array([[3.0, 4], [0, 0]])).tolist() == [5, 1]
