"""Combined flags: the fields that they set, the flags that they replace, and their number."""

import dataclasses
import re

import pytest
from absl import flags, logging

from bert_tf.checkpoints.families import find_family
from bert_tf.config import (
    DataConfig,
    MaskingConfig,
    ModelConfig,
    ObjectiveConfig,
    OptimizerConfig,
    TrainingConfig,
    combined_flags,
    config_flags,
)
from bert_tf.config.architectures import ARCHITECTURES
from bert_tf.config.combined import COMBINED, COMBINED_FORMS
from tests.programs import own_flags, run

GROUPS = (
    ModelConfig,
    DataConfig,
    MaskingConfig,
    OptimizerConfig,
    TrainingConfig,
    ObjectiveConfig,
)


@pytest.fixture(autouse=True)
def warnings(monkeypatch) -> list[str]:
    """The warnings of a test; each name is new to it."""
    combined_flags._warn_once.cache_clear()
    logged: list[str] = []
    monkeypatch.setattr(logging, "warning", lambda text, *parts: logged.append(text % parts))
    return logged


def changed(*arguments: str) -> dict[str, object]:
    """Returns the fields that a command line sets to other values than the defaults."""
    fields = {}
    with own_flags():
        config_flags.define_flags(*GROUPS)
        config_flags.parse(["program", *arguments])
        for group in GROUPS:
            config = config_flags.from_flags(group)
            for field in dataclasses.fields(config):
                value = getattr(config, field.name)
                if value != field.default:
                    fields[field.name] = value
    return fields


@pytest.mark.parametrize(
    ("combined", "fields"),
    [
        ("--masked_lm_prob=0.3", {"masked_lm_prob": 0.3}),
        ("--masked_lm_prob=0.1..0.5", {"masked_lm_prob": 0.1, "masked_lm_prob_to": 0.5}),
        ("--masked_lm_prob=0..1", {"masked_lm_prob": 0.0, "masked_lm_prob_to": 1.0}),
        ("--masked_lm_prob=0.3->0.2", {"masked_lm_prob": 0.3, "masked_lm_prob_end": 0.2}),
        ("--mask_unit=token", {}),
        ("--mask_unit=word", {"do_whole_word_mask": True}),
        ("--mask_unit=span:5", {"span_length": 5.0}),
        ("--mask_unit=token_span:2.5", {"span_length": 2.5, "span_pieces": True}),
        ("--mask_unit=ngram:3", {"ngram_length": 3}),
        ("--mask_unit=token_ngram:3", {"ngram_length": 3, "span_pieces": True}),
        ("--pairs=next", {}),
        ("--pairs=order", {"sentence_order": True}),
        ("--pairs=none", {"use_next_sentence": False}),
        ("--train_for=2000", {"num_train_steps": 2000}),
        ("--train_for=15min", {"train_minutes": 15.0}),
        ("--train_for=1.5h", {"train_minutes": 90.0}),
        ("--train_for=45s", {"train_minutes": 0.75}),
        ("--train_for=2m30s", {"train_minutes": 2.5}),
        ("--train_for=1h30min", {"train_minutes": 90.0}),
        ("--warmup=0.2", {"warmup_proportion": 0.2}),
        ("--warmup=1.0", {"warmup_proportion": 1.0}),
        ("--warmup=1", {"num_warmup_steps": 1}),
        ("--warmup=0", {"num_warmup_steps": 0, "warmup_proportion": 0.0}),
        ("--architecture=electra", {"hidden_act": "gelu_exact", "pooler_act": "gelu_exact"}),
        ("--model_options=", {}),
        ("--model_options=biases=norm,head", {"biases": "norm,head"}),
        (
            "--model_options=biases=norm,head,position_type=alibi,embedding_norm=false",
            {"biases": "norm,head", "position_type": "alibi", "embedding_norm": False},
        ),
        ("--optimizer_options=adam_beta_2=0.98", {"adam_beta_2": 0.98}),
    ],
)
def test_fields_of_a_value(combined, fields, warnings) -> None:
    assert changed(combined) == fields
    separately = [f"--{name}={value}" for name, value in fields.items()]
    assert not warnings and changed(*separately) == fields


