"""Runs code around the first import of a module that is too slow to import only for that."""

import contextlib
import importlib.abc
import importlib.util
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from importlib.machinery import ModuleSpec

# What Keras imports where it is installed, for wrappers of estimators and for plots: a fourth of
# the time that TensorFlow's import takes.
KERAS_EXTRAS = ("sklearn", "matplotlib")
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
    """Lets the first import of TensorFlow, and with it of Keras, leave out `KERAS_EXTRAS`.

    This is for programs, not for a library: in this process Keras lacks what needs them.
    """
    for name in ("tensorflow", "keras"):
        around_import(name, lambda _: hidden_packages(KERAS_EXTRAS))


@contextlib.contextmanager
def hidden_packages(names: Sequence[str]) -> Iterator[None]:
    """Makes imports of packages fail inside the context, unless they are loaded already."""
    hidden = set(names) - set(sys.modules)
    for name in hidden:
        sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        for name in hidden:
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
