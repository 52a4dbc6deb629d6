"""Runs Bazel and buildifier on BUILD and MODULE.bazel. Needs no network.

    python -m tests.bazel.check                       builds all, runs QUICK_TESTS
    python -m tests.bazel.check //:text_test          runs other tests

The Bazel that Debian carries is older than modules and knows no PyPI. So the tree is copied to a
workspace of its own, and small stubs stand in for the repositories that a new Bazel would load.
"""

import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parents[2]
STUBS = pathlib.Path(__file__).resolve().parent
QUICK_TESTS = ("//:architecture_test", "//:build_vocab_test", "//:files_test", "//:metrics_test")
SKIPPED = 77  # The exit status for "could not run" that automake knows, too.
NOT_COPIED = (".*", "__pycache__", "bazel-*", "runs", "*.egg-info")
BAZEL = "bazel is not installed; on Debian: apt-get install bazel-bootstrap"
BUILDIFIER = "buildifier is not installed; with npm: npm install -g @bazel/buildifier@8.2.1"

# Old Bazel loads these for the toolchains of languages that this project does not use.
RULES_CC = "binary import library test toolchain toolchain_suite".split()
RULES_JAVA = "binary import library runtime toolchain".split()
FILEGROUP = 'filegroup(name = "{}", visibility = ["//visibility:public"])\n'
PACKAGE = 'py_library(name = "{}", srcs = [], visibility = ["//visibility:public"])\n'
RULE = 'load(":py_rules.bzl", rule = "{0}")\n\n{0} = rule\n'


class MissingTool(Exception):
    """A program is not installed; the message says how to get it."""


def bazel_name(package: str) -> str:
    """Returns the name that rules_python gives a package of PyPI.

    >>> bazel_name("scikit-learn")
    'scikit_learn'
    """
    return re.sub(r"[-_.]+", "_", package).lower()


def locked_packages() -> list[str]:
    """Returns the packages of the lock by the names that rules_python gives them."""
    lines = (ROOT / "requirements_lock.txt").read_text(encoding="utf8").splitlines()
    return [bazel_name(line.split("==")[0]) for line in lines if not line.startswith("#")]


def stub_files() -> dict[str, str]:
    """Returns the text of each file of the stub repositories, by `repository/path`."""
    rules = {name: RULE.format(name) for name in ("py_binary", "py_library", "py_test")}
    native = {
        "rules_cc/cc": [f"cc_{name}" for name in RULES_CC] + ["objc_library"],
        "rules_java/java": [f"java_{name}" for name in RULES_JAVA],
    }
    files = {f"rules_python/python/{name}.bzl": text for name, text in rules.items()}
    for name in ("py_rules.bzl", "run_module.py"):
        files[f"rules_python/python/{name}"] = (STUBS / name).read_text(encoding="utf8")
    files["rules_python/python/BUILD"] = 'exports_files(["run_module.py"])\n'
    for folder, names in native.items():
        files[f"{folder}/BUILD"] = ""
        files[f"{folder}/defs.bzl"] = "".join(f"{name} = native.{name}\n" for name in names)
    coverage = ("coverage_report_generator", "lcov_merger")
    files["remote_coverage_tools/BUILD"] = "".join(map(FILEGROUP.format, coverage))
    return files | {f"pypi/{name}/BUILD": PACKAGE.format(name) for name in locked_packages()}


def write_stubs(folder: pathlib.Path) -> list[str]:
    """Writes the stub repositories; returns the options that put them in place."""
    for name, text in stub_files().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf8")
    for repository in folder.iterdir():
        (repository / "WORKSPACE").write_text(f'workspace(name = "{repository.name}")\n')
    return [f"--override_repository={path.name}={path}" for path in sorted(folder.iterdir())]


class Bazel:
    """Bazel in a copy of a source tree."""

    def __init__(self, source: pathlib.Path, folder: pathlib.Path) -> None:
        if not shutil.which("bazel"):
            raise MissingTool(BAZEL)
        self.workspace = folder / "workspace"
        shutil.copytree(source, self.workspace, ignore=shutil.ignore_patterns(*NOT_COPIED))
        # The name of the main repository's runfiles must not be that of the package bert_tf.
        (self.workspace / "WORKSPACE").write_text('workspace(name = "main")\n', encoding="utf8")
        self._stubs = write_stubs(folder / "stubs")
        self._start = ["bazel", f"--output_user_root={folder / 'output'}", "--max_idle_secs=60"]
        # Not --nosystem_rc: that of Debian says where Bazel is installed.
        self._start += ["--nohome_rc", "--host_jvm_args=-Xmx512m"]

    def __call__(self, command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs a command of Bazel; its two streams come as one text."""
        options = [] if command == "shutdown" else ["--color=no", "--noshow_progress"]
        if command in ("query", "build", "test"):
            options += self._stubs
        if command in ("build", "test"):
            options += ["--jobs=2", "--local_ram_resources=4000", "--keep_going"]
            options += ["--spawn_strategy=processwrapper-sandbox", "--nosandbox_debug"]
            options += ["--incompatible_default_to_explicit_init_py"]  # As MODULE.bazel says.
        if command == "test":
            # Tests run on this interpreter and its packages.
            path = f"{pathlib.Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
            options += [f"--test_env=PATH={path}", "--test_output=errors"]
        return subprocess.run(
            [*self._start, command, *options, *arguments],
            cwd=self.workspace,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


@contextlib.contextmanager
def bazel_in_copy(source: pathlib.Path) -> Iterator[Bazel]:
    """Gives a Bazel in a temporary copy of a source tree; stops it and deletes the copy."""
    with tempfile.TemporaryDirectory(prefix="bazel_", ignore_cleanup_errors=True) as folder:
        bazel = Bazel(source, pathlib.Path(folder).resolve())
        try:
            yield bazel
        finally:
            bazel("shutdown")


def check_build(tests: list[str]) -> bool:
    """Lists and builds all targets, runs some tests; prints what Bazel prints."""
    with bazel_in_copy(ROOT) as bazel:
        for arguments in (("query", "//..."), ("build", "//..."), ("test", *tests)):
            done = bazel(*arguments)
            print(f"bazel {' '.join(arguments)}\n{done.stdout}", flush=True)
            if done.returncode:
                return False
    return True


def check_form() -> bool:
    """Lints BUILD and MODULE.bazel; prints what is wrong with them."""
    if not shutil.which("buildifier"):
        raise MissingTool(BUILDIFIER)
    command = ["buildifier", "-mode=check", "-lint=warn", "BUILD", "MODULE.bazel"]
    done = subprocess.run(command, cwd=ROOT)
    print(f"{' '.join(command)}: exit status {done.returncode}", flush=True)
    return done.returncode == 0


def main(tests: list[str]) -> int:
    """Runs both checks; returns the exit status: SKIPPED if one lacks its program."""
    status = 0
    for check in (check_form, lambda: check_build(tests or list(QUICK_TESTS))):
        try:
            passed = check()
        except MissingTool as error:
            print(f"skipped: {error}")
            status = status or SKIPPED
        else:
            status = status if passed else 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
