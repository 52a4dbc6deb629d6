"""The layers that a text's pooled vector passes on its way to an embedding or a head's scores.

They are dense layers with an activation, and norms: LayerNorm, or scaling to length 1. Embedders
have them in an `EmbeddingConfig`; a `ModelConfig` writes those of the classification head as text,
joined by "+":

    dense:384:gelu_exact:bias+layer_norm     384 outputs; nobias without a bias
    dense:384:tanh:bias:residual             its input is added
"""

import dataclasses
from collections.abc import Sequence

# In the order in which sentence-transformers concatenates several.
POOLINGS = ("cls", "max", "mean", "mean_sqrt_len", "weightedmean", "lasttoken")
DENSE_ACTIVATIONS = ("tanh", "linear", "relu", "gelu_exact", "silu", "sigmoid")
NORMS = ("layer_norm", "l2")
NORM_EPSILON = 1e-5  # torch.nn.LayerNorm's


@dataclasses.dataclass(frozen=True)
class DenseStep:
    """A dense layer with an activation, of `DENSE_ACTIVATIONS`.

    With `residual` its input is added to its output, multiplied by a kernel of its own where the
    sizes differ.
    """

    in_features: int
    out_features: int
    use_bias: bool = True
    activation: str = "tanh"
    residual: bool = False

    @property
    def has_residual_kernel(self) -> bool:
        """Whether the input passes a kernel before it is added."""
        return self.residual and self.in_features != self.out_features


@dataclasses.dataclass(frozen=True)
class NormStep:
    """A norm of `NORMS`; only a LayerNorm has weights."""

    size: int
    norm: str = "layer_norm"


Step = DenseStep | NormStep
Shapes = dict[str, tuple[int, ...]]


def layer_name(index: int, step: Step) -> str:
    """Returns the name of a layer, which is in the names of its weights: dense_0, norm_1."""
    return f"{'dense' if isinstance(step, DenseStep) else 'norm'}_{index}"


def output_width(steps: Sequence[Step], width: int, source: str) -> int:
    """Returns the width after all layers.

    Raises:
      ValueError: if a layer takes another width than the layer before it gives.
    """
    for index, step in enumerate(steps):
        is_dense = isinstance(step, DenseStep)
        taken = step.in_features if isinstance(step, DenseStep) else step.size
        if taken != width:
            kind = "dense layer" if is_dense else "norm"
            raise ValueError(f"{source}: {kind} {index} takes {taken} numbers, but gets {width}.")
        if isinstance(step, DenseStep):
            width = step.out_features
    return width


def check_steps(steps: Sequence[Step]) -> None:
    """Raises ValueError for an unknown activation or norm."""
    for step in steps:
        if isinstance(step, DenseStep) and step.activation not in DENSE_ACTIVATIONS:
            raise ValueError(
                f"activation of a dense layer: received {step.activation!r}, expected one of "
                f"{list(DENSE_ACTIVATIONS)}."
            )
        if isinstance(step, NormStep) and step.norm not in NORMS:
            raise ValueError(f"norm: received {step.norm!r}, expected one of {list(NORMS)}.")


def step_shapes(steps: Sequence[Step], start: str) -> Shapes:
    """Returns the shapes of the weights by name; the names begin with `start`."""
    shapes: Shapes = {}
    for index, step in enumerate(steps):
        name = f"{start}{layer_name(index, step)}"
        if isinstance(step, DenseStep):
            shapes[f"{name}/kernel"] = (step.in_features, step.out_features)
            if step.use_bias:
                shapes[f"{name}/bias"] = (step.out_features,)
            if step.has_residual_kernel:
                shapes[f"{name}/residual/kernel"] = (step.in_features, step.out_features)
        elif step.norm == "layer_norm":
            shapes[f"{name}/gamma"] = (step.size,)
            shapes[f"{name}/beta"] = (step.size,)
    return shapes


def steps_as_text(steps: Sequence[Step]) -> str:
    """Returns the text of layers in a `ModelConfig`."""
    parts = []
    for step in steps:
        if isinstance(step, DenseStep):
            bias = "bias" if step.use_bias else "nobias"
            part = f"dense:{step.out_features}:{step.activation}:{bias}"
            if step.residual:
                part += ":residual"
        else:
            part = step.norm
        parts.append(part)
    return "+".join(parts)


def steps_from_text(text: str, width: int) -> tuple[Step, ...]:
    """Returns the layers that a text names.

    Raises:
      ValueError: if it is not such a text.
    """
    steps: list[Step] = []
    for part in text.split("+") if text else []:
        name, *fields = part.split(":")
        if name in NORMS and not fields:
            steps.append(NormStep(width, name))
            continue
        is_residual = fields[3:] == ["residual"]
        is_dense = name == "dense" and len(fields) == 3 + is_residual and fields[0].isascii()
        if not is_dense or not fields[0].isdigit() or fields[2] not in ("bias", "nobias"):
            raise ValueError(
                f"received {part!r}, expected dense:SIZE:ACTIVATION:bias, dense:SIZE:ACTIVATION:"
                f"nobias, perhaps with :residual, or one of {list(NORMS)}, joined by +."
            )
        size = int(fields[0])
        if not 1 <= size < 1 << 31:
            raise ValueError(f"the size in {part!r} is {size}, expected 1 or more.")
        steps.append(DenseStep(width, size, fields[2] == "bias", fields[1], is_residual))
        width = size
    check_steps(steps)
    return tuple(steps)
