"""What pages and docstrings name exists: files, modules, functions, arguments, flags, values."""

import ast
import functools
import importlib
import inspect
import pathlib
import re
import textwrap
import tomllib
from collections.abc import Iterator

import pytest
from absl import flags

from bert_tf.__main__ import PROGRAMS
from tests.docs_test import DOCUMENTS, PACKAGES, ROOT, documented_programs, known_flags, name_of
from tests.programs import defined_flags

THIS_FILE = pathlib.Path(__file__).resolve()
PAGES = [path for path in DOCUMENTS if path.name != "CHANGELOG.md"]
SOURCES = sorted(path for folder in PACKAGES for path in (ROOT / folder).rglob("*.py"))
ENDINGS = "py|flags|yaml|toml|sh|md|config|txt"
# Files of other projects, and of measurements that were made by hand.
ELSEWHERE = {
    "tf2_bert_encoder_checkpoint_converter.py",
    "scripts/configs/pretrain_config.sh",
    "hour64.flags",
}
FOREIGN = {  # Names of Python, its packages, TensorFlow Serving and other programs.
    "encode_batch_fast",
    "TerminateOnNaN",
    "explicit_init_py",
    "hub_name",
    "REQUESTS_CA_BUNDLE",
    "n_jobs",
    "partial_fit",
    "PadTensor",
    "extractall",
    "iPhone",
    "J.R.R",
    "quantize_embeddings",
    "upload_folder",
    "EmbeddableItem",
    "dense_embedding",
    "TransformedTargetRegressor",
    "str_",
    "download_glue_data.py",
    "eval_results_test.txt",
    "report_test.txt",
    "worst_errors_test.tsv",
    "get_final_text",
    "num_updates",
    "WordPieceTrainer",
}
# Flags of other programs: of pip, git, docker, kubectl, TensorFlow Serving, gcloud, Slurm and XLA.
OTHER_FLAGS = {
    "help",
    "verbosity",
    "find-links",
    "flag",  # any
    "name",
    "signal",
    "dir",
    "tag_set",
    "model_config_file",
    "enable_batching",
}


@functools.cache
def text_of(path: pathlib.Path) -> str:
    return path.read_text(encoding="utf8")


@functools.cache
def quoted(path: pathlib.Path) -> list[str]:
    """Returns what a page puts between backticks in its running text."""
    text = re.sub(r"```.*?```", "", text_of(path), flags=re.DOTALL)
    return [" ".join(words.split()) for words in re.findall(r"`([^`]+)`", text)]


def found(named: Iterator[tuple[pathlib.Path, str]], exists) -> dict[str, list[str]]:
    """Returns the names that do not exist, by the file that has them."""
    missing: dict[str, list[str]] = {}
    for path, name in named:
        if not exists(name):
            missing.setdefault(name_of(path), []).append(name)
    return missing


def in_quotes(pattern: str) -> Iterator[tuple[pathlib.Path, str]]:
    return ((p, words) for p in PAGES for words in quoted(p) if re.fullmatch(pattern, words))


def test_files_in_quotes_exist() -> None:
    assert found(in_quotes(rf"[\w./*-]+\.({ENDINGS})"), file_exists) == {}


def file_exists(name: str) -> bool:
    """Whether a file is in the repository, or its name is a text of the source: runs write it."""
    places = (ROOT, ROOT / "bert_tf", ROOT / "bert_tf/tasks/classification")
    if name in ELSEWHERE or any(list(place.glob(name)) for place in places):
        return True
    return "/" not in name and (name in file_names() or name in source())


@functools.cache
def file_names() -> set[str]:
    folders = [ROOT / folder for folder in (*PACKAGES, "configs", "tests", "docs")]
    return {path.name for folder in folders for path in folder.rglob("*.*")}


@functools.cache
def source() -> str:
    return "\n".join(map(text_of, SOURCES))


def test_files_that_the_source_names_exist() -> None:
    pattern = (
        rf"(?<![\w/.\"'-])((?:{'|'.join(PACKAGES)}|docs|configs|tests)/[\w./-]+\.(?:{ENDINGS}))\b"
    )
    named = ((path, name) for path in SOURCES for name in re.findall(pattern, text_of(path)))
    assert found(named, lambda name: (ROOT / name).exists()) == {}


