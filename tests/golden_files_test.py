"""The archives of golden files: their size, and that each is unpacked completely or not at all."""

import os
import pathlib

import numpy as np
import pytest

from tests.golden import archives
from tests.shared_data import ROOT, golden_file, read_arrays

LARGEST_SIZE = 20_000_000


def write_family(folder: pathlib.Path) -> pathlib.Path:
    """Writes a folder like one of a family."""
    (folder / "masked_lm").mkdir(parents=True)
    (folder / "masked_lm" / "config.json").write_text('{"hidden_size": 4}', encoding="utf8")
    values = np.random.default_rng(3).normal(size=(50, 4)).astype(np.float32)
    np.savez_compressed(folder / "masked_lm" / "golden.npz", out_logits=values, in_ids=[[1, 2]])
    return folder


def contents(folder: pathlib.Path) -> dict[str, bytes]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


@pytest.fixture
def archive(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """An archive, and an empty cache."""
    monkeypatch.setenv("TEST_TMPDIR", str(tmp_path / "cache"))
    path = tmp_path / f"made{archives.SUFFIX}"
    archives.pack(write_family(tmp_path / "made"), path)
    archives.unpacked.cache_clear()
    return path


def test_size_of_the_golden_files() -> None:
    sizes = {}
    for path in (ROOT / "tests" / "golden").rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            sizes[str(path)] = path.stat().st_size
    assert sum(sizes.values()) <= LARGEST_SIZE, sorted(sizes.items(), key=lambda item: -item[1])


def test_an_archive_depends_on_names_and_contents_only(tmp_path: pathlib.Path) -> None:
    first = write_family(tmp_path / "first")
    second = write_family(tmp_path / "second")
    for path in second.rglob("*"):
        os.utime(path, (1, 1))
        path.chmod(0o755)
    packed = []
    for folder in (first, second):
        (folder / "archive").mkdir()
        path = folder / "archive" / f"family{archives.SUFFIX}"
        archives.pack(folder / "masked_lm", path)
        packed.append(path.read_bytes())
    assert packed[0] == packed[1]


def test_an_unpacked_folder_is_packed_to_the_same_archive(archive: pathlib.Path) -> None:
    folder = archives.unpacked(archive)
    assert contents(folder).keys() == {"masked_lm/config.json", "masked_lm/golden.npz"}
    expected = read_arrays(archive.parent / "made" / "masked_lm" / "golden.npz")
    golden = read_arrays(folder / "masked_lm" / "golden.npz")
    assert golden.keys() == {"out_logits", "in_ids"}
    for name in golden:
        np.testing.assert_array_equal(golden[name], expected[name])
    before = archive.read_bytes()
    archives.pack(folder, archive)
    assert archive.read_bytes() == before


def test_edited_writes_the_archive_again(archive: pathlib.Path) -> None:
    before = archive.read_bytes()
    with archives.edited(archive, write=False) as folder:
        (folder / "masked_lm" / "config.json").write_text("changed", encoding="utf8")
    assert archive.read_bytes() == before
    with archives.edited(archive, write=True) as folder:
        (folder / "masked_lm" / "config.json").write_text("changed", encoding="utf8")
    archives.unpacked.cache_clear()
    config = archives.unpacked(archive) / "masked_lm" / "config.json"
    assert config.read_text(encoding="utf8") == "changed"


def test_a_changed_archive_is_unpacked_to_another_folder(archive: pathlib.Path) -> None:
    first = archives.unpacked(archive)
    (archive.parent / "made" / "masked_lm" / "config.json").write_text("{}", encoding="utf8")
    archives.pack(archive.parent / "made", archive)
    archives.unpacked.cache_clear()
    second = archives.unpacked(archive)
    assert first != second
    assert (second / "masked_lm" / "config.json").read_text(encoding="utf8") == "{}"


def test_an_interrupted_unpacking_leaves_nothing(
    archive: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unpack = archives.unpack

    def interrupted(archive: pathlib.Path, folder: pathlib.Path) -> None:
        unpack(archive, folder)
        raise KeyboardInterrupt

    monkeypatch.setattr(archives, "unpack", interrupted)
    with pytest.raises(KeyboardInterrupt):
        archives.unpacked(archive)
    assert list((archive.parent / "cache" / "golden").iterdir()) == []
    monkeypatch.undo()
    monkeypatch.setenv("TEST_TMPDIR", str(archive.parent / "cache"))
    assert (archives.unpacked(archive) / "masked_lm" / "golden.npz").exists()


def test_another_process_unpacks_at_the_same_time(
    archive: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unpack = archives.unpack
    cache = archive.parent / "cache" / "golden"
    others = []

    def slow(archive: pathlib.Path, folder: pathlib.Path) -> None:
        """Unpacks while another worker, which started later, finishes first."""
        unpack(archive, folder)
        if not others:
            others.append(None)
            others.append(archives.unpacked.__wrapped__(archive))

    monkeypatch.setattr(archives, "unpack", slow)
    folder = archives.unpacked(archive)
    assert folder == others[1]
    assert contents(folder).keys() == {"masked_lm/config.json", "masked_lm/golden.npz"}
    assert [path.name for path in cache.iterdir()] == [folder.parent.name]  # Nothing partial.


def test_golden_file_reads_archives_and_plain_files() -> None:
    assert golden_file("families", "lora", "bert_classifier").is_dir()
    assert golden_file("families", "lora").name == "lora"
    vocab = golden_file("vocab", "bert-base-uncased-vocab.txt").read_text(encoding="utf8")
    assert vocab.split("\n")[101] == "[CLS]"
    assert golden_file("google-bert-sample_text.txt").parent == ROOT / "tests" / "golden"
    for missing in (("families", "lora", "nothing"), ("families", "nothing"), ("nothing",)):
        with pytest.raises(FileNotFoundError, match="nothing"):
            golden_file(*missing)
