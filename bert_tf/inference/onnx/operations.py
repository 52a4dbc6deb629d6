"""The operations of ONNX for those of TensorFlow: one function, or one name, for each.

The list is closed: it has the operations of the networks of this package, in the form in which
`tracing.py` traces them. A function takes the builder, the operation and the values of its inputs;
it returns the values of its outputs.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bert_tf.inference.onnx.graph import OPSET, GraphBuilder, static_value
from bert_tf.system.type_names import Tensor

Operation = Any  # tf.Operation
Convert = Callable[[GraphBuilder, Operation, list[str]], list[str]]

LAYER_NORM = "layer_normalization"  # The name of the function that becomes one node.
LAST = np.iinfo(np.int64).max  # The end of a slice that reaches the end of its axis.
MASKS = ("begin", "end", "ellipsis", "new_axis", "shrink_axis")  # Of a slice, a bit for each axis.
# Operations that have the same inputs in both.
SAME = {
    "Abs": "Abs",
    "AddV2": "Add",
    "BiasAdd": "Add",
    "Cos": "Cos",
    "Equal": "Equal",
    "Erf": "Erf",
    "Exp": "Exp",
    "Greater": "Greater",
    "GreaterEqual": "GreaterOrEqual",
    "Less": "Less",
    "LessEqual": "LessOrEqual",
    "Log": "Log",
    "LogicalAnd": "And",
    "LogicalNot": "Not",
    "LogicalOr": "Or",
    "Maximum": "Max",
    "Minimum": "Min",
    "Mul": "Mul",
    "Neg": "Neg",
    "Pow": "Pow",
    "Range": "Range",
    "RealDiv": "Div",
    "Relu": "Relu",
    "Sigmoid": "Sigmoid",
    "Sin": "Sin",
    "Softmax": "Softmax",  # Both over the last axis by default.
    "Sqrt": "Sqrt",
    "Sub": "Sub",
    "Tanh": "Tanh",
    # Of sizes, which are not negative: ONNX rounds to 0.
    "FloorDiv": "Div",
}
UNCHANGED = ("Identity", "IdentityN", "ReadVariableOp", "StopGradient", "EnsureShape")
# Reductions, and whether their axes are an input at this opset, instead of an attribute.
REDUCTIONS = {
    "Max": ("ReduceMax", False),
    "Mean": ("ReduceMean", False),
    "Min": ("ReduceMin", False),
    "Prod": ("ReduceProd", False),
    "Sum": ("ReduceSum", True),
}
CONVERTERS: dict[str, Convert] = {}


def dtype_of(op: Operation) -> str:
    """Returns the dtype of an operation's result."""
    return op.outputs[0].dtype.name


# Operations that are one expression, of the builder, the operation and the values of its inputs.
EXPRESSIONS: dict[str, Callable[[GraphBuilder, Operation, list[str]], str]] = {
    "BroadcastTo": lambda graph, op, x: graph.add("Expand", x[0], whole(graph, op.inputs[1])),
    "Cast": lambda graph, op, x: graph.cast(x[0], dtype_of(op)),
    "ConcatV2": lambda graph, op, x: graph.add("Concat", *x[:-1], axis=int(needed(op.inputs[-1]))),
    "Const": lambda graph, op, x: graph.constant(static_value(op.outputs[0]), dtype_of(op)),
    "Einsum": lambda graph, op, x: graph.add(
        "Einsum", *x, equation=op.get_attr("equation").decode()
    ),
    "ExpandDims": lambda graph, op, x: graph.add(
        "Unsqueeze", x[0], graph.constant([int(needed(op.inputs[1]))])
    ),
    "Fill": lambda graph, op, x: graph.add("Expand", x[1], whole(graph, op.inputs[0])),
    "Log1p": lambda graph, op, x: graph.add(
        "Log", graph.add("Add", x[0], graph.constant(1, dtype_of(op)))
    ),
    "NotEqual": lambda graph, op, x: graph.add("Not", graph.add("Equal", *x)),
    "OnesLike": lambda graph, op, x: graph.add(
        "Expand", graph.constant(1, dtype_of(op)), graph.add("Shape", x[0])
    ),
    "Reshape": lambda graph, op, x: graph.add("Reshape", x[0], whole(graph, op.inputs[1])),
    "Rsqrt": lambda graph, op, x: graph.add("Reciprocal", graph.add("Sqrt", *x)),
    "Shape": lambda graph, op, x: graph.cast(graph.add("Shape", *x), dtype_of(op)),
    "Size": lambda graph, op, x: graph.cast(graph.add("Size", *x), dtype_of(op)),
    "Square": lambda graph, op, x: graph.add("Mul", x[0], x[0]),
    "Squeeze": lambda graph, op, x: graph.add(
        "Squeeze", x[0], graph.constant(op.get_attr("squeeze_dims"))
    ),
    "Tile": lambda graph, op, x: graph.add("Tile", x[0], whole(graph, op.inputs[1])),
    "ZerosLike": lambda graph, op, x: graph.add(
        "Expand", graph.constant(0, dtype_of(op)), graph.add("Shape", x[0])
    ),
}


