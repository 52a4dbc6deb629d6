"""Checkpoints: whole or absent, exact, and refused where they do not fit."""

import math
import resource
import threading

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.checkpoints.run_record import has_checkpoints
from bert_tf.checkpoints.tf_bundle import write_bundle
from bert_tf.config import OptimizerConfig
from bert_tf.training.checkpointing import RunDirectory, model_variables
from bert_tf.training.optimizers import build_optimizer
from tests.training.toy_task import ToyTask


@pytest.fixture
def directory(tmp_path):
    return RunDirectory(tmp_path, {"a/kernel": tf.Variable([1.0, 2.0]), "b": tf.Variable(3)}, 2)


def test_restore_gives_back_values_step_and_loop_state(directory):
    directory.save(7, {"pending": {"x": 0.1}})
    directory.variables["a/kernel"].assign([9.0, 9.0])
    directory.variables["b"].assign(0)
    assert directory.restore() == (7, {"pending": {"x": 0.1}})
    np.testing.assert_array_equal(directory.variables["a/kernel"].numpy(), [1.0, 2.0])
    assert directory.variables["b"].numpy() == 3


def test_tensorflow_itself_reads_the_checkpoint(directory):
    directory.save(7, {})
    prefix = tf.train.latest_checkpoint(directory.path)
    assert prefix == directory.prefix(7)
    assert tf.train.load_checkpoint(prefix).get_tensor("global_step") == 7
    np.testing.assert_array_equal(tf.train.load_checkpoint(prefix).get_tensor("a/kernel"), [1, 2])


def test_checkpoints_by_time_take_no_place_of_others_after_a_restart(directory):
    for step, by_time in ((10, False), (20, False), (23, True)):
        directory.start_save(step, {}, by_time)
        directory.wait()
    restarted = RunDirectory(directory.path, directory.variables, 2)
    restarted.save(30, {})
    assert restarted.steps() == [20, 30]
    # TensorFlow still reads the state.
    assert tf.train.latest_checkpoint(directory.path) == directory.prefix(30)
    restarted.start_save(33, {}, by_time=True)
    restarted.wait()
    paths = tf.train.get_checkpoint_state(directory.path).all_model_checkpoint_paths
    assert paths == [directory.prefix(step) for step in (30, 33)]
    # The step is saved again, now as a regular checkpoint.
    restarted.save(33, {})
    restarted = RunDirectory(directory.path, directory.variables, 2)
    restarted.save(40, {})
    assert restarted.steps() == [33, 40]


@pytest.mark.parametrize("state", [None, "", 'model_checkpoint_path: "model.ckpt-23"\n', "# \0?"])
def test_without_a_record_of_checkpoints_by_time_all_are_regular(directory, state):
    for step, by_time in ((10, False), (20, False), (23, True)):
        directory.start_save(step, {}, by_time)
        directory.wait()
    path = directory.path / "checkpoint"
    path.unlink()
    if state is not None:
        path.write_text(state)
    restarted = RunDirectory(directory.path, directory.variables, 2)
    restarted.save(30, {})
    assert restarted.steps() == [23, 30]


def test_checkpoints_by_time_take_no_place_of_others(directory):
    for step, by_time in ((10, False), (13, True), (20, False), (21, True), (24, True)):
        directory.start_save(step, {}, by_time)
        directory.wait()
    assert directory.steps() == [20, 24]
    assert directory.restore()[0] == 24
    directory.mark_best(24, 0.5)
    directory.start_save(25, {}, by_time=True)
    directory.wait()
    directory.save(30, {})
    assert directory.steps() == [20, 24, 30]


def test_a_better_one_takes_the_place_of_the_best(directory):
    for step, score in ((1, -0.5), (2, -0.2), (3, -0.2), (4, -0.4)):
        directory.save(step, {})
        directory.mark_best(step, score)
    assert directory.steps() == [2, 3, 4]
    assert directory.best() == {"step": 2, "score": -0.2}  # As good is no better.
    for path in directory.path.glob("model.ckpt-2.*"):
        path.unlink()
    directory.mark_best(3, -0.9)  # the best there is
    assert directory.best() == {"step": 3, "score": -0.9}


def test_a_score_that_is_not_finite_is_none(directory):
    for step, score in ((1, math.nan), (2, -math.inf)):
        directory.save(step, {})
        directory.mark_best(step, score)
    directory.check_best({1: math.nan, 2: -math.inf})
    assert directory.best() is None
    directory.mark_best(2, -5.0)
    directory.save(3, {})
    directory.mark_best(3, math.nan)
    assert directory.best() == {"step": 2, "score": -5.0}


