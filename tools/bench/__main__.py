"""`python -m tools.bench`: time the real model and write docs/performance.md.

It needs the packages (`python -m tools.smollm2 --forms v1 workflow`) and compiles them itself, into a temporary folder.
onnxruntime-genai takes part where it is installed: pip install 'genai-compile[bench]'.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tools.bench import cold
from tools.bench.contestants import AGAIN, LOOP, has_genai
from tools.bench.machine import load_average, machine_facts
from tools.bench.report import render
from tools.bench.rounds import Scenario

SECTIONS = ("decode", "context", "start", "memory")
FORMS = ("v1", "workflow")


def main(arguments: list[str] | None = None) -> int:
    """Measure what was asked for. Without `--only`, or with `--out`, the page is written; else it is printed."""
    options = parse(arguments)
    missing = [str(options.packages / form) for form in FORMS if not (options.packages / form).is_dir()]
    if missing:
        print(f"not built: {', '.join(missing)}. Run: python -m tools.smollm2 --forms v1 workflow", file=sys.stderr)
        return 2
    if not has_genai():
        print("onnxruntime-genai does not take part: pip install 'genai-compile[bench]'", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="genai-bench-") as folder:
        results = measure(options, Path(folder))
    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=1), encoding="utf-8")
    page = render(results)
    out = options.out or (None if options.only else Path("docs/performance.md"))
    if out is None:
        print(page)
    else:
        out.write_text(page, encoding="utf-8")
        print(f"written: {out}", file=sys.stderr)
    return 0


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument(
        "--threads", type=int, nargs="+", default=[1, 2], help="threads inside an operator, a table each"
    )
    parser.add_argument("--only", nargs="+", choices=SECTIONS, help="measure only this, and print it")
    parser.add_argument("--packages", type=Path, default=Path("build/smollm2"), help="folder of the built packages")
    parser.add_argument("--out", type=Path, help="the page to write (default docs/performance.md)")
    parser.add_argument("--json", type=Path, help="also write the measurements here")
    return parser.parse_args(arguments)


def measure(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """All sections asked for, as plain data."""
    sections, home = options.only or SECTIONS, folder / "home"
    home.mkdir()
    place = cold.Place(options.packages.resolve(), folder, cold.environment_with_home(home))
    for form in FORMS:
        compile_package(place, form)
    results: dict[str, Any] = {"machine": machine_facts(), "load": {"before": load_average()}}
    scenarios = wanted_scenarios(sections)
    if scenarios:
        results["threads"] = [take_turns(place, count, scenarios, options.rounds) for count in options.threads]
    if "start" in sections:
        results["start"] = cold.start_up(place, 1, options.rounds)
        results["parts"] = cold.load_parts(place, 1)
        results["imports"] = cold.import_times(place.environment)
    if "memory" in sections:
        results["memory"] = cold.peak_memory(place, 1)
    results["load"]["after"] = load_average()
    return results


def wanted_scenarios(sections: tuple[str, ...]) -> list[Scenario]:
    """Short prompt: everyone. Longer ones: those whose step or first token may depend on the context."""
    genai = ("genai",) if has_genai() else ()
    found = []
    if "decode" in sections:
        found.append(Scenario(64, 128, (LOOP, "tokens", "text", "workflow", *genai, AGAIN)))
    if "context" in sections:
        found.append(Scenario(512, 2, (LOOP, "tokens", *genai, AGAIN)))
        found.append(Scenario(1024, 32, (LOOP, "tokens", "workflow", *genai, AGAIN)))
    return found


def compile_package(place: cold.Place, form: str) -> None:
    """Compile one form with this environment's compiler."""
    command = [sys.executable, "-m", "genai_compiler", str(place.packages / form), "-o", str(place.compiled / form)]
    subprocess.run(command, env=place.environment, check=True, stdout=subprocess.DEVNULL)


def take_turns(place: cold.Place, threads: int, scenarios: list[Scenario], rounds: int) -> dict[str, Any]:
    """The round robin, in a process of its own for each thread count: idle pools of the other one would take part."""
    task, out = place.compiled / f"task-{threads}.json", place.compiled / f"turns-{threads}.json"
    content = {
        "packages": str(place.packages),
        "compiled": str(place.compiled),
        "threads": threads,
        "rounds": rounds,
        "scenarios": [{"prompt": each.prompt, "new": each.new, "names": each.names} for each in scenarios],
    }
    task.write_text(json.dumps(content), encoding="utf-8")
    print(f"{threads} thread(s):", file=sys.stderr, flush=True)
    command = [sys.executable, "-m", "tools.bench.rounds", str(task), str(out)]
    subprocess.run(command, env=place.environment, cwd=cold.ROOT, check=True)
    found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return found


if __name__ == "__main__":
    sys.exit(main())