def test_dotted_names_exist() -> None:
    pattern = rf"(?:{'|'.join(PACKAGES)}|tests)(?:\.\w+)+(?:[( ].*)?"
    named = ((path, re.match(r"[\w.]+", words)[0]) for path, words in in_quotes(pattern))
    assert found(named, lambda name: name == "bert_tf.json" or resolved(name) is not None) == {}


@functools.cache
def resolved(name: str) -> object | None:
    """Returns the module, class or function of a dotted name; None if there is none."""
    parts = name.split(".")
    if (ROOT / name.replace(".", "/")).with_suffix(".py").exists():
        return ROOT  # Programs are not imported: that would define their flags.
    for length in range(len(parts), 0, -1):
        module = ".".join(parts[:length])
        try:
            thing = importlib.import_module(module)
        except ModuleNotFoundError as error:
            if not (error.name and module.startswith(error.name)):
                return error  # It needs a package that only its users install.
            continue
        for part in parts[length:]:
            thing = getattr(thing, part, None)
        return thing
    return None


def test_tests_in_quotes_exist() -> None:
    tests = "\n".join(map(text_of, ROOT.glob("tests/**/*_test.py")))
    assert found(in_quotes(r"test_(?!on_batch)\w+"), lambda name: f"def {name}(" in tests) == {}


def test_names_in_quotes_exist() -> None:
    """Looks only at names with a capital or an underscore inside, which are no plain words."""
    pattern = r"(?:[a-z]\w*\.)*[A-Za-z]\w*[_A-Z]\w*(?:\(.*\))?"
    named = (
        (path, name)
        for path, words in in_quotes(pattern)
        for name in (words.split("(")[0].split(".")[-1], *re.findall(r"[(,] ?(\w+)=", words))
    )
    assert found(named, lambda name: name in words_of_repository() | FOREIGN) == {}


@functools.cache
def words_of_repository() -> set[str]:
    others = [ROOT / "Makefile", ROOT / "pyproject.toml", ROOT / "requirements_lock.txt"]
    for folder in ("configs", "export/serving"):
        others += [path for path in (ROOT / folder).rglob("*") if path.is_file()]
    files = [*SOURCES, *ROOT.glob("tests/**/*.py"), *others]
    return set().union(*(re.findall(r"\w+", text_of(p)) for p in files if p != THIS_FILE))


def test_names_in_docstrings_exist() -> None:
    pattern = r"`((?:[A-Za-z]\w*\.)*[A-Za-z]\w*)(?:\(.*\))?`"
    known = names_of_source() | FOREIGN
    named = (
        (path, name)
        for path in SOURCES
        for text in docstrings(path)
        for name in re.findall(pattern, text)
    )
    assert found(named, lambda name: name in known or {*name.split(".")} <= known) == {}


@functools.cache
def names_of_source() -> set[str]:
    """Returns the names in the code itself, and the words and names of files in its short texts."""
    names = {part for path in SOURCES for part in (*path.parts, path.stem)}
    for path in SOURCES:
        for node in ast.walk(ast.parse(text_of(path))):
            for field in ("id", "attr", "arg", "name", "asname", "module", "value"):
                value = getattr(node, field, None)
                if isinstance(value, str) and "\n" not in value and len(value) < 80:
                    names |= set(re.findall(r"\w+", value))
    return names


def test_extras_exist() -> None:
    project = tomllib.loads(text_of(ROOT / "pyproject.toml"))["project"]
    extras = set(project["optional-dependencies"])
    named = [(p, name) for p in PAGES for name in re.findall(r"'\.\[(\w+)\]'", text_of(p))]
    assert named
    assert found(iter(named), extras.__contains__) == {}
    listed = re.search(r"Extras: (.*?)\.\n", text_of(ROOT / "README.md"), re.DOTALL)[1]
    assert set(re.findall(r"`(\w+)`", listed)) == extras - {"docs", "notebooks"}


