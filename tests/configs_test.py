"""Every flagfile parses into valid configurations; one name has one meaning."""

import dataclasses
import json
import math
import pathlib
import re
import runpy
from collections import ChainMap

import numpy as np
import pytest
from absl import flags

from bert_tf.checkpoints.checkpoint import Checkpoint, encoder_shapes, head_shapes
from bert_tf.checkpoints.families import find_family
from bert_tf.checkpoints.formats import write_checkpoint
from bert_tf.checkpoints.run_record import check_same_run, recorded, write_run_record
from bert_tf.config import DataConfig, ModelConfig, OptimizerConfig, TrainingConfig
from bert_tf.config.config_flags import (
    define_flags,
    flagfile,
    from_flags,
    parse,
    read_flagfile,
    read_model,
)
from bert_tf.config.fine_tuning_config import (
    ChoiceConfig,
    ClassifierConfig,
    SquadConfig,
    TaggerConfig,
)
from bert_tf.tasks.base.programs import program
from bert_tf.tasks.classification.glue import GLUE
from bert_tf.text.vocab import Vocab
from bert_tf.training.schedules import ByShare, build_schedule
from tests.programs import own_flags
from tests.shared_data import ROOT

SIZES = {  # Layers, width, heads: google-research/bert's README.
    "tiny": (2, 128, 2),
    "mini": (4, 256, 4),
    "small": (4, 512, 8),
    "medium": (8, 512, 8),
    "base": (12, 768, 12),
    "large": (24, 1024, 16),
}

# The group of flags that a program has beside those of all that fine-tune.
GROUPS = {
    "run_pretraining": None,
    "run_classifier": ClassifierConfig,
    "run_tagger": TaggerConfig,
    "run_squad": SquadConfig,
    "run_multiple_choice": ChoiceConfig,
}


def files_of_programs() -> dict[str, list[str]]:
    """Returns the flagfiles by the program that their first lines name."""
    files = {name: [] for name in GROUPS}
    for path in sorted(ROOT.glob("configs/*.flags")):
        file = path.relative_to(ROOT).as_posix()
        command = re.search(
            r"^#   python -m bert_tf\.(\w+) --flagfile=(\S+)", path.read_text(), re.M
        )
        assert command is None or command[2] == file
        files[command[1] if command else "run_pretraining"].append(file)
    return files


@pytest.fixture(scope="module")
def parsed():
    """The configuration of each flagfile, parsed by its program."""
    configs = {}
    for name, files in files_of_programs().items():
        for file in files:
            with own_flags():
                module = runpy.run_module(f"bert_tf.{name}", run_name=f"{name} again")
                parse([name, f"--flagfile={ROOT / file}"])
                group = GROUPS[name]
                read = program.read_configs(group) if group else module["read_configs"]()
            values = [dataclasses.asdict(config) for config in read]
            configs[pathlib.Path(file).stem] = dict(ChainMap(*reversed(values)))
    return configs


def test_sizes_are_googles(parsed):
    names = ("num_hidden_layers", "hidden_size", "num_attention_heads")
    found = {size: tuple(parsed[size][name] for name in names) for size in SIZES}
    assert found == SIZES
    for size, (_, width, _) in SIZES.items():
        assert parsed[size]["intermediate_size"] == 4 * width
        assert parsed[size]["num_train_steps"] == 1_000_000


def test_phases_add_up_to_the_papers_steps(parsed):
    phases = parsed["base_phase1_128"], parsed["base_phase2_512"]
    assert sum(phase["num_train_steps"] for phase in phases) == 1_000_000


