"""The notebooks: those of their scripts, run to the end, with pictures."""

import json
import pathlib
import subprocess
import sys

import pytest

EXAMPLES = pathlib.Path(__file__).resolve().parents[1] / "examples"
NAMES = ("fine_tune", "pretrain", "search", "serve")


def cells_of(name: str) -> list[dict]:
    return json.loads((EXAMPLES / f"{name}.ipynb").read_text(encoding="utf8"))["cells"]


def as_in_script(cell: dict) -> str:
    """Returns a cell as jupytext's percent format has it."""
    lines = "".join(cell["source"]).splitlines()
    if cell["cell_type"] == "markdown":
        return "\n".join(["# %% [markdown]", *(f"# {line}".rstrip() for line in lines)])
    if lines[0] == "%%bash":
        return "\n".join(['# %% language="bash"', *(f"# {line}" for line in lines[1:])])
    return "\n".join(["# %%", *lines])


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_is_its_script_run_to_the_end(name):
    cells = cells_of(name)
    script = (EXAMPLES / "notebooks" / f"{name}.py").read_text(encoding="utf8")
    rest = "".join(script.split())
    for cell in cells:  # Up to empty lines, which the formatter moves.
        text = "".join(as_in_script(cell).split())
        assert rest.startswith(text), cell["source"]
        rest = rest.removeprefix(text)
    assert not rest
    outputs = [output for cell in cells for output in cell.get("outputs", ())]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert not any(output["output_type"] == "error" for output in outputs)
    assert all(cell["execution_count"] for cell in cells if cell["cell_type"] == "code")
    assert (EXAMPLES / f"{name}.ipynb").stat().st_size < 300_000


@pytest.mark.needs("jupytext", "nbclient", "ipykernel")
@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs(name):
    code = f"import make_notebooks; make_notebooks.make_notebook({name!r})"
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=EXAMPLES, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr[-3000:]
