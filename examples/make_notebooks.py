"""Makes the notebooks of this folder from the scripts in notebooks/, and runs them.

    pip install jupytext nbclient ipykernel
    PYTHONPATH=. python examples/make_notebooks.py fine_tune pretrain search serve

A script is a notebook in jupytext's percent format. The notebook is written with its outputs, if it
runs to its end.
"""

import os
import pathlib
import sys
import tempfile

import jupytext
import nbformat
from nbclient import NotebookClient

EXAMPLES = pathlib.Path(__file__).resolve().parent
TIMEOUT_SECONDS = 1800


def make_notebook(name: str) -> nbformat.NotebookNode:
    """Makes a notebook of a script and runs it in an empty folder; returns it with its outputs.

    Raises:
      CellExecutionError: with the cell and its error.
    """
    notebook = jupytext.read(EXAMPLES / "notebooks" / f"{name}.py")
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook.metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"{name}-{number}"  # The same script gives the same notebook.
    # Its processes are this Python's, and find the project.
    os.environ["PATH"] = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
    os.environ["PYTHONPATH"] = str(EXAMPLES.parent)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with tempfile.TemporaryDirectory() as folder:
        resources = {"metadata": {"path": folder}}
        options = {"resources": resources, "coalesce_streams": True}
        NotebookClient(notebook, timeout=TIMEOUT_SECONDS, **options).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # When it ran.
        if cell.cell_type == "code":  # Without what TensorFlow says as it starts.
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    return notebook


if __name__ == "__main__":
    for name in sys.argv[1:]:
        nbformat.write(make_notebook(name), EXAMPLES / f"{name}.ipynb")
        print(f"wrote {EXAMPLES / name}.ipynb")
