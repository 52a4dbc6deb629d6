"""Imports point one way: packages further down the table may import those above them."""

import ast
import dataclasses
import functools
import pathlib
import subprocess
import sys

from absl import app, flags

from bert_tf import config
from bert_tf.config import fine_tuning_config, ranking_config
from tests.shared_data import ROOT

# A package may import those of the lines above its own, and itself. Programs and tests may import
# everything.
LAYERS = """
system
config
text metrics
checkpoints
corpus
network
training
tasks
pretraining
inference
search sklearn diagnosis
""".strip().splitlines()
# The methods `save_pretrained` and `export` of models import the code that writes them when called:
# it makes models of any kind, so it needs all their classes.
UPWARD = ("bert_tf.network.pretrained", "bert_tf.inference.publishing")
# Processes that prepare data, answer by LiteRT or check a command line load no TensorFlow: it takes
# seconds and hundreds of megabytes each. Types for signatures come from `system.type_names`.
WITHOUT_TENSORFLOW = """
system.type_names config.*
metrics.calibration metrics.candidates metrics.classification metrics.entities metrics.exact
metrics.quantization metrics.ranking metrics.regression metrics.sparse metrics.squad metrics.trec
checkpoints.adapt checkpoints.cross_encoder_settings checkpoints.families.*
checkpoints.hub* checkpoints.load_tokenizer checkpoints.run_identity checkpoints.run_record
checkpoints.sentence_transformers checkpoints.tokenizer_files checkpoints.trim_vocabulary
corpus.beam_examples corpus.corpus corpus.duplicates corpus.example_* corpus.preparation
corpus.tfds_corpus diagnosis.corpus diagnosis.findings diagnosis.report diagnosis.run*
inference.kinds inference.loading inference.output_answers inference.predictor
inference.rows.*
pretraining.shown_sentences pretraining.masked_words.answers pretraining.masked_words.kinds
search.bm25 search.bulk search.documents search.faiss_index search.fusion search.index
search.manifest search.open_index search.passages search.qdrant search.recall search.runners
search.segments search.stored_vectors
tasks.base.examples.columns tasks.base.examples.labels tasks.base.examples.rows
tasks.base.examples.tables
tasks.base.programs.program tasks.base.programs.results
tasks.base.serving.kind tasks.base.serving.lite_model tasks.base.serving.metadata
tasks.base.serving.onnx_model tasks.base.serving.row_model
tasks.*.answers tasks.*.examples tasks.*.inputs tasks.*.kinds tasks.*.report
tasks.*.sources
text.*_training text.kinds text.sentencepiece text.text_tokenizer text.tokenization text.wordpiece
training.curves training.metrics_log training.stopping training.worker_group
"""


