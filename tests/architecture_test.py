"""The shape of the project: who imports whom, BUILD, sizes, docstrings, flags, names.

`python -m tests.architecture_test` prints the ten longest functions.
"""

import ast
import dataclasses
import functools
import pathlib
import re
import subprocess
import sys
from typing import NamedTuple

import pytest
from absl import app, flags

from bert_tf import config, fine_tuning_config

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROJECT = ("bert_tf", "export", "examples", "tests", "benchmarks")
FILE_LINES, TEST_LINES, FUNCTION_LINES = 400, 500, 50

# Target of BUILD: (targets of this project, packages of others) that its files import.
# Entry points, tests and benchmarks may import everything in bert_tf and are not listed here.
IMPORT_RULES: dict[str, tuple[str, str]] = {
    "files": ("", ""),
    "config": ("files", ""),
    "processes": ("", ""),
    "hosts": ("", ""),
    "config_flags": ("config", "absl_py"),
    "text": ("files processes", "absl_py numpy tensorflow tensorflow_text"),
    "checkpoints": (
        "config files text",
        "absl_py h5py keras_hub numpy safetensors tensorflow",
    ),
    "run_record": ("config config_flags files text", ""),
    "data": (
        "config files processes text",
        "absl_py google_crc32c numpy tensorflow tensorflow_datasets tensorflow_text",
    ),
    "metrics": ("", "numpy"),
    "losses": ("", "keras"),
    "modeling": ("checkpoints config losses text", "absl_py keras tensorflow"),
    "optimization": ("config", "keras tensorflow"),
    "task": ("losses", "keras tensorflow"),
    "training": (
        "checkpoints config data files hosts task",
        "absl_py keras matplotlib numpy tensorflow",
    ),
    "tasks": ("config data files losses metrics modeling task text", "keras numpy tensorflow"),
    "fine_tuning": (
        "checkpoints config config_flags data files modeling optimization run_record tasks text "
        "training",
        "absl_py keras",
    ),
    "diagnosis": (
        "config config_flags data modeling optimization run_record tasks text training",
        "matplotlib numpy tensorflow",
    ),
    "export": (
        "checkpoints config data files metrics modeling run_record tasks text",
        "absl_py ai_edge_litert keras numpy protobuf tensorflow tensorflow_text",
    ),
    "serving": ("files", "grpcio numpy protobuf tensorflow tensorflow_serving_api"),
}
# Loaded by the function that needs them: they are slow to load, and not every run needs them.
INSIDE_FUNCTIONS = (
    "tensorflow_datasets",
    "matplotlib",
    "keras_hub",
    "ai_edge_litert",
    "apache_beam",
    "grpc",
)
# No dependency of a target: requirements_lock.txt cannot hold it beside the others.
APART = ("apache_beam",)
# Processes that prepare data load no TensorFlow: it takes seconds and hundreds of megabytes each.
WITHOUT_TENSORFLOW = (
    "bert_tf.text.wordpiece",
    "bert_tf.data.corpus",
    "bert_tf.data.example_shards",
)
PYPI_NAMES = {
    "absl": "absl_py",
    "google": "protobuf",
    "grpc": "grpcio",
    "mpl_toolkits": "matplotlib",
    "official": "tf_models_official",
    "sklearn": "scikit_learn",
    "tensorflow_serving": "tensorflow_serving_api",
    "yaml": "pyyaml",
}


