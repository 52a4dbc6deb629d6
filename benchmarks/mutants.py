"""Breaks lines of the source, one at a time, and tells whether the tests notice.

    python -m benchmarks.mutants --seed=17 --count=40 --jobs=2 --results=/tmp/mutants.json

The lines are chosen by the seed, in each package about as many as it has lines. A mutant lives in a
copy of the tree. The tests that are likeliest to notice it run first: those of its module, those
that mention its module, then all of `make test`; what survives meets those marked slow. A test that
fails without the mutant, too, does not count. Results are written as they come, and the same
command goes on where it was stopped.
"""

import argparse
import ast
import concurrent.futures
import copy
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[1]
PACKAGES = ("bert_tf", "export")
SKIPPED_CALLS = ("logging", "print", "warnings")  # What they say is no result.
SKIPPED_KEYWORDS = ("help", "name", "strict")  # The last checks what holds anyway.
LIMITS = {"module": 300, "mention": 900, "fast": 1800, "slow": 3600}  # Seconds; then it hangs.
COMPARISONS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
OPERATORS = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd, ast.LShift: ast.RShift, ast.RShift: ast.LShift,
}  # fmt: skip


class Mutant(NamedTuple):
    """A line of the source, and what stands in its place."""

    path: str
    line: int
    old: str
    new: str

    @property
    def key(self) -> str:
        return f"{self.path}:{self.line}: {self.new}"


def mutations(node: ast.AST) -> Iterator[ast.AST]:
    """Yields what may stand for a node."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARISONS:
        yield changed(node, ops=[COMPARISONS[type(node.ops[0])](), *node.ops[1:]])
    elif (
        isinstance(node, ast.BinOp | ast.AugAssign)
        and type(node.op) in OPERATORS
        and not (
            is_text(getattr(node, "right", None))  # A path's "/": any other operator just fails.
        )
    ):
        yield changed(node, op=OPERATORS[type(node.op)]())
    elif isinstance(node, ast.BoolOp):
        yield changed(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.operand
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield ast.Constant(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield ast.Constant(node.value + 1)
        yield ast.Constant(node.value - 1)
    elif isinstance(node, ast.If | ast.While | ast.IfExp) and not isinstance(
        node.test, ast.UnaryOp
    ):
        yield changed(node, test=ast.UnaryOp(ast.Not(), node.test))
    elif isinstance(node, ast.Return) and node.value and not is_none(node.value):
        yield changed(node, value=ast.Constant(None))
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield ast.Pass()
    elif isinstance(node, ast.AugAssign | ast.Raise | ast.Continue | ast.Break):
        yield ast.Pass()


def changed(node: ast.AST, **fields: object) -> ast.AST:
    made = copy.copy(node)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def is_text(node: ast.AST | None) -> bool:
    return isinstance(node, ast.JoinedStr) or isinstance(getattr(node, "value", None), str)


def is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def code_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yields the nodes that compute: no docstrings, annotations, messages, or typing alone."""
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "exc", "msg"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not is_talk(child):
                yield from code_nodes(child)


def is_talk(node: ast.AST) -> bool:
    if isinstance(node, ast.If):
        return "TYPE_CHECKING" in ast.unparse(node.test) or "__name__" in ast.unparse(node.test)
    if isinstance(node, ast.Expr):
        node = node.value
    if isinstance(node, ast.JoinedStr):
        return True
    if isinstance(node, ast.Call):
        return ast.unparse(node.func).split(".")[0] in SKIPPED_CALLS
    return isinstance(node, ast.keyword) and node.arg in SKIPPED_KEYWORDS


