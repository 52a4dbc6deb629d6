"""Checks that a server has the operations of a SavedModel.

TensorFlow Serving is built with TensorFlow's own operations and with those of tensorflow-text, of
which older releases have fewer. It has no Python, so what calls Python cannot run there.

Reference: tensorflow/serving, tensorflow_serving/model_servers/BUILD; tensorflow/text, tag 2.12.1.
"""

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

# The tokenizer's, and the first release of TensorFlow Serving known to have it built in.
TEXT_OPS = {"FastWordpieceTokenizeWithOffsets": "2.18", "NormalizeUTF8": "2.18"}
PYTHON_OPS = {"PyFunc", "PyFuncStateless", "EagerPyFunc"}
MUST_COMPILE = "_XlaMustCompile"


def used_ops(meta_graph: Any) -> set[str]:
    """Returns the operations of a `MetaGraphDef` and of its functions, without these functions."""
    functions = meta_graph.graph_def.library.function
    nodes = [meta_graph.graph_def.node, *(function.node_def for function in functions)]
    return {node.op for part in nodes for node in part} - {f.signature.name for f in functions}


def check_graph(meta_graph: Any) -> None:
    """Checks that a server can run a graph, as far as TensorFlow's own operations go.

    Raises:
      ValueError: if it calls Python, or can run in XLA only.
    """
    if python := PYTHON_OPS & used_ops(meta_graph):
        raise ValueError(
            f"The graph calls Python ({', '.join(sorted(python))}), which no server has; write "
            f"that part with TensorFlow's operations."
        )
    functions = meta_graph.graph_def.library.function
    parts = [meta_graph.graph_def.node, *(f.node_def for f in functions), functions]
    if any(place.attr[MUST_COMPILE].b for part in parts for place in part):
        raise ValueError(
            f"The graph must be compiled by XLA ({MUST_COMPILE}), which a server may not have; "
            f"export without jit_compile=True."
        )


def foreign_ops(ops: Iterable[str]) -> list[str]:
    """Returns the names of operations that are not TensorFlow's own, sorted."""
    return sorted(op for op in ops if not hasattr(tf.raw_ops, op))


def check_foreign_ops(foreign: Iterable[str], takes_texts: bool) -> str:
    """Checks operations that are not TensorFlow's own; returns in words which server has them.

    Args:
      foreign: their names.
      takes_texts: whether the model takes texts; one of ids needs none of them.

    Raises:
      ValueError: if one is not allowed.
    """
    allowed = sorted(TEXT_OPS) if takes_texts else []
    if extra := sorted(set(foreign).difference(allowed)):
        raise ValueError(
            f"The model needs {', '.join(extra)}, not among TensorFlow's own operations; a model "
            f"of {'texts' if takes_texts else 'ids'} may need {', '.join(allowed) or 'no other'}."
        )
    needed = [
        f"{name} of tensorflow-text (in TensorFlow Serving {TEXT_OPS[name]} and later)"
        for name in sorted(foreign)
    ]
    return ", ".join(needed) or "none but TensorFlow's own"