def test_lists_of_programs_are_complete() -> None:
    page = text_of(ROOT / "docs/programs.md")
    assert [module for module in PROGRAMS.values() if f"-m {module} " not in page] == []
    readme = text_of(ROOT / "README.md")
    ten = re.search(r"^## The ten most used commands\n(.*?)^## ", readme, re.DOTALL | re.M)[1]
    assert len(re.findall(r"^\| .*`python -m ", ten, re.MULTILINE)) == 10


def test_the_page_of_the_export_lists_its_folder() -> None:
    page = text_of(ROOT / "export/README.md")
    entries = [path for path in (ROOT / "export").iterdir() if path.name[0] not in "_."]
    # A folder that was removed may still hold what Python compiled there.
    entries = [path for path in entries if path.is_file() or any(path.glob("*.*"))]
    names = [name_of(path) + "/" * path.is_dir() for path in entries if path.name != "README.md"]
    assert [name for name in names if f"`{name}`" not in page] == []


def test_short_names_are_programs() -> None:
    names = {*PROGRAMS, "NAME", "PROGRAM", "--help"}
    lines = [
        (path, line) for path in PAGES for line in re.findall(r"\bbert-tf ([\w-]+)", text_of(path))
    ]
    assert lines
    assert found(iter(lines), names.__contains__) == {}


def test_make_commands_in_quotes_exist() -> None:
    makefile = text_of(ROOT / "Makefile")
    targets = set(re.findall(r"^([\w-]+):", makefile, re.MULTILINE))
    variables = set(re.findall(r"^([A-Z]+) \?=|\$\(([A-Z]+)\)", makefile, re.MULTILINE))
    known = targets | {name for pair in variables for name in pair if name}
    for path, words in in_quotes(r"make .*"):
        named = {word.split("=")[0] for word in words.split()[1:]}
        assert named <= known, f"{name_of(path)}: {words}"


@functools.cache
def flags_of_programs() -> set[str]:
    """Returns the flags of all programs that pages and short names name."""
    modules = {words[0] for _, words in documented_programs()} | set(PROGRAMS.values())
    return set().union(*map(known_flags, modules)) | OTHER_FLAGS


def flag_exists(name: str) -> bool:
    return name in flags_of_programs() or name.removeprefix("no") in flags_of_programs()


def test_flags_in_quotes_exist() -> None:
    named = (
        (path, flag)
        for path in PAGES
        for words in quoted(path)
        if words.startswith("--")
        for flag in re.findall(r"(?<!\S)--([\w-]+)(?![\w*-])", words)
    )
    assert found(named, flag_exists) == {}


def test_flags_that_docstrings_name_exist() -> None:
    named = (
        (path, flag)
        for path in SOURCES
        if path.parts[-2] != "benchmarks"
        for text in docstrings(path)
        for flag in re.findall(r"(?<![\w-])--([a-z]\w+)[=`]", text)
    )
    assert found(named, flag_exists) == {}


def docstrings(path: pathlib.Path) -> list[str]:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
    nodes = [node for node in ast.walk(ast.parse(text_of(path))) if isinstance(node, kinds)]
    return [text for node in nodes if (text := ast.get_docstring(node))]


@functools.cache
def absl_flags(module: str) -> dict[str, flags.Flag]:
    return defined_flags(module)


def test_values_of_documented_flags_are_accepted() -> None:
    refused = []
    for place, words in documented_programs():
        if words[0].startswith("benchmarks."):
            continue  # Some have argparse.
        for name, value in re.findall(r"^--(\w+)=(.*)$", "\n".join(words[1:]), re.MULTILINE):
            flag = absl_flags(words[0]).get(name)
            if name != "flagfile" and (flag is None or not accepts(flag, value)):
                refused.append(f"{place}: {words[0]} --{name}={value}")
    assert refused == []


def test_the_table_of_flags_lists_all_their_values() -> None:
    page = text_of(ROOT / "docs/pretraining.md")
    defined, missing = absl_flags("bert_tf.run_pretraining"), []
    rows = re.findall(r"^\| `(?:--)?(\w+)` \|(.*)", page, re.MULTILINE)
    assert len(rows) > 15
    for name, row in rows:
        values = getattr(defined[name].parser, "enum_values", None) or []
        missing += [f"--{name}={value}" for value in values if value and f"`{value}`" not in row]
    assert missing == []


