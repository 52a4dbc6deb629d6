"""A program's first line is its own, and what tells of a GPU that cannot be used is seen."""

import os
import subprocess
import sys

import pytest

from bert_tf.system.startup_lines import has_gpu, is_shown

PROGRAM = """
import os
from bert_tf.config import config_flags

def main(_):
    import tensorflow as tf
    from absl import logging
    logging.info("begun with %s", tf.reduce_sum([1, 2]).numpy())
    os.write(2, b"W0000 00:00:1.0 1 some.cc:1] Real.\\n")

config_flags.run(main)
"""
ONE_DNN = b"I0000 00:00:1795396385.311712   16128 port.cc:153] oneDNN custom operations are on."
NO_LIBRARY = b"W0000 00:00:1795396385.3 1 gpu_device.cc:2341] Cannot dlopen some GPU libraries."
NO_DRIVER = b"E0000 00:00:1795396422.2 1 cuda_platform.cc:52] failed call to cuInit: INTERNAL"
TWICE = (
    b"E0000 00:00:1795396422.2 1 cuda_fft.cc:467] Unable to register cuFFT factory: Attempting to "
    b"register factory for plugin cuFFT when one has already been registered"
)


@pytest.mark.parametrize(
    ("line", "without_gpu", "with_gpu"),
    [
        (b"WARNING: All log messages before absl::InitializeLog() is called are", False, False),
        (ONE_DNN, False, False),
        (TWICE, False, False),
        (NO_DRIVER, False, True),
        (NO_LIBRARY, False, True),
        (b"E0000 00:00:1795396422.2 1 other.cc:1] An error.", True, True),
        (b"ImportError: libcuda.so", True, True),
    ],
)
def test_what_says_nothing_is_hidden(line, without_gpu, with_gpu):
    assert is_shown(line, 2, has_gpu=False) == without_gpu
    assert is_shown(line, 1, has_gpu=True) == with_gpu


def stderr_of_program(level):
    environment = {name: v for name, v in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    if level:
        environment["TF_CPP_MIN_LOG_LEVEL"] = level
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stderr.splitlines()


@pytest.mark.skipif(has_gpu(), reason="is about machines without one")
@pytest.mark.slow
def test_the_first_line_is_the_program_s_own():
    first, second = stderr_of_program("")
    assert "begun with 3" in first and second.endswith("Real.")


@pytest.mark.skipif(has_gpu(), reason="is about machines without one")
@pytest.mark.slow
def test_the_first_use_in_python_prints_nothing():
    code = "import bert_tf, keras; bert_tf.BertClassifier; print(keras.ops.ones(2).shape)"
    environment = {name: v for name, v in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0 and done.stderr == "", done.stderr


@pytest.mark.slow
def test_all_lines_are_there_for_who_asks():
    assert len(stderr_of_program("0")) > 2  # Which ones they are depends on the processor.


def test_kernels_that_onednn_lacks_are_not_spoken_of():
    line = b"E0000 00:00:17 util.cc:131] oneDNN supports DT_INT32 only on platforms with AVX-512."
    assert not is_shown(line, 2, has_gpu=False)
