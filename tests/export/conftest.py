"""Exported tiny models of every kind, made once for all tests that read them, and their answers."""

import pathlib
from typing import NamedTuple

import pytest

# One simple kind with pairs, and the one with most operations; the others take minutes.
QUICK_KINDS = ("next_sentence", "tagger")


class ServedModel(NamedTuple):
    """A model in its three forms.

    Attributes:
      source: checkpoint.
      served: in Python.
      text, ids: its SavedModels.
    """

    source: pathlib.Path
    served: "export.served.model.Served"  # noqa: F821
    text: pathlib.Path
    ids: pathlib.Path


class Asked(NamedTuple):
    """A SavedModel with what it is asked, and what a process of TensorFlow alone says."""

    stored: "export.checks.stored_model.StoredModel"  # noqa: F821
    requests: list
    job: dict
    result: dict


class ServedModels:
    """One model of each kind, by its kind; made when it is first asked for."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder, self._made = folder, {}

    def __getitem__(self, kind: str) -> ServedModel:
        if kind not in self._made:
            self._made[kind] = make_served_model(self._folder / kind, kind)
        return self._made[kind]


class AskedModels:
    """Every SavedModel with its answers, by kind and form: "ids" or "text".

    One process runs all of the quick kinds, and one all others, when one of them is asked for.
    """

    def __init__(self, models: ServedModels) -> None:
        self._models, self._groups = models, {}

    def __getitem__(self, key: tuple[str, str]) -> Asked:
        return self.group(key[0])[key]

    def group(self, kind: str) -> dict[tuple[str, str], Asked]:
        """Returns all that are run with a kind."""
        from tests.export.made_models import PURPOSE_OF_KIND

        is_quick = kind in QUICK_KINDS
        if is_quick not in self._groups:
            kinds = [other for other in PURPOSE_OF_KIND if (other in QUICK_KINDS) == is_quick]
            self._groups[is_quick] = ask_models({name: self._models[name] for name in kinds})
        return self._groups[is_quick]


def make_served_model(folder: pathlib.Path, kind: str) -> ServedModel:
    """Writes a model of one layer, and exports it."""
    from absl import logging

    from export.models import load
    from export.saving.version_folders import ids_folder
    from export.saving.writing import save
    from tests.export.made_models import write_model

    before = logging.get_verbosity()
    logging.set_verbosity(logging.WARNING)  # TensorFlow tells of every file that it writes.
    run = {"max_query_length": "8"} if kind == "question_answering" else None
    source = write_model(folder / "run", kind, run, num_hidden_layers=1)
    served = load(str(source), kind)
    model = folder / "serving" / kind
    text, _ = save(served, model, 1, str(source))
    logging.set_verbosity(before)
    return ServedModel(source, served, text, ids_folder(model) / "1")


def ask_models(models: dict[str, ServedModel]) -> dict[tuple[str, str], Asked]:
    """Asks SavedModels in one process of TensorFlow alone.

    Those of ids come first: tensorflow-text enters the process with the first that needs it.
    """
    from export.checks.model_check import all_requests
    from export.checks.run_apart import FRESH_PROCESS, make_job, run_apart
    from export.checks.stored_model import read

    stored = {
        (kind, form): read(getattr(model, form))
        for form in ("ids", "text")
        for kind, model in models.items()
    }
    requests = {key: all_requests(model) for key, model in stored.items()}
    jobs = {key: make_job(stored[key], requests[key]) for key in stored}
    results = run_apart(FRESH_PROCESS, list(jobs.values()))
    return {
        key: Asked(stored[key], requests[key], jobs[key], result)
        for key, result in zip(jobs, results, strict=True)
    }


def every_kind() -> list:
    """Returns all kinds as parameters of a test; those that take long are slow."""
    from tests.export.made_models import PURPOSE_OF_KIND

    slow = pytest.mark.slow
    return [pytest.param(k, marks=() if k in QUICK_KINDS else slow) for k in PURPOSE_OF_KIND]


@pytest.fixture(scope="session")
def served_models(tmp_path_factory):
    return ServedModels(tmp_path_factory.mktemp("served_models"))


@pytest.fixture(scope="session")
def asked_models(served_models):
    return AskedModels(served_models)
