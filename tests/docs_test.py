"""What the documents say is true: flags, make targets and named files exist."""

import ast
import functools
import importlib
import itertools
import pathlib
import re
import shlex
import tomllib

import bert_tf
import bert_tf.sklearn
from tests.programs import run

ROOT = pathlib.Path(__file__).resolve().parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("export/*.md")])
# Places that only a run makes, and patterns of places.
MADE_BY_RUNS = ("runs/", ".venv/", "http://", "https://", "bert_tf_cache")
TASKS = ROOT / "bert_tf/tasks"
PACKAGES = ("bert_tf", "export", "benchmarks")
# Pages that are looked up, not read: they may be long.
REFERENCES = ("docs/decisions/", "docs/measurements/", "docs/reference/")
# The flags without which a program does nothing; `run_...` need --output_dir.
NEEDED = {
    "bert_tf.build_index": "output_dir",
    "bert_tf.build_vocab": "input_file vocab_file",
    "bert_tf.convert_checkpoint": "input output",
    "bert_tf.create_pretraining_data": "input_file output_file vocab_file",
    "bert_tf.distill_static": "init_checkpoint output_dir",
    "bert_tf.embed_texts": "init_checkpoint input_file output_dir",
    "bert_tf.extract_features": "init_checkpoint input_file output_file",
    "bert_tf.mine_negatives": "init_checkpoint output_file",
    "bert_tf.search": "index",
    "bert_tf.show_examples": "input_file vocab_file",
    "export.saved_model": "output_dir",
    "export.tflite": "model_dir output_file",
}


def test_the_api_page_lists_the_public_names():
    page = (ROOT / "docs/reference/api.md").read_text()
    listed = re.findall(r"^::: ([\w.]+)$", page, re.MULTILINE)
    names = [name.rpartition(".")[2] for name in listed]
    public = [*bert_tf.__all__, *bert_tf.sklearn.__all__, "FineTunedModel", "Predictor"]
    assert sorted(names) == sorted(public)
    for path in listed:
        module, _, name = path.rpartition(".")
        assert hasattr(importlib.import_module(module), name), path


def name_of(path: pathlib.Path) -> str:
    return path.relative_to(ROOT).as_posix()


def shell_lines(text: str) -> list[str]:
    """Returns the lines of all fenced shell blocks, continued lines joined, prompts removed."""
    blocks = re.findall(r"```(?:sh|bash|shell|console)\n(.*?)```", text, re.DOTALL)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    return [line.strip().removeprefix("$ ") for line in lines if line.strip()]


def inline_lines(text: str) -> list[str]:
    """Returns the commands in a document's running text and tables, and those indented as code.

    >>> inline_lines("| serve | `python -m export.saved_model` |\\n\\n    python -m export.check a")
    ['python -m export.saved_model', 'python -m export.check a']
    """
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    quoted = re.findall(r"`((?:\w+=\S+ )*python\s+-m\s[^`]+)`", text)
    indented = re.findall(r"^    (python -m .*)", text.replace("\\\n", " "), re.MULTILINE)
    return [" ".join(line.split()) for line in [*quoted, *indented]]


def docstring_lines(path: pathlib.Path) -> list[str]:
    """Returns the commands in a module's docstring: its indented lines."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf8"))) or ""
    text = text.replace("\\\n", " ")
    return [line.strip() for line in text.splitlines() if line.startswith("    python -m ")]


def flagfile_lines(path: pathlib.Path) -> list[str]:
    """Returns the commands in the comment that heads a flagfile."""
    text = re.sub(r"\\\n#", " ", path.read_text(encoding="utf8"))
    lines = (line.lstrip("# ") for line in text.splitlines() if line.startswith("#"))
    return [line for line in lines if re.match(r"(\S*/)?python -m ", line)]


def programs(line: str) -> list[list[str]]:
    """Returns the words after `python -m` of each program of ours that a shell line starts.

    >>> programs("FOO=1 .venv/bin/python -m bert_tf.fill_mask --top_k=3 | head  # comment")
    [['bert_tf.fill_mask', '--top_k=3']]
    """
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>()")
    lexer.whitespace_split = True
    words = list(lexer)
    found = []
    for index, word in enumerate(words):
        if word == "-m" and words[index + 1].split(".")[0] in PACKAGES:
            command = list(
                itertools.takewhile(lambda w: set(w) - set("|&;<>()"), words[index + 1 :])
            )
            if "--" in command:  # A launcher, and the program that it starts or flags for it.
                place = command.index("--")
                if not command[place + 1].startswith("--"):
                    found.append(command[place + 1 :])
                command = command[:place]
            found.append(command)
    return found


def documented_programs() -> list[tuple[str, list[str]]]:
    """Returns (place, command) of every program that documents, docstrings and flagfiles name."""
    lines = [
        (path, line)
        for path in DOCUMENTS
        for find in (shell_lines, inline_lines)
        for line in find(path.read_text("utf8"))
    ]
    for folder in PACKAGES:
        lines += [(p, line) for p in (ROOT / folder).rglob("*.py") for line in docstring_lines(p)]
    lines += [(p, line) for p in ROOT.glob("configs/*.flags") for line in flagfile_lines(p)]
    makefile = (ROOT / "Makefile").read_text(encoding="utf8").replace("\\\n", " ")
    lines += [(ROOT / "Makefile", line) for line in makefile.splitlines() if " -m bert_tf." in line]
    return [(name_of(path), words) for path, line in lines for words in programs(line)]


@functools.cache
def help_text(module: str) -> str:
    return run(module, "--helpfull").printed


def known_flags(module: str) -> set[str]:
    """Returns the flags of a program, of absl's help, argparse's, and the latter's usage alike."""
    text = help_text(module)
    names = re.findall(r"(?:^\s*(?:-\w, ?)?|\[)--(?:\[no\])?([\w-]+)", text, re.MULTILINE)
    return set(names) | {"helpshort", "helpfull", "flagfile"}