def test_shares_of_a_run_in_steps_are_numbers_of_steps(parsed, tmp_path):
    """As the recipe of a budget of minutes, when it is given steps; a run goes on as it began."""
    (tmp_path / "run.flags").write_text("--num_warmup_steps=150\n--num_cooldown_steps=0\n")
    minutes = parsed["one_hour"]
    assert (minutes["num_warmup_steps"], minutes["num_cooldown_steps"]) == (0, 0)
    shares = {"num_warmup_steps": 150, "num_cooldown_steps": 1500}  # 0.05 and 0.5 of 3,000
    for given, expected in (
        ([], shares),
        (["--num_cooldown_steps=300"], {**shares, "num_cooldown_steps": 300}),
        ([f"--output_dir={tmp_path}"], {**shares, "num_cooldown_steps": 0}),
    ):
        with own_flags():
            module = runpy.run_module("bert_tf.run_pretraining", run_name="again")
            file = f"--flagfile={ROOT / 'configs/one_hour.flags'}"
            parse(["run", file, "--train_minutes=0", "--num_train_steps=3000", *given])
            optimizer = module["read_configs"]().optimizer
        assert {name: getattr(optimizer, name) for name in shares} == expected


@pytest.mark.parametrize("name", ["one_hour", "one_day_gpu"])
def test_encoders_of_a_budget_are_modernberts(parsed, name):
    config = ModelConfig(**only(ModelConfig, parsed[name]))
    assert find_family(config, ("masked_lm",)).model_type == "modernbert"


def test_albert_is_the_published_one(parsed):
    config = ModelConfig(**only(ModelConfig, parsed["albert_base"]))
    assert find_family(config, ("masked_lm", "next_sentence")).model_type == "albert"
    shapes = {**encoder_shapes(config), **head_shapes(config, "pooler")}
    assert sum(math.prod(shape) for shape in shapes.values()) == 11_683_584  # albert-base-v2


@pytest.mark.parametrize(
    ("given", "warning"),
    [
        ("--num_train_steps=10000", "--num_warmup_steps=10000 .*--num_train_steps=10000"),
        ("--num_train_steps=10001", ""),
        ("--masked_lm_prob=0.4", r"51\.2 .*--max_predictions_per_seq=20"),
    ],
)
def test_a_run_that_was_begun_so_is_warned_of(tmp_path, caplog, given, warning):
    (tmp_path / "run.flags").write_text("")
    with own_flags():
        module = runpy.run_module("bert_tf.run_pretraining", run_name="again")
        flags.FLAGS(["run", "--do_train", f"--output_dir={tmp_path}", given])
        module["read_configs"]()
    assert re.search(warning, caplog.text) and bool(warning) == bool(caplog.text)


# Width, layers, heads, embedding, generator's width, batch, T, rate: Clark et al. 2020, table 6.
ELECTRAS = {
    "electra_small": (256, 12, 4, 128, 64, 128, 128, 5e-4),
    "electra_small_owt": (256, 12, 4, 128, 64, 128, 128, 5e-4),
    "electra_base": (768, 12, 12, 768, 256, 256, 512, 2e-4),
    "electra_large": (1024, 24, 16, 1024, 256, 2048, 512, 2e-4),
}


@pytest.mark.parametrize("name", ELECTRAS)
def test_electras_are_those_published(parsed, name):
    config = parsed[name]
    generator = round(config["hidden_size"] * config["generator_hidden_size"])
    names = ("hidden_size", "num_hidden_layers", "num_attention_heads", "embedding_size")
    numbers = ("train_batch_size", "max_seq_length", "learning_rate")
    found = (*(config[key] for key in names), generator, *(config[key] for key in numbers))
    assert found == ELECTRAS[name]
    assert (config["masked_share"], config["random_share"]) == (0.85, 0.0)
    assert config["objective"] == "replaced_tokens" and config["discriminator_weight"] == 50.0
    limit = int((config["masked_lm_prob"] + 0.005) * config["max_seq_length"])
    assert config["max_predictions_per_seq"] == limit


# Batch, T, P, rate, steps, warm-up, schedule and power, of each published recipe.
LARGE_BATCHES = {
    "large_lamb_phase1_128": (65536, 128, 20, 6e-3, 7038, 2001, "polynomial", 0.5),
    "large_lamb_phase2_512": (32768, 512, 80, 4e-3, 1563, 200, "polynomial", 0.5),
    "large_lamb_paper_phase1_128": (65536, 128, 20, 7.07e-3, 7037, 2815, "linear", 1.0),
    "large_lamb_paper_phase2_512": (32768, 512, 76, 5e-3, 1562, 312, "linear", 1.0),
    "large_mlperf_512": (4096, 512, 76, 2.4e-3, 855, 0, "linear", 1.0),
}


