"""Memory over many generations, and leaving in any order (known traps M), each in a process of its own."""

from collections.abc import Callable
from pathlib import Path

import genai_runtime
import pytest

from tests.conftest import Traced
from tests.traps.probe import PROBE_NEEDS_LINUX, run_probe

Compiled = Callable[[str], tuple[Path, Traced]]
DECODERS = ["tiny-gqa-v1", "tiny-concat-v1", "tiny-decoder"]

GENERATE_AGAIN_AND_AGAIN = """
import gc, resource
import genai_runtime

def resident():
    gc.collect()
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()

def work(times):
    for at in range(times):
        generation = {how}
        generation.tokens, generation.text

with genai_runtime.load({folder!r}, threads=1) as model:
    work(100)
    before = resident()
    work(200)
    print(resident() - before)
"""
WAYS = {
    "one row": "model.generate([1, 10, 20 + at % 9], max_new_tokens=16, temperature=0, stop_on_eos=False)",
    "rows": "model.generate(batch=[[9, 8, 7 + at % 9], [6]], max_new_tokens=8).rows[0]",
    "sampled": "model.generate([1, 10], max_new_tokens=16, temperature=1.0, top_k=5, seed=at)",
    "left half way": "(g := model.generate([1, 10], max_new_tokens=16, temperature=0), next(iter(g)), g.close())[0]",
    "chat": "model.chat([{'role': 'user', 'content': 'hello'}], max_new_tokens=8)",
}
LEAK = 1 << 20
"""Bytes that 200 generations may add after 100 of warm-up: 5 KB each, less than a cache of one row takes."""


@PROBE_NEEDS_LINUX
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", DECODERS)
def test_m1_two_hundred_generations_leave_memory_flat(compiled: Compiled, case: str, way: str) -> None:
    script = GENERATE_AGAIN_AND_AGAIN.format(folder=str(compiled(case)[0]), how=WAYS[way])
    assert int(run_probe(script)) < LEAK


SERVE_MIXED = """
import gc, random, resource, sys
import genai_runtime

def serve(count, draw):
    for _ in range(count):
        prompt = [draw.randrange(1, 60) for _ in range(draw.randint(1, 40))]
        batch = [prompt, prompt[: draw.randint(1, len(prompt))]] if draw.random() < 0.2 else [prompt]
        for row in model.generate(batch=batch, max_new_tokens=draw.randint(1, 8), temperature=0).rows:
            row.tokens
    gc.collect()
    resident = int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()
    return sys.getallocatedblocks(), resident

with genai_runtime.load({folder!r}, threads=1) as model:
    blocks, resident = serve(300, random.Random(0))
    blocks_after, resident_after = serve(1000, random.Random(1))
    print(blocks_after - blocks, resident_after - resident)
"""
KEPT = 500
"""Python objects that a thousand requests may leave: one for two of them. A tensor that is kept is at least two."""


@PROBE_NEEDS_LINUX
@pytest.mark.parametrize("case", DECODERS)
def test_m1_a_thousand_requests_of_mixed_length_leave_no_objects(compiled: Compiled, case: str) -> None:
    """Of all kinds that Python allocates: tensors' handles, arrays, bindings, frames. Nor memory of other kinds."""
    blocks, resident = map(int, run_probe(SERVE_MIXED.format(folder=str(compiled(case)[0]))).split())
    assert blocks < KEPT
    assert resident < LEAK


def test_m1_no_layout_is_kept_for_every_length(compiled: Compiled) -> None:
    """ONNX Runtime keeps one for all input shapes it has seen, where `enable_mem_pattern` is on (docs/memory.md)."""
    with genai_runtime.load(compiled("tiny-gqa-v1")[0], threads=1) as model:
        assert not model._sessions.session("decoder").get_session_options().enable_mem_pattern


@PROBE_NEEDS_LINUX
def test_m1_sessions_that_are_forgotten_are_freed(compiled: Compiled) -> None:
    """A name a call and `reset` after it."""
    script = """
import gc, resource
import numpy as np
import genai_runtime

def resident():
    gc.collect()
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()

def work(times):
    for at in range(times):
        one = np.array([1])
        model.run({{"step": one, "times": one, "start": one}}, session=str(at))
        model.reset(str(at))

with genai_runtime.load({folder!r}, threads=1) as model:
    work(300)
    before = resident()
    work(3000)
    print(resident() - before)
"""
    assert int(run_probe(script.format(folder=str(compiled("session-counter")[0])))) < LEAK


EXITS = {
    "never closed": """
model = genai_runtime.load(folder, threads=1)
print(len(model.generate([1, 10], max_new_tokens=4, stop_on_eos=False).tokens))
""",
    "a generation half way": """
model = genai_runtime.load(folder, threads=1)
generation = model.generate([1, 10], max_new_tokens=12, stop_on_eos=False)
next(iter(generation))
print(4)
""",
    "the model dropped first": """
model = genai_runtime.load(folder, threads=1)
generation = model.generate([1, 10], max_new_tokens=4, stop_on_eos=False)
pieces = generation.pieces()
next(pieces)
model.close()
del model
gc.collect()
print(len(generation.tokens))
""",
    "the generation dropped half way, the model goes on": """
model = genai_runtime.load(folder, threads=1)
generation = model.generate([1, 10], max_new_tokens=12, stop_on_eos=False)
next(iter(generation))
del generation
gc.collect()
print(len(model.generate([1, 10], max_new_tokens=4, stop_on_eos=False).tokens))
""",
    "in a reference cycle": """
class Holder: pass
holder = Holder()
holder.self = holder
holder.model = genai_runtime.load(folder, threads=1)
holder.generation = holder.model.generate([1, 10], max_new_tokens=12, stop_on_eos=False)
next(iter(holder.generation))
del holder
print(4)
""",
    "with blocks, and closed twice": """
with genai_runtime.load(folder, threads=1) as model:
    with model.generate([1, 10], max_new_tokens=12, stop_on_eos=False) as generation:
        next(iter(generation))
    model.close()
print(4)
""",
    "an error on the way": """
model = genai_runtime.load(folder, threads=1)
try:
    model.generate([1, 10], temperature=-1)
except genai_runtime.RequestError:
    print(4)
""",
    "held by a module": """
import types, sys
sys.modules["keeper"] = keeper = types.ModuleType("keeper")
keeper.model = genai_runtime.load(folder, threads=1)
keeper.stream = keeper.model.stream({"request.input_ids": np.array([[1, 10]])})
next(keeper.stream)
print(4)
""",
    "in a thread that outlives the main one": """
import threading
model = genai_runtime.load(folder, threads=1)
def work():
    for _ in range(200):
        generation = model.generate([1, 10], max_new_tokens=4, stop_on_eos=False)
        generation.tokens
    print(len(generation.tokens))
threading.Thread(target=work).start()
""",
}


@pytest.mark.parametrize("way", EXITS)
@pytest.mark.parametrize("case", ["tiny-gqa-v1", "tiny-concat-v1"])
def test_m4_any_order_of_leaving_is_clean(compiled: Compiled, case: str, way: str) -> None:
    """Exit code 0 and an empty stderr, whatever is still held."""
    head = f"import gc\nimport numpy as np\nimport genai_runtime\nfolder = {str(compiled(case)[0])!r}\n"
    assert run_probe(head + EXITS[way]).strip() == "4"
