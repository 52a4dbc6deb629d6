"""Archives made to harm: what leads outside, is a link, or is far larger than it looks."""

import gzip
import io
import os
import stat
import tarfile
import tempfile
import tracemalloc
import zipfile

import pytest

from bert_tf.checkpoints import archives
from bert_tf.checkpoints.archives import unpacked


def unpack(path):
    """Returns the content of all files by name."""
    with unpacked(path) as folder:
        files = [file for file in folder.rglob("*") if file.is_file()]
        return {str(file.relative_to(folder)): file.read_bytes() for file in files}


def refuse(path, *words):
    with pytest.raises(ValueError) as error:
        unpack(path)
    assert all(word in str(error.value) for word in (str(path), *words)), error.value


def member(name, content=b"x", kind=tarfile.REGTYPE, target=""):
    info = tarfile.TarInfo(name)
    info.size, info.type, info.linkname = len(content), kind, target
    return info, content


def write_tar(path, *members):
    with tarfile.open(path, "w:gz" if path.suffix == ".gz" else "w") as archive:
        for info, content in members:
            archive.addfile(info, io.BytesIO(content))
    return path


def write_zip(path, members, method=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return path


def test_a_chain_of_links_longer_than_a_path_leads_nowhere(tmp_path, monkeypatch):
    """CVE-2025-4517: realpath gives up on a path that is too long, and the check with it."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    (temporary / "victim").write_text("mine")
    deep, short = "d" * 247, "abcdefghijklmnop"
    members, path = [], ""
    for letter in short:
        members.append(member(f"{path}{deep}", b"", tarfile.DIRTYPE))
        members.append(member(f"{path}{letter}", b"", tarfile.SYMTYPE, deep))
        path += f"{deep}/"
    link = f"{'/'.join(short)}/{'l' * 254}"
    members.append(member(link, b"", tarfile.SYMTYPE, "../" * len(short)))
    members.append(member("escape", b"", tarfile.SYMTYPE, f"{link}/.."))
    members.append(member("again", b"", tarfile.LNKTYPE, "escape/victim"))
    members.append(member("again", b"evil"))
    refuse(write_tar(tmp_path / "a.tar.gz", *members), "'a'", "--dereference")
    assert (temporary / "victim").read_text() == "mine"
    assert list(temporary.iterdir()) == [temporary / "victim"]


def test_links_and_devices_are_refused_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(archives.shutil, "copyfileobj", None)
    for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE):
        path = write_tar(tmp_path / "a.tar", member("good"), member("bad", b"", kind, "good"))
        refuse(path, "'bad'", "--dereference")
    info = zipfile.ZipInfo("bad")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    refuse(
        write_zip(tmp_path / "a.zip", [("good", "x"), (info, "/etc/passwd")]), "'bad'", "--deref"
    )


@pytest.mark.parametrize("name", ["../evil.txt", "/tmp/evil.txt", "a/../../evil.txt"])
def test_names_stay_inside(tmp_path, name):
    refuse(write_tar(tmp_path / "a.tar.gz", member(name)), repr(name), " folder.")
    refuse(write_zip(tmp_path / "a.zip", [(name, "x")]), repr(name), " folder.")
    assert not list(tmp_path.glob("**/evil.txt"))


def test_sizes_are_bounded_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(archives.shutil, "copyfileobj", None)
    monkeypatch.setattr(archives, "FREE_BYTES", 1000)
    zeros = bytes(1 << 20)  # become about 1 KB
    for path in (
        write_zip(tmp_path / "a.zip", [("a", zeros), ("b", zeros)]),
        write_tar(tmp_path / "a.tar.gz", member("a", zeros)),
    ):
        refuse(path, f" {1000 + 20 * path.stat().st_size} bytes")
    monkeypatch.setattr(archives, "MAX_BYTES", 3000)
    refuse(write_zip(tmp_path / "b.zip", [("a", os.urandom(4000))]), " 3000 bytes")


def test_what_the_table_of_contents_says_is_not_trusted(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "FREE_BYTES", 1000)
    path = write_zip(tmp_path / "a.zip", [("a", bytes(1 << 20))])
    size = (1 << 20).to_bytes(4, "little")
    lie = path.read_bytes().replace(size, (10).to_bytes(4, "little"))
    path.write_bytes(lie)
    refuse(path, "CRC-32", "'a'")  # ten bytes have another checksum


def test_a_header_of_gigabytes_is_not_read(tmp_path):
    """The name of a member may stand in front of it, and be of any length."""
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 1 << 30
    with gzip.open(tmp_path / "a.tar.gz", "wb", 1) as file:
        file.write(info.tobuf(tarfile.GNU_FORMAT) + bytes(1 << 20))
    tracemalloc.start()
    refuse(tmp_path / "a.tar.gz", " 1073741824 bytes")
    assert tracemalloc.get_traced_memory()[1] < 10 << 20
    tracemalloc.stop()


def test_members_are_counted_with_the_folders_of_their_names(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "MAX_ENTRIES", 20)
    refuse(write_tar(tmp_path / "a.tar", *(member(str(i)) for i in range(21))), " 20 files")
    refuse(write_zip(tmp_path / "a.zip", [("a/" * 20 + "b", "x")]), " 20 files")
    assert len(unpack(write_zip(tmp_path / "b.zip", [(str(i), "x") for i in range(20)]))) == 20


def test_compressions_that_need_unbounded_memory_are_refused(tmp_path):
    for method in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        refuse(write_zip(tmp_path / "a.zip", [("a", "x")], method), "'a'", "deflate")


def test_files_come_out_as_they_went_in(tmp_path):
    content = {"m/config.json": b"{}", "m/deep/weights": os.urandom(700_000), "empty": b""}
    for path in (
        write_zip(tmp_path / "a.zip", content.items()),
        write_zip(tmp_path / "b.zip", content.items(), zipfile.ZIP_STORED),
        write_tar(tmp_path / "a.tar", *(member(*pair) for pair in content.items())),
        write_tar(
            tmp_path / "a.tar.gz",
            member("./", b"", tarfile.DIRTYPE),
            *(member(*pair) for pair in content.items()),
        ),
    ):
        assert unpack(path) == content
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        refuse(path)
