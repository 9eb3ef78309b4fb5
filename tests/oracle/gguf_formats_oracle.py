# Blocks of every number format with the values that the `gguf` package (ggml-org/llama.cpp, gguf-py) reads from them, and
# values with the blocks that it writes:  pip install gguf==0.19.0 numpy; python gguf_formats_oracle.py > gguf_formats.json
import json

import gguf
import numpy as np
from gguf.quants import dequantize, quantize

rng = np.random.default_rng(7)
KINDS = ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K"]
# Read alone; drawn after all others, so that those stay what they were.
READ_ALONE = ["Q2_K", "Q3_K", "IQ4_NL", "IQ4_XS", "MXFP4"]
# Where the f16 scales of a block stand.
SCALES = {"Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}
SCALES |= {"Q2_K": [80, 82], "Q3_K": [108], "IQ4_NL": [0], "IQ4_XS": [0], "MXFP4": []}
out = {"read": {}, "written": {}}


def read(name):
    kind = gguf.GGMLQuantizationType[name]
    block, size = gguf.GGML_QUANT_SIZES[kind]
    if name in ("F16", "BF16"):
        values = rng.standard_normal(32).astype(np.float32)
        data = quantize(values.reshape(1, -1), kind).view(np.uint8).reshape(-1)
    else:
        data = rng.integers(0, 256, (2, size), dtype=np.uint8)
        for row in data:
            for at in SCALES[name]:
                row[at : at + 2] = np.frombuffer(np.float16(rng.normal() * 0.02).tobytes(), np.uint8)
            if name == "MXFP4":
                # The exponent of a scale that is a power of two.
                row[0] = rng.integers(110, 130)
        data = data.reshape(-1)
    values = dequantize(data.reshape(1, -1), kind).astype(np.float32).reshape(-1)
    out["read"][name] = {"bytes": data.tobytes().hex(), "values": values.view(np.uint32).tolist()}


for name in KINDS:
    read(name)
for name in ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"]:
    kind = gguf.GGMLQuantizationType[name]
    values = rng.standard_normal(128).astype(np.float32)
    data = quantize(values.reshape(1, -1), kind).view(np.uint8).reshape(-1)
    out["written"][name] = {"values": values.view(np.uint32).tolist(), "bytes": data.tobytes().hex()}
for name in READ_ALONE:
    read(name)
print(json.dumps(out))
