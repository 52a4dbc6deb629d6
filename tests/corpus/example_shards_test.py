"""Shards of examples: content, independence of workers and of kills, masks, memory."""

import concurrent.futures
import dataclasses
import threading

import numpy as np
import pytest

from bert_tf.config import DataConfig, MaskingConfig
from bert_tf.corpus import example_shards
from bert_tf.corpus.example_shards import plan_shards, write_shard, write_shards
from bert_tf.corpus.tfrecords import RecordFiles
from bert_tf.corpus.token_store import TokenStore, write_part
from bert_tf.text.vocab import Vocab

VOCAB = Vocab(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(2000))))
DATA = DataConfig(max_seq_length=32, dupe_factor=3)


@pytest.fixture
def store(tmp_path):
    """40 documents; document d holds pieces 5 + 40 d ... 5 + 40 d + 39."""
    generator = np.random.default_rng(0)
    documents = [
        [(5 + 40 * d + generator.integers(0, 40, n)).tolist() for n in generator.integers(3, 9, 20)]
        for d in range(40)
    ]
    write_part(tmp_path / "part-0.tokens", documents, 2)
    VOCAB.write(tmp_path / "vocab.txt")
    return TokenStore([tmp_path / "part-0.tokens"])


def write(store, folder, *, documents=range(40), shards=3, num_workers=1, data=DATA, **masking):
    root = store.paths[0].parent
    masking = MaskingConfig(max_predictions_per_seq=5, **masking)
    paths = [root / folder / f"{i}.tfrecord" for i in range(shards)]
    data = dataclasses.replace(data, vocab_file=f"{root}/vocab.txt", num_workers=num_workers)
    markers = root / folder / "receipts"
    return paths, write_shards(store, np.array(documents), paths, markers, data, masking)


def read(paths):
    """Returns the features as arrays [n, length], parsed by TensorFlow's own protobuf."""
    from tensorflow.core.example import example_pb2

    files = RecordFiles(paths)
    rows = {}
    for record in files.read(np.arange(len(files))):
        for name, feature in example_pb2.Example.FromString(record).features.feature.items():
            values = feature.float_list.value or feature.int64_list.value
            rows.setdefault(name, []).append(list(values))
    return {name: np.array(values) for name, values in rows.items()}


