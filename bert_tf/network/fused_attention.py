"""Attention by cuDNN's fused kernel, which keeps the scores [R, N, T, T] out of memory.

XLA in TensorFlow does not find that kernel by itself, but calls it from a StableHLO module: the one
that JAX exports for its own attention, written here for the shapes of a trace. The kernel takes the
number of tokens of each row, which precede its padding, instead of a mask. It adds no terms of
positions, and its dropout differs.

The program for a GPU was looked at on a machine without one; it has not run. Nothing but
--attention=fused chooses it.

Reference: FlashAttention (Dao et al. 2022).
"""

import json
import string
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

from bert_tf.system.type_names import Tensor

# How StableHLO names the dtypes that the kernel takes.
ELEMENTS = {tf.bfloat16: "bf16", tf.float16: "f16"}
MOST_HEAD_SIZE = 128
CALLING_CONVENTION = 10  # Of modules; the newest that TensorFlow 2.20 and 2.21 know.

FORWARD = string.Template("""module {
  func.func public @main(%q: $rows, %k: $rows, %v: $rows, %n: $lengths) -> ($rows, $sums) {
    %0:3 = stablehlo.custom_call @__cudnn$$fmhaSoftmax(%q, %k, %v, %n, %n) {
      api_version = 2 : i32, backend_config = $config,
      operand_layouts = [$by_row, $by_row, $by_row, $flat, $flat],
      result_layouts = [$by_head, $of_sums, $flat]
    } : ($rows, $rows, $rows, $lengths, $lengths) -> ($heads, $sums, tensor<0xui8>)
    %1 = stablehlo.transpose %0#0, dims = [0, 2, 1, 3] : ($heads) -> $rows
    return %1, %0#1 : $rows, $sums
  }
}""")
BACKWARD = string.Template("""module {
  func.func public @main(%q: $rows, %k: $rows, %v: $rows, %sums: $sums, %slope: $rows,
                         %context: $rows, %n: $lengths) -> ($rows, $rows, $rows) {
    %0:4 = stablehlo.custom_call @__cudnn$$fmhaSoftmaxBackward(
        %q, %k, %v, %sums, %slope, %context, %n, %n) {
      api_version = 2 : i32, backend_config = $config,
      operand_layouts = [$by_row, $by_row, $by_row, $of_sums, $by_row, $by_row, $flat, $flat],
      result_layouts = [$by_head, $by_head, $by_head, $flat]
    } : ($rows, $rows, $rows, $sums, $rows, $rows, $lengths, $lengths)
      -> ($heads, $heads, $heads, tensor<0xui8>)
    %1 = stablehlo.transpose %0#0, dims = [0, 2, 1, 3] : ($heads) -> $rows
    %2 = stablehlo.transpose %0#1, dims = [0, 2, 1, 3] : ($heads) -> $rows
    %3 = stablehlo.transpose %0#2, dims = [0, 2, 1, 3] : ($heads) -> $rows
    return %1, %2, %3 : $rows, $rows, $rows
  }
}""")
# The axes of each product: contracted of both factors, then batch axes of both. Factors are
# [R, T, N, H], but scores and their gradients [R, N, T, T].
FORWARD_PRODUCTS = {"bmm1": (3, 3, (0, 2), (0, 2)), "bmm2": (3, 1, (0, 1), (0, 2))}
BACKWARD_PRODUCTS = {
    "bmm1_grad_gemm1": (2, 1, (0, 1), (0, 2)),
    "bmm1_grad_gemm2": (3, 1, (0, 1), (0, 2)),
    "bmm2_grad_gemm1": (2, 1, (0, 1), (0, 2)),
    "bmm2_grad_gemm2": (3, 3, (0, 2), (0, 2)),
}


def can_fuse(query: Tensor) -> bool:
    """Returns whether the kernel takes a query [R, T, N, H]."""
    shape = query.shape
    if query.dtype not in ELEMENTS or not shape.is_fully_defined():
        return False
    return not shape[1] % 2 and not shape[3] % 8 and shape[3] <= MOST_HEAD_SIZE


