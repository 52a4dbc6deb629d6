"""Compiles steps of `tpu_step` for a TPU that this machine does not have, with jax and libtpu.

    .venv-tpu/bin/python benchmarks/tpu_compiler.py v5e:2x2 STEP

Prints a JSON object: what `tpu_check` judges, or `error`. Without a step it only looks for the
chips. It is a program of an environment without TensorFlow, so it imports nothing of this project.
One process at a time can use libtpu.
"""

import collections
import json
import math
import os
import pathlib
import re
import sys
from collections.abc import Sequence
from typing import Any

os.environ["JAX_PLATFORMS"] = "cpu"
# Otherwise libtpu asks Google Cloud for the TPU of this machine.
os.environ["TPU_SKIP_MDS_QUERY"] = "1"
os.environ["TPU_WORKER_HOSTNAMES"] = "localhost"
os.environ["TPU_ACCELERATOR_TYPE"] = "v5litepod-4"

from jax._src import compiler  # noqa: E402
from jax._src.interpreters import mlir  # noqa: E402
from jax._src.lib import xla_client  # noqa: E402
from jax._src.lib.mlir import ir  # noqa: E402
from jax.experimental import topologies  # noqa: E402

# Parts of a step by the names of their operations; the first that fits.
PARTS = {
    "copies": r"^%?copy",  # The name of the instruction itself: only the order in memory changes.
    "attention": r"/self_\d",
    "rest of the layers": r"/layer_\d",
    "embeddings": r"/embeddings_\d",
    "heads": r"/(predictions|pooler|next_sentence|transform)_?\d*/",
    "update": r"StatefulPartitionedCall_\d+/",
}


def read_step(path: str, updated: list[int]) -> ir.Module:
    """Reads the HLO of a step as a module whose variables are updated in place."""
    hlo = pathlib.Path(f"{path}.hlo").read_bytes()
    module = ir.Module.parse(xla_client._xla.mlir.hlo_to_stablehlo(hlo))
    remove_copies(module)
    functions = [op for op in module.body.operations if op.attributes["sym_name"].value == "main"]
    number = ir.IntegerType.get_signless(32)
    signature = ir.FunctionType(ir.TypeAttr(functions[0].attributes["function_type"]).value)
    attributes = [ir.DictAttr.get({}) for _ in signature.inputs]
    for result, parameter in enumerate(updated, start=1):
        alias = ir.IntegerAttr.get(number, result)
        attributes[parameter] = ir.DictAttr.get({"tf.aliasing_output": alias})
    functions[0].attributes["arg_attrs"] = ir.ArrayAttr.get(attributes)
    return module


def remove_copies(module: ir.Module) -> None:
    """Removes the copies of results that TensorFlow adds, which StableHLO has no operation for."""
    copies = []

    def find(op: Any) -> Any:
        if op.name == "mhlo.copy":
            copies.append(op)
        return ir.WalkResult.ADVANCE

    module.operation.walk(find)
    for op in copies:
        op.results[0].replace_all_uses_with(op.operands[0])
        op.erase()


def compile_step(path: str, chips: Sequence[Any]) -> dict[str, Any]:
    """Compiles a step for the first of these chips, or for one of each replica.

    Returns:
      The report.
    """
    about = json.loads(pathlib.Path(f"{path}.json").read_text(encoding="utf8"))
    if len(chips) < about["replicas"]:
        raise ValueError(f"{about['replicas']} replicas need as many chips, not {len(chips)}")
    chips = chips[: about["replicas"]]
    device = chips[0]
    report = {"chip": device.device_kind, "updated": len(about["updated"])}
    with mlir.make_ir_context():
        module = read_step(path, about["updated"])
        report["custom_calls"] = re.findall(r"custom_call @(\w+)", str(module))
        options = compiler.get_compile_options(
            num_replicas=len(chips),
            num_partitions=1,
            device_assignment=[[chip.id] for chip in chips],
        )
        devices = xla_client.DeviceList(tuple(chips))
        executable = device.client.compile(
            module, executable_devices=devices, compile_options=options
        )
    memory = executable.get_compiled_memory_stats()
    cost = executable.cost_analysis()
    text = executable.hlo_modules()[0].to_string()
    aliases = re.search(r"input_output_alias=\{(.*?)\}, \w+=", text)
    report |= {
        "in_place": len(re.findall(r"-alias\)", aliases[1])) if aliases else 0,
        "bytes": memory.argument_size_in_bytes
        + memory.output_size_in_bytes
        + memory.temp_size_in_bytes
        - memory.alias_size_in_bytes,
        "flops": cost["flops"],
        "formula_flops": about["flops"],
        "cycles": cycles(text),
        "reductions": reductions(text),
    }
    return report


def reductions(text: str) -> list[tuple[int, float, bool]]:
    """Returns of each sum over replicas the bytes, and the share of the cycles spent before it.

    The last value tells whether it only starts there, and other operations run beside it.
    """
    found = []
    spent = 0
    # The instructions are in the order in which they run.
    for line in text.split("ENTRY", 1)[1].splitlines():
        if estimate := re.search(r'estimated_cycles":"(\d+)"', line):
            spent += int(estimate[1])
        if shapes := re.search(r" = (.*?) all-reduce(-start)?\(", line):
            size = 0
            for kind, axes in re.findall(r"([a-z]+\d+)\[([\d,]*)\]", shapes[1]):
                bits = int(re.sub("[a-z]", "", kind))
                size += bits // 8 * math.prod(map(int, filter(None, axes.split(","))))
            found.append((size, spent, shapes[2] is not None))
    return [(size, before / max(spent, 1), starts) for size, before, starts in found]


def cycles(text: str) -> dict[str, int]:
    """Adds up the compiler's estimated cycles of the operations of each part.

    Each operation is estimated alone, without what overlaps: it is not a measurement.
    """
    found: collections.Counter[str] = collections.Counter()
    for line in text.split("ENTRY", 1)[1].splitlines():
        estimate = re.search(r'estimated_cycles":"(\d+)"', line)
        if not estimate:
            continue
        instruction = line.strip().removeprefix("ROOT ").partition(" ")[0]
        operation = re.search(r'op_name="([^"]*)"', line)
        names = (instruction, operation[1] if operation else "")
        parts = [part for part, form in PARTS.items() if any(re.search(form, n) for n in names)]
        found[parts[0] if parts else "others"] += int(estimate[1])
    return dict(found.most_common())


def main(topology: str, *paths: str) -> None:
    devices = topologies.get_topology_desc(platform="tpu", topology_name=topology).devices
    for path in paths:
        try:
            report = compile_step(path, devices)
        except Exception as error:  # Whatever it is, the step does not compile.
            report = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(report))


if __name__ == "__main__":
    main(*sys.argv[1:])
