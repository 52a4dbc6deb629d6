"""Builds an ONNX graph of nodes from tensors of TensorFlow; `operations.py` has the operations.

The opset is the oldest with LayerNormalization, so that runtimes of the last years read the file.
Equal nodes are made once: layers that compute the same shape or mask share it.
"""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from onnx import TensorProto, helper, numpy_helper

from bert_tf.system.type_names import Tensor

OPSET = 17
IR_VERSION = 8  # The version that came with the opset.
DTYPES = {
    "float32": TensorProto.FLOAT,
    "float16": TensorProto.FLOAT16,
    "int32": TensorProto.INT32,
    "int64": TensorProto.INT64,
    "bool": TensorProto.BOOL,
}


@dataclasses.dataclass(frozen=True)
class Input:
    """An input or output of the graph: its name, dtype, and the names or sizes of its axes."""

    name: str
    dtype: str
    axes: Sequence[str | int]

    def value_info(self) -> Any:
        """Returns the form of ONNX."""
        return helper.make_tensor_value_info(self.name, DTYPES[self.dtype], list(self.axes))


class GraphBuilder:
    """A graph under construction; values are known by their names.

    Attributes:
      names: the value of each tensor of TensorFlow, by the tensor's name.
      arrays: the constants, by the value's name.
    """

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self.arrays: dict[str, np.ndarray] = {}
        self._nodes: list[Any] = []
        self._known: dict[Any, str] = {}
        self._renamed: dict[str, str] = {}
        self._count = 0

    def value(self, tensor: Tensor) -> str:
        """Returns the value of a tensor."""
        return self.names[tensor.name]

    def constant(self, array: Any, dtype: str = "int64", name: str = "") -> str:
        """Adds a constant; without a name, equal constants are added once.

        Args:
          name: of a weight; "" for others.
        """
        values = np.asarray(array, dtype)
        key = (values.dtype.str, values.shape, values.tobytes()) if not name else name
        if key not in self._known:
            self._known[key] = name or self._new_name("constant")
            self.arrays[self._known[key]] = values
        return self._known[key]

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        """Adds a node with one output, or finds an equal one; returns the output's value."""
        key = (op, inputs, repr(sorted(attributes.items())))
        if key not in self._known:
            self._known[key] = self.add_several(op, inputs, 1, **attributes)[0]
        return self._known[key]

    def add_several(
        self, op: str, inputs: Iterable[str], num_outputs: int, **attributes: Any
    ) -> list[str]:
        """Adds a node with several outputs; returns their values."""
        outputs = [self._new_name(op.lower()) for _ in range(num_outputs)]
        self._nodes.append(helper.make_node(op, list(inputs), outputs, outputs[0], **attributes))
        return outputs

    def add_output(self, value: str, name: str) -> None:
        """Makes the result of a node an output of the graph: the result gets the output's name."""
        is_result = any(value in node.output for node in self._nodes)
        if not is_result or value in self._renamed:  # An input, or an output already.
            value = self.add_several("Identity", [value], 1)[0]
        self._renamed[value] = name

    def cast(self, value: str, dtype: str) -> str:
        """Returns a value in another type."""
        if value in self.arrays:
            return self.constant(self.arrays[value], dtype)
        return self.add("Cast", value, to=DTYPES[dtype])

    def _new_name(self, kind: str) -> str:
        self._count += 1
        return f"{kind}_{self._count}"

    def model(self, inputs: Sequence[Input], outputs: Sequence[Input]) -> Any:
        """Returns the ModelProto, whose outputs are values of the graph with their names."""
        used = {name for node in self._nodes for name in node.input}
        for node in self._nodes:
            for names in (node.input, node.output):
                names[:] = [self._renamed.get(name, name) for name in names]
        weights = []
        for name, array in self.arrays.items():
            if name in used:
                weights.append(numpy_helper.from_array(np.array(array, order="C"), name))
        graph = helper.make_graph(
            self._nodes,
            "bert_tf",
            [one.value_info() for one in inputs],
            [one.value_info() for one in outputs],
            weights,
        )
        return helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
            producer_name="bert_tf",
        )


def static_value(tensor: Tensor) -> np.ndarray | None:
    """Returns the numbers of a tensor that TensorFlow knows while it traces, else None."""
    return tf.get_static_value(tensor)