def attend_fused(query: Tensor, key: Tensor, value: Tensor, lengths: Tensor) -> Tensor:
    """Attends from every token of a row to every token of it; softmax in float32.

    Args:
      query, key, value: bfloat16 or float16 [R, T, N, H]; the queries have the scale of the scores.
      lengths: int32 [R], the number of tokens of each row.

    Returns:
      [R, T, N, H] of the same dtype; zeros at padding.
    """

    @tf.custom_gradient
    def attend(
        query: Tensor, key: Tensor, value: Tensor
    ) -> tuple[Tensor, Callable[[Tensor], list[Tensor]]]:
        rows, length, heads, _ = query.shape
        outputs = [(query.shape, query.dtype), ([rows, heads, length], tf.float32)]
        context, sums = _run(FORWARD, FORWARD_PRODUCTS, [query, key, value, lengths], outputs)

        def gradient(slope: Tensor) -> list[Tensor]:
            inputs = [query, key, value, sums, slope, context, lengths]
            return _run(BACKWARD, BACKWARD_PRODUCTS, inputs, [(query.shape, query.dtype)] * 3)

        return context, gradient

    return attend(query, key, value)


def _run(
    module: string.Template,
    products: dict[str, tuple[Any, ...]],
    inputs: list[Tensor],
    outputs: list[tuple[Any, tf.DType]],
) -> list[Tensor]:
    """Calls the kernel; `outputs` are the shapes and dtypes of its results."""
    rows, length, heads, size = inputs[0].shape
    element = ELEMENTS[inputs[0].dtype]
    text = module.substitute(
        rows=f"tensor<{rows}x{length}x{heads}x{size}x{element}>",
        heads=f"tensor<{rows}x{heads}x{length}x{size}x{element}>",
        sums=f"tensor<{rows}x{heads}x{length}xf32>",
        lengths=f"tensor<{rows}xi32>",
        # The order of the axes in memory, the fastest first.
        by_row="dense<[3, 2, 1, 0]> : tensor<4xindex>",
        by_head="dense<[3, 1, 2, 0]> : tensor<4xindex>",
        of_sums="dense<[2, 1, 0]> : tensor<3xindex>",
        flat="dense<0> : tensor<1xindex>",
        config=json.dumps(json.dumps(_settings(products, [rows, heads, length], element))),
    )
    return gen_xla_ops.xla_call_module(
        inputs,
        version=CALLING_CONVENTION,
        module=text,
        Sout=[shape for shape, _ in outputs],
        Tout=[dtype for _, dtype in outputs],
        platforms=["CUDA"],
        disabled_checks=[
            "custom_call:__cudnn$fmhaSoftmax",
            "custom_call:__cudnn$fmhaSoftmaxBackward",
        ],
    )


def _settings(
    products: dict[str, tuple[Any, ...]], sums: list[int], element: str
) -> dict[str, Any]:
    """Returns the kernel's settings: padding by lengths, scores as they are, no dropout."""
    settings: dict[str, Any] = {
        "algorithm": {"algo_id": "0", "is_cudnn_frontend": True},
        "fmha_scale": 1.0,
        "intermediate_tensor_shape": {
            "element_type": element.upper(),
            "dimensions": list(map(str, (*sums, sums[-1]))),
            "layout": {"minor_to_major": ["3", "2", "1", "0"]},
        },
        "is_flash_attention": True,
        "mask_type": "PADDING",
        "dropout_rate": 0.0,
        "seed": "0",
    }
    for name, (left, right, left_batch, right_batch) in products.items():
        settings[f"{name}_dot_dimension_numbers"] = {
            "lhs_contracting_dimensions": [str(left)],
            "rhs_contracting_dimensions": [str(right)],
            "lhs_batch_dimensions": list(map(str, left_batch)),
            "rhs_batch_dimensions": list(map(str, right_batch)),
        }
    return {"operation_queue_id": "0", "cudnn_fmha_backend_config": settings}
