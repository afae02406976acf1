"""`python -m tools.bench`: time the compiled packages beside their peers and write docs/performance.md with its plots.

It needs the packages (`make packages bench-packages`) and compiles them itself. Peers take part where they are
installed: onnxruntime-genai in this environment (pip install 'genai-compile[bench]'), Optimum and llama.cpp in
environments of their own (`make bench-peers`). Each part is kept under build/bench/parts as it is done; `--only` runs
some again, and the page is made of all that are kept.
"""

import argparse
import sys
import time
from pathlib import Path

from tools.bench.parts import PARTS, keep, kept, measure, plan
from tools.bench.place import Place, environment_with_home
from tools.bench.plots import write_plots
from tools.bench.report import render
from tools.peers.environments import PEERS

PAGE, PLOTS = Path("docs/performance.md"), Path("docs/performance")


def main(arguments: list[str] | None = None) -> int:
    """Measure what was asked for, keep it, write the page."""
    options = parse(arguments)
    work = options.work.absolute()
    place = Place(options.packages, options.peers, work, environment_with_home(work / "home"))
    names = [] if options.page_only else options.only or [name for name, part in PARTS.items() if part.usual]
    if names:
        print(plan(names, place), file=sys.stderr, flush=True)
        if options.plan:
            return 0
    ready = [name for name in names if all(place.has(package) for package in PARTS[name].needs)]
    begun = time.monotonic()
    for at, name in enumerate(ready):
        print(f"[{at + 1}/{len(ready)}, {time.monotonic() - begun:.0f} s] {name}", file=sys.stderr, flush=True)
        keep(work / "parts", name, measure(name, place, options.rounds))
    results = kept(work / "parts")
    if not results:
        print("nothing was measured, so there is no page to write", file=sys.stderr)
        return 2
    write_plots(results, options.plots)
    options.out.write_text(render(results, options.plots, options.out), encoding="utf-8")
    print(f"written: {options.out}", file=sys.stderr)
    return 0


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15, help="rounds where the targets need many (15)")
    parser.add_argument("--only", nargs="+", choices=tuple(PARTS), metavar="PART", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--plan", action="store_true", help="say what would be measured and how long that takes")
    parser.add_argument("--page-only", action="store_true", help="measure nothing, write the page of what is kept")
    parser.add_argument("--packages", type=Path, default=Path("build/smollm2"), help="folder of our tool's packages")
    parser.add_argument("--peers", type=Path, default=PEERS, help="folder of the peers and of their builder's packages")
    parser.add_argument(
        "--work", type=Path, default=Path("build/bench"), help="what is compiled and measured goes here"
    )
    parser.add_argument("--out", type=Path, default=PAGE, help="the page to write")
    parser.add_argument("--plots", type=Path, default=PLOTS, help="folder of its plots")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
