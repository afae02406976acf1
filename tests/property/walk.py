"""Made packages for as long as one likes: packages, rows, loops that settle and mistakes in turn, each by its number.

    python -m tests.property.walk --seconds 600 --seed 7
    python -m tests.property.walk --seed 7 --first 345 --count 1      # that example again

The same checks as tests/property/test_packages.py and test_mutations.py, without the shrinking of what is found: the
seed and the number say all. Ends with 1 when something was found.
"""

import argparse
import random
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.property import test_mutations, test_packages
from tests.property.components import Library
from tests.property.judge import Bench

SEEN: Counter[str] = Counter()
"""What was seen in loops that may settle."""
Check = Callable[[tuple[Bench, Library], random.Random], None]
CHECKS: dict[str, Check] = {
    "packages": lambda bench, dice: test_packages.check(bench, dice, Counter()),
    "rows": test_packages.check_rows,
    "settling": lambda bench, dice: test_packages.check(
        bench, dice, SEEN, test_packages.SETTLING, dice.choice((1, 1, None))
    ),
    "mistakes": lambda bench, dice: test_mutations.check(bench, dice, Counter(), times=4),
}


def walk(home: Path, seed: int, first: int, count: int, seconds: float) -> tuple[Counter[str], int]:
    """(examples by kind, how many found something). Stops at the count or when the time is over."""
    setattr(test_packages, "event", lambda *_: None)  # noqa: B010 - Hypothesis counts events in tests of its own only
    end, done, found = time.monotonic() + seconds, Counter[str](), 0
    benches = {name: Bench(home / name) for name in CHECKS}
    libraries = {name: Library(each.package) for name, each in benches.items()}
    for number in range(first, first + count):
        if time.monotonic() > end:
            break
        name = list(CHECKS)[number % len(CHECKS)]
        try:
            CHECKS[name]((benches[name], libraries[name]), random.Random(f"{seed} {number}"))
        except Exception:
            found += 1
            print(f"finding: {name}, seed {seed}, number {number}\n{traceback.format_exc()}", flush=True)
        done[name] += 1
        if number % 50 == 0:
            print(f"{number}: {dict(done)}, {found} found", flush=True)
    return done, found


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description="made packages, executor against interpreter")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=sys.maxsize)
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as home:
        done, found = walk(Path(home), options.seed, options.first, options.count, options.seconds)
    settled = SEEN[test_packages.SETTLED_ROWS]
    print(f"seed {options.seed}: {done.total()} examples {dict(done)}, {settled} rows settled, {found} found")
    return 1 if found else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