def test_cooldown_needs_a_schedule_that_has_one() -> None:
    schedule = "--learning_rate_schedule=trapezoid"
    fields = {"learning_rate_schedule": "trapezoid"}
    assert changed(schedule, "--cooldown=300") == {**fields, "num_cooldown_steps": 300}
    assert changed(schedule, "--cooldown=0.5") == {**fields, "cooldown_proportion": 0.5}
    with pytest.raises(ValueError, match="num_cooldown_steps=300"):
        changed("--cooldown=300")


@pytest.mark.parametrize(
    ("arguments", "fields"),
    [
        # A later use replaces an earlier one, also of the flags of the fields.
        ("--masked_lm_prob=0.1..0.5 --masked_lm_prob=0.2", {"masked_lm_prob": 0.2}),
        ("--mask_unit=span:5 --mask_unit=word", {"do_whole_word_mask": True}),
        ("--span_length=5 --mask_unit=word", {"do_whole_word_mask": True}),
        ("--train_for=5min --train_for=200", {"num_train_steps": 200}),
        ("--num_train_steps=200 --train_for=5min", {"train_minutes": 5.0}),
        ("--num_warmup_steps=7 --warmup=0.3", {"warmup_proportion": 0.3}),
        ("--pairs=order --use_next_sentence=false --sentence_order=false --pairs=next", {}),
        # Fields given separately stay.
        (
            "--masked_lm_prob_to=0.5 --masked_lm_prob=0.2",
            {"masked_lm_prob": 0.2, "masked_lm_prob_to": 0.5},
        ),
        # Options add up; an architecture leaves those that are given.
        (
            "--model_options=rotary_theta=7 --model_options=position_type=rotary,rotary_theta=9",
            {"rotary_theta": 9.0, "position_type": "rotary"},
        ),
        (
            "--model_options=pooler_act=relu --architecture=electra",
            {"hidden_act": "gelu_exact", "pooler_act": "relu"},
        ),
        (
            "--architecture=electra --hidden_act=relu",
            {"hidden_act": "relu", "pooler_act": "gelu_exact"},
        ),
        ("--architecture=modernbert --architecture=bert", {}),
        (
            "--architecture=electra --pooler_act=relu --architecture=bert",
            {"pooler_act": "relu"},
        ),
    ],
)
def test_the_last_value_wins(arguments, fields) -> None:
    assert changed(*arguments.split()) == fields


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("masked_lm_prob", "0.5..0.1", "0.1..0.5"),
        ("masked_lm_prob", "0.3-", "'0.3->0.15'"),  # what a shell leaves of 0.3->0.15
        ("masked_lm_prob", "0.3->0", "0.3->0.15"),
        ("masked_lm_prob", "1.2", "0.* 1"),
        ("masked_lm_prob", "nan", "0.* 1"),
        ("masked_lm_prob", "", "0.* 1"),
        ("mask_unit", "words", "word"),
        ("mask_unit", "span:", "span:LENGTH"),
        ("mask_unit", "span:long", "span_length=long"),
        ("mask_unit", "ngram:21", "ngram_length=21.*20"),
        ("mask_unit", "", "token"),
        ("pairs", "both", "next.*order.*none"),
        ("train_for", "0min", "15min"),
        ("train_for", "-5", "100000"),
        ("train_for", "5days", "15min, 1h30m"),
        ("train_for", "0s", "40s"),
        ("train_for", "30m1h", "40s"),
        ("warmup", "1.5", "0.1"),
        ("warmup", "-1", "1000"),
        ("cooldown", "half", "0.1"),
        ("architecture", "gpt", "bert, roberta"),
        ("model_options", "alibi", "NAME=VALUE.*'alibi'"),
        ("model_options", "hidden_size=3", "hidden_size.*biases"),
        ("model_options", "position_type=fixed", "position_type=fixed.*alibi"),
        ("optimizer_options", "adam_beta_2=2", r"adam_beta_2=2.*1\.0"),
    ],
)
def test_wrong_values_are_one_line(name, value, expected, capsys) -> None:
    with pytest.raises(SystemExit):
        changed(f"--{name}={value}")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"ERROR: flag --{name}={value}: ") and re.search(expected, line)


