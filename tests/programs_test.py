"""Programs that run in this process behave as in their own, and leave nothing behind."""

import logging
import re

import absl.logging
import pytest
from absl import app, flags

from bert_tf import __main__ as bert_tf_main
from tests.programs import fail, finish, run, start


def test_flags_are_those_of_one_program():
    """--do_lower_case of these two has different definitions, --max_seq_length two defaults."""
    app.define_help_flags()

    def state():
        values = {name: flags.FLAGS[name].value for name in flags.FLAGS}
        return values, logging.getLogger().handlers[:], absl.logging.get_verbosity()

    before = state()
    defaults = {"create_pretraining_data": 128, "run_squad": 384}
    for program in (*defaults, *defaults):
        printed = run(program, "--helpfull").printed
        assert "--[no]alsologtostderr" in printed
        length = printed.split("--max_seq_length:")[1].split("--")[0]
        assert f"(default: '{defaults[program]}')" in length
        assert ("--doc_stride" in printed) == (program == "run_squad")
        assert state() == before


def test_errors_are_those_of_a_process(tmp_path):
    given = {"input_file": tmp_path / "nowhere", "vocab_file": tmp_path / "vocab.txt"}
    in_process, in_its_own = (fail(way("build_vocab", **given)) for way in (run, start))
    assert in_process == in_its_own
    done = run("fill_mask", "--txet=a")
    assert done.returncode == 1 and re.search("'txet'.* text ", done.printed)


def test_flags_of_sampling_need_sampling():
    model = {"init_checkpoint": "m", "text": "[MASK]"}
    assert "--seed" in fail(run("fill_mask", **model, seed=3))
    both = fail(run("fill_mask", **model, rounds=3, temperature=1))
    assert re.search("--rounds .*--temperature", both)
    several = fail(run("fill_mask", **model, rounds=10, num_fillings=3))
    assert re.search("--rounds .*--num_fillings", several)
    for whole in ({"num_fillings": 3}, {"rounds": 2}, {"text": "[GAP:1-2]"}):
        assert "--top_k" in fail(run("fill_mask", **{**model, **whole}, top_k=20))


def test_output_is_captured(tmp_path, capfd):
    (tmp_path / "text.txt").write_text("one two three\n" * 50)
    given = {"input_file": tmp_path / "text.txt", "vocab_size": 60, "num_workers": 1}
    for name in ("a", "b"):
        printed = finish(run("build_vocab", vocab_file=tmp_path / name, **given))
        assert re.search(f" 60 rows .*{tmp_path / name}", printed)
    assert capfd.readouterr() == ("", "")


def test_a_mistyped_program_gets_a_guess(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["bert-tf", "clasify"])
    with pytest.raises(SystemExit):
        bert_tf_main.main()
    assert "bert-tf classify" in capsys.readouterr().err