@pytest.mark.parametrize("name", LARGE_BATCHES)
def test_large_batches_are_those_published(parsed, name):
    config = parsed[name]
    assert LARGE_BATCHES[name] == (
        *(config[key] for key in ("train_batch_size", "max_seq_length", "max_predictions_per_seq")),
        *(config[key] for key in ("learning_rate", "num_train_steps", "num_warmup_steps")),
        *(config[key] for key in ("learning_rate_schedule", "decay_power")),
    )
    assert (config["optimizer"], config["num_hidden_layers"]) == ("lamb", 24)
    assert (config["weight_decay_rate"], config["clip_norm"]) == (0.01, 1.0)
    is_mlperf = name == "large_mlperf_512"
    betas = (0.66, 0.998) if is_mlperf else (0.9, 0.999)
    assert (config["adam_beta_1"], config["adam_beta_2"]) == betas
    assert config["adam_epsilon"] == 1e-6
    assert config["clip_where"] == ("before" if is_mlperf else "after")


def test_second_phases_start_from_the_first(parsed):
    for name in ("large_lamb", "large_lamb_paper"):
        first, second = parsed[f"{name}_phase1_128"], parsed[f"{name}_phase2_512"]
        assert second["init_checkpoint"] == first["output_dir"] == f"runs/{name}_phase1_128"
        assert second["vocab_file"] == f"{first['output_dir']}/vocab.txt"
    paper = [parsed[f"large_lamb_paper_phase{phase}"] for phase in ("1_128", "2_512")]
    assert sum(phase["num_train_steps"] for phase in paper) == 8599


def test_budgets_of_minutes_have_shares_in_the_place_of_steps(parsed):
    for name, minutes in {"quickstart": 4, "one_hour": 60, "one_day_gpu": 1440}.items():
        config = parsed[name]
        assert config["train_minutes"] == minutes and config["optimizer"] == "muon"
        assert config["num_train_steps"] == config["num_warmup_steps"] == 0
        schedule = build_schedule(OptimizerConfig(**only(OptimizerConfig, config)))
        assert isinstance(schedule, ByShare)
        inner = schedule.schedule
        assert (inner.num_warmup_steps, inner.num_cooldown_steps) == (500, 5000)


def only(group, config):
    return {name: config[name] for name in group.names()}


def test_each_task_of_glue_has_a_flagfile(parsed):
    names = [config["task_name"] for name, config in parsed.items() if name.startswith("glue_")]
    assert sorted(names) == sorted(GLUE)


def test_runs_have_their_own_directories(parsed):
    for name, config in parsed.items():
        if name != "continue":
            assert config["output_dir"] == f"runs/{name}"
        assert config["do_train"] != (name == "glue_ax")


def test_fine_tuning_is_googles(parsed):
    for name in ("glue_mrpc", "glue_mnli", "glue_cola"):  # run_classifier's in its README
        config = parsed[name]
        assert (config["learning_rate"], config["num_train_epochs"]) == (2e-5, 3.0)
        assert (config["train_batch_size"], config["max_seq_length"]) == (32, 128)
        assert (config["optimizer"], config["warmup_proportion"]) == ("adamw", 0.1)
    google = parsed["google_fine_tuning"]
    assert google["optimizer"] == "adam_weight_decay"
    others = ("learning_rate_schedule", "weight_decay_rate", "adam_epsilon", "clip_norm")
    assert [google[name] for name in others] == ["linear", 0.01, 1e-6, 1.0]
    for name in ("squad_v1", "squad_v2"):  # on a TPU
        config = parsed[name]
        assert (config["learning_rate"], config["num_train_epochs"]) == (3e-5, 2.0)
        assert (config["train_batch_size"], config["max_seq_length"]) == (24, 384)
        assert (config["doc_stride"], config["max_query_length"]) == (128, 64)
        assert config["version_2_with_negative"] == (name == "squad_v2")


@pytest.fixture
def no_flags():
    """Hides the flags of the programs that other tests imported: flagfiles name all fields."""
    with own_flags():
        yield