def test_the_flag_of_a_field_warns_once_and_names_the_combined_one(warnings, tmp_path) -> None:
    record = tmp_path / "run.flags"
    with own_flags():  # Without flags of other programs all fields are written.
        record.write_text(config_flags.flagfile(MaskingConfig(span_length=4), DataConfig()))
    assert changed(f"--flagfile={record}") == {"span_length": 4.0} and not warnings
    (tmp_path / "mine.flags").write_text("# Mine.\n--span_length=5\n")
    mine = f"--flagfile={tmp_path}/mine.flags"
    given = ["--adam_beta_2=0.9", "--nouse_next_sentence", "--do_whole_word_mask"]
    for _ in range(2):
        fields = changed(mine, *given, "--", "--ngram_length=3")
        assert fields.keys() == {
            "span_length",
            "adam_beta_2",
            "use_next_sentence",
            "do_whole_word_mask",
        }
    assert len(warnings) == 3
    for name, new in (
        ("--span_length", "--mask_unit=span"),
        ("--adam_beta_2", "--optimizer_options=adam_beta_2"),
        ("--use_next_sentence", "--pairs=none"),
    ):
        assert any(line.startswith(f"{name} ") and new in line for line in warnings)


def test_each_field_of_a_combined_flag_has_a_form() -> None:
    within = {}
    for group in GROUPS:
        for field in dataclasses.fields(group):
            within[field.name] = field.metadata["within"]
    assert set(filter(None, within.values())) <= COMBINED.keys()
    of_options = {name for name, form in COMBINED.items() if form.adds}
    others = {name for name, flag in within.items() if flag and flag not in of_options}
    assert others == COMBINED_FORMS.keys()


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_architectures_are_those_of_the_families(name) -> None:
    config = ModelConfig(hidden_size=192, num_attention_heads=3, **ARCHITECTURES[name])
    family = find_family(config, ("pooler",))
    model_types = {"xlm_roberta": "xlm-roberta", "deberta": "deberta-v2"}
    assert family is not None
    assert family.model_type == model_types.get(name, name)


@pytest.mark.parametrize(("program", "largest"), [("run_pretraining", 20), ("run_classifier", 40)])
def test_help_has_everyday_flags_first_and_names_the_others(program, largest) -> None:
    done = run(program, "--help")
    assert done.returncode == 0
    described = re.findall(r"^  --(?:\[no\])?(\w+):", done.printed, re.M)
    assert described[0] == "init_checkpoint" and len(described) <= largest
    assert {"learning_rate", "output_dir", "train_batch_size"} <= set(described)
    first, others = done.printed.split("More flags")
    assert "gcp_project" in others and "gcp_project" not in first
    named = set(re.findall(r"\w+", others))
    googles = {"do_lower_case", "num_warmup_steps", "architecture", "model_options"}
    if program == "run_pretraining":
        googles |= {"masked_lm_prob", "do_whole_word_mask", "num_train_steps"}
    assert googles <= named
    assert not named & {"position_type", "adam_beta_2", "num_cooldown_steps"}
    everything = run(program, "--helpfull").printed
    assert re.search(r"^  --position_type: ", everything, re.M)


def test_a_program_with_some_fields_refuses_the_others(capsys) -> None:
    with own_flags():
        config_flags.define_flags(MaskingConfig, without=("masked_lm_prob_end",))
        with pytest.raises(SystemExit):
            config_flags.parse(["program", "--masked_lm_prob=0.3->0.1"])
        assert "masked_lm_prob_end" in capsys.readouterr().err
        config_flags.parse(["program", "--masked_lm_prob=0.3..0.4"])
        assert flags.FLAGS.masked_lm_prob_to == 0.4