def mutants_of(path: pathlib.Path) -> list[Mutant]:
    """Returns all mutants of a file that change one line."""
    text = path.read_text(encoding="utf8")
    lines, found = text.encode().splitlines(keepends=True), []
    for node in code_nodes(ast.parse(text)):
        if getattr(node, "lineno", None) is None:
            continue
        # Of a block the head alone: the test of an `if` is on its line.
        whole = node.test if isinstance(node, ast.If | ast.While) else node
        if whole.lineno != whole.end_lineno:
            continue
        for made in mutations(node):
            made = made.test if isinstance(node, ast.If | ast.While) else made
            code = ast.unparse(ast.fix_missing_locations(made))
            if not isinstance(made, ast.stmt):
                code = f"({code})"
            line = lines[whole.lineno - 1]
            new = line[: whole.col_offset] + code.encode() + line[whole.end_col_offset :]
            old, new = line.decode().strip(), new.decode().strip()
            found.append(Mutant(path.relative_to(ROOT).as_posix(), whole.lineno, old, new))
    return found


def choose(seed: int, count: int) -> list[Mutant]:
    """Draws lines of all packages, then one mutant of each line.

    Each folder gives its share of the lines, at least one.
    """
    folders: dict[str, list[list[Mutant]]] = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            by_line: dict[int, list[Mutant]] = {}
            for mutant in mutants_of(path):
                by_line.setdefault(mutant.line, []).append(mutant)
            folders.setdefault(str(path.relative_to(ROOT).parent), []).extend(by_line.values())
    folders = {name: lines for name, lines in folders.items() if lines}
    source = random.Random(seed)
    chosen = [source.choice(lines) for lines in folders.values()][:count]
    places = {(line[0].path, line[0].line) for line in chosen}
    rest = [line for lines in folders.values() for line in lines]
    rest = [line for line in rest if (line[0].path, line[0].line) not in places]
    chosen += source.sample(rest, min(len(rest), count - len(chosen)))
    return [source.choice(good) for line in chosen if (good := list(filter(is_python, line)))]


def is_python(mutant: Mutant) -> bool:
    """False where only a parser knows: inside an f-string, say."""
    lines = (ROOT / mutant.path).read_text(encoding="utf8").splitlines()
    before = lines[mutant.line - 1]
    lines[mutant.line - 1] = before[: len(before) - len(before.lstrip())] + mutant.new
    try:
        ast.parse("\n".join(lines))
    except SyntaxError:
        return False
    return True


def stages(mutant: Mutant) -> Iterator[tuple[str, list[str]]]:
    """Yields (name, arguments of pytest), the likeliest to notice first."""
    path = pathlib.Path(mutant.path)
    package, *folders = path.parts[:-1]
    folder = pathlib.Path("tests", *([package] if package != "bert_tf" else []), *folders)
    own = [f for f in (folder / f"{path.stem}_test.py", folder) if (ROOT / f).exists()][:1]
    module, parent = ".".join(path.with_suffix("").parts), ".".join(path.parts[:-1])
    mention = re.compile(
        rf"\b{re.escape(module)}\b|from {re.escape(parent)} import .*\b{path.stem}\b"
        rf"|[\"']{path.stem}[\"']"
    )
    tests = sorted((ROOT / "tests").rglob("*_test.py"))
    near = [t for t in tests if mention.search(t.read_text(encoding="utf8"))]
    yield "module", [str(f) for f in own if f != pathlib.Path("tests")]
    yield "mention", [t.relative_to(ROOT).as_posix() for t in near]
    yield "fast", ["tests"]
    yield "slow", ["-m", "slow and not network", "tests"]


def try_mutant(mutant: Mutant, tree: pathlib.Path) -> dict:
    """Runs the tests on a mutant in a copy of the tree; returns what noticed it, and when."""
    target, begin = tree / mutant.path, time.monotonic()
    before = target.read_bytes()
    lines = before.decode().splitlines(keepends=True)
    indent = re.match(r"\s*", lines[mutant.line - 1])[0]
    lines[mutant.line - 1] = f"{indent}{mutant.new}\n"
    broken = "".join(lines).encode()
    result = {**mutant._asdict(), "tier": "", "by": ""}
    left_out: list[str] = []
    try:
        for tier, arguments in stages(mutant):
            while arguments and not result["by"]:
                target.write_bytes(broken)
                noticed = run_tests([*left_out, *arguments], tree, LIMITS[tier])
                if not noticed:
                    break
                # What fails or hangs without the mutant, too, tells nothing of it.
                target.write_bytes(before)
                again = ["-m", "not network", noticed] if "_test.py" in noticed else arguments
                if not run_tests(again, tree, LIMITS[tier]):
                    result |= {"tier": tier, "by": noticed}
                elif again is arguments or noticed in left_out:
                    break
                else:
                    left_out += ["--deselect" if "::" in noticed else "--ignore", noticed]
            if result["by"]:
                break
    finally:
        target.write_bytes(before)
    return {**result, "seconds": round(time.monotonic() - begin)}


