"""Times the real model: a hand-written loop, the generated executors and onnxruntime-genai, taking turns."""
