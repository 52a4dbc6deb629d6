"""Checks that a server has the operations of a SavedModel.

TensorFlow Serving is built with the operations of TensorFlow and of tensorflow-text. It has no
Python, so operations that call Python cannot run there.

Reference: tensorflow/serving, tensorflow_serving/model_servers/BUILD; tensorflow/text, tag 2.12.1.
"""

from collections.abc import Iterable

import tensorflow as tf
from tensorflow.core.protobuf import meta_graph_pb2

# Operations of the tokenizers that are tensorflow-text's.
TEXT_OPS = {"FastWordpieceTokenizeWithOffsets", "NormalizeUTF8"}
# The first TensorFlow Serving in whose C libraries every kind of model answered; docs/serving.md
# says what older servers are built with.
FIRST_SERVER = "2.20.0"
PYTHON_OPS = {"PyFunc", "PyFuncStateless", "EagerPyFunc"}
MUST_COMPILE = "_XlaMustCompile"


def used_ops(meta_graph: meta_graph_pb2.MetaGraphDef) -> set[str]:
    """Returns the operations of a graph and of its functions, without these functions."""
    functions = meta_graph.graph_def.library.function
    ops = {node.op for node in meta_graph.graph_def.node}
    for function in functions:
        ops |= {node.op for node in function.node_def}
    # A call of a function is a node whose operation is the function's name.
    return ops - {function.signature.name for function in functions}


def check_graph(meta_graph: meta_graph_pb2.MetaGraphDef) -> None:
    """Checks that a graph needs neither Python nor XLA.

    Raises:
      ValueError: if it needs one of them.
    """
    if python := PYTHON_OPS & used_ops(meta_graph):
        raise ValueError(
            f"The graph calls Python ({', '.join(sorted(python))}), which no server has; write "
            f"that part with TensorFlow's operations."
        )
    functions = meta_graph.graph_def.library.function
    # Nodes, functions and the nodes of functions all have attributes.
    marked = [*meta_graph.graph_def.node, *functions]
    for function in functions:
        marked += function.node_def
    if any(part.attr[MUST_COMPILE].b for part in marked):
        raise ValueError(
            f"The graph must be compiled by XLA ({MUST_COMPILE}), which a server may not have; "
            f"export without jit_compile=True."
        )


def foreign_ops(ops: Iterable[str]) -> list[str]:
    """Returns the names of operations that are not TensorFlow's own, sorted."""
    return sorted(op for op in ops if not hasattr(tf.raw_ops, op))


def check_foreign_ops(foreign: Iterable[str], takes_texts: bool) -> str:
    """Checks operations that are not TensorFlow's; returns which servers have all, as text.

    Args:
      foreign: names of the operations.
      takes_texts: whether the model takes texts; a model of ids needs no foreign operations.

    Raises:
      ValueError: if an operation is not allowed.
    """
    allowed = sorted(TEXT_OPS) if takes_texts else []
    if extra := sorted(set(foreign).difference(allowed)):
        raise ValueError(
            f"The model needs {', '.join(extra)}, not among TensorFlow's own operations; a model "
            f"of {'texts' if takes_texts else 'ids'} may need {', '.join(allowed) or 'no other'}."
        )
    needed = ", ".join(f"{name} of tensorflow-text" for name in sorted(foreign))
    needed = needed or "only TensorFlow's own"
    return f"{needed}; TensorFlow Serving {FIRST_SERVER} and later have all"
