"""Imports point one way: packages further down the table may import those above them."""

import ast
import dataclasses
import pathlib
import subprocess
import sys

from absl import app, flags

from bert_tf import config
from bert_tf.config import fine_tuning_config
from tests.shared_data import ROOT

# A line may import those above it, and itself. Programs and tests may import everything.
LAYERS = """
model_names help_text
renamed printable bounded_files bounded_arrays bounded_patterns temporaries files processes hosts
flagfiles around_import extras fetching
nested_layers type_names
keras_classes startup_lines
config fine_tuning_config fine_tuning_defaults
combined_flags
config_flags
text metrics
vectors
checkpoints run_record run_identity
corpus
examples
network optimization
models
objectives
training
serving
fine_tuning
tasks
search sklearn
conversion inference diagnosis
model_card
publishing
pretraining
""".strip().splitlines()
# The methods `save_pretrained` and `export` of models import the code that writes them when called:
# it makes models of any kind, so it needs all their classes.
UPWARD = {("network.pretrained", "bert_tf.inference.publishing")}
# Processes that prepare data, answer by LiteRT or check a command line load no TensorFlow: it takes
# seconds and hundreds of megabytes each. Types for signatures come from `bert_tf.system.type_names`.
WITHOUT_TENSORFLOW = """
type_names config.* combined_flags config_flags run_record run_identity
checkpoints.adapt checkpoints.cross_encoder_settings checkpoints.families.*
checkpoints.hub* checkpoints.load_tokenizer
checkpoints.sentence_transformers checkpoints.tokenizer_files checkpoints.trim_vocabulary
corpus.beam_examples corpus.corpus corpus.duplicates corpus.example_* corpus.preparation
corpus.tfds_corpus diagnosis.corpus diagnosis.findings diagnosis.report diagnosis.run
examples.columns examples.labels examples.rows examples.tables examples.text_columns
fine_tuning.inputs fine_tuning.program fine_tuning.results
inference.kinds inference.lite inference.loading inference.output_answers inference.predictor
metrics.* pretraining.mask_samples
search.bm25 search.bulk search.documents search.fusion search.qdrant search.runners
search.saved_embedder serving.kind serving.lite_model serving.metadata
tasks.*.answers tasks.*.examples tasks.*.inputs tasks.*.kinds tasks.*.report tasks.*.sources
text.*_training text.kinds text.sentencepiece text.text_tokenizer text.tokenization text.wordpiece
training.curves training.metrics_log training.stopping training.worker_group
vectors.candidates vectors.quantization vectors.sparse
"""


def is_program(path: pathlib.Path) -> bool:
    return "config_flags.run(" in path.read_text(encoding="utf8")


def imported(path: pathlib.Path) -> list[str]:
    """Returns the dotted names a file imports; `from a import b` gives a.b."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf8"))):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return found


def layer(module: str) -> int:
    """Returns the line of the table with a dotted name below bert_tf, or with its package."""
    names = module.split(".")
    for length in range(len(names), 0, -1):
        name = ".".join(names[:length])
        for number, line in enumerate(LAYERS):
            if name in line.split():
                return number
    raise AssertionError(f"{module} is in no line of the table")


def test_imports_point_one_way() -> None:
    wrong = []
    for path in sorted((ROOT / "bert_tf").rglob("*.py")):
        module = ".".join(path.relative_to(ROOT / "bert_tf").with_suffix("").parts)
        if is_program(path) or module in ("__init__", "__main__"):
            continue
        for name in imported(path):
            package, _, rest = name.partition(".")
            if (module, name) in UPWARD:
                continue
            if package in ("export", "tests", "benchmarks", "examples"):
                wrong.append(f"{module} imports {name}")
            elif package == "bert_tf" and rest:
                file = (ROOT / "bert_tf" / rest.split(".")[0]).with_suffix(".py")
                if (file.exists() and is_program(file)) or layer(rest) > layer(module):
                    wrong.append(f"{module} imports {name}")
    assert not wrong, "\n".join(wrong)


def modules_imported(path: pathlib.Path) -> set[pathlib.Path]:
    """Returns the modules of its own folder that a file imports, also inside functions."""
    found = set()
    for name in imported(path):
        for dotted in (name, name.rpartition(".")[0]):
            file = ROOT.joinpath(*dotted.split(".")).with_suffix(".py")
            if file.parent == path.parent and file.exists() and file != path:
                found.add(file)
    return found


def test_modules_of_a_folder_import_each_other_in_no_circle() -> None:
    files = sorted((ROOT / "bert_tf").rglob("*.py"))
    left = {path: modules_imported(path) for path in files if path.name != "__init__.py"}
    while free := [path for path, names in left.items() if not names & left.keys()]:
        for path in free:
            del left[path]
    circles = sorted(str(path.relative_to(ROOT)) for path in left)
    assert not circles, "\n".join(circles)


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
    for group in {**vars(config), **vars(fine_tuning_config)}.values():
        if isinstance(group, type) and issubclass(group, config.Config) and group != config.Config:
            for field in dataclasses.fields(group):
                owner = next(one for one in group.__mro__ if field.name in one.__annotations__)
                assert taken.setdefault(field.name, owner) is owner, f"{field.name} of {group}"
                assert field.metadata["help"].endswith("."), field.name
