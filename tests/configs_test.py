"""Every flagfile parses into valid configurations; one name has one meaning."""

import subprocess
import sys

import pytest

from bert_tf.config import DataConfig, ModelConfig
from bert_tf.config_flags import flagfile, read_flagfile
from bert_tf.run_record import check_same_run, recorded, write_run_record
from bert_tf.text.vocab import Vocab
from tests.shared_data import ROOT

SIZES = {  # Layers, width, heads: google-research/bert's README.
    "tiny": (2, 128, 2),
    "mini": (4, 256, 4),
    "small": (4, 512, 8),
    "medium": (8, 512, 8),
    "base": (12, 768, 12),
    "large": (24, 1024, 16),
}

PROGRAM = """
import sys
from absl import flags
from bert_tf import run_pretraining
for path in sys.argv[1:]:
    for name in flags.FLAGS: flags.FLAGS[name].unparse()
    flags.FLAGS(["run_pretraining", f"--flagfile={path}"])
    configs = run_pretraining.read_configs()
    model = configs.model
    print(path, model.num_hidden_layers, model.hidden_size, model.num_attention_heads,
          model.intermediate_size, configs.optimizer.num_train_steps)
"""


@pytest.fixture(scope="module")
def parsed():
    paths = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("configs/*.flags"))
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM, *paths], cwd=ROOT, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    rows = [line.split() for line in result.stdout.splitlines()]
    assert [row[0] for row in rows] == paths
    return {row[0].split("/")[1].removesuffix(".flags"): list(map(int, row[1:])) for row in rows}


@pytest.mark.parametrize("name", SIZES)
def test_sizes_are_googles(parsed, name):
    layers, width, heads = SIZES[name]
    assert parsed[name] == [layers, width, heads, 4 * width, 1_000_000]


def test_phases_add_up_to_the_papers_steps(parsed):
    assert parsed["base_phase1_128"][-1] + parsed["base_phase2_512"][-1] == 1_000_000


def test_flagfile_gives_the_configuration_again(tmp_path):
    path = tmp_path / "run.flags"
    path.write_text(flagfile(ModelConfig(hidden_size=24), DataConfig(random_seed=7)), "utf8")
    values = read_flagfile(path)
    assert (values["hidden_size"], values["random_seed"]) == ("24", "7")
    assert values["do_lower_case"] == "true"


def test_run_directory_of_another_configuration_is_refused(tmp_path):
    (tmp_path / "run.flags").write_text(flagfile(ModelConfig(hidden_size=24)), encoding="utf8")
    check_same_run(str(tmp_path), ModelConfig(hidden_size=24))
    with pytest.raises(ValueError, match="--hidden_size is 36, was 24"):
        check_same_run(str(tmp_path), ModelConfig(hidden_size=36))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"hidden_size": 30}, "not a multiple of num_attention_heads"),
        ({"vocab_size": 2}, "at least 5"),
        ({"hidden_act": "gelu"}, "expected one of"),
        ({"hiden_size": 24}, "unknown keys"),
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
        ('{"hidden_size": "24"}', "bert_config.json: hidden_size: expected int, received '24'"),
        ('{"hidden_size": 25}', "bert_config.json: .*not a multiple"),
        ("[1]", "bert_config.json holds no JSON object but a list"),
        ("{", "bert_config.json is not JSON"),
    ],
)
def test_wrong_bert_config_file_is_named(tmp_path, text, message):
    path = tmp_path / "bert_config.json"
    path.write_text(text, "utf8")
    with pytest.raises(ValueError, match=message):
        ModelConfig.read(path)


def test_run_directory_keeps_its_vocabulary(tmp_path):
    first, second = (Vocab(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", w)) for w in "ab")
    write_run_record(str(tmp_path), first, ModelConfig(hidden_size=24))
    write_run_record(str(tmp_path), first, ModelConfig(hidden_size=24))
    assert recorded(str(tmp_path), "hidden_size") == "24"
    with pytest.raises(ValueError, match="vocab.txt, with which this run began, differs"):
        write_run_record(str(tmp_path), second, ModelConfig(hidden_size=24))
    assert Vocab.read(tmp_path / "vocab.txt").tokens == first.tokens
