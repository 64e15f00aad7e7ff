#!/usr/bin/python3
"""onnx_to_safetensors.py MODEL.onnx OUT.safetensors - the weights of an exported BERT under their Hugging Face names, in F32.

For comparisons with ONNX Runtime on equal weights (Debian: python3-onnx). Exporters keep the names of biases and embeddings,
but name the matrices of products after nodes ("/encoder/layer.0/attention/self/query/MatMul") and store them transposed.
"""
import json, struct, sys
import numpy as np
import onnx
from onnx import numpy_helper

graph = onnx.load(sys.argv[1]).graph
initial = {i.name: numpy_helper.to_array(i) for i in graph.initializer}
tensors = {n: t for n, t in initial.items() if n.startswith(("embeddings.", "encoder.")) and t.dtype == np.float32}
for node in graph.node:
    if node.op_type == "MatMul" and node.input[1] in initial and node.name.startswith("/encoder/"):
        tensors[node.name[1:].rsplit("/", 1)[0].replace("/", ".") + ".weight"] = initial[node.input[1]].T
header, data = {}, b""
for name, t in tensors.items():
    raw = np.ascontiguousarray(t).tobytes()
    header[name] = {"dtype": "F32", "shape": list(t.shape), "data_offsets": [len(data), len(data) + len(raw)]}
    data += raw
text = json.dumps(header).encode()
open(sys.argv[2], "wb").write(struct.pack("<Q", len(text)) + text + data)
