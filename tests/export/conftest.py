"""Models that several files of tests use."""

import pathlib

import pytest

from tests.export.made_models import Exported, export_model, write_search_index


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """A classifier of pairs."""
    run = {"text_b_column": "b", "max_seq_length": "20"}
    return export_model(tmp_path_factory.mktemp("exported"), "classifier", run)


@pytest.fixture(scope="session")
def search_index(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """An index of the texts of tests."""
    return write_search_index(tmp_path_factory.mktemp("search") / "index")
