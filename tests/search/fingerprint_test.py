"""Fingerprints change with all that changes vectors."""

import dataclasses
import json
import pathlib

import numpy as np
import pytest

from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.checkpoints.embedding import EmbeddingConfig
from bert_tf.checkpoints.formats import write_checkpoint
from bert_tf.config import ModelConfig
from bert_tf.search.bulk import Job, make_job
from bert_tf.search.fingerprint import fingerprint
from bert_tf.text.vocab import SPECIAL_TOKENS, Vocab
from tests.checkpoints.made_checkpoint import make_checkpoint

CHANGES = (
    {"num_attention_heads": 4},
    {"num_hidden_layers": 6},
    {"hidden_act": "relu"},
    {"layer_norm_eps": 1e-5},
    {"do_lower_case": False},
    {"tokenizer": "byte_bpe"},
    {"pooled_token": "last"},
    {"position_offset": 2},
    {"position_offset": 2, "pad_token_id": 1},
    {"block_type": "pre_norm"},
    {"local_attention": 8},
    {"local_attention": 8, "global_attention_every": 2},
    {"position_type": "sinusoidal"},
    {"position_type": "sinusoidal", "initializer_range": 0.1},
    {"position_type": "rotary"},
    {"position_type": "rotary_interleaved"},
    {"position_type": "rotary", "rotary_theta": 160000.0},
    {"position_type": "rotary", "local_attention": 8, "local_rotary_theta": 500.0},
    {"position_type": "relative"},
    {"position_type": "relative", "relative_buckets": 16},
    {"position_type": "relative", "relative_max_distance": 64},
    {"position_type": "disentangled"},
    {"position_type": "disentangled", "pos_att_type": "c2p"},
    {"position_type": "transformer_xl"},
    {"position_type": "transformer_xl", "clamp_distance": 9},
)
# Fields without effect on the vectors of given weights, or with these values.
ALIKE = (
    {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.5, "initializer_range": 0.1},
    {"pooler_act": "relu", "head_act": "relu", "classifier_pooling": "mean"},
    {"head_transform": True, "reads_left_to_right": True, "masked_lm_transform": False},
    {"rotary_theta": 5.0, "local_rotary_theta": 3.0, "global_attention_every": 5},
    {"relative_buckets": 8, "relative_max_distance": 9, "pos_att_type": "p2c"},
    {"pad_token_id": 3, "embedding_size": 768, "num_layer_groups": 12},
    {"embedding_projection": True},
    {"max_position_embeddings": 99},
)


def make(**changes) -> Checkpoint:
    """Returns the same weights and vocabulary for any configuration."""
    kernel = np.arange(6, dtype=np.float32).reshape(2, 3)
    weights = {"bert/encoder/layer_0/kernel": kernel, "bert/pooler/dense/bias": kernel[0]}
    config = ModelConfig.from_dict({**ModelConfig().to_dict(), **changes})
    return Checkpoint("here", "google", config, weights, Vocab(SPECIAL_TOKENS))


def digest(**changes) -> str:
    return fingerprint(make(**changes), EmbeddingConfig(prompts={"query": "q: "}))


def test_each_setting_changes_the_fingerprint() -> None:
    digests = [digest(), *(digest(**changes) for changes in CHANGES)]
    assert len(set(digests)) == len(digests)
    other = fingerprint(make(), EmbeddingConfig(pooling=("cls",)))
    weights = {"bert/encoder/layer_0/kernel": np.ones([2, 3], np.float32)}
    changed = dataclasses.replace(make(), weights=weights)
    assert len({*digests, other, fingerprint(changed, EmbeddingConfig())}) == len(digests) + 2


@pytest.mark.parametrize("changes", ALIKE, ids=lambda changes: ",".join(changes))
def test_settings_without_effect_leave_it(changes: dict) -> None:
    assert digest(**changes) == digest()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            {"position_type": "disentangled"},
            {"position_type": "disentangled", "pos_att_type": "c2p,p2c"},
        ),
        (
            {"position_type": "rotary", "local_attention": 8},
            {"position_type": "rotary", "local_attention": 8, "local_rotary_theta": 10000.0},
        ),
    ],
)
def test_equal_settings_may_be_written_differently(one: dict, other: dict) -> None:
    assert digest(**one) == digest(**other)


def test_a_job_of_another_model_is_refused(tmp_path: pathlib.Path) -> None:
    write_checkpoint(make_checkpoint("encoder"), tmp_path / "model", "google")
    (tmp_path / "a.jsonl").write_text('{"_id": "a", "text": "a"}\n')

    def job() -> Job:
        files = (str(tmp_path / "a.jsonl"), str(tmp_path / "model"), str(tmp_path / "out"))
        return make_job(*files, max_seq_length=8)[0]

    (tmp_path / "out").mkdir()
    started = job()
    assert len(started.model) == 32
    started.open()
    job().open()
    (path,) = (tmp_path / "out").glob("*.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), "model": "0" * 32}))
    with pytest.raises(ValueError, match=f"`model`: .*{'0' * 32}"):
        job().open()