def test_best_is_restored_whatever_came_after(directory):
    kernel, number = directory.variables["a/kernel"], directory.variables["b"]
    assert directory.restore_best() is None
    for step, score in ((1, 0.1), (2, 0.7), (3, 0.3)):
        kernel.assign([step, 10.0 * step])
        number.assign(step)
        directory.save(step, {"pending": {"x": step}})
        directory.mark_best(step, score)
    assert directory.restore_best() == 2
    np.testing.assert_array_equal(kernel.numpy(), [2.0, 20.0])
    assert number.numpy() == 2
    assert directory.restore()[0] == 3
    np.testing.assert_array_equal(kernel.numpy(), [3.0, 30.0])
    for path in directory.path.glob("model.ckpt-2.*"):
        path.unlink()
    assert directory.restore_best() is None
    np.testing.assert_array_equal(kernel.numpy(), [3.0, 30.0])


def test_what_a_killed_save_left_is_deleted_and_never_restored(directory):
    directory.save(5, {})
    whole = (directory.path / "model.ckpt-5.data-00000-of-00001").read_bytes()
    (directory.path / "model.ckpt-6.data-00000-of-00001").write_bytes(whole[:10])
    (directory.path / "model.ckpt-6.data-00000-of-00001.tempstate123").write_bytes(b"x")
    own = {"model.ckpt-best.index", "model.ckpt-5.tar.gz", "model.ckpt-5_backup"}  # Somebody's own.
    for name in own:
        (directory.path / name).mkdir()
        (directory.path / "other" / name).mkdir(parents=True)
    assert not has_checkpoints(directory.path / "other")
    assert has_checkpoints(directory.path)
    assert directory.restore()[0] == 5
    assert len(list(directory.path.glob("model*"))) == 7  # reading changes nothing
    directory.delete_leftovers()
    assert {p.name for p in directory.path.glob("model*")} == own | {
        "model.ckpt-5.index",
        "model.ckpt-5.data-00000-of-00001",
    }
    for step in (6, 7, 8):
        directory.save(step, {})
    assert directory.steps() == [7, 8]
    assert own < {p.name for p in directory.path.glob("model*")}


def test_a_loss_scale_is_left_out_where_none_is_used(tmp_path):
    scale = tf.Variable(8.0)
    RunDirectory(tmp_path, {"b": tf.Variable(3), "loss_scale/scale": scale}).save(2, {})
    directory = RunDirectory(tmp_path, {"b": tf.Variable(0)})
    directory.mark_best(2, 1.0)
    assert directory.restore() == (2, {})
    assert directory.variables["b"].numpy() == 3
    directory.variables["b"].assign(0)
    assert directory.restore_best() == 2
    assert directory.variables["b"].numpy() == 3


def test_full_disk_keeps_the_last_good_checkpoint(directory):
    directory.variables["a/kernel"] = tf.Variable(tf.zeros([100_000]))
    directory.save(5, {})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    # The system itself refuses to write more than this into a file.
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(OSError, match="model.ckpt-6.*File too large.*model.ckpt-5"):
            directory.save(6, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not list(directory.path.glob("model.ckpt-6*"))
    assert directory.restore()[0] == 5


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"a/kernel": tf.Variable([0.0, 0.0])}, r"unused \['b'\]"),
        ({"a/kernel": tf.Variable([0.0]), "b": tf.Variable(0)}, r"a/kernel \(2,\) .*\(1,\)"),
        (
            {k: tf.Variable(0) for k in ("c", "b")} | {"a/kernel": tf.Variable([0.0, 0.0])},
            r"missing \['c'\]",
        ),
    ],
)
def test_checkpoint_of_another_model_is_refused(directory, variables, message):
    directory.save(5, {})
    with pytest.raises(ValueError, match=message):
        RunDirectory(directory.path, variables).restore()


def test_damaged_only_checkpoint_is_named_with_what_to_do(directory):
    directory.save(5, {})
    data = directory.path / "model.ckpt-5.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:-4])
    message = r"model\.ckpt-5 .*TensorFlow checkpoint.*model\.ckpt-5\.\*"
    with pytest.raises(ValueError, match=message):
        directory.restore()


def test_damaged_newest_checkpoint_falls_back_and_is_written_again(directory):
    directory.save(5, {})
    directory.save(6, {})
    data = directory.path / "model.ckpt-6.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:-3])
    again = RunDirectory(directory.path, directory.variables, 2)
    assert again.restore()[0] == 5
    assert again.steps() == [5]
    again.save(6, {})
    assert again.steps() == [5, 6]
    assert RunDirectory(directory.path, directory.variables, 2).restore()[0] == 6


