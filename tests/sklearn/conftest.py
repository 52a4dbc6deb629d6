"""Fixtures of the estimators' tests."""

from collections.abc import Iterator

import pytest
import tensorflow as tf


@pytest.fixture(scope="module")
def eager() -> Iterator[None]:
    """Runs graphs as Python: to trace each new model costs more than its few steps."""
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)