def python_files(*folders: str) -> list[pathlib.Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def name_of(path: pathlib.Path) -> str:
    return path.relative_to(ROOT).as_posix()


@functools.cache
def tree_of(path: pathlib.Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf8"))


def has_main(path: pathlib.Path) -> bool:
    return 'if __name__ == "__main__"' in path.read_text(encoding="utf8")


def imported_modules(tree: ast.AST) -> list[str]:
    """Returns the dotted names a tree imports; `from a import b` gives a.b."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return found


def file_of(module: str) -> str | None:
    """Returns the project's file that a dotted name stands for, or None for others' modules."""
    parts = module.split(".") if module.split(".")[0] in PROJECT else []
    while parts:
        for path in (
            ROOT.joinpath(*parts).with_suffix(".py"),
            ROOT.joinpath(*parts, "__init__.py"),
        ):
            if path.exists():
                return name_of(path)
        parts.pop()
    return None


class Target(NamedTuple):
    """A rule of BUILD."""

    kind: str
    files: list[str]
    deps: list[str]


def files_named(node: ast.expr | None) -> list[str]:
    """Returns the files of a `srcs` attribute: lists, globs and their sums."""
    if node is None:
        return []
    if isinstance(node, ast.BinOp):
        return files_named(node.left) + files_named(node.right)
    if isinstance(node, ast.Call):
        exclude = next((ast.literal_eval(k.value) for k in node.keywords if k.arg == "exclude"), [])
        patterns = ast.literal_eval(node.args[0])
        paths = {name_of(path) for pattern in patterns for path in ROOT.glob(pattern)}
        return sorted(paths - {name_of(path) for pattern in exclude for path in ROOT.glob(pattern)})
    return list(ast.literal_eval(node))


@functools.cache
def build_targets() -> dict[str, Target]:
    targets = {}
    for node in ast.walk(ast.parse((ROOT / "BUILD").read_text(encoding="utf8"))):
        if isinstance(node, ast.Call) and node.func.id in ("py_library", "py_binary", "py_test"):
            attributes = {keyword.arg: keyword.value for keyword in node.keywords}
            targets[ast.literal_eval(attributes["name"])] = Target(
                node.func.id,
                files_named(attributes["srcs"]),
                ast.literal_eval(attributes["deps"]) if "deps" in attributes else [],
            )
    return targets


def imports_of_target(name: str) -> tuple[set[str], set[str]]:
    """Returns the targets and the packages that the files of a target import."""
    owner = {file: other for other, target in build_targets().items() for file in target.files}
    # pytest reads conftest.py, which no test imports.
    own, foreign = {"conftest"} if build_targets()[name].kind == "py_test" else set(), set()
    for file in build_targets()[name].files:
        for module in imported_modules(tree_of(ROOT / file)):
            package = module.split(".")[0]
            if package in PROJECT:
                own.add(owner.get(file_of(module), f"nothing for {module}"))
            elif package not in (*sys.stdlib_module_names, *APART):
                foreign.add(PYPI_NAMES.get(package, package))
    return own - {name}, foreign


def test_every_file_is_in_exactly_one_target() -> None:
    listed = [file for target in build_targets().values() for file in target.files]
    files = [name_of(path) for path in python_files(*PROJECT)]
    assert sorted(listed) == sorted(files)


@pytest.mark.parametrize("name", build_targets())
def test_build_deps_are_the_imports(name: str) -> None:
    own, foreign = imports_of_target(name)
    expected = sorted(f":{dep}" for dep in own) + sorted(f"@pypi//{dep}" for dep in foreign)
    deps = build_targets()[name].deps
    assert deps == expected, f"deps of {name} should be {expected}".replace("'", '"')


def test_libraries_follow_the_import_rules() -> None:
    free = ("conftest", "tests", "benchmarks", "scaling_model")
    libraries = {
        name: target
        for name, target in build_targets().items()
        if target.kind == "py_library" and name not in free
    }
    assert set(libraries) == set(IMPORT_RULES)
    for name, (own, foreign) in IMPORT_RULES.items():
        rule = [f":{dep}" for dep in own.split()] + [f"@pypi//{dep}" for dep in foreign.split()]
        assert libraries[name].deps == rule, name


def test_import_rules_have_no_cycle() -> None:
    before: set[str] = set()
    for name, (own, _) in IMPORT_RULES.items():
        assert set(own.split()) <= before, f"{name} imports something that stands below it"
        before.add(name)


def test_library_never_imports_entry_points_export_or_tests() -> None:
    for path in python_files("bert_tf"):
        for module in imported_modules(tree_of(path)):
            assert module.split(".")[0] not in PROJECT[1:], name_of(path)
            if file := file_of(module):
                assert not has_main(ROOT / file), f"{name_of(path)} imports the program {module}"


def test_slow_packages_are_loaded_inside_functions() -> None:
    for path in python_files("bert_tf", "export"):
        statements = [node for node in tree_of(path).body if not isinstance(node, ast.ClassDef)]
        for node in statements:
            if isinstance(node, ast.Import | ast.ImportFrom):
                packages = {module.split(".")[0] for module in imported_modules(node)}
                assert packages.isdisjoint(INSIDE_FUNCTIONS), name_of(path)


def test_data_preparation_loads_no_tensorflow() -> None:
    code = f"import sys, {', '.join(WITHOUT_TENSORFLOW)}; print('tensorflow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.strip() == "False", done.stderr


def test_only_programs_touch_flags() -> None:
    for path in python_files("bert_tf", "export"):
        modules = imported_modules(tree_of(path))
        if {"absl.flags", "absl.app"} & set(modules):
            assert path.name == "config_flags.py" or has_main(path), name_of(path)


@pytest.mark.parametrize("path", python_files(*PROJECT), ids=name_of)
def test_file_is_short_documented_and_well_named(path: pathlib.Path) -> None:
    ceiling = TEST_LINES if path.name.endswith("_test.py") else FILE_LINES
    assert len(path.read_text(encoding="utf8").splitlines()) <= ceiling
    empty = not path.stat().st_size and path.name == "__init__.py" and "tests" in path.parts
    assert empty or ast.get_docstring(tree_of(path)), "no module docstring"
    assert not re.search(r"util|helper|manager|handler|common|misc", path.stem)


class Function(NamedTuple):
    """A function and its lines, docstring not counted."""

    lines: int
    name: str


def function_lengths() -> list[Function]:
    """Returns all functions, longest first."""
    found = []
    for path in python_files(*PROJECT):
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = node.end_lineno - node.lineno + 1
                if ast.get_docstring(node):
                    lines -= node.body[0].end_lineno - node.body[0].lineno + 1
                found.append(Function(lines, f"{name_of(path)}:{node.lineno} {node.name}"))
    return sorted(found, reverse=True)


def longest_functions() -> str:
    return "\n".join(f"{lines:4} {name}" for lines, name in function_lengths()[:10])


def test_functions_are_short() -> None:
    assert function_lengths()[0].lines <= FUNCTION_LINES, f"\n{longest_functions()}"


def text_files() -> list[pathlib.Path]:
    folders = (*PROJECT, "configs", "docs")
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*")]
    paths += [path for path in ROOT.iterdir() if path.name != ".git"]
    endings = {".py", ".md", ".flags", ".toml", ".txt", ".bazel", ""}
    return [path for path in paths if path.suffix in endings and path.is_file()]


def test_no_machine_paths() -> None:
    machine = re.compile("/" + r"(work|home|root|Users|mnt)/\w")
    for path in text_files():
        found = machine.search(path.read_text(encoding="utf8"))
        assert not found, f"{name_of(path)} names {found and found.group()}"


def config_classes() -> list[type]:
    groups = {**vars(config), **vars(fine_tuning_config)}
    classes = [value for value in groups.values() if isinstance(value, type)]
    return [cls for cls in classes if issubclass(cls, config.Config) and cls is not config.Config]


def test_config_fields_have_one_meaning() -> None:
    app.define_help_flags()
    by_module = flags.FLAGS.flags_by_module_dict()
    taken = {
        flag.name: module
        for module, defined in by_module.items()
        if module.startswith("absl")
        for flag in defined
    }
    assert "verbosity" in taken and "help" in taken
    for cls in config_classes():
        for field in dataclasses.fields(cls):
            assert field.name not in taken, f"{cls.__name__} and {taken[field.name]}"
            taken[field.name] = cls.__name__


def test_config_fields_have_help() -> None:
    for cls in config_classes():
        for field in dataclasses.fields(cls):
            assert field.metadata["help"].endswith("."), f"{cls.__name__}.{field.name}"


if __name__ == "__main__":
    print(f"The ten longest functions (at most {FUNCTION_LINES} lines):\n{longest_functions()}")