def accepts(flag: flags.Flag, value: str) -> bool:
    try:
        flag.parser.parse(value)
    except (ValueError, TypeError):
        return value == "..." or value.isupper() or value.startswith("$")  # Stands for values.
    return True


def python_blocks() -> list[tuple[str, str]]:
    """Returns (page, code) of the blocks of Python in all pages."""
    return [
        (name_of(path), textwrap.dedent(code))
        for path in PAGES
        for code in re.findall(r"^ *```(?:python|py)\n(.*?)^ *```", text_of(path), re.DOTALL | re.M)
    ]


@pytest.mark.parametrize("page", sorted({page for page, _ in python_blocks()}))
def test_python_on_pages_calls_what_exists(page: str) -> None:
    known: dict[str, object] = {}
    wrong = []
    for code in [code for name, code in python_blocks() if name == page]:
        for node in ast.parse(code).body:
            wrong += wrong_names(node, known)
    assert wrong == []


def wrong_names(statement: ast.stmt, known: dict[str, object]) -> list[str]:
    """Returns the attributes and arguments of a statement that do not exist.

    Args:
      statement: one of a page.
      known: the modules, classes and functions of ours by their names on the page, and the classes
        of the variables; those that the statement makes are added.
    """
    wrong = []
    for node in ast.walk(statement):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            wrong += imported(node, known)
        elif isinstance(node, ast.Attribute) and missing(node, known):
            wrong.append(ast.unparse(node))
        elif isinstance(node, ast.Call) and (extra := unknown_arguments(node, known)):
            wrong.append(f"{ast.unparse(node.func)}: {', '.join(extra)}")
    if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
        known[statement.targets[0].id] = class_made(statement.value, known)
    return wrong


def imported(node: ast.Import | ast.ImportFrom, known: dict[str, object]) -> list[str]:
    """Adds imports of our packages to `known`; returns those that do not exist."""
    module = getattr(node, "module", None)
    wrong = []
    for alias in node.names:
        name = f"{module}.{alias.name}" if module else alias.name
        if name.split(".")[0] not in PACKAGES:
            continue
        if resolved(name) is None:
            wrong.append(name)
        if module or alias.asname:
            known[alias.asname or alias.name] = resolved(name)
        else:
            known[name.split(".")[0]] = resolved(name.split(".")[0])
    return wrong


def thing(node: ast.expr, known: dict[str, object]) -> object | None:
    """Returns the module, class or function that an expression names, or None if not known."""
    if isinstance(node, ast.Name):
        return known.get(node.id)
    if not isinstance(node, ast.Attribute):
        return None
    owner = thing(node.value, known)
    if inspect.ismodule(owner):
        return resolved(f"{owner.__name__}.{node.attr}")
    return getattr(owner, node.attr, None) if inspect.isclass(owner) else None


def missing(node: ast.Attribute, known: dict[str, object]) -> bool:
    owner = thing(node.value, known)
    if inspect.ismodule(owner):
        return thing(node, known) is None
    # Attributes that only instances have are not seen in a class.
    return (
        inspect.isclass(owner) and not hasattr(owner, node.attr) and not written(owner, node.attr)
    )


def written(owner: type, name: str) -> bool:
    """Whether a class or one that it is made of sets an attribute of its instances."""
    sources = (inspect.getsource(base) for base in owner.__mro__ if base.__module__ != "builtins")
    return any(re.search(rf"self\.{name}\b|^ +{name}\b", text, re.MULTILINE) for text in sources)


def unknown_arguments(node: ast.Call, known: dict[str, object]) -> list[str]:
    called = thing(node.func, known)
    if not callable(called) or not (inspect.isclass(called) or inspect.isroutine(called)):
        return []
    parameters = inspect.signature(called).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return []
    names = {parameter.name for parameter in parameters}
    return [word.arg for word in node.keywords if word.arg and word.arg not in names]


def class_made(value: ast.expr, known: dict[str, object]) -> object | None:
    """Returns the class of what a call of it, or of its `from_pretrained`, makes."""
    if not isinstance(value, ast.Call):
        return None
    called = value.func
    if isinstance(called, ast.Attribute) and called.attr == "from_pretrained":
        called = called.value
    made = thing(called, known)
    return made if inspect.isclass(made) else None