def convert(graph: GraphBuilder, op: Operation) -> None:
    """Adds an operation to the graph, whose inputs it has already.

    Raises:
      ValueError: if the operation is not on the list.
    """
    inputs = list(map(graph.value, op.inputs))
    if op.type in UNCHANGED:
        outputs = inputs
    elif op.type in SAME:
        outputs = [graph.add(SAME[op.type], *inputs)]
    elif op.type in EXPRESSIONS:
        outputs = [EXPRESSIONS[op.type](graph, op, inputs)]
    elif op.type in CONVERTERS:
        outputs = CONVERTERS[op.type](graph, op, inputs)
    else:
        raise ValueError(
            f"The operation {op.type} ({op.name}) has no counterpart in ONNX at opset {OPSET}; "
            "write a SavedModel by export.saved_model instead, which holds every model."
        )
    for tensor, value in zip(op.outputs, outputs, strict=True):
        graph.names[tensor.name] = value


def converts(*types: str) -> Callable[[Convert], Convert]:
    """Registers the function of operations."""

    def register(function: Convert) -> Convert:
        CONVERTERS.update(dict.fromkeys(types, function))
        return function

    return register


def needed(tensor: Tensor) -> Any:
    """Returns the numbers of a tensor that have to be known.

    Raises:
      ValueError: if they are not.
    """
    value = static_value(tensor)
    if value is None:
        raise ValueError(
            f"The operation {tensor.op.name} depends on its inputs, where ONNX needs a constant; "
            "write a SavedModel by export.saved_model instead."
        )
    return value


def whole(graph: GraphBuilder, tensor: Tensor) -> str:
    """Returns a vector of sizes as int64, the type of ONNX's sizes."""
    static = static_value(tensor)
    return graph.cast(graph.value(tensor), "int64") if static is None else graph.constant(static)


# Shapes ------------------------------------------------------------------------------------------


@converts("Pad", "PadV2")
def _pad(graph: GraphBuilder, op: Operation, inputs: list[str]) -> list[str]:
    # ONNX has the widths before all axes first, then those after them.
    by_side = graph.add("Transpose", whole(graph, op.inputs[1]), perm=[1, 0])
    widths = graph.add("Reshape", by_side, graph.constant([-1]))
    fill = inputs[2] if len(inputs) > 2 else graph.constant(0, op.outputs[0].dtype.name)
    return [graph.add("Pad", inputs[0], widths, fill)]


@converts("Transpose")
def _transpose(graph: GraphBuilder, op: Operation, inputs: list[str]) -> list[str]:
    order = needed(op.inputs[1]).tolist()
    array = graph.arrays.get(inputs[0])
    # Runtimes quantize products with constants alone. The word table stays one array.
    if array is not None and len(op.inputs[0].consumers()) == 1:
        name = f"{inputs[0]}/transposed"
        return [graph.constant(array.transpose(order), array.dtype.name, name)]
    return [graph.add("Transpose", inputs[0], perm=order)]


# Joining and cutting -----------------------------------------------------------------------------


@converts("Pack")
def _pack(graph: GraphBuilder, op: Operation, inputs: list[str]) -> list[str]:
    axis = op.get_attr("axis")
    parts = [graph.add("Unsqueeze", value, graph.constant([axis])) for value in inputs]
    return [graph.add("Concat", *parts, axis=axis)]


@converts("Unpack")
def _unpack(graph: GraphBuilder, op: Operation, inputs: list[str]) -> list[str]:
    axis = op.get_attr("axis")
    indices = range(op.get_attr("num"))
    return [graph.add("Gather", inputs[0], graph.constant(i), axis=axis) for i in indices]


@converts("Split")
def _split(graph: GraphBuilder, op: Operation, inputs: list[str]) -> list[str]:
    axis = int(needed(op.inputs[0]))
    return graph.add_several("Split", inputs[1:], op.get_attr("num_split"), axis=axis)


