"""Golden folders of the families, and copies with another configuration."""

import json
import pathlib
import shutil

from tests.shared_data import golden_file


def golden_folder(name: str) -> pathlib.Path:
    return golden_file("families", *name.split("/"))


def copy_of(name: str, tmp_path: pathlib.Path, **values) -> pathlib.Path:
    """Copies a golden folder; `values` replace those of its config.json, None deletes one."""
    folder = tmp_path / "copy"
    shutil.copytree(golden_folder(name), folder, dirs_exist_ok=True)
    config = {**json.loads((folder / "config.json").read_text()), **values}
    config = {key: value for key, value in config.items() if value is not None}
    (folder / "config.json").write_text(json.dumps(config))
    return folder