@functools.cache
def modules() -> dict[str, pathlib.Path]:
    """Returns the file of each module by its dotted name; a package's is its __init__.py."""
    files = {}
    for path in sorted((ROOT / "bert_tf").rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        files[name.removesuffix(".__init__")] = path
    return files


def is_type_checking(node: ast.AST) -> bool:
    """Whether a statement is `if TYPE_CHECKING:`, which no running program enters."""
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def imported(tree: ast.AST) -> list[str]:
    """Returns the dotted names that a tree imports, also inside functions.

    `from a import b` gives a.b.
    """
    names = []
    for node in ast.iter_child_nodes(tree):
        if is_type_checking(node):
            continue
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names += [f"{node.module}.{alias.name}" for alias in node.names]
        names += imported(node)
    return names


@functools.cache
def imports() -> dict[str, set[str]]:
    """Returns the modules of bert_tf that each of its modules imports."""
    files = modules()
    found = {}
    for module, path in files.items():
        found[module] = set()
        for name in imported(ast.parse(path.read_text(encoding="utf8"))):
            assert name.partition(".")[0] not in ("export", "tests", "benchmarks", "examples"), path
            while name and name not in files:
                name = name.rpartition(".")[0]
            if name and name != module and (module, name) != UPWARD:
                found[module].add(name)
    return found


def package_of(module: str) -> str:
    """Returns the package of a module below bert_tf; "" for programs and for bert_tf itself."""
    names = module.split(".")[1:]
    is_package = modules()[module].name == "__init__.py"
    return names[0] if len(names) > 1 or (names and is_package) else ""


def floor(package: str) -> int:
    """Returns the line of the table that has a package; that of programs is below the table."""
    if not package:
        return len(LAYERS)
    return next(number for number, line in enumerate(LAYERS) if package in line.split())


def test_imports_point_one_way() -> None:
    wrong = []
    for module, others in imports().items():
        package = package_of(module)
        if not package:
            continue
        for other in others - {"bert_tf"}:
            if package_of(other) != package and floor(package_of(other)) >= floor(package):
                wrong.append(f"{module} imports {other}")
    assert not wrong, "\n".join(wrong)


def test_no_modules_import_each_other_in_a_circle() -> None:
    # Each module may import bert_tf for its names, which are imported when they are used.
    left = {module: others for module, others in imports().items() if module != "bert_tf"}
    while free := [module for module, others in left.items() if not others & left.keys()]:
        for module in free:
            del left[module]
    assert not left, "\n".join(left)


def test_only_programs_are_at_the_top() -> None:
    loose = []
    for path in sorted((ROOT / "bert_tf").glob("*.py")):
        is_program = 'if __name__ == "__main__":' in path.read_text(encoding="utf8")
        if not is_program and path.name != "__init__.py":
            loose.append(path.name)
    assert not loose


def test_only_text_asks_for_the_class_of_a_vocabulary() -> None:
    wrong = []
    for path in [*modules().values(), *sorted((ROOT / "export").rglob("*.py"))]:
        if path.is_relative_to(ROOT / "bert_tf" / "text"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "type"):
                if "Vocab" in ast.unparse(node.args[-1]):
                    wrong.append(f"{path}:{node.lineno}")
    assert not wrong, "\n".join(wrong)


def test_modules_of_the_list_load_no_tensorflow() -> None:
    modules = []
    for pattern in WITHOUT_TENSORFLOW.split():
        path = f"bert_tf/{pattern.replace('.', '/')}"
        files = sorted(ROOT.glob(f"{path}.py")) or sorted(ROOT.glob(f"{path}/__init__.py"))
        assert files, f"{pattern} is no module"
        for file in files:
            name = ".".join(file.relative_to(ROOT).with_suffix("").parts)
            modules.append(name.removesuffix(".__init__"))
    code = (
        "import importlib, sys, bert_tf\n"
        "sys.modules |= {'tensorflow': None, 'keras': None}  # An import of them fails.\n"
        "for name in sys.argv[1:]:\n"
        "    importlib.import_module(name)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, *modules], cwd=ROOT, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr


def test_fields_of_configurations_have_one_meaning_and_a_help() -> None:
    app.define_help_flags()
    modules = flags.FLAGS.flags_by_module_dict()
    taken = {flag.name: m for m, all_ in modules.items() if m.startswith("absl") for flag in all_}
    assert "verbosity" in taken and "help" in taken
    groups = {**vars(config), **vars(fine_tuning_config), **vars(ranking_config)}
    for group in groups.values():
        if isinstance(group, type) and issubclass(group, config.Config) and group != config.Config:
            for field in dataclasses.fields(group):
                owner = next(one for one in group.__mro__ if field.name in one.__annotations__)
                assert taken.setdefault(field.name, owner) is owner, f"{field.name} of {group}"
                assert field.metadata["help"].endswith("."), field.name


def test_files_and_functions_are_short() -> None:
    """A file has at most 500 lines, a function at most 50 of code."""
    long = []
    folders = ("bert_tf", "export", "tests", "benchmarks", "examples")
    for path in [path for folder in folders for path in ROOT.glob(f"{folder}/**/*.py")]:
        text = path.read_text("utf8")
        if text.count("\n") > 500:
            long.append(path.name)
        comments = {number for number, line in enumerate(text.split("\n"), 1) if is_no_code(line)}
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                body = node.body[1:] if ast.get_docstring(node) else node.body
                lines = {
                    number for part in body for number in range(part.lineno, part.end_lineno + 1)
                }
                if len(lines - comments) > 50:
                    long.append(f"{path.name} {node.name}")
    assert long == []


def is_no_code(line: str) -> bool:
    return not line.strip() or line.lstrip().startswith("#")
