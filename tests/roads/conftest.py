"""The roads are compared without the graph optimizer of TensorFlow.

It takes a quarter of the time of these tests, as each calls a new SavedModel a
few times. `tests/export` calls SavedModels that are optimized, as servers do.
"""

from collections.abc import Iterator

import pytest
import tensorflow as tf


@pytest.fixture(autouse=True, scope="package")
def _without_graph_optimizer() -> Iterator[None]:
    before = tf.config.optimizer.get_experimental_options()
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    yield
    after = {"disable_meta_optimizer": False, **before}
    tf.config.optimizer.set_experimental_options(after)
