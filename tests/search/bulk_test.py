"""Shards of documents: read, told apart by their ids, embedded once, made again where damaged."""

import dataclasses
import json
import pathlib
import random
from collections.abc import Sequence

import numpy as np
import pytest

from bert_tf.search import bulk, documents, embedding
from bert_tf.search.bulk import Job, check_ids, embed_shard, read_file, read_marker
from bert_tf.system.model_names import absolute_path
from tests.damaged import flip_a_bit
from tests.float_bounds import assert_close
from tests.search.bulk_stand_in import Stand, embed_all, make
from tests.shared_data import shared_data
from tests.tiny_model import write_tiny_model


def write(path: pathlib.Path, ids: Sequence[str]) -> pathlib.Path:
    rows = [{"_id": one, "title": "Ä\u2028", "text": f"a\r\nb {one}"} for one in ids]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def everything(folder: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in pathlib.Path(folder).iterdir()}


def test_shards_hold_the_documents_of_the_files_in_their_order(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "a.jsonl", "abcdefg")
    (tmp_path / "b.txt").write_text("One.\n\n" + "word " * 99 + "\n\n\nLast.\n")
    (tmp_path / "c.txt").write_text("\n")
    monkeypatch.chdir(tmp_path)
    job = make(tmp_path, *(pathlib.Path(name) for name in ("a.jsonl", "b.txt", "c.txt")))
    monkeypatch.chdir("/")  # as a worker elsewhere
    assert [read_file(job, number) for number in range(3)] == [[3, 3, 1], [2], []]
    names = ["00000-00000", "00000-00001", "00000-00002", "00001-00000"]
    assert list(job.shards().items()) == list(zip(names, (3, 3, 1, 2), strict=True))
    found = [document for name in names for document in bulk.read_texts(job, name)]
    monkeypatch.chdir(tmp_path)
    assert found == list(documents.read_documents("a.jsonl,b.txt,c.txt"))
    assert found[-1].id == "b.txt:6" and found[0].text == "Ä\u2028 a\r\nb a"


