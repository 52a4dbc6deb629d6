"""Lowers the training step of a program to HLO, as on a TPU, instead of training.

    python -m benchmarks.tpu_step STEP run_pretraining FLAGS

The program prepares its data, model and optimizer as always. Its first step ends it, after the step
of one device, or one of several replicas, was written to STEP.hlo, and what a compiler's report
needs to STEP.json.
"""

import argparse
import json
import pathlib
import runpy
import sys
from collections.abc import Iterator
from typing import Any, NoReturn
from unittest import mock

import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops
from tensorflow.python.framework import auto_control_deps_utils

from bert_tf.system.type_names import Batch
from bert_tf.training import flops, precision
from bert_tf.training.train_step import TrainStep
from bert_tf.training.trainer import Trainer


class Replica:
    """One of several replicas, which XLA connects as under TPUStrategy."""

    def __init__(self, count: int) -> None:
        self.num_replicas_in_sync = count

    @property
    def replica_id_in_sync_group(self) -> tf.Tensor:
        return gen_xla_ops.xla_replica_id()

    def all_reduce(self, operation: tf.distribute.ReduceOp, values: Any) -> Any:
        """Returns the sums of the replicas."""
        group = [list(range(self.num_replicas_in_sync))]

        def reduced(value: tf.Tensor) -> tf.Tensor:
            return gen_xla_ops.xla_all_reduce(value, group, reduce_op="Add", mode="CrossReplica")

        return tf.nest.map_structure(reduced, values)


def lower(step: TrainStep, batch: Batch, replicas: int = 1) -> tuple[bytes, list[int]]:
    """Returns the HLO of a step on batches of these shapes; with several replicas, of each.

    Returns:
      A serialized HloModuleProto; and the numbers of the parameters that are variables which the
      step updates. Its results are a row of numbers and these variables, in this order.
    """
    names = sorted(batch)
    # XLA takes specifications of tensors one by one, not in a dict.
    specs = [tf.TensorSpec(batch[name].shape, batch[name].dtype, name) for name in names]
    specs.append(tf.TensorSpec([], tf.int32, "step"))

    @tf.function(jit_compile=True, autograph=False)
    def whole_step(*arguments: tf.Tensor) -> tf.Tensor:
        *values, index = arguments
        shares = dict(zip(names, values, strict=True))
        if replicas == 1:
            return step._whole_step(shares, index)
        with mock.patch.object(tf.distribute, "get_replica_context", lambda: Replica(replicas)):
            gradients, sums = step._reduced_gradients(shares, index)
            return step._apply(gradients, sums, step._update)

    function = whole_step.get_concrete_function(*specs)
    read_only = auto_control_deps_utils.get_read_only_resource_input_indices_graph(function.graph)
    resources = {id(variable.handle) for variable in function.graph.variables}
    updated = []
    for index, tensor in enumerate(function.captured_inputs, start=len(specs)):
        if id(tensor) in resources and index not in read_only:
            updated.append(index)
    compiler_ir = whole_step.experimental_get_compiler_ir(*specs)
    return compiler_ir(stage="hlo_serialized", platform_name="CPU"), updated


def main() -> None:
    """Runs a program up to its first step, and writes that."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("step", help="Path of the files without their ending.")
    parser.add_argument("program", help="Name of a program of bert_tf.")
    parser.add_argument("--replicas", type=int, default=1)
    given, arguments = parser.parse_known_args()

    def write_step(trainer: Trainer, iterator: Iterator[Batch], _: Any) -> NoReturn:
        hlo, updated = lower(trainer.train_step, next(iterator), given.replicas)
        pathlib.Path(f"{given.step}.hlo").write_bytes(hlo)
        # Fine-tuning does not count its products: 0.
        by_formula = trainer.progress.flops * trainer.progress.batch_size
        about = {"updated": updated, "flops": by_formula, "replicas": given.replicas}
        pathlib.Path(f"{given.step}.json").write_text(json.dumps(about), encoding="utf8")
        raise SystemExit(0)

    # The programs choose precision and compilation as on an accelerator, of an unknown speed.
    precision.has_accelerator = lambda: True
    flops.has_accelerator = lambda: True
    flops.measure_products = lambda: {"float32": 0.0}
    Trainer._run_call = write_step
    sys.argv = [given.program, *arguments]
    runpy.run_module(f"bert_tf.{given.program}", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
