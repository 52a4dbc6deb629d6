"""What is timed: calls, the input alone, and how much of a step it is."""

import itertools
import time

import pytest

from bert_tf.config import MaskingConfig, ModelConfig
from bert_tf.diagnosis.measure import measure, seconds_each, waiting_findings
from tests.diagnosis.made_records import SLOTS, made_rows, made_vocab, write


def test_the_first_calls_do_not_count():
    durations = itertools.chain([0.2, 0.2, 0.2], itertools.repeat(0.005))
    assert 0.005 <= seconds_each(lambda: time.sleep(next(durations))) < 0.1


@pytest.mark.parametrize(("real", "severity"), [(1.05, None), (1.25, "WARNING"), (2.0, "SERIOUS")])
def test_steps_that_wait(real, severity):
    found = waiting_findings(alone=0.8, computed=1.0, real=real)
    assert [finding.severity.name for finding in found] == ([severity] if severity else [])
    if real == 1.25:
        assert found[0].measured == "20 % of a step; the input alone takes 800 ms a batch"


def test_input_and_steps_of_a_model_are_timed(tmp_path):
    path = write(tmp_path / "a.tfrecord", made_rows(64))
    masking = MaskingConfig(max_predictions_per_seq=SLOTS)
    facts, found = measure([path], made_vocab(), masking, None, 16)
    assert list(facts) == ["input"] and "examples a second in batches of 16" in facts["input"]
    assert found == []
    model = ModelConfig(
        vocab_size=len(made_vocab()),
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        intermediate_size=8,
        max_position_embeddings=32,
    )
    facts, _ = measure([path], made_vocab(), masking, model, 16)
    assert facts["steps"].endswith("ms with one batch repeated")