def run_tests(arguments: list[str], tree: pathlib.Path, limit: float) -> str:
    """Returns the test that failed first, "time limit", or "" if none did."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--tb=no"]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    environment.setdefault("BERT_TF_TEST_DATA", str(ROOT.parent / "shared" / "data"))
    with subprocess.Popen(
        [*command, "-rfE", *arguments], cwd=tree, env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            printed = process.communicate(timeout=limit)[0]
        except subprocess.TimeoutExpired:
            return "time limit"
        finally:
            if process.poll() is None:  # Its group: xdist's and programs' processes, too.
                os.killpg(process.pid, signal.SIGKILL)
    if process.returncode in (0, 5):  # 5: no test was chosen.
        return ""
    failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - |$)", printed, re.MULTILINE)
    return failed[1] if failed else printed.strip().splitlines()[-1]


def table(results: list[dict]) -> str:
    """Returns the results as a Markdown table with its sum."""
    rows = ["| line | mutant | noticed by | in | s |", "| --- | --- | --- | --- | --- |"]
    for r in results:
        change = f"`{r['old']}` → `{r['new']}`".replace("|", "\\|")
        by = r["by"] or "nothing"
        rows.append(f"| {r['path']}:{r['line']} | {change} | {by} | {r['tier']} | {r['seconds']} |")
    fast = sum(r["tier"] not in ("", "slow") for r in results)
    either = sum(bool(r["tier"]) for r in results)
    return "\n".join([*rows, "", f"{len(results)} mutants: {fast} noticed fast, {either} at all."])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=17)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--jobs", type=int, default=1, help="mutants side by side")
    parser.add_argument("--results", type=pathlib.Path, default=pathlib.Path("mutants.json"))
    parser.add_argument("--list", action="store_true", help="only say which would be tried")
    options = parser.parse_args()
    chosen = choose(options.seed, options.count)
    if options.list:
        print("\n".join(f"{m.path}:{m.line}: {m.old}  ->  {m.new}" for m in chosen))
        return
    done = json.loads(options.results.read_text()) if options.results.exists() else {}
    lock, trees = threading.Lock(), []
    with tempfile.TemporaryDirectory() as folder:
        for job in range(options.jobs):
            tree = pathlib.Path(folder, str(job))
            ignored = shutil.ignore_patterns(".git", ".venv", "runs", "__pycache__", ".*_cache")
            shutil.copytree(ROOT, tree, ignore=ignored, symlinks=True)
            trees.append(tree)

        if "baseline" not in done:
            if failed := run_tests(["tests"], trees[0], LIMITS["fast"]):
                raise SystemExit(f"{failed} fails without any mutant; repair it first.")
            done["baseline"] = {}

        def work(mutant: Mutant) -> None:
            with lock:
                tree = trees.pop()
            try:
                result = try_mutant(mutant, tree)
            finally:
                with lock:
                    trees.append(tree)
            with lock:
                done[mutant.key] = result
                options.results.write_text(json.dumps(done, indent=1))
                print(f"{mutant.key}: {result['by'] or 'NOT NOTICED'}", flush=True)

        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            list(pool.map(work, [m for m in chosen if m.key not in done]))
    print(table([done[m.key] for m in chosen]))


if __name__ == "__main__":
    main()