@converts("StridedSlice")
def _slice(graph: GraphBuilder, op: Operation, inputs: list[str]) -> list[str]:
    masks = {name: op.get_attr(f"{name}_mask") for name in MASKS}
    cuts = Cuts()
    axis = 0
    for index, step in enumerate(needed(op.inputs[3]).tolist()):
        bit = 1 << index
        if masks["ellipsis"] & bit:
            axis += op.inputs[0].shape.rank - _count_named_axes(masks, op.inputs[3].shape[0])
            continue
        if masks["new_axis"] & bit:
            cuts.added.append(axis - len(cuts.removed) + len(cuts.added))
            continue
        start = _bound(graph, op.inputs[1], index, masks["begin"] & bit, 0 if step > 0 else LAST)
        if masks["shrink_axis"] & bit:
            cuts.removed.append(axis)
            cuts.add(axis, start, _after(graph, op.inputs[1], index), step)
        elif not (masks["begin"] & bit and masks["end"] & bit and step == 1):
            open_end = LAST if step > 0 else -LAST
            end = _bound(graph, op.inputs[2], index, masks["end"] & bit, open_end)
            cuts.add(axis, start, end, step)
        axis += 1
    value = inputs[0]
    if cuts.axes:
        bounds = [_joined(graph, cuts.starts), _joined(graph, cuts.ends)]
        rest = [graph.constant(cuts.axes), graph.constant(cuts.steps)]
        value = graph.add("Slice", value, *bounds, *rest)
    if cuts.removed:
        value = graph.add("Squeeze", value, graph.constant(cuts.removed))
    if cuts.added:
        value = graph.add("Unsqueeze", value, graph.constant(cuts.added))
    return [value]


@dataclasses.dataclass
class Cuts:
    """The parts of a slice: bounds by axis, axes of one index to remove, and new axes."""

    axes: list[int] = dataclasses.field(default_factory=list)
    starts: list[int | str] = dataclasses.field(default_factory=list)
    ends: list[int | str] = dataclasses.field(default_factory=list)
    steps: list[int] = dataclasses.field(default_factory=list)
    removed: list[int] = dataclasses.field(default_factory=list)
    added: list[int] = dataclasses.field(default_factory=list)

    def add(self, axis: int, start: int | str, end: int | str, step: int) -> None:
        """Adds the bounds of an axis."""
        self.axes.append(axis)
        self.starts.append(start)
        self.ends.append(end)
        self.steps.append(step)


def _count_named_axes(masks: dict[str, int], count: int) -> int:
    """Returns the number of axes of the input that a slice names."""
    others = masks["ellipsis"] | masks["new_axis"]
    return sum(not others & (1 << index) for index in range(count))


def _bound(
    graph: GraphBuilder, bounds: Tensor, index: int, is_open: int, default: int
) -> int | str:
    """Returns a bound of a slice: a number, or the value of a vector with this number alone."""
    if is_open:
        return default
    if bounds.op.type == "Pack":  # Some of the numbers may be known.
        bounds = bounds.op.inputs[index]
        static = static_value(bounds)
        if static is not None:
            return int(static)
        value = graph.cast(graph.value(bounds), "int64")
        return graph.add("Reshape", value, graph.constant([1]))
    static = static_value(bounds)
    if static is not None:
        return int(static[index])
    value = graph.cast(graph.value(bounds), "int64")
    return graph.add("Gather", value, graph.constant([index]))


def _after(graph: GraphBuilder, bounds: Tensor, index: int) -> int | str:
    """Returns the bound after a single index."""
    start = _bound(graph, bounds, index, 0, 0)
    if isinstance(start, str):
        return graph.add("Add", start, graph.constant([1]))
    return LAST if start == -1 else start + 1


def _joined(graph: GraphBuilder, bounds: Sequence[int | str]) -> str:
    """Returns the bounds of all axes as one vector."""
    if not any(isinstance(bound, str) for bound in bounds):
        return graph.constant(bounds)
    parts = [one if isinstance(one, str) else graph.constant([one]) for one in bounds]
    return parts[0] if len(parts) == 1 else graph.add("Concat", *parts, axis=0)


@converts("GatherV2")
def _gather(graph: GraphBuilder, op: Operation, inputs: list[str]) -> list[str]:
    axis = int(needed(op.inputs[2]))
    leading = op.get_attr("batch_dims")
    if not leading:
        return [graph.add("Gather", *inputs[:2], axis=axis)]
    if axis != leading:
        raise ValueError(f"ONNX cannot gather along axis {axis} with {leading} leading axes.")
    indices = graph.add("Unsqueeze", graph.cast(inputs[1], "int64"), graph.constant([-1]))
    return [graph.add("GatherND", inputs[0], indices, batch_dims=leading)]


