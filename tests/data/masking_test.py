"""Masking against a twin written after google-research/bert's loop, and its laws on many pieces."""

import json
import lzma

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.config import MaskingConfig
from bert_tf.data import masking
from bert_tf.data.splitmix import numpy_random_bits
from bert_tf.text.vocab import Vocab
from tests.shared_data import shared_data

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
        return masking.mask_batch(
            tensors, example_ids, epochs, vocab=VOCAB, masking=config, seed=seed
        )

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


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_selection_equals_the_slow_twin(config):
    length = 64
    batch = make_batch(60, length)
    epochs = np.arange(60) % 3
    masked = mask(batch, config, epochs=epochs)
    for row in range(60):
        size = batch["input_mask"][row].sum()
        keys = numpy_random_bits(SEED, epochs[row], row, masking.SELECT, np.arange(length))
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
        counts = masking.count_predictions(tf.sequence_mask(lengths, dtype=tf.int32), config)
        expected = [min(limit, max(1, round(int(n) * prob))) for n in lengths]
        assert counts.numpy().tolist() == expected


@pytest.mark.parametrize(
    ("name", "prob", "limit"),
    [("default_128_dupe10", 0.15, 20), ("long_512_dupe2", 0.15, 76), ("short_32_p30", 0.3, 5)],
)
def test_counts_and_candidates_are_those_of_google(name, prob, limit):
    """Unmasks the examples that google-research/bert's program wrote, and masks them again."""
    path = shared_data("fixtures", "google-pretraining-records", f"{name}.jsonl.xz")
    vocab = Vocab.read(shared_data("vocab", "bert-base-uncased-vocab.txt"))
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
    counts = masking.count_predictions(input_mask, config)
    np.testing.assert_array_equal(counts, numbers)
    ids = tf.range(len(examples), dtype=tf.int64)
    batch = {"input_word_ids": word_ids, "input_mask": input_mask}
    masked = masking.mask_batch(batch, ids, 0 * ids, vocab=vocab, masking=config, seed=0)
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


@pytest.mark.parametrize("whole", [False, True])
def test_specials_and_padding_are_never_selected(whole):
    batch = make_batch(2000, 32)
    masked = mask(batch, MaskingConfig(do_whole_word_mask=whole, masked_lm_prob=0.6))
    real = masked["masked_lm_weights"] > 0
    assert not np.isin(masked["masked_lm_ids"][real], (VOCAB.cls_id, VOCAB.sep_id)).any()
    at_positions = np.take_along_axis(batch["input_mask"], masked["masked_lm_positions"], 1)
    assert at_positions[real].all()
    padding = batch["input_mask"] == 0
    assert not masked["input_word_ids"][padding].any()


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


def test_whole_words_are_never_split():
    batch = make_batch(500, 64)
    masked = mask(batch, MaskingConfig(do_whole_word_mask=True))
    for row in range(500):
        count = int(masked["masked_lm_weights"][row].sum())
        selected = set(masked["masked_lm_positions"][row, :count].tolist())
        for position in range(1, int(batch["input_mask"][row].sum())):
            ids = batch["input_word_ids"][row, position - 1 : position + 1]
            if VOCAB.is_continuation[ids[1]] and ids[0] not in (VOCAB.cls_id, VOCAB.sep_id):
                assert (position in selected) == (position - 1 in selected)


def test_a_word_that_does_not_fit_is_skipped():
    """A word of six pieces, one of two, three to predict: the short one, whatever the order."""
    first, second = VOCAB.ids["w1"], VOCAB.ids["w2"]
    tail = [VOCAB.ids["##p1"]]
    row = [VOCAB.cls_id, first, *tail * 5, second, *tail, VOCAB.sep_id]
    batch = {
        "input_word_ids": np.tile(np.array(row, np.int32), (50, 1)),
        "input_mask": np.ones((50, 10), np.int32),
    }
    config = MaskingConfig(do_whole_word_mask=True, masked_lm_prob=0.3, max_predictions_per_seq=4)
    masked = mask(batch, config)
    np.testing.assert_array_equal(masked["masked_lm_positions"], [[7, 8, 0, 0]] * 50)
    np.testing.assert_array_equal(masked["masked_lm_weights"], [[1, 1, 0, 0]] * 50)


@pytest.mark.parametrize("whole", [False, True])
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


def spans_of(selected: np.ndarray, begins: np.ndarray) -> list[np.ndarray]:
    """Returns the positions of each selected span of a row."""
    return [np.flatnonzero(selected & (begins == place)) for place in np.unique(begins[selected])]