def test_unmasked_records(store):
    paths, records = write(store, "a")
    features = read(paths)
    assert set(features) == {"input_ids", "input_mask", "segment_ids", "next_sentence_labels"}
    ids, mask, types = (features[n] for n in ("input_ids", "input_mask", "segment_ids"))
    assert ids.shape[1] == 32 and features["next_sentence_labels"].shape[1] == 1
    for row in range(len(ids)):
        length = mask[row].sum()
        assert mask[row].tolist() == [1] * length + [0] * (32 - length)
        assert not ids[row, length:].any() and not types[row, length:].any()
        ends = np.flatnonzero(ids[row] == VOCAB.sep_id)
        assert ids[row, 0] == VOCAB.cls_id and len(ends) == 2 and ends[1] == length - 1
        assert types[row].sum() == ends[1] - ends[0] and types[row, ends[0] + 1 : length].all()
        segment_a = set(((ids[row, 1 : ends[0]] - 5) // 40).tolist())
        segment_b = set(((ids[row, ends[0] + 1 : ends[1]] - 5) // 40).tolist())
        assert len(segment_a) == len(segment_b) == 1
        assert features["next_sentence_labels"][row, 0] == (segment_a != segment_b)
    assert sum(record["documents"] for record in records) == 40
    assert sum(record["examples"] for record in records) == len(ids)
    assert sum(record["tokens"] for record in records) == mask.sum()


def test_workers_do_not_change_a_byte(store):
    contents = [
        [p.read_bytes() for p in write(store, f"{n}", num_workers=n, masking="static")[0]]
        for n in (1, 2)
    ]
    assert contents[0] == contents[1] and all(contents[0])


def test_threads_do_not_share_a_store(store, monkeypatch):
    """Workers of a Beam runner may be threads: they must not close each other's files."""
    readers = {}

    class WatchedStore(TokenStore):
        def _read(self, *place):
            readers.setdefault(id(self), (self, set()))[1].add(threading.get_ident())
            return super()._read(*place)

    paths, _ = write(store, "one", shards=8)
    other = paths[0].parents[1] / "other"
    outputs = [other / path.name for path in paths]
    data = dataclasses.replace(DATA, vocab_file=f"{other.parent}/vocab.txt")
    masking = MaskingConfig(max_predictions_per_seq=5)
    tasks = plan_shards(store.paths, np.arange(40), outputs, other, data, masking)
    monkeypatch.setattr(example_shards, "TokenStore", WatchedStore)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(write_shard, tasks))
    assert [len(threads) for _, threads in readers.values()] == [1] * len(readers)
    assert len(readers) > 1
    for path, task in zip(paths, tasks, strict=True):
        assert path.read_bytes() == task.path.read_bytes()


def test_restart_makes_only_what_is_missing(store):
    paths, records = write(store, "a", masking="static")
    contents = [path.read_bytes() for path in paths]
    paths[0].unlink()
    paths[1].write_bytes(b"another file")
    untouched = paths[2].stat().st_mtime_ns
    assert write(store, "a", masking="static")[1] == records
    assert [path.read_bytes() for path in paths] == contents
    assert paths[2].stat().st_mtime_ns == untouched


def test_static_masks_restore_the_sequence(store):
    paths, _ = write(store, "a", masking="static")
    features = read(paths)
    lengths = features["input_mask"].sum(axis=1)
    counts = features["masked_lm_weights"].sum(axis=1)
    assert counts.tolist() == [min(5, max(1, round(n * 0.15))) for n in lengths.tolist()]
    rows, slots = np.nonzero(features["masked_lm_weights"])
    positions = features["masked_lm_positions"][rows, slots]
    restored = features["input_ids"].copy()
    changed = (restored[rows, positions] == VOCAB.mask_id).mean()
    assert abs(changed - 0.8) < 4 * 0.4 / len(rows) ** 0.5
    restored[rows, positions] = features["masked_lm_ids"][rows, slots]
    assert (restored[features["input_mask"] == 0] == 0).all()
    assert not np.isin(restored, [VOCAB.mask_id, VOCAB.unk_id]).any()
    # dupe_factor passes: three times the sequences of a single one, about.
    single = len(read(write(store, "b")[0])["input_ids"])
    assert abs(len(restored) - 3 * single) < 0.25 * 3 * single


def test_partners_come_from_the_given_documents(store):
    paths, _ = write(store, "a", documents=[3, 8, 21], shards=1)
    ids = read(paths)["input_ids"]
    assert set(((ids[ids > 4] - 5) // 40).tolist()) == {3, 8, 21}


def test_full_sentences_have_one_segment(store):
    data = dataclasses.replace(DATA, use_next_sentence=False)
    paths, _ = write(store, "a", data=data)
    features = read(paths)
    assert not features["segment_ids"].any() and not features["next_sentence_labels"].any()
    ids = features["input_ids"]
    assert (ids[:, 0] == VOCAB.cls_id).all()
    last = features["input_mask"].sum(axis=1) - 1
    assert (ids[np.arange(len(ids)), last] == VOCAB.sep_id).all()
    assert np.count_nonzero(ids > 4) == store.num_tokens


def test_too_few_documents(store):
    with pytest.raises(ValueError, match="2 documents.* 1.*--pairs=none"):
        write(store, "a", documents=[5], shards=1)
    with pytest.raises(ValueError, match="2 documents .*3 files.*--num_shards"):
        write(store, "a", documents=[5, 6])
    data = dataclasses.replace(DATA, use_next_sentence=False)
    assert write(store, "a", documents=[5], shards=1, data=data)[1][0]["examples"] > 0


def test_order_of_documents_and_examples_is_mixed(store):
    ids = read(write(store, "a", shards=1)[0])["input_ids"]
    documents = (ids[:, 1] - 5) // 40
    assert (np.diff(documents) == 0).mean() < 0.2
