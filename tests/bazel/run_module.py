"""Runs a module on a copy of a test's runfiles: what no target names is not there.

Runfiles are links into the source tree. A test that resolves its own path would find every file
of the tree, named by its target or not.
"""

import os
import pathlib
import runpy
import shutil
import sys

if __name__ == "__main__":
    source = pathlib.Path.cwd()
    folder = pathlib.Path(os.environ["TEST_TMPDIR"], "tree")
    shutil.copytree(source, folder)
    os.chdir(folder)
    sys.path = [str(folder), *(path for path in sys.path if not path.startswith(str(source)))]
    os.environ["PYTHONPATH"] = str(folder)
    os.environ["TMPDIR"] = os.environ["TEST_TMPDIR"]
    sys.argv = sys.argv[1:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