def flags_in(path: pathlib.Path) -> list[str]:
    """Returns the flags that a flagfile and those nested in it set."""
    names = []
    for line in path.read_text(encoding="utf8").splitlines():
        if line.startswith("--flagfile="):
            names += flags_in(ROOT / line.removeprefix("--flagfile="))
        elif line.startswith("--"):
            names.append(line[2:].split("=")[0])
    return names


def flags_of(words: list[str]) -> list[str]:
    """Returns the flags that a command sets, by itself and by its flagfiles."""
    names = []
    for word in words[1:]:
        if word.startswith("--flagfile=") and "runs/" not in word:
            names += flags_in(ROOT / word.removeprefix("--flagfile="))
        elif word.startswith("--"):
            names.append(word[2:].split("=")[0])
    return names


def unknown_flags(words: list[str]) -> list[str]:
    """Returns the flags of a command that its program does not know."""
    names, known = flags_of(words), known_flags(words[0])
    return [name for name in names if name not in known and name.removeprefix("no") not in known]


def test_documented_commands_have_the_flags_they_name() -> None:
    commands = documented_programs()
    assert len({words[0] for _, words in commands}) > 12
    unknown = {f"{place}: {' '.join(words)}": unknown_flags(words) for place, words in commands}
    assert {command: names for command, names in unknown.items() if names} == {}


def test_documented_commands_give_what_their_programs_need() -> None:
    lacking = {}
    for place, words in documented_programs():
        names = flags_of(words)  # None: it is the program that is spoken of.
        missing = [name for name in needed(words[0]) if name not in names]
        if names and missing and "flagfile" not in names:  # That of a run has all it needs.
            lacking[f"{place}: {' '.join(words)}"] = missing
    assert lacking == {}


def needed(module: str) -> list[str]:
    """Returns the flags without which a program does nothing."""
    return NEEDED.get(module, "output_dir" if module.startswith("bert_tf.run_") else "").split()


def test_pythons_are_those_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf8"))["project"]
    assert project["requires-python"] == ">=3.11,<3.14"
    assert "not (3, 11) <= sys.version_info < (3, 14)" in (ROOT / "Makefile").read_text("utf8")
    for name in ("README.md", "CONTRIBUTING.md", "docs/index.md"):
        assert "Python 3.11 to 3.13" in (ROOT / name).read_text(encoding="utf8")


def test_make_targets_exist() -> None:
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf8"), re.M)
    for path in DOCUMENTS:
        for line in shell_lines(path.read_text(encoding="utf8")):
            named = re.findall(r"(?:^|&& )make ([\w-]+)", line)
            assert set(named) <= set(targets), f"{name_of(path)}: {line}"


def test_named_paths_exist() -> None:
    missing = {name_of(document): missing_paths(document) for document in DOCUMENTS}
    assert {document: names for document, names in missing.items() if names} == {}


def missing_paths(document: pathlib.Path) -> list[str]:
    """Returns the paths that a document names and nobody has."""
    text = document.read_text(encoding="utf8")
    linked = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text)
    top = "bert_tf|configs|docs|export|tests|benchmarks|\\.ci"
    quoted = re.findall(rf"`((?:{top})/[\w./*-]*)`", text)
    bases = {name: document.parent for name in linked} | dict.fromkeys(quoted, ROOT)
    return [
        name
        for name, base in bases.items()
        if not name.startswith((*MADE_BY_RUNS, "mailto:"))
        and not (list(base.glob(name)) if "*" in name else (base / name).exists())
    ]


def test_the_page_lists_the_files_of_a_task() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text("utf8")
    listed = re.search(r"^Each folder of `tasks/`.*?\n\n", page, re.MULTILINE | re.DOTALL)[0]
    each, _, some = listed.partition("Those that need")
    files = [
        {f.name for f in p.parent.glob("*.py")}
        for p in TASKS.glob("*/program.py")
        if p.parent.name != "base"
    ]
    assert set(re.findall(r"(\w+\.py)`", each)) == set.intersection(*files) - {"__init__.py"}
    assert set(re.findall(r"(\w+\.py)`", some)) <= set.union(*files)


def test_pages_for_users_are_short() -> None:
    pages = [path for path in DOCUMENTS if not name_of(path).startswith(REFERENCES)]
    lines = {name_of(path): len(path.read_text("utf8").splitlines()) for path in pages}
    del lines["CHANGELOG.md"]
    assert lines.pop("README.md") <= 150
    assert {name: count for name, count in lines.items() if count > 120} == {}


def test_the_site_lists_each_page() -> None:
    listed = re.findall(r"[\w/]+\.md$", (ROOT / "mkdocs.yml").read_text("utf8"), re.MULTILINE)
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in ROOT.glob("docs/**/*.md")}
    assert sorted(listed) == sorted(page for page in pages if not page.startswith("decisions/"))


def test_links_lead_to_headings() -> None:
    missing = []
    for document in DOCUMENTS:
        linked = re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", document.read_text("utf8"))
        for name, anchor in linked:
            if name.startswith("http"):
                continue
            page = document.parent / name if name else document
            if anchor not in anchors_of(page):
                missing.append(f"{name_of(document)}: {name}#{anchor}")
    assert missing == []


def anchors_of(page: pathlib.Path) -> set[str]:
    """Returns the anchors that GitHub and MkDocs give to the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", page.read_text("utf8"), re.MULTILINE)
    texts = [re.sub(r"[^\w\s-]", "", heading.lower()) for heading in headings]
    return {re.sub(r"\s+", "-", text.strip()) for text in texts}
