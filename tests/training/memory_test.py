"""Micro-batches: the fewest that fit."""

import pytest

import bert_tf.training.memory
from bert_tf.config import ModelConfig, TrainingConfig
from bert_tf.training.memory import (
    ACTIVATION_SHARE,
    activation_bytes,
    choose_micro_batches,
    control_group_limits,
    device_bytes,
    micro_batches,
)


def test_fewest_that_fit():
    assert micro_batches(256, bytes_per_example=100e6, memory_bytes=8e9) == 16
    assert micro_batches(256, bytes_per_example=100e6, memory_bytes=1e12) == 1
    assert micro_batches(7, bytes_per_example=100e6, memory_bytes=1.5e9) == 7
    for memory in (4e9, 16e9, 64e9):
        count = micro_batches(96, 40e6, memory)
        assert 96 % count == 0 and 96 // count * 40e6 <= ACTIVATION_SHARE * memory


def test_one_example_that_does_not_fit_is_tried_alone():
    assert micro_batches(32, bytes_per_example=1e12, memory_bytes=8e9) == 32


def test_estimate_grows_as_it_should():
    base = ModelConfig()
    short, long = (activation_bytes(base, t, 0, recompute=False) for t in (128, 512))
    assert 4 < long / short < 16  # the scores grow with the square, all else with the length
    assert activation_bytes(base, 512, 76, recompute=True) < long / 4
    words = activation_bytes(base, 128, 20, False) - short
    assert words == pytest.approx(4 * 3 * 20 * base.vocab_size)


def test_device_has_memory():
    assert device_bytes() > 1e9


@pytest.mark.parametrize(
    ("groups", "files", "expected"),
    [
        ("0::/\n", {"sys/fs/cgroup/memory.max": "8000000000"}, [8e9]),
        # Slurm and systemd limit a group above that of the process.
        (
            "0::/slurm/job 7:1/step",
            {
                "sys/fs/cgroup/slurm/job 7:1/memory.max": "16000000000",
                "sys/fs/cgroup/slurm/job 7:1/step/memory.max": "max",
            },
            [16e9],
        ),
        (
            "4:cpu,memory:/a/b\n3:cpu:/\n0::/",
            {
                "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "8000000000",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
            },
            [8e9, 9223372036854771712.0],
        ),
        # A container may see the name of its group on the host.
        ("0::/host/group", {"sys/fs/cgroup/memory.max": "8000000000"}, [8e9]),
        (None, {}, []),
    ],
)
def test_limits_of_groups_of_processes(tmp_path, groups, files, expected):
    if groups is not None:
        files = {"proc/self/cgroup": groups, **files}
    for name, content in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    assert control_group_limits(tmp_path) == expected


@pytest.mark.parametrize(
    ("given", "replicas", "before", "expected"),
    [
        (0, 1, 0, 4),  # 32 examples of 100 MB, 1 GB for activations: 4 times 8
        (0, 2, 0, 2),  # a replica has 16 of them
        (0, 1, 2, 4),  # the run began on a larger machine,
        (0, 1, 8, 8),  # on a smaller one,
        (0, 2, 32, 2),  # or on one device, whose micro-batches had one example each
        (8, 1, 2, 8),
        (1, 1, 0, 1),
    ],
)
def test_micro_batches_are_chosen_where_none_are_given(
    monkeypatch, given, replicas, before, expected
):
    monkeypatch.setattr(bert_tf.training.memory, "device_bytes", lambda: 1e9 / ACTIVATION_SHARE)
    training = TrainingConfig(
        train_batch_size=32, eval_batch_size=8, gradient_accumulation_steps=given
    )
    chosen = choose_micro_batches(training, 100e6, replicas, before)
    assert chosen.gradient_accumulation_steps == expected
    assert chosen.train_batch_size == 32
