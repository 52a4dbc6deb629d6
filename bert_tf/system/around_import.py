"""Runs code around the first import of a module that is too slow to import only for that."""

import contextlib
import importlib.abc
import importlib.util
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from importlib.machinery import ModuleSpec
from typing import Any

# What modules of Keras import where it is installed, for wrappers of estimators and for plots: a
# fourth of the time that TensorFlow's import takes.
KERAS_EXTRAS = {
    "keras.src.wrappers.fixes": "sklearn",
    "keras.src.wrappers.sklearn_wrapper": "sklearn",
    "keras.src.visualization.plot_image_gallery": "matplotlib",
    "keras.src.visualization.plot_bounding_box_gallery": "matplotlib",
}
Around = Callable[[types.ModuleType], contextlib.AbstractContextManager[None]]


class AroundImport(importlib.abc.MetaPathFinder):
    """Finds one module, once, and executes it inside `around(module)`."""

    def __init__(self, name: str, around: Around) -> None:
        self._name = name
        self._around = around
        self._is_asking_others = False

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self._name or self._is_asking_others:
            return None
        # `find_spec` asks all finders, also this one, which must not answer itself.
        self._is_asking_others = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._is_asking_others = False
        if spec and spec.loader:
            execute = spec.loader.exec_module

            def execute_inside(module: types.ModuleType) -> None:
                # Not earlier: other packages look for a module without importing it.
                if self in sys.meta_path:
                    sys.meta_path.remove(self)
                with self._around(module):
                    execute(module)

            spec.loader.exec_module = execute_inside  # type: ignore[method-assign]
        return spec


def around_import(name: str, around: Around) -> None:
    """Runs the first import of a module inside `around(module)`, which gets the empty module.

    A module that is loaded already is unchanged.
    """
    if name not in sys.modules:
        sys.meta_path.insert(0, AroundImport(name, around))


def import_keras_without_extras() -> None:
    """Lets the first import of Keras leave out the packages of `KERAS_EXTRAS`.

    This is for programs, not for a library: in this process Keras lacks what needs them.
    """
    for module, package in KERAS_EXTRAS.items():

        def hidden(_: types.ModuleType, package: str = package) -> Any:
            return hidden_package(package)

        around_import(module, hidden)


@contextlib.contextmanager
def hidden_package(name: str) -> Iterator[None]:
    """Makes imports of a package fail inside the context, unless it is loaded already."""
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[name]


@contextlib.contextmanager
def before_import(name: str, check: Callable[[], None]) -> Iterator[None]:
    """Calls `check` before a module is first imported in the context; its error ends the import."""

    @contextlib.contextmanager
    def checked(module: types.ModuleType) -> Iterator[None]:
        check()
        yield

    finder = AroundImport(name, checked)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        if finder in sys.meta_path:
            sys.meta_path.remove(finder)