def test_no_flipped_byte_gives_other_values(directory):
    """Every byte of both files: the checkpoint is refused, or the byte had no meaning."""
    directory.save(5, {"pending": {"loss": 0.1}})
    directory.variables["a/kernel"].assign([3.0, 4.0])
    directory.save(6, {"pending": {"loss": 0.2}})
    random = np.random.default_rng(0)
    refused = 0
    for path in sorted(directory.path.glob("model.ckpt-6.*")):
        whole = path.read_bytes()
        for place in random.permutation(len(whole))[:100]:
            damaged = bytearray(whole)
            damaged[place] ^= random.integers(1, 256)
            path.write_bytes(damaged)
            restored = RunDirectory(directory.path, directory.variables, 2).restore()
            values = directory.variables["a/kernel"].numpy().tolist()
            assert (restored, values) in (
                ((5, {"pending": {"loss": 0.1}}), [1.0, 2.0]),
                ((6, {"pending": {"loss": 0.2}}), [3.0, 4.0]),
            )
            refused += restored[0] == 5
        path.write_bytes(whole)
    assert refused > 120


@pytest.mark.parametrize("ending", ["index", "data-00000-of-00001"])
def test_no_truncated_file_gives_other_values(directory, ending):
    directory.save(5, {})
    directory.save(6, {})
    path = directory.path / f"model.ckpt-6.{ending}"
    whole = path.read_bytes()
    for size in range(0, len(whole), 5):
        path.write_bytes(whole[:size])
        assert RunDirectory(directory.path, directory.variables, 2).restore()[0] == 5


def test_a_checkpoint_holds_the_values_of_its_moment_however_long_it_is_written(
    directory, monkeypatch
):
    go_on = threading.Event()

    def write_later(prefix, tensors):
        assert go_on.wait(60)
        write_bundle(prefix, tensors)

    monkeypatch.setattr("bert_tf.training.checkpointing.write_bundle", write_later)
    kernel, number = directory.variables["a/kernel"], directory.variables["b"]
    update = tf.function(lambda: kernel.assign_add([1.0, 1.0]), jit_compile=True)
    kernel.assign([1.0, 2.0])
    directory.start_save(7, {"pending": {"x": 0.5}})
    assert directory.has(7) and directory.steps() == []
    kernel.assign_sub([5.0, 5.0])
    update()
    number.assign(9)
    go_on.set()
    directory.wait()
    np.testing.assert_array_equal(kernel.numpy(), [-3.0, -2.0])
    assert directory.has(7) and directory.restore() == (7, {"pending": {"x": 0.5}})
    np.testing.assert_array_equal(kernel.numpy(), [1.0, 2.0])
    assert number.numpy() == 3


def test_an_error_of_the_writer_is_raised_once_by_the_next_save(directory, monkeypatch):
    directory.save(5, {})

    def fail(prefix, tensors):
        raise OSError("No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("bert_tf.training.checkpointing.write_bundle", fail)
        directory.start_save(6, {})
        with pytest.raises(OSError, match=r"ckpt-6.*space left.*ckpt-5;"):
            directory.start_save(7, {})
    directory.start_save(8, {})
    directory.wait()
    assert directory.steps() == [5, 8]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"step": 5}', '{"step": 6, "score": 0.5}'])
def test_damaged_note_of_the_best_is_written_anew(directory, text):
    for step, score in ((5, 0.25), (6, 0.75), (7, 0.5)):
        directory.save(step, {})
        directory.mark_best(step, score)
    path = directory.path / "best_checkpoint.json"
    path.write_text(text)
    directory.check_best({4: 0.9, 5: 0.25, 6: 0.75, 7: 0.5})
    assert directory.best() == {"step": 6, "score": 0.75}
    path.write_text(text)
    if text.endswith("0.5}"):
        return
    with pytest.raises(ValueError, match=r"best_checkpoint\.json"):
        directory.restore_best()
    directory.check_best({})
    assert directory.best() is None


def test_every_variable_of_a_model_and_its_optimizer_is_saved(tmp_path):
    keras.utils.set_random_seed(0)
    model = ToyTask().model
    optimizer = build_optimizer(OptimizerConfig())
    optimizer.build(model.trainable_variables)
    directory = RunDirectory(tmp_path, {**model_variables(model), **optimizer.named_variables()})
    directory.save(0, {})
    saved = {name for name, _ in tf.train.list_variables(directory.prefix(0))}
    weights = {v.path for v in model.trainable_variables}
    assert "bert/encoder/layer_0/attention/self/query/kernel" in weights
    for path in weights:
        assert {path, f"{path}/adam_m", f"{path}/adam_v"} <= saved
    # Three a weight, step counts of run and optimizer, loop state, and the seed of dropout.
    assert len(saved) == 3 * len(weights) + 3 + (len(model.variables) - len(weights))
