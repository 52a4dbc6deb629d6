"""Sentences that a run fills in: what is kept of them when it is stopped and goes on."""

import pytest

from bert_tf.pretraining.shown_sentences import MaskSamples
from bert_tf.training.metrics_log import read_metrics


@pytest.fixture
def samples(tmp_path):
    """Each call of the model fills in the next number."""
    numbers = iter(range(100))

    class Numbers:
        def fill_mask(self, texts, top_k):
            assert top_k == 3
            return [
                [[{"piece": str(next(numbers)), "score": 0.5}] for _ in range(text.count("[MASK]"))]
                for text in texts
            ]

    return MaskSamples(tmp_path, Numbers(), ["A [MASK].", "[MASK] and [MASK]."])


def test_first_answers_stand_beside_the_last(samples):
    samples.note(10)
    assert samples.report() == [
        "A [MASK].",
        "    step 10: 3",
        "[MASK] and [MASK].",
        "    step 10: 4 / 5",
    ]
    samples.note(20)
    samples.note(30)
    assert samples.report()[:3] == ["A [MASK].", "    step 10: 3", "    step 30: 9"]


def test_what_a_stopped_run_had_beyond_its_checkpoint_goes(samples):
    for step in (10, 20, 30):
        samples.note(step)
    samples.note(20)
    lines = read_metrics(samples.path)
    assert [line["step"] for line in lines] == [10, 20]
    assert lines[1]["filled"] == ["12", "13 / 14"]
