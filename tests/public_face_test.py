"""`import bert_tf`: what it offers, where that is, and what it costs."""

import subprocess
import sys
import time

import bert_tf
from tests.shared_data import ROOT


def test_every_name_is_there():
    assert bert_tf.__all__ == sorted(bert_tf.__all__)
    for name in bert_tf.__all__:
        found = getattr(bert_tf, name)
        assert found.__name__ == name and found.__doc__ and found.__module__.startswith("bert_tf.")
    assert set(bert_tf.__all__) < set(dir(bert_tf)) and bert_tf.__version__ == "0.1.0"


def test_an_unknown_name_is_an_attribute_error():
    assert not hasattr(bert_tf, "BertClasifier")
    code = "import bert_tf; bert_tf.BertClasifier"
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert "'BertClassifier'?" in found.stderr


def test_import_is_quick_and_loads_no_large_package():
    code = (
        "import sys, bert_tf\n"
        "large = {'keras', 'tensorflow', 'numpy', 'h5py', 'absl'} & set(sys.modules)\n"
        "assert not large, large"
    )
    seconds = []
    for _ in range(2):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
        seconds.append(time.perf_counter() - start)
    assert min(seconds) < 3.0  # 0.06 s on an idle core; a loaded machine may take long
