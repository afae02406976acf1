"""Memory of a process that serves many requests of mixed length, as they go by.

    python -m tools.serve_requests FOLDER [--requests N] [--longest N] [--new N] [--every N] [--threads N] [--seed N]

prints one JSON object a line: `requests` served, `tokens` in and out, bytes `anonymous` (memory that no file backs) and
`unique` (USS, tools/measure_memory.py) at this time, the `most` of anonymous memory since the line before, and Python's
allocated `blocks`. Every 25th request is as long as any may be; the others' prompts are of 4 tokens up to that, spread
evenly over the logarithm, with 1 to NEW new tokens each. Linux only.

Anonymous memory is what stays comparable while others use the machine: pages of a file count as this process's alone
only as long as no other process maps that file.
"""

import argparse
import gc
import json
import math
import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tools.measure_memory import Watch, anonymous_bytes, unique_bytes

SHORTEST = 4
FULL = 25
"""One request in so many is of the greatest length."""

Asked = tuple[list[int], int]
"""Prompt tokens, and how many new ones."""


def requests(count: int, longest: int, new: int, vocabulary: int, seed: int) -> Iterator[Asked]:
    """That many requests; the same ones for the same seed."""
    draw = random.Random(seed)
    for at in range(count):
        full = at % FULL == 0
        size = longest if full else int(SHORTEST * math.exp(draw.uniform(0, math.log(longest / SHORTEST))))
        yield [draw.randrange(vocabulary) for _ in range(size)], new if full else draw.randint(1, new)


def served(folder: Path, asked: Sequence[Asked], every: int, threads: int | None) -> Iterator[dict[str, int]]:
    """Serve the requests one after the other; what there is in memory before them and after each `every`."""
    import genai_runtime

    model, tokens = genai_runtime.load(folder, threads=threads), 0
    watch = Watch(anonymous_bytes)
    for at, (prompt, new) in enumerate(asked):
        if at % every == 0:
            yield _seen(at, tokens, watch.most())
            watch = Watch(anonymous_bytes)
        made = model.generate(prompt, max_new_tokens=new, temperature=0, stop_on_eos=False)
        tokens += len(prompt) + len(made.tokens)
    yield _seen(len(asked), tokens, watch.most())


def _seen(count: int, tokens: int, most: int) -> dict[str, int]:
    gc.collect()
    now = {"anonymous": anonymous_bytes(), "unique": unique_bytes(), "most": most}
    return {"requests": count, "tokens": tokens, **now, "blocks": sys.getallocatedblocks()}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser("serve_requests", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--longest", type=int, default=128)
    parser.add_argument("--new", type=int, default=4)
    parser.add_argument("--every", type=int, default=50)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(argv)
    vocabulary = json.loads((given.folder / "manifest.json").read_text("utf-8"))["generation"]["vocab_size"]
    asked = list(requests(given.requests, given.longest, given.new, vocabulary, given.seed))
    for each in served(given.folder, asked, given.every, given.threads):
        print(json.dumps(each), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
