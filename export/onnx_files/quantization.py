"""Makes the weights of an ONNX graph smaller.

float16  each matrix is stored in float16 and cast to float32 when the file is loaded
int8     ONNX Runtime's dynamic quantization: products of int8 with inputs quantized at run time
"""

import logging as python_logging
import pathlib
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def quantize(model: onnx.ModelProto, form: str) -> onnx.ModelProto:
    """Returns a model with smaller weights; `form` is float16 or int8."""
    if form == "float16":
        return _with_halves(model)
    from onnxruntime.quantization import QuantType, quantize_dynamic

    # Its advice, to prepare the file, is for the operations of convolutions.
    python_logging.getLogger().addFilter(_is_no_advice)
    try:
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "model.onnx")
            quantize_dynamic(model, path, weight_type=QuantType.QInt8)
            return onnx.load(path)
    finally:
        python_logging.getLogger().removeFilter(_is_no_advice)


def _is_no_advice(record: python_logging.LogRecord) -> bool:
    return "pre-processing" not in record.getMessage()


def _with_halves(model: onnx.ModelProto) -> onnx.ModelProto:
    """Stores the matrices of a graph in float16; vectors stay float32."""
    graph = model.graph
    casts = []
    for weight in graph.initializer:
        if weight.data_type != TensorProto.FLOAT or len(weight.dims) < 2:
            continue
        name = weight.name
        halves = numpy_helper.to_array(weight).astype(np.float16)
        weight.CopyFrom(numpy_helper.from_array(halves, f"{name}/float16"))
        casts.append(
            helper.make_node("Cast", [weight.name], [name], f"{name}/cast", to=TensorProto.FLOAT)
        )
    nodes = [*casts, *graph.node]
    del graph.node[:]
    graph.node.extend(nodes)
    return model
