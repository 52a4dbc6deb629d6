"""From raw text, records or nothing to ready files; kept for the next run."""

import dataclasses
import json
import os
import pathlib

import pytest

from bert_tf.config import DataConfig, MaskingConfig
from bert_tf.corpus import preparation
from bert_tf.corpus.example_files import manifest_path, write_examples
from bert_tf.corpus.preparation import prepare_pretraining_data, split_documents
from bert_tf.corpus.tfrecords import write_records
from bert_tf.corpus.token_store import TokenStore
from bert_tf.text.vocab import Vocab
from tests.corpus.example_shards_test import read
from tests.corpus.token_store_test import sentences_of


@pytest.fixture
def corpus(tmp_path):
    """50 documents of ten sentences; the words of a document stand in no other one."""
    documents = [
        "\n".join(f"word{d}x{s} follows here , word{d}x{s} ." for s in range(10)) for d in range(50)
    ]
    (tmp_path / "text.txt").write_text("\n\n".join(documents))
    return DataConfig(
        input_file=str(tmp_path / "text.txt"),
        max_seq_length=64,
        eval_fraction=0.2,
        num_workers=1,
    )


def prepare(corpus, masking="dynamic", vocab_size=300, cache="cache", folder=None, **options):
    return prepare_pretraining_data(
        corpus,
        MaskingConfig(masking=masking),
        vocab_size=vocab_size,
        do_lower_case=True,
        cache_dir=str((folder or pathlib.Path(corpus.input_file).parent) / cache),
        **options,
    )


def manifest_of(file):
    return json.loads((pathlib.Path(file).parent / "manifest.json").read_text())


def snapshot(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("[!.]*") if path.is_file()}


def test_makes_everything_once(corpus, tmp_path):
    prepared = prepare(corpus)
    assert len(Vocab.read(prepared.vocab_file)) == 300
    before = snapshot(tmp_path / "cache")
    assert prepare(corpus) == prepared
    assert snapshot(tmp_path / "cache") == before
    counts = [manifest_of(files[0])["files"] for files in prepared[:2]]
    assert [sum(file["documents"] for file in files) for files in counts] == [40, 10]


def test_held_out_documents_are_not_trained_on(corpus, tmp_path):
    prepared = prepare(corpus)
    (folder,) = (tmp_path / "cache").glob("tokens-*")
    store = TokenStore(sorted(folder.glob("*.tokens")))
    train, held_out = split_documents(50, corpus)
    assert sorted([*train, *held_out]) == list(range(50))
    vocab = Vocab.read(prepared.vocab_file)
    # Numbers of a document's pieces; those of its words make it known.
    for files, documents in ((prepared.train_files, train), (prepared.eval_files, held_out)):
        texts = {tuple(s) for d in documents for s in sentences_of(store, d)}
        others = {tuple(s) for d in range(50) if d not in documents for s in sentences_of(store, d)}
        found = 0
        for sequence in read(files)["input_ids"].tolist():
            sentences = inner_sentences(sequence, vocab.ids["."])
            assert not sentences & (others - texts)
            found += len(sentences & texts)
        assert found > len(documents)


def inner_sentences(ids, full_stop):
    """Returns the sentences that stand between two full stops of a sequence."""
    ends = [place for place, piece in enumerate(ids) if piece == full_stop]
    return {tuple(ids[a + 1 : b + 1]) for a, b in zip(ends, ends[1:], strict=False)}


def test_changed_parameters_make_new_files_and_keep_the_old(corpus, tmp_path):
    first = prepare(corpus)
    longer = prepare(dataclasses.replace(corpus, max_seq_length=32))
    static = prepare(dataclasses.replace(corpus, dupe_factor=2), "static")
    assert len({first.train_files[0], longer.train_files[0], static.train_files[0]}) == 3
    assert first.vocab_file == longer.vocab_file == static.vocab_file
    assert len(list((tmp_path / "cache").glob("tokens-*"))) == 1
    assert all(map(pathlib.Path.exists, map(pathlib.Path, first.train_files)))
    assert manifest_of(static.train_files[0])["parameters"]["passes"] == 2
    assert manifest_of(static.eval_files[0])["parameters"]["passes"] == 1
    pathlib.Path(corpus.input_file).write_text("New text .\n\nAnother one .\n" * 20)
    assert prepare(corpus, vocab_size=60).vocab_file != first.vocab_file


