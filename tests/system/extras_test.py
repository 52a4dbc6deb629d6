"""Packages of extras that are not installed are named, with the command that installs them."""

import pytest

from bert_tf.system.extras import check_installed


def test_missing_packages_are_named():
    check_installed("search", "numpy")
    with pytest.raises(ValueError, match=r"no_such_package .*\.\[search\]"):
        check_installed("search", "numpy", "no_such_package")