# Numbers -----------------------------------------------------------------------------------------


@converts("SelectV2")
def _select(graph: GraphBuilder, op: Operation, inputs: list[str]) -> list[str]:
    if op.outputs[0].dtype.name != "bool":
        return [graph.add("Where", *inputs)]
    # ONNX Runtime has no Where of booleans.
    condition, one, other = inputs
    others = graph.add("And", graph.add("Not", condition), other)
    return [graph.add("Or", graph.add("And", condition, one), others)]


@converts("SquaredDifference")
def _squared_difference(graph: GraphBuilder, op: Operation, inputs: list[str]) -> list[str]:
    difference = graph.add("Sub", *inputs)
    return [graph.add("Mul", difference, difference)]


@converts("Max", "Mean", "Min", "Prod", "Sum")
def _reduce(graph: GraphBuilder, op: Operation, inputs: list[str]) -> list[str]:
    name, has_axes_input = REDUCTIONS[op.type]
    axes = np.atleast_1d(needed(op.inputs[1])).tolist()
    keeps = int(op.get_attr("keep_dims"))
    if not axes:  # TensorFlow reduces no axis, ONNX all.
        return inputs[:1]
    if has_axes_input:
        return [graph.add(name, inputs[0], graph.constant(axes), keepdims=keeps)]
    return [graph.add(name, inputs[0], axes=axes, keepdims=keeps)]


@converts("Any", "All")
def _reduce_booleans(graph: GraphBuilder, op: Operation, inputs: list[str]) -> list[str]:
    name = "ReduceMax" if op.type == "Any" else "ReduceMin"
    axes = np.atleast_1d(needed(op.inputs[1])).tolist()
    numbers = graph.cast(inputs[0], "int32")
    keeps = int(op.get_attr("keep_dims"))
    return [graph.cast(graph.add(name, numbers, axes=axes, keepdims=keeps), "bool")]


@converts("ArgMax")
def _argmax(graph: GraphBuilder, op: Operation, inputs: list[str]) -> list[str]:
    index = graph.add("ArgMax", inputs[0], axis=int(needed(op.inputs[1])), keepdims=0)
    return [graph.cast(index, op.outputs[0].dtype.name)]


@converts("Cumsum")
def _cumsum(graph: GraphBuilder, op: Operation, inputs: list[str]) -> list[str]:
    options = {"exclusive": int(op.get_attr("exclusive")), "reverse": int(op.get_attr("reverse"))}
    return [graph.add("CumSum", *inputs, **options)]


@converts("OneHot")
def _one_hot(graph: GraphBuilder, op: Operation, inputs: list[str]) -> list[str]:
    # ONNX's OneHot counts negative indices from the end; TensorFlow's has no number for them.
    indices, depth, on, off = inputs
    dtype = op.inputs[0].dtype.name
    bounds = [graph.constant(0, dtype), graph.cast(depth, dtype), graph.constant(1, dtype)]
    columns = graph.add("Range", *bounds)
    is_index = graph.add("Equal", graph.add("Unsqueeze", indices, graph.constant([-1])), columns)
    return [graph.add("Where", is_index, on, off)]


# Products ----------------------------------------------------------------------------------------


@converts("MatMul", "BatchMatMulV2")
def _product(graph: GraphBuilder, op: Operation, inputs: list[str]) -> list[str]:
    names = ("transpose_a", "transpose_b") if op.type == "MatMul" else ("adj_x", "adj_y")
    factors = []
    for name, tensor, value in zip(names, op.inputs, inputs, strict=True):
        if op.get_attr(name):
            order = list(range(tensor.shape.rank))
            order[-2:] = reversed(order[-2:])
            value = graph.add("Transpose", value, perm=order)
        factors.append(value)
    return [graph.add("MatMul", *factors)]


@converts("PartitionedCall", "StatefulPartitionedCall")
def _layer_norm(graph: GraphBuilder, op: Operation, inputs: list[str]) -> list[str]:
    if LAYER_NORM not in op.get_attr("f").name:
        raise ValueError(f"The function {op.get_attr('f').name} has no counterpart in ONNX.")
    epsilon = float(needed(op.inputs[3]))
    return [graph.add("LayerNormalization", *inputs[:3], axis=-1, epsilon=epsilon)]
