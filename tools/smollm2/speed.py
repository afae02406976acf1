"""`python -m tools.smollm2.speed`: decode and prefill time of the packages against the float32 form, interleaved.

One process, one thread inside an operator, round-robin over the forms, medians: absolute numbers on a shared machine
mean little, ratios taken side by side do.
"""

import argparse
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from tools.smollm2.plain_loop import open_session


@dataclass(frozen=True)
class Timing:
    """Seconds: each decode step of one generation, and the prefill before them."""

    steps: list[float]
    prefill: float


class BoundLoop:
    """A decode loop whose caches live in one buffer per tensor, bound as past and as present."""

    def __init__(self, model: Path, capacity: int) -> None:
        self.session = open_session(model)
        self.capacity = capacity
        self.caches = {
            port.name: onnxruntime.OrtValue.ortvalue_from_numpy(
                np.zeros((1, port.shape[1], capacity, port.shape[3]), np.float32)
            )
            for port in self.session.get_inputs()
            if port.name.startswith("past_key_values.")
        }

    def generate(self, prompt_ids: list[int], new_tokens: int) -> Timing:
        """Greedy tokens after `prompt_ids`; the mask is one buffer of the whole capacity, ones up to the length."""
        mask = np.zeros((1, self.capacity), np.int64)
        chunk = np.array([prompt_ids], np.int64)
        length = 0
        times = []
        for _ in range(new_tokens + 1):
            length += chunk.shape[1]
            mask[0, :length] = 1
            start = time.perf_counter()
            logits = self._run(chunk, mask)
            times.append(time.perf_counter() - start)
            chunk = logits[:, -1:].argmax(-1)
        return Timing(times[1:], times[0])

    def _run(self, chunk: Any, mask: Any) -> Any:
        binding = self.session.io_binding()
        binding.bind_cpu_input("input_ids", chunk)
        binding.bind_cpu_input("attention_mask", mask)
        binding.bind_output("logits")
        for name, value in self.caches.items():
            binding.bind_ortvalue_input(name, value)
            binding.bind_ortvalue_output(name.replace("past_key_values", "present"), value)
        self.session.run_with_iobinding(binding)
        return binding.get_outputs()[0].numpy()


def measure(models: dict[str, Path], prompt_length: int, new_tokens: int, rounds: int) -> dict[str, list[Timing]]:
    """Time every model `rounds` times, taking turns."""
    loops = {name: BoundLoop(path, prompt_length + new_tokens) for name, path in models.items()}
    prompt = [(17 + 31 * index) % 40000 for index in range(prompt_length)]
    timings: dict[str, list[Timing]] = {name: [] for name in models}
    for _ in range(rounds):
        for name, loop in loops.items():
            timings[name].append(loop.generate(prompt, new_tokens))
    return timings


def main(arguments: list[str] | None = None) -> int:
    """Print one line a form: median decode step and prefill, and the ratio to the float form."""
    parser = argparse.ArgumentParser(prog="python -m tools.smollm2.speed", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/smollm2"), help="folder of the built packages")
    parser.add_argument("--prompt", type=int, default=64, help="prompt tokens")
    parser.add_argument("--new", type=int, default=64, help="decode steps a round")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args(arguments)
    models = {form: options.out / form / "model.onnx" for form in ("float", "v1")}
    missing = [str(path) for path in models.values() if not path.exists()]
    if missing:
        print(f"not built: {', '.join(missing)}. Run: python -m tools.smollm2 --forms v1 float", file=sys.stderr)
        return 2
    timings = measure(models, options.prompt, options.new, options.rounds)
    decode = {name: float(np.median([step for t in runs for step in t.steps])) for name, runs in timings.items()}
    prefill = {name: float(np.median([t.prefill for t in runs])) for name, runs in timings.items()}
    for name in models:
        print(
            f"{name:8} decode {decode[name] * 1e3:7.2f} ms/token ({decode['float'] / decode[name]:.2f}x float)   "
            f"prefill of {options.prompt} {prefill[name] * 1e3:7.1f} ms ({prefill['float'] / prefill[name]:.2f}x float)"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
