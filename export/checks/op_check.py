"""Operations of a SavedModel: whether a server has them.

TensorFlow Serving is built with TensorFlow's own operations and with those of tensorflow-text, of
which older releases have fewer. It has no Python, so what calls Python cannot run there.

Reference: tensorflow/serving, tensorflow_serving/model_servers/BUILD; tensorflow/text, tag 2.12.1.
"""

from collections.abc import Iterable, Iterator
from typing import Any

# The tokenizer's, and the first release of TensorFlow Serving known to have it built in.
TEXT_OPS = {"FastWordpieceTokenizeWithOffsets": "2.18"}
PYTHON_OPS = {"PyFunc", "PyFuncStateless", "EagerPyFunc"}
MUST_COMPILE = "_XlaMustCompile"


def nodes(meta_graph: Any) -> Iterator[Any]:
    """Yields all `NodeDef`s of a `MetaGraphDef`: those of the graph and of its functions."""
    yield from meta_graph.graph_def.node
    for function in meta_graph.graph_def.library.function:
        yield from function.node_def


def used_ops(meta_graph: Any) -> set[str]:
    """Returns the names of operations, without the model's own functions."""
    functions = {f.signature.name for f in meta_graph.graph_def.library.function}
    return {node.op for node in nodes(meta_graph)} - functions


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
    compiled = [node.name for node in nodes(meta_graph) if node.attr[MUST_COMPILE].b]
    compiled += [
        function.signature.name
        for function in meta_graph.graph_def.library.function
        if function.attr[MUST_COMPILE].b
    ]
    if compiled:
        raise ValueError(
            f"{compiled[0]} must be compiled by XLA ({MUST_COMPILE}), which a server may not have; "
            f"export without jit_compile=True."
        )


def check_foreign_ops(foreign: Iterable[str], takes_texts: bool) -> None:
    """Checks operations that are not TensorFlow's own.

    Args:
      foreign: their names.
      takes_texts: whether the model takes texts; one of ids needs none of them.

    Raises:
      ValueError: if one is not allowed.
    """
    allowed = set(TEXT_OPS) if takes_texts else set()
    if extra := sorted(set(foreign) - allowed):
        raise ValueError(
            f"The model needs {', '.join(extra)}, not among TensorFlow's own operations; a model "
            f"of {'texts' if takes_texts else 'ids'} may need {', '.join(allowed) or 'no other'}."
        )


def needed_server(foreign: Iterable[str]) -> str:
    """Returns in words which server has the operations."""
    return ", ".join(
        f"{name} of tensorflow-text (in TensorFlow Serving {TEXT_OPS[name]} and later)"
        for name in sorted(foreign)
    )