def test_spans_are_runs_of_whole_words_of_geometric_length():
    """Lengths by a chi-squared bound that chance passes once in 10^6; ten words at most."""
    length, mean = 128, 5.0
    batch = make_batch(600, length, seed=3)
    candidates = masking.find_candidates(
        tf.constant(batch["input_word_ids"]), tf.constant(batch["input_mask"]), VOCAB
    )
    continues = tf.gather(tf.constant(VOCAB.is_continuation), batch["input_word_ids"])
    rows = np.arange(600)[:, None]
    bits = numpy_random_bits(SEED, 0 * rows, rows, masking.CUT, np.arange(length)[None])
    joined, begins = masking.join_words(tf.constant(bits), candidates, continues, mean)
    joined, begins, candidates = joined.numpy(), begins.numpy(), candidates.numpy()
    is_word = candidates & ~VOCAB.is_continuation[batch["input_word_ids"]]
    lengths = []
    for row in range(600):
        starts = np.flatnonzero(candidates[row] & ~joined[row])
        for start, end in zip(starts, [*starts[1:], length], strict=True):
            inside = np.flatnonzero(candidates[row] & (np.arange(length) >= start))
            inside = inside[inside < end]
            assert (begins[row, inside] == start).all()
            assert (np.diff(inside) == 1).all()  # No special token lies within.
            words = is_word[row, inside].sum() + (not is_word[row, start])
            # The rest of a row, or of a segment, ends it early: only spans that were cut count.
            cut = end < length and inside[-1] + 1 == end
            if cut and start > length // 8 and words < 10:
                lengths.append(words)
            assert words <= masking.MOST_WORDS
    counts = np.bincount(lengths, minlength=10)[1:10]
    shares = 0.8 ** np.arange(9) * 0.2
    expected = len(lengths) * shares / shares.sum()
    # Long spans are cut short by the ends of segments a little more often.
    assert (np.abs(counts - expected) < 5 * np.sqrt(expected) + 0.06 * expected).all()


def test_spans_are_selected_and_replaced_whole():
    config = MaskingConfig(masked_lm_prob=0.3, max_predictions_per_seq=40, span_length=4.0)
    batch = make_batch(400, 128, seed=9)
    outputs = mask(batch, config)
    rows = np.arange(400)[:, None]
    bits = numpy_random_bits(SEED, 0 * rows, rows, masking.CUT, np.arange(128)[None])
    candidates = masking.find_candidates(
        tf.constant(batch["input_word_ids"]), tf.constant(batch["input_mask"]), VOCAB
    )
    continues = tf.gather(tf.constant(VOCAB.is_continuation), batch["input_word_ids"])
    begins = masking.join_words(tf.constant(bits), candidates, continues, 4.0)[1].numpy()
    kinds = {"masked": 0, "kept": 0, "random": 0}
    for row in range(400):
        real = outputs["masked_lm_weights"][row] > 0
        positions = outputs["masked_lm_positions"][row][real]
        limit = min(40, max(1, round(float(batch["input_mask"][row].sum()) * 0.3)))
        assert len(positions) <= limit
        selected = np.isin(np.arange(128), positions)
        for span in spans_of(selected, begins[row]):
            whole = np.flatnonzero((begins[row] == span[0]) & candidates[row].numpy())
            np.testing.assert_array_equal(span, whole)
            after = outputs["input_word_ids"][row, span]
            before = batch["input_word_ids"][row, span]
            if (after == VOCAB.mask_id).all():
                kinds["masked"] += 1
            elif (after == before).all():
                kinds["kept"] += 1
            else:  # No piece of it is [MASK] by decision; one in 500 is by chance.
                assert (after == VOCAB.mask_id).sum() <= 1
                kinds["random"] += 1
    total = sum(kinds.values())
    for kind, share in (("masked", 0.8), ("kept", 0.1), ("random", 0.1)):
        assert abs(kinds[kind] / total - share) < 5 * np.sqrt(share * (1 - share) / total), kinds


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
        ({"masked_lm_prob_to": 0.1}, "masked_lm_prob_to 0.1 is below masked_lm_prob 0.15"),
        ({"span_length": 0.5}, "span_length is 0.5"),
        ({"span_length": 3.0, "masking": "static"}, "need masking=dynamic"),
        ({"masked_share": 0.9, "random_share": 0.2}, "add up to more than 1"),
    ],
)
def test_masks_that_contradict_each_other(fields, message):
    with pytest.raises(ValueError, match=message):
        MaskingConfig(**fields)
