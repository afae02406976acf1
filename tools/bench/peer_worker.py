"""A peer in a process and an environment of its own. Run by path; needs nothing of this repository.

    python peer_worker.py KIND PACKAGE THREADS

kinds: `optimum` (PACKAGE: a folder with model.onnx and config.json), `llama` (PACKAGE: a GGUF file). Speaks JSON, a
message a line. First it says {"ready": true, "versions": {...}}; then it answers each {"rows": [ids], "new": n} on its
standard input with {"tokens": [...], "ttft": s, "seconds": s, "steps": [s, ...]}, timed in here, until that ends.
"""

import importlib.metadata
import itertools
import json
import os
import sys
import time
from typing import Any

CONTEXT = 2304
"""Positions that llama.cpp reserves: 2,048 and some new ones."""


class Optimum:
    """Optimum's `generate` on the same graph; a streamer notes when each token is there."""

    versions = ("optimum", "optimum-onnx", "transformers", "torch", "onnxruntime")

    def __init__(self, package: str, threads: int) -> None:
        import onnxruntime
        import torch
        from optimum.onnxruntime import ORTModelForCausalLM

        torch.set_num_threads(threads)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.log_severity_level = 3
        self.torch = torch
        self.model = ORTModelForCausalLM.from_pretrained(
            package, session_options=options, use_cache=True, provider="CPUExecutionProvider"
        )

    def generate(self, ids: list[int], new: int) -> tuple[list[int], float, list[float]]:
        """Tokens, when it began, and when each token was there."""
        stamps: list[float] = []

        class Streamer:
            def put(self, value: Any) -> None:
                stamps.append(time.perf_counter())

            def end(self) -> None:
                pass

        begun = time.perf_counter()
        prompt = self.torch.tensor([ids])
        with self.torch.no_grad():
            made = self.model.generate(
                input_ids=prompt,
                attention_mask=self.torch.ones_like(prompt),
                max_new_tokens=new,
                eos_token_id=None,
                do_sample=False,
                streamer=Streamer(),
                pad_token_id=0,
            )
        return made[0, len(ids) :].tolist(), begun, stamps[1:]  # the first thing streamed is the prompt


class Llama:
    """llama.cpp's `generate`, greedy."""

    versions = ("llama-cpp-python",)

    def __init__(self, package: str, threads: int) -> None:
        import llama_cpp

        self.model = llama_cpp.Llama(
            package, n_ctx=CONTEXT, n_batch=512, n_threads=threads, n_threads_batch=threads, verbose=False
        )

    def generate(self, ids: list[int], new: int) -> tuple[list[int], float, list[float]]:
        """Tokens, when it began, and when each token was there."""
        self.model.reset()
        tokens: list[int] = []
        stamps: list[float] = []
        begun = time.perf_counter()
        for token in self.model.generate(ids, top_k=1, temp=0.0, repeat_penalty=1.0, reset=False):
            tokens.append(token)
            stamps.append(time.perf_counter())
            if len(tokens) == new:
                break
        return tokens, begun, stamps


KINDS: dict[str, Any] = {"optimum": Optimum, "llama": Llama}


def main() -> None:
    """Open, say so, then answer until the requests end. Only answers go to standard output."""
    kind, package, threads = sys.argv[1], sys.argv[2], int(sys.argv[3])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints goes to standard error
    opened = KINDS[kind](package, threads)
    versions = {name: importlib.metadata.version(name) for name in opened.versions}
    print(json.dumps({"ready": True, "versions": versions}), file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        (ids,) = request["rows"]
        tokens, begun, stamps = opened.generate(ids, request["new"])
        steps = [later - earlier for earlier, later in itertools.pairwise(stamps[1:])]
        answer = {"tokens": tokens, "ttft": stamps[0] - begun, "seconds": stamps[-1] - begun, "steps": steps}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
