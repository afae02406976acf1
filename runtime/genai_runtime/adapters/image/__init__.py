"""onnx-genai.image-preprocess@1: from the bytes of picture files to tensors (standard, 5.6).

`program` is what the compiler decided, `preprocess` runs it; `decode`, `resample`, `sizes`, `tiles`, `patches`
and `levels` are plain functions over numpy arrays that know no program. Pictures are uint8 [height, width, 3].
"""
