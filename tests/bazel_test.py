"""BUILD is true under Bazel: all targets build, and a test finds its files and packages.

The Bazel that Debian carries is older than modules and knows no PyPI. So the tree is copied to a
workspace of its own, and stubs stand in for the repositories that a newer Bazel would load.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from tests.shared_data import ROOT

TESTS = ROOT / "tests"
RULE = "{0} = native.{0}\n"
PACKAGE = 'py_library(name = "{}", srcs = [], visibility = ["//visibility:public"])\n'
FILEGROUP = 'filegroup(name = "{}", visibility = ["//visibility:public"])\n'
# The built-in rule knows only files as `main`: this one runs a module on a copy of the runfiles,
# which are links into the tree, so that what no target names is not there.
RUN_MODULE = """
import os, pathlib, runpy, shutil, sys
source, folder = pathlib.Path.cwd(), pathlib.Path(os.environ["TEST_TMPDIR"], "tree")
shutil.copytree(source, folder)
os.chdir(folder)
sys.path = [str(folder), *(path for path in sys.path if not path.startswith(str(source)))]
os.environ.update(PYTHONPATH=str(folder), TMPDIR=os.environ["TEST_TMPDIR"])
del sys.argv[0]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""
PY_TEST = """
def py_test(main_module, srcs, args, **attributes):
    runner = "@rules_python//python:run_module.py"
    native.py_test(srcs = srcs + [runner], args = [main_module] + args, main = runner, **attributes)
"""
# Old Bazel loads these for the toolchains of languages that this project does not use.
NATIVE = {
    "rules_cc/cc": "cc_binary cc_import cc_library cc_test cc_toolchain cc_toolchain_suite "
    "objc_library",
    "rules_java/java": "java_binary java_import java_library java_runtime java_toolchain",
}


def bazel_name(package: str) -> str:
    """Returns the name that rules_python gives a package of PyPI."""
    return re.sub(r"[-_.]+", "_", package).lower()


def locked_packages() -> set[str]:
    """Returns the packages of the lock by the names that rules_python gives them."""
    text = (ROOT / "requirements_lock.txt").read_text(encoding="utf8")
    return {bazel_name(name) for name in re.findall(r"^([\w.-]+)==", text, re.M)}


def write_stubs(folder: pathlib.Path) -> list[str]:
    """Writes the stub repositories; returns the options that put them in place."""
    files = {
        f"rules_python/python/py_{n}.bzl": RULE.format(f"py_{n}") for n in ("binary", "library")
    }
    files["rules_python/python/py_test.bzl"] = PY_TEST
    files["rules_python/python/run_module.py"] = RUN_MODULE
    files["rules_python/python/BUILD"] = 'exports_files(["run_module.py"])\n'
    for place, names in NATIVE.items():
        files[f"{place}/BUILD"] = ""
        files[f"{place}/defs.bzl"] = "".join(map(RULE.format, names.split()))
    coverage = map(FILEGROUP.format, ("coverage_report_generator", "lcov_merger"))
    files["remote_coverage_tools/BUILD"] = "".join(coverage)
    files |= {f"pypi/{name}/BUILD": PACKAGE.format(name) for name in locked_packages()}
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf8")
    for repository in folder.iterdir():
        (repository / "WORKSPACE").write_text(f'workspace(name = "{repository.name}")\n')
    return [f"--override_repository={path.name}={path}" for path in sorted(folder.iterdir())]


@pytest.mark.slow
def test_all_targets_build_and_a_test_runs(tmp_path: pathlib.Path) -> None:
    if not shutil.which("bazel"):
        pytest.skip("bazel is not installed; on Debian: apt-get install bazel-bootstrap")
    workspace = tmp_path / "workspace"
    names = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    for name in names.stdout.splitlines():
        if (ROOT / name).exists():
            (workspace / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, workspace / name)
    # The name of the main repository's runfiles must not be that of the package bert_tf.
    (workspace / "WORKSPACE").write_text('workspace(name = "main")\n', encoding="utf8")
    start = ["bazel", f"--output_user_root={tmp_path / 'output'}", "--nohome_rc"]
    options = [*write_stubs(tmp_path / "stubs"), "--jobs=2", "--keep_going"]
    # Runs tests on this interpreter and its packages.
    path = f"--test_env=PATH={pathlib.Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    options += ["--incompatible_default_to_explicit_init_py", "--test_output=errors", path]
    try:
        for arguments in (["build", "//..."], ["test", "//:metrics_test"]):
            command = [*start, arguments[0], *options, arguments[1]]
            done = subprocess.run(command, cwd=workspace, capture_output=True, text=True)
            assert done.returncode == 0, done.stdout + done.stderr
    finally:
        subprocess.run([*start, "shutdown"], cwd=workspace, capture_output=True)
    for program in ("run_pretraining", "export_saved_model"):
        assert (workspace / "bazel-bin" / program).exists()


def test_form_of_the_files() -> None:
    if not shutil.which("buildifier"):
        pytest.skip("buildifier is not installed; npm install -g @bazel/buildifier@8.2.1")
    command = ["buildifier", "-mode=check", "-lint=warn", "BUILD", "MODULE.bazel"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_packages_of_build_are_locked() -> None:
    """Bazel takes nothing that the lock does not name."""
    lists = re.findall(r"^[A-Z]+ = \[(.*?)\]", (ROOT / "BUILD").read_text(), re.M | re.S)
    named = set(re.findall(r'"(\w+)"', " ".join(lists)))
    assert len(named) > 20 and named <= locked_packages(), named - locked_packages()


def test_every_folder_of_tests_has_a_target() -> None:
    """Bazel ignores a folder that no target names, so this needs no Bazel."""
    folders = {file.relative_to(TESTS).parts[0] for file in TESTS.glob("*/**/*_test.py")}
    build = (ROOT / "BUILD").read_text(encoding="utf8")
    listed = re.search(r"for folder in \[(.*?)\]", build, re.DOTALL)
    assert listed is not None
    assert set(re.findall(r'"(\w+)"', listed[1])) == folders
