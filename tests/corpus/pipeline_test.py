"""The pipeline from files to batches: order, masks, slices, resuming, evaluation, bad input."""

import re

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.config import MaskingConfig
from bert_tf.corpus import features, masking
from bert_tf.corpus.mapping import InputShard
from bert_tf.corpus.mask_draws import MaskDraws
from bert_tf.corpus.pipeline import MaskedBatches, raise_input_fault
from bert_tf.corpus.tfrecords import RecordFiles, encode_examples, write_records
from bert_tf.text.vocab import Vocab
from tests.damaged import flip_a_bit

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
VOCAB = Vocab((*SPECIAL, *(f"w{n}" for n in range(60)), *(f"##p{n}" for n in range(40))))
T, P, N = 24, 5, 21
MASKING = MaskingConfig(max_predictions_per_seq=P)
SHAPES = {"T": [T], "P": [P], "": []}


def make_features() -> dict[str, np.ndarray]:
    """Returns N unmasked examples; the piece after [CLS] differs in each, and names it."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(8, T + 1, N)
    input_mask = (np.arange(T) < lengths[:, None]).astype(int)
    word_ids = rng.integers(5, len(VOCAB), (N, T))
    word_ids[:, 0] = VOCAB.cls_id
    word_ids[np.arange(N), lengths - 1] = VOCAB.sep_id
    return {
        "input_ids": word_ids * input_mask,
        "input_mask": input_mask,
        "segment_ids": input_mask * (np.arange(T) > 4),
        "next_sentence_labels": rng.integers(0, 2, (N, 1)),
    }


EXAMPLES = make_features()


def write(path, columns, cut=N):
    """Writes the examples to one file, or to two cut in front of example `cut`."""
    serialized = encode_examples(columns)
    parts = [part for part in (serialized[:cut], serialized[cut:]) if part]
    paths = [path / f"{number}.tfrecord" for number in range(len(parts))]
    for part, name in zip(parts, paths, strict=True):
        write_records(name, part)
    return RecordFiles(paths)


@pytest.fixture
def records(tmp_path):
    return write(tmp_path, EXAMPLES, cut=8)


def batches_of(records, config=MASKING, seed=3, **options):
    return MaskedBatches(records, VOCAB, config, max_seq_length=T, seed=seed, **options)


def train(records, batch_size=6, config=MASKING, seed=3, made=None, **options):
    return batches_of(records, config, seed, **(made or {})).training(batch_size, **options)


def evaluate(records, batch_size=6, config=MASKING, made=None, **options):
    return batches_of(records, config, **(made or {})).evaluation(batch_size, **options)


def collect(dataset) -> dict[str, np.ndarray]:
    """Returns all batches stacked, [steps, B, ...]."""
    batches = list(dataset.as_numpy_iterator())
    return {name: np.stack([batch[name] for batch in batches]) for name in batches[0]}


def unmask(batches: dict[str, np.ndarray]) -> np.ndarray:
    """Returns the original pieces, [rows, T]."""
    word_ids = batches["input_word_ids"].reshape(-1, T).copy()
    weights = batches["masked_lm_weights"].reshape(-1, P)
    rows, columns = np.nonzero(weights)
    positions = batches["masked_lm_positions"].reshape(-1, P)[rows, columns]
    word_ids[rows, positions] = batches["masked_lm_ids"].reshape(-1, P)[rows, columns]
    return word_ids


def assert_equal(first, second):
    assert first.keys() == second.keys()
    for name in first:
        np.testing.assert_array_equal(first[name], second[name], err_msg=name)


def find_examples(batches) -> list[int]:
    """Returns which example stands in each row, found by its pieces."""
    known = {row.tobytes(): index for index, row in enumerate(EXAMPLES["input_ids"])}
    return [known[row.astype(np.int64).tobytes()] for row in unmask(batches)]


def test_shapes_and_types_are_static(records):
    for dataset in (train(records), evaluate(records)):
        spec = dataset.element_spec
        for feature in features.MASKED_FEATURES:
            assert spec[feature.name].shape == [6, *SHAPES[feature.axis]]
            assert spec[feature.name].dtype == feature.dtype
        assert spec["next_sentence_weights"] == tf.TensorSpec([6], tf.float32)
        assert spec.keys() == features.PretrainingBatch.__annotations__.keys()


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_epochs_show_every_example_once_with_new_masks(records, whole):
    config = MaskingConfig(max_predictions_per_seq=P, do_whole_word_mask=whole)
    batches = collect(train(records, 7, config, num_steps=6))  # two epochs of 21
    examples = find_examples(batches)
    assert sorted(examples[:N]) == sorted(examples[N:]) == list(range(N))
    assert examples[:N] != examples[N:]
    for name, source in (
        ("input_mask", EXAMPLES["input_mask"]),
        ("input_type_ids", EXAMPLES["segment_ids"]),
        ("next_sentence_labels", EXAMPLES["next_sentence_labels"][:, 0]),
    ):
        flat = batches[name].reshape(-1, *source.shape[1:])
        np.testing.assert_array_equal(flat, source[examples])
    assert (batches["next_sentence_weights"] == 1).all()

    positions = batches["masked_lm_positions"].reshape(-1, P)
    second = {example: positions[N + row] for row, example in enumerate(examples[N:])}
    same = [(positions[row] == second[example]).all() for row, example in enumerate(examples[:N])]
    assert sum(same) < N / 2


def test_masks_are_those_of_the_example_and_its_epoch(records):
    batches = collect(train(records, 7, num_steps=6))
    examples = np.array(find_examples(batches))
    inputs = {
        "input_word_ids": tf.constant(EXAMPLES["input_ids"][examples], tf.int32),
        "input_mask": tf.constant(EXAMPLES["input_mask"][examples], tf.int32),
    }
    epochs = tf.constant(np.arange(2 * N) // N)
    draws = MaskDraws(tf.constant(examples), epochs, VOCAB, MASKING, seed=3)
    expected = masking.mask_batch(inputs, draws)
    for name, values in expected.items():
        np.testing.assert_array_equal(batches[name].reshape(values.shape), values)


def test_resuming_and_slicing_change_nothing(records):
    whole = collect(train(records, num_steps=9))
    resumed = collect(train(records, start_step=4, num_steps=5))
    assert_equal(resumed, {name: values[4:] for name, values in whole.items()})
    endless = collect(train(records, start_step=4).take(5))
    assert_equal(endless, resumed)
    slices = [collect(train(records, num_steps=9, shard=InputShard(w, 3))) for w in range(3)]
    joined = {name: np.concatenate([part[name] for part in slices], axis=1) for name in whole}
    assert_equal(joined, whole)


@pytest.mark.slow
def test_a_share_of_masks_moves_with_the_step(records):
    """From 0.1 to 0.7 in seven steps; also for a run that goes on, and not in evaluations."""
    config = MaskingConfig(masked_lm_prob=0.1, masked_lm_prob_end=0.7, max_predictions_per_seq=T)
    whole = collect(train(records, config=config, num_steps=9, last_step=6))
    lengths = whole["input_mask"].sum(axis=2)
    shares = np.minimum(0.1 + 0.1 * np.arange(9), 0.7)[:, None]
    expected = np.minimum(np.rint(lengths * shares), lengths - 2)
    np.testing.assert_array_equal(whole["masked_lm_weights"].sum(axis=2), np.maximum(1, expected))
    resumed = collect(train(records, config=config, start_step=4, num_steps=5, last_step=6))
    assert_equal(resumed, {name: values[4:] for name, values in whole.items()})
    judged = collect(evaluate(records, config=config))
    fixed = MaskingConfig(masked_lm_prob=0.1, max_predictions_per_seq=T)
    assert_equal(judged, collect(evaluate(records, config=fixed)))


def test_batch_size_does_not_change_the_stream(records):
    small, large = collect(train(records, 3, num_steps=8)), collect(train(records, 12, num_steps=2))
    for name in small:
        flat = (values[name].reshape(24, *values[name].shape[2:]) for values in (small, large))
        np.testing.assert_array_equal(*flat)


def test_evaluation_is_in_file_order_and_filled_up(records):
    batches = collect(evaluate(records))
    assert batches["input_word_ids"].shape == (4, 6, T)
    np.testing.assert_array_equal(unmask(batches)[:N], EXAMPLES["input_ids"])
    for name, values in batches.items():
        assert not values.reshape(24, -1)[N:].any(), name
    weights = batches["next_sentence_weights"].reshape(-1)
    assert weights.tolist() == [1] * N + [0] * 3
    assert (batches["masked_lm_weights"].reshape(24, P)[:N].sum(axis=1) >= 1).all()
    assert_equal(collect(evaluate(records)), batches)
    first = collect(evaluate(records, max_steps=2))
    assert_equal(first, {name: values[:2] for name, values in batches.items()})
    slices = [collect(evaluate(records, shard=InputShard(w, 3))) for w in range(3)]
    joined = {name: np.concatenate([part[name] for part in slices], axis=1) for name in batches}
    assert_equal(joined, batches)


def test_a_worker_without_real_rows_gets_padding(records):
    """21 examples in batches of 20: the last has one row, and the second worker none."""
    last = list(evaluate(records, 20, shard=InputShard(1, 2)).as_numpy_iterator())[1]
    assert not any(values.any() for values in last.values())


@pytest.mark.parametrize("v2", [False, True])
def test_masked_records_pass_through(tmp_path, v2):
    masked = {
        "masked_lm_positions": np.tile(np.arange(P), (N, 1)),
        "masked_lm_ids": EXAMPLES["input_ids"][:, :P],
        "masked_lm_weights": np.tile([1.0, 1, 1, 0, 0], (N, 1)),
    }
    columns = EXAMPLES | masked
    if v2:
        columns["input_word_ids"] = columns.pop("input_ids")
        columns["input_type_ids"] = columns.pop("segment_ids")
    config = MaskingConfig(masking="static", max_predictions_per_seq=P)
    batches = collect(evaluate(write(tmp_path, columns), 7, config))
    np.testing.assert_array_equal(batches["input_word_ids"].reshape(N, T), EXAMPLES["input_ids"])
    np.testing.assert_array_equal(batches["input_type_ids"].reshape(N, T), EXAMPLES["segment_ids"])
    for name, values in masked.items():
        np.testing.assert_array_equal(batches[name].reshape(N, P), values)
    with pytest.raises(ValueError, match=r"0\.tfrecord.*--objective.*--masking=dynamic"):
        evaluate(write(tmp_path, columns), 7, config, {"mask": lambda batch, draws: batch})


def test_an_objective_may_mask(records):
    def label_examples(batch, draws):
        return {**batch, "masked_lm_ids": tf.stack([draws.example_ids, draws.epochs], 1)}

    batches = collect(train(records, 7, made={"mask": label_examples}, num_steps=6))
    examples, epochs = batches["masked_lm_ids"].reshape(-1, 2).T
    assert sorted(examples[:N]) == list(range(N)) and epochs.tolist() == [0] * N + [1] * N


@pytest.mark.slow
def test_next_sentence_prediction_can_be_off(records):
    for dataset in (train(records, num_steps=2), evaluate(records)):
        assert collect(dataset)["next_sentence_weights"].any()
    for dataset in (
        train(records, made={"use_next_sentence": False}, num_steps=2),
        evaluate(records, made={"use_next_sentence": False}),
    ):
        assert not collect(dataset)["next_sentence_weights"].any()


@pytest.mark.slow
def test_tensorflow_text_masking_can_be_chosen(records):
    pytest.importorskip("tensorflow_text")
    config = MaskingConfig(masking="tf_text", max_predictions_per_seq=P)
    batches = collect(train(records, 7, config, num_steps=3))
    assert sorted(find_examples(batches)) == list(range(N))
    assert (batches["masked_lm_weights"].sum(axis=2) >= 1).all()


def test_a_corrupt_record_is_named_while_training(tmp_path):
    records = write(tmp_path, EXAMPLES)
    start = records.paths[0].read_bytes().index(encode_examples(EXAMPLES)[5])
    flip_a_bit(records.paths[0], start + 40)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"record 5 .*0\.tfrecord"):
        collect(train(RecordFiles(records.paths), num_steps=4))


def fault_of(records) -> str:
    """Returns what a program says about records at which the dataset fails."""
    try:
        collect(train(records, num_steps=4))
    except tf.errors.InvalidArgumentError as error:
        with pytest.raises(ValueError) as raised:
            raise_input_fault(error, None, records)
        return str(raised.value)
    pytest.fail("the dataset did not fail")


@pytest.mark.parametrize("token", [-1, len(VOCAB)])
def test_a_token_beyond_the_vocabulary_names_its_record(tmp_path, token):
    columns = {name: values.copy() for name, values in EXAMPLES.items()}
    columns["input_ids"][15, 3] = token
    message = fault_of(write(tmp_path, columns, cut=8))
    assert re.search(rf"^Token id {token} .*record 7 .*{tmp_path}/1\.tfrecord.* 105", message)
    assert "\n" not in message


def test_faults_that_tensorflow_does_not_name(tmp_path):
    serialized = encode_examples(EXAMPLES)
    short = encode_examples({name: values[:1, :20] for name, values in EXAMPLES.items()})
    path = tmp_path / "mixed.tfrecord"
    write_records(path, [*serialized[:4], *short, *serialized[4:]])
    message = fault_of(RecordFiles([path]))
    assert re.search(f"record 4 .*{path}.*max_seq_length 20", message)


def test_an_error_that_is_not_of_the_records_stays_itself(records):
    error = tf.errors.InvalidArgumentError(None, None, "Matrix size-incompatible")
    with pytest.raises(tf.errors.InvalidArgumentError, match="Matrix size-incompatible"):
        raise_input_fault(error, records, None)


def test_what_does_not_fit_is_refused(records):
    with pytest.raises(ValueError, match="max_seq_length 24, .* 128"):
        MaskedBatches(records, VOCAB, MASKING, max_seq_length=128, seed=0)
    with pytest.raises(ValueError, match="batch size 6 .* 4 "):
        train(records, shard=InputShard(0, 4))
    with pytest.raises(ValueError, match=r"0\.tfrecord.*--masking=static.*--masking=dynamic"):
        train(records, config=MaskingConfig(masking="static", max_predictions_per_seq=P))