def test_flagfile_gives_the_configuration_again(tmp_path, no_flags):
    path = tmp_path / "run.flags"
    path.write_text(flagfile(ModelConfig(hidden_size=24), DataConfig(random_seed=7)), "utf8")
    values = read_flagfile(path)
    assert (values["hidden_size"], values["random_seed"]) == ("24", "7")
    assert values["do_lower_case"] == "true"


def test_run_directory_of_another_configuration_is_refused(tmp_path, no_flags):
    (tmp_path / "run.flags").write_text(flagfile(ModelConfig(hidden_size=24)), encoding="utf8")
    check_same_run(str(tmp_path), ModelConfig(hidden_size=24))
    with pytest.raises(ValueError, match="--hidden_size .*36.* 24"):
        check_same_run(str(tmp_path), ModelConfig(hidden_size=36))
    for start, same, other in (
        ("a/b", f"{pathlib.Path.cwd()}/c/../a/b", "a/c"),
        ("hf://a/b", "hf://a/b", "hf://a/c"),
        (".", "./", ""),
    ):
        before = flagfile(TrainingConfig(init_checkpoint=start))
        (tmp_path / "run.flags").write_text(before, encoding="utf8")
        check_same_run(str(tmp_path), TrainingConfig(init_checkpoint=same))
        with pytest.raises(ValueError, match=rf"--init_checkpoint .*{other}\b.* {start}"):
            check_same_run(str(tmp_path), TrainingConfig(init_checkpoint=other))


def test_a_run_without_a_checkpoint_takes_more_minutes(tmp_path, no_flags):
    few, more = (OptimizerConfig(train_minutes=minutes) for minutes in (0.5, 2.0))
    (tmp_path / "run.flags").write_text(flagfile(few), encoding="utf8")
    check_same_run(str(tmp_path), more)
    with pytest.raises(
        ValueError, match=r"--weight_decay_rate .*0\.1\b.* 0\.01\b.*--output_dir"
    ) as error:
        check_same_run(str(tmp_path), dataclasses.replace(more, weight_decay_rate=0.1))
    assert "init_checkpoint" not in str(error.value)
    (tmp_path / "model.ckpt-7.index").touch()
    with pytest.raises(ValueError, match=r"train_minutes .*2\.0.* 0\.5.*--init_checkpoint="):
        check_same_run(str(tmp_path), more)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"hidden_size": 30}, "num_attention_heads"),
        ({"vocab_size": 2}, "vocab_size.* 2.* 5"),
        ({"hidden_act": "gelu"}, "hidden_act.*'gelu'.*gelu_tanh"),
        ({"hiden_size": 24}, "hiden_size.*hidden_size"),
    ],
)
def test_wrong_values_are_named(values, message):
    with pytest.raises(ValueError, match=message):
        ModelConfig.from_dict(values)


def test_googles_config_is_read_with_its_form_of_gelu(tmp_path):
    path = tmp_path / "bert_config.json"
    path.write_text('{"hidden_act": "gelu", "hidden_size": 24, "pooler_fc_size": 1}', "utf8")
    config = ModelConfig.read(path)
    assert (config.hidden_act, config.hidden_size) == ("gelu_tanh", 24)
    # What the file does not say, casing above all, is as the flags say.
    others = ModelConfig(do_lower_case=False, hidden_size=48, layer_norm_eps=1e-5)
    config = ModelConfig.read(path, others)
    assert (config.do_lower_case, config.layer_norm_eps) == (False, 1e-5)
    assert (config.hidden_act, config.hidden_size) == ("gelu_tanh", 24)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"hidden_size": "24"}', "bert_config.json.* hidden_size.* int.*'24'"),
        ('{"hidden_size": 25}', "bert_config.json.* hidden_size 25.* num_attention_heads"),
        ("[1]", "bert_config.json.*JSON"),
        ("{", "bert_config.json"),
    ],
)
def test_wrong_bert_config_file_is_named(tmp_path, text, message):
    path = tmp_path / "bert_config.json"
    path.write_text(text, "utf8")
    with pytest.raises(ValueError, match=message):
        ModelConfig.read(path)


