"""Tests that need what is not installed are one skipped test a file, and run where it is."""

import pathlib

import pytest

from tests.shared_data import missing, skip_together


class Item:
    """Stands in for a test of pytest with a mark `needs`."""

    def __init__(self, file: str, *packages: str, **needs: str) -> None:
        self.path = pathlib.Path(file)
        self.marks = [pytest.mark.needs(*packages, **needs).mark] if packages or needs else []
        self.reasons: list[str] = []

    def iter_markers(self, name: str) -> list[pytest.Mark]:
        return [mark for mark in self.marks if mark.name == name]

    def add_marker(self, marker: pytest.MarkDecorator) -> None:
        self.reasons.append(marker.kwargs["reason"])


def test_what_is_missing_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("BERT_TF_TEST_DATA", str(tmp_path))
    (tmp_path / "here").mkdir()
    assert missing("json", "pytest") == ""
    assert "no_such.module" in missing("json", "no_such.module")
    assert missing(data="here") == "" and "gone/far" in missing(data="gone/far")
    monkeypatch.setenv("SOME_PYTHON", "python3")
    assert missing(variable="SOME_PYTHON") == "" and "OTHER" in missing(variable="OTHER")
    assert missing(programs=["no-such-one", "sh"]) == ""
    assert "no-such-one" in missing(programs=["no-such-one"])


def test_one_of_each_file_and_need_stays():
    plain = Item("a.py")
    installed = Item("a.py", "json")
    first = Item("a.py", "no_such")
    second = Item("a.py", "no_such")
    other_need = Item("a.py", "nor_this")
    other_file = Item("b.py", "no_such")
    items = [plain, first, installed, second, other_need, other_file]
    assert skip_together(items) == [second]
    assert items == [plain, first, installed, other_need, other_file]
    assert not plain.reasons and not installed.reasons
    assert "no_such" in first.reasons[0] and "2" in first.reasons[0]
    assert "nor_this" in other_need.reasons[0] and "b.py" in other_file.reasons[0]
