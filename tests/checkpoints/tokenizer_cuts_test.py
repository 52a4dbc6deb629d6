"""Where a Hugging Face folder says that its tokenizer cuts texts, and from which side."""

import json
import pathlib

import numpy as np
import pytest
from absl import flags as absl_flags

import bert_tf
from bert_tf.checkpoints.formats import read_checkpoint, write_checkpoint
from bert_tf.config import DataConfig, OptimizerConfig, TrainingConfig, config_flags
from bert_tf.config.fine_tuning_config import ClassifierConfig, FineTuningConfig
from bert_tf.inference.serving_models import find_length
from bert_tf.tasks.base.programs.defaults import before_reading
from bert_tf.tasks.base.programs.program import Configs
from tests.checkpoints.made_checkpoint import make_checkpoint
from tests.programs import own_flags

SHAPE = {"max_position_embeddings": 20, "num_hidden_layers": 1, "do_lower_case": True}


def make_folder(folder: pathlib.Path, purpose: str, **settings) -> pathlib.Path:
    """Writes a small model; `settings` are added to its tokenizer_config.json."""
    write_checkpoint(make_checkpoint(purpose, 3, **SHAPE), folder, "huggingface")
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **settings}))
    return folder


@pytest.mark.parametrize("purpose", ["classifier", "tagger"])
def test_model_max_length_limits_rows(tmp_path, purpose):
    folder = make_folder(tmp_path / "model", purpose, model_max_length=8)
    assert find_length(read_checkpoint(folder), str(folder), 0, purpose) == 8
    if purpose == "classifier":
        loaded = bert_tf.load(folder)
        text = "a b c d e f"  # with [CLS] and [SEP] 8 tokens
        short, long = loaded.classify([text, f"{text} river"])
        assert short == long
    again = write_checkpoint(read_checkpoint(folder), tmp_path / "again", "huggingface")
    assert again.settings["max_seq_length"] == "8"


@pytest.mark.parametrize("stated", ["tokenizer_config.json", "tokenizer.json"])
def test_texts_are_cut_at_their_beginning(tmp_path, stated):
    side = {"truncation_side": "left"} if stated == "tokenizer_config.json" else {}
    folder = make_folder(tmp_path / "model", "classifier", model_max_length=8, **side)
    if not side:
        path = folder / "tokenizer.json"
        truncation = {"direction": "Left", "max_length": 8, "strategy": "LongestFirst", "stride": 0}
        path.write_text(json.dumps({**json.loads(path.read_text()), "truncation": truncation}))
    loaded = bert_tf.load(folder)
    text = "a b c d e f"
    end, longer = loaded.classify([text, f"river river {text}"])
    assert end == longer
    model = bert_tf.BertClassifier.from_pretrained(folder)
    scores = np.asarray(model.predict([text, f"river {text}"]))
    np.testing.assert_array_equal(scores[0], scores[1])


def test_a_program_that_uses_weights_as_they_are_cuts_as_their_folder_says(tmp_path):
    folder = make_folder(tmp_path / "m", "classifier", model_max_length=8, truncation_side="left")
    weights = read_checkpoint(folder)
    for flags, trains, expected in (
        ([], False, ("tail", 8)),
        ([], True, ("head", 20)),
        (["--long_texts=windows"], False, ("windows", 8)),
    ):
        with own_flags():
            config_flags.define_flags(ClassifierConfig)
            absl_flags.FLAGS(["", *flags])
            groups = [DataConfig(), OptimizerConfig(), TrainingConfig(do_train=trains)]
            task = config_flags.from_flags(ClassifierConfig)
            configs = Configs(weights.config, *groups, FineTuningConfig(), task)
            found = before_reading(["max_seq_length"], 512, configs, weights)
        assert (found.task.long_texts, found.data.max_seq_length) == expected


@pytest.mark.parametrize("purpose", ["tagger", "encoder", "masked_lm"])
def test_a_side_that_is_not_computed_is_refused(tmp_path, purpose):
    folder = make_folder(tmp_path / "model", purpose, truncation_side="left")
    with pytest.raises(ValueError, match="truncation_side"):
        read_checkpoint(folder)


@pytest.mark.parametrize("settings", [{"truncation_side": "both"}, {"split_special_tokens": True}])
def test_other_settings_are_refused_by_name(tmp_path, settings):
    folder = make_folder(tmp_path / "model", "classifier", **settings)
    with pytest.raises(ValueError, match=next(iter(settings))):
        read_checkpoint(folder)
