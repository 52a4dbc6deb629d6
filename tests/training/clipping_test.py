"""Clipping after or before the sum over replicas, on two logical CPUs against NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.config import OptimizerConfig
from bert_tf.training.optimizers import AdamW, build_optimizer
from tests.float_bounds import OTHER_FRAMEWORK, assert_close
from tests.reference.optimizers import Twin, clip_by_global_norm
from tests.training.optimizers_test import make_gradients, make_variables, two_replicas

# A replica's own mean gradient is its share of the sum times the number of replicas.
SHARES = (0.02, 0.98)  # Norms of about 0.27 and 13: one is clipped, the other is not.


def shared_gradient(step: int, where: str) -> list[np.ndarray]:
    """Returns what two replicas apply in all, by NumPy."""
    own = [[2 * share * g for g in make_gradients(step)] for share in SHARES]
    if where == "before":
        clipped = [clip_by_global_norm(gradients, 1.0) for gradients in own]
        return [(one + two) / 2 for one, two in zip(*clipped, strict=True)]
    mean = [(one + two) / 2 for one, two in zip(*own, strict=True)]
    return clip_by_global_norm(mean, 1.0)


@pytest.mark.parametrize(
    ("loss_scale", "where"),
    [
        pytest.param(None, "after", marks=pytest.mark.slow),
        (None, "before"),
        (1024.0, "after"),
        (1024.0, "before"),
    ],
)
def test_two_replicas_equal_numpy(where, loss_scale):
    strategy = two_replicas()
    with strategy.scope():
        variables = make_variables()
        optimizer = AdamW(0.1, clip_where=where)
        optimizer.build(variables)

    def replica_step(gradients):
        context = tf.distribute.get_replica_context()
        share = tf.gather(SHARES, context.replica_id_in_sync_group)
        parts = [gradient * share for gradient in gradients]
        if loss_scale is None:
            optimizer.apply(parts, variables)
            return
        parts = optimizer.clip_share([part * loss_scale for part in parts], loss_scale)
        summed = context.all_reduce("SUM", parts)
        optimizer.apply_summed([part / loss_scale for part in summed], variables)

    run = tf.function(lambda gradients: strategy.run(replica_step, (gradients,)))
    twins = [Twin("adamw", v.numpy(), v.name != "bias") for v in make_variables()]
    for step in range(4):
        run([tf.constant(gradient) for gradient in make_gradients(step)])
        for variable, twin, gradient in zip(
            variables, twins, shared_gradient(step, where), strict=True
        ):
            twin.step(gradient, 0.1)
            for copy in strategy.experimental_local_results(variable.value):
                assert_close(copy, twin.value, OTHER_FRAMEWORK)
    after, before = (shared_gradient(0, name)[0] for name in ("after", "before"))
    assert np.abs(after - before).max() > 0.01


def test_one_replica_clips_all_the_same():
    gradients = [tf.constant(gradient) for gradient in make_gradients(0)]
    values = []
    for where in ("after", "before"):
        variables = make_variables()
        optimizer = build_optimizer(
            OptimizerConfig("adamw", 0.1, num_warmup_steps=0, clip_where=where)
        )
        assert float(optimizer.apply_summed(gradients, variables)) > 1
        assert float(tf.linalg.global_norm([m.value for m in optimizer._moments])) < 0.1001
        values.append(variables[0].numpy())
    np.testing.assert_array_equal(*values)


def test_an_overflow_stays_one():
    """What float16 skips must be seen after the clipping too."""
    optimizer = AdamW(clip_where="before")
    for bad in (np.inf, np.nan):
        clipped = optimizer.clip_share([tf.constant([1.0, bad])], 8.0)
        assert not np.isfinite(clipped[0].numpy()).all()
