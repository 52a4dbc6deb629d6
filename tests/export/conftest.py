"""Models that several files of tests use."""

import pytest

from tests.export.made_models import Exported, export_model


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """A classifier of pairs."""
    run = {"text_b_column": "b", "max_seq_length": "20"}
    return export_model(tmp_path_factory.mktemp("exported"), "classifier", run)
