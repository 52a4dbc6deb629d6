"""Faults of the stack beneath, and our ways around them.

Where a test shows the fault and fails, the fault has been repaired: the way around it may go.
"""

import ast
import pathlib
import signal
import subprocess
import sys
from importlib import metadata

import keras
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]


# Private names of Keras that bert_tf and export use, for there is no public way. They were tried on
# KERAS_TRIED; with another version, run the tests of these files before raising it.
KERAS_TRIED = "3.15.1"
PRIVATE_NAMES = {
    (
        "bert_tf/system/nested_layers.py",
        "_flatten_layers",
    ),  # `Model.layers` ends at the first level.
    ("bert_tf/training/optimizers.py", "_get_variable_index"),  # Keras' own optimizers use
    ("bert_tf/training/optimizers.py", "_trainable_variables"),  # both; subclasses must.
}


def names_in(tree: ast.Module) -> tuple[set[str], set[str]]:
    """Returns the names that a file uses as attributes or in strings, and those that it defines."""
    used, defined = set(), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            defined.add(node.name)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            used.add(node.value)
        elif isinstance(node, ast.Attribute):
            used.add(node.attr)
            is_own = isinstance(node.value, ast.Name) and node.value.id == "self"
            if is_own and isinstance(node.ctx, ast.Store):
                defined.add(node.attr)
    return used, defined


def private_names_of_keras() -> set[str]:
    layer, optimizer = keras.layers.Dense(1), keras.optimizers.SGD()
    model = keras.Sequential([layer])
    model.compile(optimizer, "mse")
    names = {name for one in (layer, optimizer, model, keras.Variable) for name in dir(one)}
    names |= {"_use_cached_eval_dataset"}  # an argument of `evaluate`
    return {name for name in names if name.startswith("_") and not name.startswith("__")}


def test_private_names_of_keras_are_listed() -> None:
    private = private_names_of_keras()
    assert {"_flatten_layers", "_build_shapes_dict", "_loss_tracker"} < private
    all_used, all_defined = set(), set()
    for path in [*(ROOT / "bert_tf").rglob("*.py"), *(ROOT / "export").rglob("*.py")]:
        text = path.read_text(encoding="utf8")
        used, defined = names_in(ast.parse(text))
        all_used |= {(path.relative_to(ROOT).as_posix(), name) for name in used & private}
        all_defined |= defined
        assert "keras.src" not in text, path
    assert {use for use in all_used if use[1] not in all_defined} == PRIVATE_NAMES
    assert keras.__version__ == KERAS_TRIED


def test_the_unpickler_in_c_ends_the_process_at_a_deep_key() -> None:
    # Tried on Python 3.11. So `torch_pickle` subclasses the one in Python, `pickle._Unpickler`, and
    # uses its `dispatch` and `stack`; tests/checkpoints/torch_pickle_test.py has the same key.
    code = r"import pickle; pickle.loads(b'})' + b'\x85' * 2_000_000 + b'Ns.')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True)
    assert done.returncode == -signal.SIGSEGV


def test_keras_nlp_is_keras_hub() -> None:
    assert metadata.version("keras-nlp") == metadata.version("keras-hub")


def test_tensorflow_datasets_finds_what_it_does_not_declare() -> None:
    requirements = metadata.requires("tensorflow-datasets") or []
    declared = [line for line in requirements if line.startswith("importlib_resources")]
    assert declared == ['importlib_resources; python_version < "3.9"']  # Used by every version.
    from tensorflow_datasets.core import dataset_builder

    assert dataset_builder.importlib_resources.abc.Traversable  # Imported when first touched.


@pytest.mark.slow
def test_tensorflow_backend_is_chosen_before_keras_is_loaded() -> None:
    code = "import bert_tf, keras; print(keras.backend.backend())"
    environment = {"PATH": "", "TF_CPP_MIN_LOG_LEVEL": "2"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert done.stdout.strip() == "tensorflow", done.stderr