def test_what_a_killed_run_left_is_completed(corpus, tmp_path):
    prepared = prepare(corpus)
    train = pathlib.Path(prepared.train_files[0])
    content = train.read_bytes()
    train.unlink()
    assert prepare(corpus) == prepared
    assert train.read_bytes() == content
    (train.parent / "manifest.json").unlink()
    (next((tmp_path / "cache").glob("tokens-*/*.tokens"))).unlink()
    assert prepare(corpus) == prepared
    assert train.read_bytes() == content and (train.parent / "manifest.json").exists()


@pytest.mark.parametrize("form", ["text", "records"])
def test_eval_file(corpus, tmp_path, form):
    (tmp_path / "eval.txt").write_text("here word1 .\n\nhere word2 .\n")
    eval_file = tmp_path / "eval.txt"
    if form == "records":
        eval_file = pathlib.Path(prepare(corpus).eval_files[0])
    prepared = prepare(dataclasses.replace(corpus, eval_file=str(eval_file)))
    assert sum(file["documents"] for file in manifest_of(prepared.train_files[0])["files"]) == 50
    if form == "records":
        assert prepared.eval_files == [str(eval_file)]
    else:
        assert manifest_of(prepared.eval_files[0])["files"][0]["documents"] == 2


def test_an_eval_file_too_short_for_pairs_is_named_first(corpus, tmp_path):
    (tmp_path / "eval.txt").write_text("One document .\nWith two sentences .\n")
    short = dataclasses.replace(corpus, eval_file=str(tmp_path / "eval.txt"))
    with pytest.raises(ValueError, match=r"--eval_file=\S+eval\.txt.* 2 documents.* 1\b"):
        prepare(short)
    assert not list((tmp_path / "cache").glob("train-*"))


def test_records_pass_through(tmp_path):
    for name in "abc":
        write_records(tmp_path / f"{name}.tfrecord", [b"x" * 40])
    files = [str(tmp_path / f"{name}.tfrecord") for name in "abc"]
    several = DataConfig(input_file=f"{tmp_path}/*.tfrecord", vocab_file="v")
    assert prepare(several)[:3] == (files[:2], files[2:], "v")
    single = dataclasses.replace(several, input_file=files[0])
    assert prepare(single)[:3] == (files[:1], files[:1], "v")
    with_eval = dataclasses.replace(single, eval_file=files[1])
    assert prepare(with_eval)[:3] == (files[:1], files[1:2], "v")
    none = dataclasses.replace(several, eval_fraction=0.0)
    for data, train_files in (
        (several, files),
        (none, files),
        (single, files[:1]),
        (with_eval, files[:1]),
    ):
        assert prepare(data, do_eval=False)[:3] == (train_files, [], "v")
    # A run that was begun with all files, or with all but the last, goes on with them.
    begun = prepare(none).fingerprint
    assert prepare(several, begun_with=begun)[:2] == (files, files[2:])
    assert prepare(several, begun_with=begun, do_eval=False)[:2] == (files, [])
    begun = prepare(several).fingerprint
    assert prepare(several, begun_with=begun)[:2] == (files[:2], files[2:])
    assert prepare(several, begun_with=begun, do_eval=False)[:2] == (files[:2], [])
    (tmp_path / "text.txt").write_text("Some text.\n\nMore text.\n")
    mixed = dataclasses.replace(several, input_file=f"{files[0]},{tmp_path}/text.txt")
    with pytest.raises(ValueError, match=rf"TFRecords.*{files[0]}.*{tmp_path}/text\.txt"):
        prepare(mixed)


def test_builtin_corpus_without_input(corpus, monkeypatch, tmp_path):
    text = pathlib.Path(corpus.input_file).read_text()

    def gather(path):
        path.write_text(text)
        return path

    monkeypatch.setattr(preparation, "gather_builtin_corpus", gather)
    empty = dataclasses.replace(corpus, input_file="")
    prepared = prepare(corpus=empty, folder=tmp_path)
    assert prepared.train_files and prepared.eval_files
    assert [path.read_text() for path in (tmp_path / "cache").glob("embedded-*.txt")] == [text]


def test_split_of_documents():
    config = DataConfig(eval_fraction=0.1)
    train, held_out = split_documents(10_000, config)
    assert abs(len(held_out) - 1000) < 4 * (10_000 * 0.1 * 0.9) ** 0.5
    assert not set(train) & set(held_out)
    more = split_documents(20_000, config)[1]
    assert set(held_out) == {d for d in more.tolist() if d < 10_000}  # a hash of the document
    other = split_documents(10_000, dataclasses.replace(config, random_seed=1))[1]
    assert set(other) != set(held_out)
    assert [len(part) for part in split_documents(4, config)] == [2, 2]
    assert [len(part) for part in split_documents(3, config)] == [3, 3]
    without_pairs = dataclasses.replace(config, use_next_sentence=False)
    assert [len(part) for part in split_documents(3, without_pairs)] == [2, 1]
    assert len(split_documents(100, dataclasses.replace(config, eval_fraction=0.0))[1]) == 0


