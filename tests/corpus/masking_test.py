"""Masking against a twin written after google-research/bert's loop, and its laws on many pieces."""

import dataclasses
import json
import lzma

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.config import MaskingConfig
from bert_tf.corpus import masking
from bert_tf.corpus.mask_draws import SELECT, MaskDraws
from bert_tf.corpus.span_masking import has_largest_keys
from bert_tf.corpus.splitmix import numpy_random_bits
from bert_tf.text.vocab import Vocab
from tests.shared_data import golden_file
from tests.slow_variants import slow_unless, slow_where

SPECIAL = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
VOCAB = Vocab((*SPECIAL, *(f"w{n}" for n in range(300)), *(f"##p{n}" for n in range(200))))
SEED = 77


def make_batch(num_rows: int, length: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Returns pairs of random lengths, 40 % of their pieces continuing a word."""
    rng = np.random.default_rng(seed)
    word_ids = np.where(
        rng.random((num_rows, length)) < 0.4,
        rng.integers(306, len(VOCAB), (num_rows, length)),
        rng.integers(1, 306, (num_rows, length)),
    )
    word_ids[np.isin(word_ids, (VOCAB.cls_id, VOCAB.sep_id))] = VOCAB.unk_id
    lengths = rng.integers(5, length + 1, num_rows)
    lengths[: num_rows // 2] = length
    word_ids[:, 0] = VOCAB.cls_id
    word_ids[np.arange(num_rows), lengths // 2] = VOCAB.sep_id
    word_ids[np.arange(num_rows), lengths - 1] = VOCAB.sep_id
    input_mask = np.arange(length) < lengths[:, None]
    return {
        "input_word_ids": (word_ids * input_mask).astype(np.int32),
        "input_mask": input_mask.astype(np.int32),
        "input_type_ids": (np.arange(length) > lengths[:, None] // 2).astype(np.int32) * input_mask,
    }


def mask(batch, config, example_ids=None, epochs=None, seed=SEED) -> dict[str, np.ndarray]:
    """Runs mask_batch in a graph; examples 0, 1, ... of epoch 0 if not told."""
    rows = np.arange(len(batch["input_mask"]))
    example_ids = rows if example_ids is None else example_ids
    epochs = np.zeros_like(rows) if epochs is None else epochs

    @tf.function
    def run(tensors, example_ids, epochs):
        return masking.mask_batch(tensors, MaskDraws(example_ids, epochs, VOCAB, config, seed))

    tensors = {name: tf.constant(values) for name, values in batch.items()}
    outputs = run(tensors, tf.constant(example_ids, tf.int64), tf.constant(epochs, tf.int64))
    return {name: values.numpy() for name, values in outputs.items()}


def slow_selection(word_ids, length, keys, config) -> list[int]:
    """create_masked_lm_predictions of google-research/bert; candidates come by falling key."""
    words = []
    for position, word_id in enumerate(word_ids[:length]):
        token = VOCAB.tokens[word_id]
        if token in ("[CLS]", "[SEP]"):
            continue
        if config.do_whole_word_mask and words and token.startswith("##"):
            words[-1].append(position)
        else:
            words.append([position])
    number = {True: lambda w: w, False: lambda w: words[w][0]}[config.do_whole_word_mask]
    order = sorted(range(len(words)), key=lambda w: -int(keys[number(w)]))
    limit = min(config.max_predictions_per_seq, max(1, round(length * config.masked_lm_prob)))
    selected = []
    for word in order:
        if len(selected) >= limit:
            break
        if len(selected) + len(words[word]) <= limit:
            selected += words[word]
    return sorted(selected)


CONFIGS = [
    MaskingConfig(do_whole_word_mask=whole, masked_lm_prob=prob, max_predictions_per_seq=limit)
    for whole in (False, True)
    for prob, limit in ((0.15, 20), (0.15, 3), (1.0, 100))
]


@pytest.mark.parametrize(
    "config", slow_where(lambda config: config.max_predictions_per_seq != 3, CONFIGS), ids=str
)
def test_selection_equals_the_slow_twin(config):
    length = 64
    batch = make_batch(60, length)
    epochs = np.arange(60) % 3
    masked = mask(batch, config, epochs=epochs)
    for row in range(60):
        size = batch["input_mask"][row].sum()
        keys = numpy_random_bits(SEED, epochs[row], row, SELECT, np.arange(length))
        expected = slow_selection(batch["input_word_ids"][row], size, keys, config)
        count = int(masked["masked_lm_weights"][row].sum())
        assert masked["masked_lm_positions"][row, :count].tolist() == expected


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_labels_restore_the_input(config):
    batch = make_batch(80, 48)
    masked = mask(batch, config)
    restored = masked["input_word_ids"].copy()
    for row, (positions, ids, weights) in enumerate(
        zip(*(masked[f"masked_lm_{n}"] for n in ("positions", "ids", "weights")), strict=True)
    ):
        count = int(weights.sum())
        assert weights.tolist() == [1] * count + [0] * (len(weights) - count)
        assert not positions[count:].any()
        assert not ids[count:].any()
        assert (np.diff(positions[:count]) > 0).all()
        restored[row, positions[:count]] = ids[:count]
    np.testing.assert_array_equal(restored, batch["input_word_ids"])
    np.testing.assert_array_equal(masked["input_type_ids"], batch["input_type_ids"])
    assert masked["masked_lm_positions"].dtype == masked["input_word_ids"].dtype == np.int32


def test_counts_are_python_rounded():
    lengths = np.arange(1, 513)
    for prob, limit in ((0.15, 80), (0.15, 20), (0.25, 200), (0.0, 20)):
        config = MaskingConfig(masked_lm_prob=prob, max_predictions_per_seq=limit)
        mask = tf.sequence_mask(lengths, dtype=tf.int32)
        counts = masking.count_predictions(mask, config, prob)
        expected = [min(limit, max(1, round(int(n) * prob))) for n in lengths]
        assert counts.numpy().tolist() == expected


@pytest.mark.parametrize(
    ("name", "prob", "limit"),
    [("default_128_dupe10", 0.15, 20), ("long_512_dupe2", 0.15, 76), ("short_32_p30", 0.3, 5)],
)
def test_counts_and_candidates_are_those_of_google(name, prob, limit):
    """Unmasks the examples that google-research/bert's program wrote, and masks them again."""
    path = golden_file("google-pretraining-records", f"{name}.jsonl.xz")
    vocab = Vocab.read(golden_file("vocab", "bert-base-uncased-vocab.txt"))
    with lzma.open(path, "rt") as file:
        examples = [json.loads(line) for line in file]
    golden = {name: np.array([e[name] for e in examples]) for name in examples[0]}
    rows, columns = np.nonzero(golden["masked_lm_weights"])
    positions = golden["masked_lm_positions"][rows, columns]
    word_ids = golden["input_ids"].copy()
    word_ids[rows, positions] = golden["masked_lm_ids"][rows, columns]
    word_ids = tf.constant(word_ids, tf.int32)
    input_mask = tf.constant(golden["input_mask"], tf.int32)

    candidates = masking.find_candidates(word_ids, input_mask, vocab).numpy()
    assert candidates[rows, positions].all()
    config = MaskingConfig(masked_lm_prob=prob, max_predictions_per_seq=limit)
    numbers = golden["masked_lm_weights"].sum(axis=1)
    counts = masking.count_predictions(input_mask, config, prob)
    np.testing.assert_array_equal(counts, numbers)
    ids = tf.range(len(examples), dtype=tf.int64)
    batch = {"input_word_ids": word_ids, "input_mask": input_mask}
    masked = masking.mask_batch(batch, MaskDraws(ids, 0 * ids, vocab, config, seed=0))
    np.testing.assert_array_equal(tf.reduce_sum(masked["masked_lm_weights"], axis=1), numbers)


def test_laws_of_replacement():
    """192,000 pieces, 28,500 predictions; 4 sigma: each bound fails with probability 6e-5."""
    batch = make_batch(3000, 128, seed=1)
    batch = {name: values[:1500] for name, values in batch.items()}  # rows of full length
    masked = mask(batch, MaskingConfig())
    real = masked["masked_lm_weights"] > 0
    assert (real.sum(axis=1) == 19).all()  # round(128 * 0.15)
    ids = masked["masked_lm_ids"][real]
    inputs = np.take_along_axis(masked["input_word_ids"], masked["masked_lm_positions"], 1)[real]
    total = len(ids)

    def is_close(count, share):
        return abs(count - total * share) < 4 * np.sqrt(total * share * (1 - share))

    size = len(VOCAB)
    assert is_close((inputs == VOCAB.mask_id).sum(), 0.8 + 0.1 / size)
    assert is_close((inputs == ids).sum(), 0.1 + 0.1 / size)
    randoms = inputs[(inputs != VOCAB.mask_id) & (inputs != ids)]
    counts = np.bincount(randoms, minlength=size)
    assert counts[VOCAB.mask_id] == 0
    assert set(np.flatnonzero(counts[:5])) == {0, 1, 2, 3, 4}  # special tokens, too
    assert counts[-5:].any()  # 27 expected: up to the end of the vocabulary
    others = np.delete(counts, VOCAB.mask_id)
    chi_square = ((others - others.mean()) ** 2 / others.mean()).sum()
    assert abs(chi_square - len(others)) < 4 * np.sqrt(2 * len(others))


def test_every_candidate_is_selected_equally_often():
    batch = {name: np.tile(values[:1], (20_000, 1)) for name, values in make_batch(4, 40).items()}
    masked = mask(batch, MaskingConfig())
    real = masked["masked_lm_weights"] > 0
    counts = np.bincount(masked["masked_lm_positions"][real], minlength=40)
    candidates = np.setdiff1d(np.arange(40), [0, 20, 39])
    expected = real.sum() / len(candidates)
    assert counts.sum() == counts[candidates].sum() == 20_000 * 6
    sigma = np.sqrt(expected * (1 - 6 / 37))
    assert (np.abs(counts[candidates] - expected) < 4.5 * sigma).all()


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_masks_belong_to_the_example_not_to_the_batch(whole):
    batch = make_batch(40, 32)
    config = MaskingConfig(do_whole_word_mask=whole)
    together = mask(batch, config)
    chosen = np.array([31, 4, 5])
    alone = mask({name: values[chosen] for name, values in batch.items()}, config, chosen)
    for name, values in alone.items():
        np.testing.assert_array_equal(values, together[name][chosen])


def test_masks_change_with_epoch_example_and_seed():
    batch = {name: np.tile(values[:1], (100, 1)) for name, values in make_batch(4, 64).items()}
    first = mask(batch, MaskingConfig())["masked_lm_positions"]
    later = mask(batch, MaskingConfig(), epochs=np.ones(100))["masked_lm_positions"]
    seeded = mask(batch, MaskingConfig(), seed=SEED + 1)["masked_lm_positions"]
    for positions in (first[:-1] != first[1:], first != later, first != seeded):
        assert positions.any(axis=1).all()


def test_rows_without_candidates_stay_as_they_are():
    batch = {name: np.zeros((2, 12), np.int32) for name in ("input_word_ids", "input_mask")}
    batch["input_word_ids"][0, :2] = VOCAB.cls_id, VOCAB.sep_id
    batch["input_mask"][0, :2] = 1
    for whole in (False, True):
        masked = mask(batch, MaskingConfig(do_whole_word_mask=whole))
        np.testing.assert_array_equal(masked["input_word_ids"], batch["input_word_ids"])
        assert not masked["masked_lm_weights"].any()


def full_rows(num_rows: int, length: int) -> dict[str, np.ndarray]:
    """Returns one segment a row, 40 % of its pieces continuing a word, the first none."""
    batch = make_batch(2 * num_rows, length, seed=3)
    batch = {name: values[:num_rows] for name, values in batch.items()}  # Of full length.
    for place, token in ((1, "w1"), (length // 2, "w2")):
        batch["input_word_ids"][:, place] = VOCAB.ids[token]
    return batch


def runs_of(selected: np.ndarray) -> list[int]:
    """Returns how many neighbours are selected, wherever some are."""
    edges = np.flatnonzero(np.diff([0, *selected.astype(int), 0]))
    return (edges[1::2] - edges[::2]).tolist()


GEOMETRIC = [0.8**n * 0.2 for n in range(9)] + [0.8**9]
ALBERTS = [6 / 11, 3 / 11, 2 / 11]  # 1, 1/2 and 1/3, by their sum.


@pytest.mark.parametrize(
    ("fields", "shares"),
    [
        ({"span_length": 5.0}, GEOMETRIC),
        ({"ngram_length": 3}, ALBERTS),
        ({"ngram_length": 1}, [1.0]),
    ],
)
def test_shares_of_lengths(fields, shares):
    np.testing.assert_allclose(masking.span_shares(MaskingConfig(**fields)), shares)


@pytest.mark.parametrize(("span_length", "mean"), [(5.0, 4.46), (4.0, 3.77), (1.0, 1.0)])
def test_the_mean_of_spans_is_the_one_that_the_help_states(span_length, mean):
    """By a million draws of NumPy; SpanBERT's own distribution has another mean."""
    drawn = np.random.default_rng(1).geometric(1 / span_length, 1_000_000)
    found = masking.mean_span(MaskingConfig(span_length=span_length))
    assert found == pytest.approx(np.minimum(drawn, 10).mean(), abs=0.02)
    assert found == pytest.approx(mean, abs=0.005)
    (field,) = (f for f in dataclasses.fields(MaskingConfig) if f.name == "span_length")
    assert mean == 1.0 or f"{mean:g}" in field.metadata["help"]
    assert masking.mean_span(MaskingConfig(ngram_length=3)) == pytest.approx(18 / 11)
    assert masking.mean_span(MaskingConfig()) == 1.0


@pytest.mark.parametrize("separator", [pytest.param(127, marks=pytest.mark.slow), 50])
@pytest.mark.parametrize(
    ("fields", "mean", "longest"),
    [
        ({"span_length": 5.0}, 4.46, 10),
        pytest.param({"span_length": 4.0}, 3.77, 10, marks=pytest.mark.slow),
        ({"ngram_length": 3}, 18 / 11, 3),
    ],
)
def test_spans_have_the_stated_mean_and_every_position_is_equally_frequent(
    fields, mean, longest, separator
):
    """5,300 rows, 100,000 choices: the mean within 2 %, and a chi-squared test of positions.

    Neighbours are selected together, in spans of at most ten, so the statistic has a variance of up
    to `longest` times that of single choices; 5 sigma are passed by chance less than once in 10^6.
    """
    num_rows = 5300
    word_ids = np.full((num_rows, 128), VOCAB.ids["w1"], np.int32)
    word_ids[:, 0] = VOCAB.cls_id
    word_ids[:, [separator, 127]] = VOCAB.sep_id
    batch = {"input_word_ids": word_ids, "input_mask": np.ones_like(word_ids)}
    outputs = mask(batch, MaskingConfig(**fields))
    real = outputs["masked_lm_weights"] > 0
    assert (real.sum(axis=1) == 19).all()  # round(128 * 0.15)
    selected = np.zeros(word_ids.shape, bool)
    selected[np.nonzero(real)[0], outputs["masked_lm_positions"][real]] = True
    runs = [length for row in selected for length in runs_of(row)]
    assert abs(np.mean(runs) / mean - 1) < 0.02
    assert max(runs) <= longest
    counts = selected.sum(axis=0)
    counts = counts[~np.isin(word_ids[0], (VOCAB.cls_id, VOCAB.sep_id))]
    chi_square = ((counts - counts.mean()) ** 2 / counts.mean()).sum()
    assert chi_square < len(counts) + 5 * np.sqrt(2 * longest * len(counts))


@pytest.mark.parametrize(
    ("fields", "mean", "least_tokens"),
    [
        pytest.param({"span_length": 5.0}, 4.46, 18, marks=pytest.mark.slow),
        # 11 words of 1.7 tokens are 1.7 spans; one span has at most ten of them.
        ({"span_length": 10.0}, 6.51, 17),
        pytest.param({"ngram_length": 3}, 18 / 11, 18, marks=pytest.mark.slow),
    ],
)
def test_spans_are_of_whole_words(fields, mean, least_tokens):
    """Words of several tokens: none is split, the mean is the stated one within 2 %."""
    batch = full_rows(5300, 128)
    ids = batch["input_word_ids"]
    outputs = mask(batch, MaskingConfig(**fields))
    num_tokens = outputs["masked_lm_weights"].sum(axis=1)
    assert num_tokens.max() <= 19 and num_tokens.mean() > least_tokens
    selected = np.zeros(ids.shape, bool)
    rows, slots = np.nonzero(outputs["masked_lm_weights"])
    selected[rows, outputs["masked_lm_positions"][rows, slots]] = True
    continues = VOCAB.is_continuation[ids]
    # A word begins after a token that separates texts, whatever its first piece is.
    continues[:, 1:] &= ~np.isin(ids[:, :-1], (VOCAB.cls_id, VOCAB.sep_id))
    before = np.pad(selected, [[0, 0], [1, 0]])[:, :-1]
    assert (selected == before)[continues].all()
    num_words = (selected & ~continues).sum()
    num_spans = (selected & ~before).sum()
    assert abs(num_words / num_spans / mean - 1) < 0.02


@pytest.mark.parametrize("share", slow_unless(0.9, [0.5, 0.9, 1.0]))
def test_any_share_can_be_masked_in_spans(share):
    batch = make_batch(200, 48, seed=9)
    config = MaskingConfig(
        span_length=5.0, masked_lm_prob=share, max_predictions_per_seq=48, span_pieces=True
    )
    found = mask(batch, config)["masked_lm_weights"].sum(axis=1)
    lengths = batch["input_mask"].sum(axis=1)
    num_candidates = (
        (batch["input_mask"] > 0) & ~np.isin(batch["input_word_ids"], (VOCAB.cls_id, VOCAB.sep_id))
    ).sum(axis=1)
    expected = np.minimum(np.maximum(1, np.rint(lengths * share)), num_candidates)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("fields", "alike"),
    [pytest.param({"span_length": 4.0}, 1, marks=pytest.mark.slow), ({"ngram_length": 3}, 0)],
)
def test_replacement_of_spans(fields, alike):
    """SpanBERT replaces the pieces of a span alike; ALBERT's n-grams have 80 % masks each."""
    config = MaskingConfig(
        **fields, masked_lm_prob=1.0, max_predictions_per_seq=126, random_share=0.0
    )
    batch = full_rows(300, 128)
    outputs = mask(batch, config)
    assert (outputs["masked_lm_weights"].sum(axis=1) == 126).all()
    is_masked = outputs["input_word_ids"][:, 1:-1] == VOCAB.mask_id
    total, share = is_masked.size, is_masked.mean()
    # The number of masks varies more where pieces share a decision: spans of 7 pieces on average.
    error = np.sqrt(0.16 / total * (14 if alike else 1))
    assert abs(share - 0.8) < 5 * error
    both = (is_masked[:, 1:] & is_masked[:, :-1]).mean()
    if alike:
        assert both > 0.74  # 0.64 if each were decided by itself.
    else:
        assert abs(both - 0.64) < 5 * np.sqrt(0.64 * 0.36 * 3 / total)


def test_a_share_that_moves_is_that_of_the_progress():
    config = MaskingConfig(
        masked_lm_prob=0.1, masked_lm_prob_end=0.5, max_predictions_per_seq=64, span_length=0.0
    )
    batch = full_rows(4, 64)
    ids = tf.range(4, dtype=tf.int64)
    for progress, share in ((None, 0.1), (0.0, 0.1), (0.25, 0.2), (1.0, 0.5)):
        done = None if progress is None else tf.constant(progress, tf.float64)
        draws = MaskDraws(ids, 0 * ids, VOCAB, config, seed=1, progress=done)
        outputs = masking.mask_batch(batch, draws)
        numbers = outputs["masked_lm_weights"].numpy().sum(axis=1)
        np.testing.assert_array_equal(numbers, round(64 * share))


def test_shares_of_examples_are_drawn_evenly():
    """From 15 to 100 %: the mean and the spread of an even distribution, the same every time."""
    config = MaskingConfig(masked_lm_prob=0.15, masked_lm_prob_to=1.0, max_predictions_per_seq=128)
    batch = make_batch(1000, 128, seed=4)
    chosen = [mask(batch, config)["masked_lm_weights"].sum(axis=1) for _ in range(2)]
    np.testing.assert_array_equal(*chosen)
    lengths = batch["input_mask"].sum(axis=1)
    shares = (chosen[0] / lengths)[lengths == 128]
    # Specials are never chosen, so shares above what is left are cut.
    assert abs(shares.mean() - 0.575) < 5 * 0.245 / np.sqrt(len(shares)) + 0.01
    assert shares.min() < 0.2 and shares.max() > 0.95
    halves = [
        mask({k: v[i::2] for k, v in batch.items()}, config, np.arange(i, 1000, 2)) for i in (0, 1)
    ]
    np.testing.assert_array_equal(halves[1]["masked_lm_weights"].sum(axis=1), chosen[0][1::2])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"masked_lm_prob_to": 0.1}, "masked_lm_prob_to 0.1 .*masked_lm_prob 0.15"),
        ({"span_length": 0.5}, "span_length.* 0.5"),
        ({"span_length": 3.0, "masking": "static"}, "span_length=3.0 .*masking static.* dynamic"),
        (
            {"masked_lm_prob_end": 0.3, "masking": "tf_text"},
            "_prob_end=0.3 .*masking tf_text.* dynamic",
        ),
        ({"span_length": 3.0, "ngram_length": 3}, "ngram_length.*span_length"),
        (
            {"masked_lm_prob_to": 0.3, "masked_lm_prob_end": 0.3},
            "masked_lm_prob_end.*masked_lm_prob_to",
        ),
        ({"span_pieces": True}, "span_pieces.*span_length.*ngram_length"),
        (
            {"span_pieces": True, "ngram_length": 2, "do_whole_word_mask": True},
            "span_pieces.*do_whole_word_mask",
        ),
        ({"masked_share": 0.9, "random_share": 0.2}, "masked_share 0.9.*random_share 0.2"),
    ],
)
def test_masks_that_contradict_each_other(fields, message):
    with pytest.raises(ValueError, match=message):
        MaskingConfig(**fields)


def test_largest_keys_of_rows():
    keys = np.array([[5, 9, 7, 1], [5, 9, 7, 1], [5, 9, 7, 1]], np.uint64)
    found = has_largest_keys(tf.constant(keys), tf.constant([0, 2, 3]), most=3)
    expected = [[0, 0, 0, 0], [0, 1, 1, 0], [1, 1, 1, 0]]
    np.testing.assert_array_equal(found, np.array(expected, bool))
