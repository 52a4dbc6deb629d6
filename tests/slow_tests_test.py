"""The list of slow variants names tests that exist."""

import re

from tests.conftest import SLOW_TESTS
from tests.shared_data import ROOT


def test_the_list_names_functions_of_tests() -> None:
    names = {line for line in SLOW_TESTS if line and not line.startswith("#")}
    assert len(names) > 20
    wrong = []
    for name in names:
        found = re.fullmatch(r"(tests/[\w/]+_test\.py)::(\w+)(\[.+\])?", name)
        if found is None or not (ROOT / found[1]).exists():
            wrong.append(name)
        elif f"def {found[2]}(" not in (ROOT / found[1]).read_text(encoding="utf8"):
            wrong.append(name)
    assert not wrong