def test_one_document_and_a_too_large_vocabulary(corpus, tmp_path):
    path = pathlib.Path(corpus.input_file)
    path.write_text("One document .\nWith two sentences .\n")
    with pytest.raises(ValueError, match="2 documents.* 1.*--pairs=none"):
        prepare(corpus, vocab_size=60)
    prepare(dataclasses.replace(corpus, use_next_sentence=False), vocab_size=60)
    Vocab(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a")).write(tmp_path / "v")
    given = dataclasses.replace(corpus, vocab_file=str(tmp_path / "v"))
    with pytest.raises(ValueError, match="/v .*6 .*vocab_size .*5;"):
        prepare(given, vocab_size=5)


def test_fingerprint_of_text_is_that_of_the_training_examples(corpus):
    first = prepare(corpus).fingerprint
    assert len(first) == 12 and int(first, 16)
    os.utime(corpus.input_file, (1, 1))
    assert prepare(corpus, cache="other").fingerprint == first
    for changed in ({"max_seq_length": 32}, {"random_seed": 1}, {"eval_fraction": 0.3}):
        assert prepare(dataclasses.replace(corpus, **changed)).fingerprint != first
    assert prepare(corpus, "static").fingerprint != first


def test_fingerprint_of_records_is_that_of_names_and_sizes(tmp_path):
    def fingerprint(folder, sizes):
        for name, size in sizes.items():
            write_records(tmp_path / folder / name, [b"x" * size])
        data = DataConfig(input_file=f"{tmp_path}/{folder}/*", vocab_file="v", eval_fraction=0.0)
        return prepare(data, do_eval=False).fingerprint

    first = fingerprint("a", {"1": 40, "2": 40})
    assert fingerprint("b", {"1": 40, "2": 40}) == first
    others = [fingerprint("c", {"1": 40, "3": 40}), fingerprint("d", {"1": 40, "2": 41})]
    assert len({first, *others, fingerprint("e", {"1": 40})}) == 4


def test_records_need_no_cache(corpus, tmp_path):
    """A file stands where the cache's folder should be made."""
    write_records(tmp_path / "a.tfrecord", [b"x" * 40])
    (tmp_path / "file").write_text("")
    records = dataclasses.replace(corpus, input_file=str(tmp_path / "a.tfrecord"))
    assert prepare(records, cache="file/cache").train_files == [records.input_file]
    with pytest.raises(ValueError, match=".*file/cache.*--cache_dir"):
        prepare(corpus, cache="file/cache")


def write(corpus, *names, **changes):
    """Writes the examples to files in the folder of the text; returns files and manifest."""
    root = pathlib.Path(corpus.input_file).parent
    vocab = Vocab(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *".,x", "word", "##x"))
    vocab.write(root / "vocab.txt")
    data = dataclasses.replace(corpus, vocab_file=str(root / "vocab.txt"), **changes)
    paths = [root / "out" / name for name in names]
    return paths, write_examples(paths, data, MaskingConfig(), do_lower_case=True)


def test_each_output_has_a_manifest_of_its_own(corpus, tmp_path):
    foreign = tmp_path / "out" / "manifest.json"
    foreign.parent.mkdir()
    foreign.write_text('["of another program"]')
    first, made = write(corpus, "a", "b")
    write(corpus, "c", max_seq_length=32)
    before = snapshot(tmp_path / "out")
    assert write(corpus, "a", "b")[1] == made
    assert snapshot(tmp_path / "out") == before
    assert sorted(path.name for path in before) == [
        *("a", "a.manifest.json", "b", "c", "c.manifest.json", "manifest.json")
    ]
    assert json.loads(manifest_path(first).read_text()) == made


@pytest.mark.parametrize("content", ["", "{", "[1]", '{"key": 1}', "no JSON"])
def test_what_is_no_manifest_counts_as_not_made(corpus, tmp_path, content):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a.manifest.json").write_text(content)
    paths, made = write(corpus, "a")
    assert paths[0].exists() and json.loads(manifest_path(paths).read_text()) == made


def test_only_work_of_the_same_output_is_deleted(corpus, tmp_path):
    kept = [".a.b.0123456789ab.work", ".a.0123.work", ".a.0123456789ab.work.old"]
    for name in (".a.0123456789ab.work", *kept):
        (tmp_path / "out" / name).mkdir(parents=True)
    write(corpus, "a")
    assert {path.name for path in (tmp_path / "out").glob(".*")} == set(kept)
