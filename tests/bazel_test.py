"""BUILD is true under Bazel, and what is missing in it is noticed."""

import importlib.metadata
import re
import textwrap
from collections.abc import Iterator

import pytest
from packaging.requirements import Requirement

from tests.bazel import check

# Of the benchmarks, which no wildcard builds; they are in benchmarks/requirements.txt.
NOT_LOCKED = {"onnxruntime", "tf_models_official", "torch", "transformers"}
BUILD = """
load("@rules_python//python:py_library.bzl", "py_library")
load("@rules_python//python:py_test.bzl", "py_test")

py_library(
    name = "greeting",
    srcs = ["greeting.py"],
)

py_test(
    name = "greeting_test",
    srcs = ["greeting_test.py"],
    args = ["Hello"],
    data = ["expected.txt"],
    main_module = "greeting_test",
    deps = [
        ":greeting",
        "@pypi//tensorflow_text",
    ],
)
"""
FILES = {
    "BUILD": BUILD,
    "expected.txt": "Hello, world",
    "greeting.py": "TEXT = '{}, world'\n",
    "greeting_test.py": """
        import pathlib
        import sys

        import greeting

        path = pathlib.Path(__file__).resolve().with_name("expected.txt")
        sys.exit(greeting.TEXT.format(*sys.argv[1:]) != path.read_text(encoding="utf8"))
    """,
}


@pytest.fixture(scope="module")
def bazel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[check.Bazel]:
    """Bazel in a source tree of one library and one test."""
    folder = tmp_path_factory.mktemp("greeting")
    for name, text in FILES.items():
        (folder / name).write_text(textwrap.dedent(text), encoding="utf8")
    try:
        with check.bazel_in_copy(folder) as bazel:
            yield bazel
    except check.MissingTool as error:
        pytest.skip(str(error))


@pytest.mark.parametrize(
    ("forgotten", "instead", "message"),
    [
        ("", "", "1 test passes"),
        ('":greeting",', "", "ModuleNotFoundError: No module named 'greeting'"),
        ('"expected.txt"', "", "No such file or directory: '.*/expected.txt'"),
        ("tensorflow_text", "tensorflow-text", "no such package '@pypi//tensorflow-text'"),
        ('"Hello"', "", "1 fails locally"),
    ],
    ids=["complete", "library", "data", "package", "argument"],
)
def test_what_a_target_forgets_is_noticed(
    bazel: check.Bazel, forgotten: str, instead: str, message: str
) -> None:
    assert forgotten in BUILD
    text = BUILD.replace(forgotten, instead)
    (bazel.workspace / "BUILD").write_text(text, encoding="utf8")
    done = bazel("test", "//...")
    assert (done.returncode == 0) == (not forgotten), done.stdout
    assert re.search(message, done.stdout), done.stdout


@pytest.mark.slow
def test_project_builds_and_quick_tests_pass(capfd: pytest.CaptureFixture[str]) -> None:
    try:
        passed = check.check_build(list(check.QUICK_TESTS))
    except check.MissingTool as error:
        pytest.skip(str(error))
    assert passed, capfd.readouterr().out


def test_form_of_the_files(capfd: pytest.CaptureFixture[str]) -> None:
    try:
        passed = check.check_form()
    except check.MissingTool as error:
        pytest.skip(str(error))
    assert passed, capfd.readouterr().out


def test_packages_named_by_targets_are_locked() -> None:
    text = (check.ROOT / "BUILD").read_text(encoding="utf8")
    named = set(re.findall(r'"@pypi//([^"]+)"', text))
    assert named - set(check.locked_packages()) == NOT_LOCKED


def test_lock_holds_what_its_packages_need() -> None:
    """Bazel, unlike pip, takes nothing that the lock does not name."""
    locked = set(check.locked_packages())
    for name in locked:
        for line in importlib.metadata.requires(name) or []:
            needed = Requirement(line)
            if needed.marker is None or needed.marker.evaluate({"extra": ""}):
                assert check.bazel_name(needed.name) in locked, f"{name} needs {needed}"
