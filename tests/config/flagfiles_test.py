"""Flagfiles: absl's own expansion beside ours, and the places where absl does not look."""

import os
import pathlib

import pytest
from absl import flags

from bert_tf import __main__ as programs
from bert_tf.config import config_flags, flagfiles
from bert_tf.config.ranking_config import RetrieverConfig
from bert_tf.system.files import new_folder_path
from tests.hostile_files import refuses
from tests.programs import own_flags
from tests.shared_data import ROOT


def test_shipped_flagfiles_expand_as_with_absl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    paths = sorted(ROOT.glob("configs/*.flags"))
    assert len(paths) > 25
    for path in paths:
        name = f"configs/{path.name}"
        given = ["program", "--a=1", f"--flagfile={name}", "--b=2", "--flagfile", name, "--", "-x"]
        assert flagfiles.expanded(given) == flags.FlagValues().read_flags_from_files(given), name


def test_found_in_any_folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    expected = flagfiles.expanded(["program", "--flagfile=configs/base_lamb.flags"])
    monkeypatch.chdir(tmp_path)
    for name in ("base_lamb.flags", "configs/base_lamb.flags"):
        assert flagfiles.expanded(["program", f"--flagfile={name}"]) == expected
    # One of the folder comes first, and names what stands beside it, then what is shipped.
    (tmp_path / "own").mkdir()
    (tmp_path / "base_lamb.flags").write_text("// mine\n  --mine\n--flagfile=own/more.flags\n")
    (tmp_path / "own" / "more.flags").write_text("--flagfile=last.flags\n--flagfile=tiny.flags\n")
    (tmp_path / "own" / "last.flags").write_text("\n# nothing\n--last=a = b\n")
    tiny = flagfiles.expanded(["program", "--flagfile=tiny.flags"])[1:]
    mine = flagfiles.expanded(["program", "--flagfile=base_lamb.flags"])
    assert mine == ["program", "--mine", "--last=a = b", *tiny]


def test_a_share_beside_a_flagfile_replaces_its_number_of_steps(tmp_path: pathlib.Path) -> None:
    number, share = "--num_warmup_steps=10000", "--warmup_proportion=0.06"
    (tmp_path / "mine.flags").write_text(f"--flagfile=base.flags\n{share}\n")
    for given in (["--flagfile=base.flags", share], [f"--flagfile={tmp_path}/mine.flags"]):
        found = flagfiles.expanded(["program", *given])
        assert share in found and number not in found
    modernbert = "--flagfile=modernbert_base.flags"
    assert "--cooldown=37000" in flagfiles.expanded(["program", modernbert])
    found = flagfiles.expanded(["program", modernbert, "--cooldown_proportion=0.2"])
    assert "--cooldown=37000" not in found
    (tmp_path / "run.flags").write_text(f"{number}\n{share}\n")  # A run's record has both.
    for given in ([f"--flagfile={tmp_path}/run.flags"], ["--flagfile=base.flags", share, number]):
        assert {number, share} <= set(flagfiles.expanded(["program", *given]))


def test_a_prompt_keeps_the_space_at_its_end(tmp_path: pathlib.Path) -> None:
    config = RetrieverConfig(query_prompt="query: ")
    with own_flags():  # Those of another test's program would be the only ones that are written.
        text = config_flags.flagfile(config)
    (tmp_path / "run.flags").write_text(text + "--do_train \n")
    found = flagfiles.expanded(["", f"--flagfile={tmp_path}/run.flags"])
    assert "--query_prompt=query: " in found and "--do_train" in found


def test_errors_name_the_file(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture) -> None:
    circle = tmp_path / "circle.flags"
    circle.write_text(f"--flagfile={circle}\n")
    for name in (str(circle), "no_such.flags", os.fspath(tmp_path)):
        with pytest.raises(SystemExit) as ended:
            config_flags.parse(["program", f"--flagfile={name}"])
        printed = capsys.readouterr().err
        assert ended.value.code == 1 and printed.count("\n") == 1
        assert printed.startswith("ERROR: --flagfile") and name in printed


def test_every_program_has_a_short_name(
    capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [path for folder in ("bert_tf", "export") for path in (ROOT / folder).glob("*.py")]
    mains = {
        f"{path.parent.name}.{path.stem}"
        for path in paths
        if "config_flags.run(" in path.read_text(encoding="utf8")
    }
    assert set(programs.PROGRAMS.values()) >= mains and len(mains) > 15
    monkeypatch.setattr("sys.argv", ["bert-tf"])
    programs.main()
    assert all(f"  {name} " in capsys.readouterr().out for name in ["pretrain"])
    monkeypatch.setattr("sys.argv", ["bert-tf", "pretain", "--help"])
    with pytest.raises(SystemExit, match="1"):
        programs.main()
    assert "'pretain'" in capsys.readouterr().err


def chain(folder: pathlib.Path, count: int, times: int = 1) -> str:
    """Writes flagfiles, each of which names the next one so many times; returns the first."""
    for number in range(count):
        (folder / f"{number}.flags").write_text(f"--flagfile={number + 1}.flags\n" * times)
    (folder / f"{count}.flags").write_text("--last=1\n")
    return f"--flagfile={folder / '0.flags'}"


@pytest.mark.parametrize("case", ["chain", "doubling", "comments", "loop", "pipe", "device"])
def test_flagfiles_that_attack(tmp_path: pathlib.Path, case: str) -> None:
    path = tmp_path / "a.flags"
    argument = f"--flagfile={path}"
    if case == "chain":
        argument = chain(tmp_path, 1200)
    elif case == "doubling":
        argument = chain(tmp_path, 40, times=2)
    elif case == "comments":
        with path.open("wb") as file:
            file.write(b"# comment\n")
            file.truncate(200 << 20)
    elif case == "loop":
        path.symlink_to(path)
    elif case == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    with refuses():
        flagfiles.expanded(["program", argument])


def test_a_short_chain_of_flagfiles(tmp_path: pathlib.Path) -> None:
    assert flagfiles.expanded(["program", chain(tmp_path, 20)]) == ["program", "--last=1"]
    expected = ["program", *["--last=1"] * 8]
    assert flagfiles.expanded(["program", chain(tmp_path, 3, times=2)]) == expected


@pytest.mark.parametrize("name", ["~nobody_of_this_name/x", "loop", "loop/x"])
def test_paths_that_lead_nowhere_are_one_error(tmp_path: pathlib.Path, name: str) -> None:
    (tmp_path / "loop").symlink_to("loop")
    path = name if name.startswith("~") else tmp_path / name
    with refuses():
        new_folder_path(path)
    try:
        pathlib.Path(path).expanduser().resolve()
    except RuntimeError as error:
        assert config_flags.error_line(error)
