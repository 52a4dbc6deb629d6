"""Programs import Keras without packages that it uses only for what they do not call."""

import subprocess
import sys

SCRIPT = """
import sys
from bert_tf.config import config_flags

def main(_):
    import tensorflow as tf
    assert tf.keras.layers.Dense
    print(*sorted({"sklearn", "matplotlib"} & set(sys.modules)), "of them")
    import matplotlib.pyplot, sklearn.base
    print(matplotlib.pyplot.plot.__name__, sklearn.base.BaseEstimator.__name__)

config_flags.run(main)
"""


def test_programs_import_keras_without_extras() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=300
    )
    assert done.stdout.splitlines() == ["of them", "plot BaseEstimator"]
