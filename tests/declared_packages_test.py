"""Each package that the source imports is declared, and the lists of packages agree."""

import ast
import functools
import pathlib
import re
import sys
import tomllib
from importlib import metadata

import pytest
from packaging.requirements import Requirement

from tests.architecture_test import imported
from tests.shared_data import ROOT

# "google" is the folder of several distributions.
DISTRIBUTIONS = {**metadata.packages_distributions(), "google.protobuf": ["protobuf"]}
OURS = {"bert_tf", "export", "examples"}
# Not imported by the source: a program that one starts, and another name of keras-hub.
NOT_IMPORTED = {"tensorboard", "keras-nlp"}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def declared() -> tuple[dict[str, Requirement], dict[str, Requirement]]:
    """Returns the requirements of pyproject.toml, and those of its extras, by name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf8"))["project"]
    extras = [line for lines in project["optional-dependencies"].values() for line in lines]
    lists = (project["dependencies"], extras)
    return tuple({normal(Requirement(x).name): Requirement(x) for x in lines} for lines in lists)


def pinned(name: str) -> dict[str, str]:
    """Returns the versions of a list of requirements by the names of the packages."""
    lines = (ROOT / name).read_text(encoding="utf8").splitlines()
    matches = (re.match(r"([\w.-]+)==(\S+)", line) for line in lines)
    return {normal(m[1]): m[2] for m in matches if m}


@functools.cache
def distributions(path: pathlib.Path) -> set[str]:
    """Returns the distributions of the packages that a file imports."""
    found = set()
    for name in imported(ast.parse(path.read_text(encoding="utf8"))):
        parts = name.split(".")
        package = ".".join(parts[:2]) if parts[0] == "google" else parts[0]
        if package not in OURS and package not in sys.stdlib_module_names:
            # Extras that are not installed here bear the names of their packages.
            found |= {normal(one) for one in DISTRIBUTIONS.get(package, [package])}
    return found


def needed(*folders: str) -> set[str]:
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    return set.union(*map(distributions, paths))


def test_what_is_imported_is_declared() -> None:
    packages, extras = declared()
    assert {"numpy", "protobuf", "pystemmer"} <= needed("bert_tf")
    assert needed("bert_tf", "export", "examples") - {*packages, *extras} == set()
    assert not packages.keys() & extras.keys()
    assert packages.keys() - needed("bert_tf", "export") == NOT_IMPORTED


def test_requirements_are_those_of_the_project() -> None:
    packages, extras = declared()
    ours, tools = pinned("requirements.txt"), pinned("requirements-dev.txt")
    assert not packages.keys() - ours.keys()
    assert not ours.keys() & tools.keys()
    versions = {**ours, **tools}
    for name, requirement in (*packages.items(), *extras.items()):
        if name in versions:
            assert requirement.specifier.contains(versions[name]), requirement
    bazel = (ROOT / "BUILD").read_text(encoding="utf8").partition("SERVING")[0]
    assert {name for name in packages if f'"{name.replace("-", "_")}"' not in bazel} == set()


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-dev.txt"])
def test_requirements_agree_with_the_lock(name: str) -> None:
    lock = pinned("requirements_lock.txt")
    assert {package: lock.get(package) for package in pinned(name)} == pinned(name)


def test_requirements_are_what_is_installed() -> None:
    required = pinned("requirements.txt")
    assert {package: metadata.version(package) for package in required} == required