def test_a_bert_config_file_says_what_it_replaces(tmp_path, no_flags, caplog):
    define_flags(ModelConfig)
    flags.FLAGS(["", "--hidden_size=36", "--num_hidden_layers=2", "--vocab_size=7"])
    path = tmp_path / "bert_config.json"
    path.write_text(ModelConfig(hidden_size=24, num_hidden_layers=2).to_json(), "utf8")
    assert read_model(str(path), from_flags(ModelConfig)).hidden_size == 24
    assert re.search(r"--hidden_size=36\b.* 24\b", caplog.text)
    flags.FLAGS(["", "--do_lower_case=false"])
    with pytest.raises(ValueError, match=r"--do_lower_case=False.* True .*bert_config\.json"):
        read_model(str(path), from_flags(ModelConfig))


def test_run_directory_keeps_its_vocabulary(tmp_path, no_flags):
    first, second = (Vocab(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", w)) for w in "ab")
    write_run_record(str(tmp_path), first, ModelConfig(hidden_size=24))
    write_run_record(str(tmp_path), first, ModelConfig(hidden_size=24))
    assert recorded(str(tmp_path), "hidden_size") == "24"
    with pytest.raises(ValueError, match=r"vocab\.txt"):
        write_run_record(str(tmp_path), second, ModelConfig(hidden_size=24))
    assert Vocab.read(tmp_path / "vocab.txt").tokens == first.tokens


# The model_type of the models that a flagfile's first word trains; of the others it is BERT.
MODEL_TYPES = {
    "albert": "albert",
    "electra": "electra",
    "ettin": "modernbert",
    "modernbert": "modernbert",
    "one": "modernbert",
    "quickstart": "modernbert",
    "roberta": "roberta",
}
SHRUNK = {
    "vocab_size": 11,
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 6,
    "max_position_embeddings": 7,
}


@pytest.mark.parametrize("file", files_of_programs()["run_pretraining"])
def test_each_model_that_is_pretrained_can_be_written_for_transformers(parsed, tmp_path, file):
    name = pathlib.Path(file).stem
    values = {**only(ModelConfig, parsed[name]), **SHRUNK}
    values["local_attention"] = min(values["local_attention"], 4)
    if values["embedding_size"]:
        values["embedding_size"] = (
            4 if values["embedding_size"] < parsed[name]["hidden_size"] else 8
        )
    config = ModelConfig(**values)
    is_electra = parsed[name]["objective"] == "replaced_tokens"
    has_pairs = parsed[name]["use_next_sentence"] or parsed[name]["sentence_order"]
    heads = ["discriminator"] if is_electra else ["masked_lm"]
    heads += ["pooler", "next_sentence"] if has_pairs else []
    shapes = encoder_shapes(config)
    for head in heads:
        shapes |= head_shapes(config, head, 2)
    generator = np.random.default_rng(5)
    weights = {key: generator.normal(size=shape).astype("f") for key, shape in shapes.items()}
    checkpoint = Checkpoint(name, "bert_tf", config, weights, None)
    written = write_checkpoint(checkpoint, tmp_path / "hf", "huggingface")
    model_type = json.loads((tmp_path / "hf/config.json").read_text())["model_type"]
    assert model_type == MODEL_TYPES.get(name.split("_")[0], "bert")
    assert {*heads} - {"next_sentence", "pooler"} <= {*written.heads}


def test_a_model_of_no_family_is_refused_with_the_one_change(tmp_path):
    config = ModelConfig(
        **{**SHRUNK, "hidden_act": "gelu_exact"},
        block_type="pre_norm",
        gated_feed_forward=True,
        biases="output",
        position_type="rotary",
    )
    weights = {key: np.zeros(shape, "f") for key, shape in encoder_shapes(config).items()}
    checkpoint = Checkpoint("model", "bert_tf", config, weights, None)
    with pytest.raises(ValueError, match="modernbert") as error:
        write_checkpoint(checkpoint, tmp_path / "hf", "huggingface")
    assert "type_vocab_size is 2" in str(error.value) and "roberta" not in str(error.value)