def test_ids_that_come_twice_are_found_in_little_memory(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(0)
    ids = [f"d{number}" for number in range(90)]
    draw.shuffle(ids)
    parts = ids[:30], ids[30:80], ids[80:]
    files = [write(tmp_path / f"{i}.jsonl", part) for i, part in enumerate(parts)]
    for more, named in (
        ([], None),
        ([ids[70]], f"'{ids[70]}' .*{files[1]} .*{files[2]}"),
        ([ids[89]], f"'{ids[89]}' .*{files[2]} .*{files[2]}"),
    ):
        write(files[2], [*ids[80:], *more])
        job = make(tmp_path, *files, folder=str(tmp_path / f"out{more}"), shard_size=20)
        for number in range(3):
            read_file(job, number)
        for at_once in (7, 1000):
            if named is None:
                check_ids(job, list(job.shards()), at_once)
                continue
            with pytest.raises(ValueError, match=named):
                check_ids(job, list(job.shards()), at_once)
    monkeypatch.setattr(bulk, "digest", lambda name: 5)  # of all
    write(files[2], ids[80:])
    job = make(tmp_path, *files, folder=str(tmp_path / "alike"), shard_size=20)
    for number in range(3):
        read_file(job, number)
    check_ids(job, list(job.shards()), 1000)


def test_only_what_is_missing_or_damaged_is_made_again(tmp_path: pathlib.Path) -> None:
    job = make(tmp_path, write(tmp_path / "a.jsonl", "abcdefg"), write(tmp_path / "b.jsonl", "xy"))
    stand, names = Stand(), ["00000-00000", "00000-00001", "00000-00002", "00001-00000"]

    def step() -> list[int]:
        job.open()
        for number in range(2):
            read_file(job, number)
        stand.calls = []
        return [embed_shard(job, name, stand) for name in names]  # type: ignore[arg-type]

    assert step() == [3, 3, 1, 2]
    expected = everything(job.folder)
    assert step() == [0, 0, 0, 0] and stand.calls == []
    folder = pathlib.Path(job.folder)
    (folder / ".x.0123.tmp").write_bytes(b"half")  # of a process that was killed
    job.vectors(names[0]).unlink()
    flip_a_bit(job.vectors(names[1]), -1)
    job.texts(names[2]).write_text("{}")
    # Killed before the marker was written.
    job.path("made", names[3], "json").unlink()
    assert step() == [3, 3, 0, 2]
    assert everything(job.folder) == expected
    job.texts(names[2]).write_text("{}")
    job.vectors(names[2]).unlink()
    with pytest.raises(OSError, match="texts-00000-00002.jsonl"):
        embed_shard(job, names[2], stand)  # type: ignore[arg-type]


def made_shards(folder: pathlib.Path, ids: str) -> Job:
    """Returns a job of shards of three documents, all of them embedded."""
    folder.mkdir()
    job = make(folder, write(folder / "a.jsonl", ids))
    embed_all(job)
    return job


def copy_with_checksum(source: pathlib.Path, target: pathlib.Path) -> None:
    """Copies a file, and the checksum that stands beside a marker."""
    for start, end in (("", ""), (".", ".crc32c")):
        path = source.with_name(f"{start}{source.name}{end}")
        if path.exists():
            target.with_name(f"{start}{target.name}{end}").write_bytes(path.read_bytes())


def test_files_of_another_job_are_made_again(tmp_path: pathlib.Path) -> None:
    """Whole files with their checksums, but of other documents: as many, or fewer of them."""
    job, other = made_shards(tmp_path / "a", "abcdef"), made_shards(tmp_path / "b", "xyz")
    expected = everything(job.folder)

    def kinds(name: str) -> tuple[pathlib.Path, pathlib.Path]:
        return job.vectors(name), job.path("made", name, "json")

    first, second = list(job.shards())
    for targets in (
        dict(zip(kinds(first), kinds(second), strict=True)),  # with their record
        {job.vectors(first): job.vectors(second)},
        {job.vectors(first): other.vectors(first)},
        {job.texts(first): other.texts(first)},
        {read_marker(job, 0): read_marker(other, 0)},
    ):
        for target, source in targets.items():
            copy_with_checksum(source, target)
        assert everything(job.folder) != expected
        embed_all(job)
        assert list(job.shards().values()) == [3, 3]
        assert everything(job.folder) == expected, targets


def test_vectors_are_those_of_the_texts_in_their_order(tmp_path: pathlib.Path) -> None:
    job = make(tmp_path, write(tmp_path / "a.jsonl", ["a", "bb", "cdd", "d"]))
    embed_all(job)
    made = list(bulk.batches(job, list(job.shards())))
    assert [list(batch.ids) for batch in made] == [["a", "bb", "cdd"], ["d"]]
    vectors = np.concatenate([batch.vectors for batch in made])
    # "a\r\nb ID" has one a and one b of its own.
    assert vectors.tolist() == [[2, 1, 0, 0], [1, 3, 0, 0], [1, 1, 1, 2], [1, 1, 0, 1]]
    assert next(bulk.batches(job, list(job.shards()), keep_texts=False)).texts is None


def test_numbers_that_are_not_finite_are_named(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = make(tmp_path, write(tmp_path / "a.jsonl", "ab"))
    read_file(job, 0)
    vectors = np.array([[1.0], [np.nan]], np.float32)
    monkeypatch.setattr(Stand, "documents", lambda *_: (vectors, [1, 2]))
    with pytest.raises(ValueError, match="vector .*document 'b'"):
        embed_shard(job, "00000-00000", Stand())  # type: ignore[arg-type]
    assert not job.vectors("00000-00000").exists()


def test_a_file_that_changed_since_the_job_began_is_not_read(tmp_path: pathlib.Path) -> None:
    path = write(tmp_path / "a.jsonl", "ab")
    job = make(tmp_path, path)
    write(path, "abc")
    with pytest.raises(ValueError, match=r"a\.jsonl"):
        read_file(job, 0)


def test_a_home_folder_that_no_shell_has_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    assert absolute_path("~/vectors") == "/home/ada/vectors"
    assert absolute_path("hf://ada/vectors") == "hf://ada/vectors"


def test_a_folder_of_another_job_is_refused(tmp_path: pathlib.Path) -> None:
    path = write(tmp_path / "a.jsonl", "ab")
    job = make(tmp_path, path)
    job.open()
    dataclasses.replace(job, base="/", source="elsewhere").open()  # only places
    for changes, message in (
        ({"model": "other"}, "`model`: 'm' .*'other' "),
        ({"batch_size": 5}, "`batch_size`: 4 .*5 "),
        ({"max_seq_length": 8}, "`max_seq_length`: 32 .*8 "),
        ({"inputs": job.inputs * 2}, r"`inputs`: None .*a\.jsonl"),
    ):
        with pytest.raises(ValueError, match=message):
            dataclasses.replace(job, **changes).open()  # type: ignore[arg-type]
    write(path, "abc")
    with pytest.raises(ValueError, match=r"`inputs`: \['.*a\.jsonl', \d+, \d+\] .*a\.jsonl'"):
        make(tmp_path, path).open()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    with pytest.raises(ValueError, match="--output_dir"):
        make(tmp_path, path, folder=str(tmp_path / "full")).open()


def test_a_model_that_changes_under_a_worker_is_refused(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = make(tmp_path, write(tmp_path / "a.jsonl", "ab"), model="first")
    read_file(job, 0)
    monkeypatch.setattr(embedding, "SearchEmbedder", Stand)
    with pytest.raises(ValueError, match="fingerprint .*\\bm, .*first"):
        embed_shard(job, "00000-00000")


def test_texts_that_the_model_cannot_tell_apart_are_embedded_once(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = ["the cat", "a dog", "The  CAT", "the dog", "a dog"]
    rows = [json.dumps({"_id": str(i), "text": text}) + "\n" for i, text in enumerate(texts)]
    (tmp_path / "a.jsonl").write_text("".join(rows))
    model = embedding.SearchEmbedder(
        str(write_tiny_model(tmp_path / "m", "the", "a", "cat", "dog"))
    )
    alone = [model.model.encode_document([text])[0] for text in texts]
    counts = []
    encode_rows = model.model.encode_rows
    monkeypatch.setattr(
        model.model,
        "encode_rows",
        lambda rows, *rest: counts.append(len(rows)) or encode_rows(rows, *rest),
    )
    job = make(tmp_path, tmp_path / "a.jsonl", shard_size=8)
    read_file(job, 0)
    assert embed_shard(job, "00000-00000", model) == 5 and counts == [3]
    assert_close(np.load(job.vectors("00000-00000")), np.stack(alone))


@pytest.mark.needs(data="fixtures/families/colbert")
def test_the_advice_on_long_texts_fits_the_model(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "a.txt"
    file.write_text("a b\n")
    job = make(tmp_path, file)
    embed_all(job)
    (name,) = job.shards()
    marker = job.path("made", name, "json")
    counts = {"num_texts": 1, "num_cut": 1, "longest": 200, "limit": 16}
    marker.write_text(json.dumps({**json.loads(marker.read_text()), "text_counts": counts}))
    bulk.log_text_counts(job, [name])
    assert "--max_seq_length=48" in caplog.records[-1].getMessage()


def test_models_of_token_vectors_are_refused(tmp_path: pathlib.Path) -> None:
    path = write(tmp_path / "a.jsonl", "ab")
    model = shared_data("fixtures", "families", "colbert", "st6")
    with pytest.raises(ValueError, match="colbert/st6 .*build_index"):
        bulk.make_job(str(path), str(model), tmp_path / "out")
