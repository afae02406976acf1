"""`python -m tools.bench.forms`: each fixture in the form that the compiler chooses and in those it could have chosen.

A form is the package compiled without an optimisation, or with all components that can asked to run fused, each in a
session of its own, or on the host. One process; the forms of a fixture take turns; a turn is as
many requests as take about 20 ms. Forms whose program is the same, file by file, are not timed twice.
"""

import argparse
import gc
import hashlib
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from genai_compiler import Options, compile_package
from genai_compiler.plan.ir import Form

from tools.bench.place import ROOT, Place
from tools.bench.rounds import turns

LEFT_OUT = ("fuse_islands", "link_readers", "hoist_selection")
CHOSEN, AGAIN, SEPARATE = "chosen", "chosen-again", "separate"
ASKED: tuple[Form, ...] = ("fused", "own", "host")
FORMS = {
    CHOSEN: Options(),
    **{f"without {name}": Options(without=(name,)) for name in LEFT_OUT},
    SEPARATE: Options(without=LEFT_OUT),
    **{f"all {form}": Options(forms={"": form}) for form in ASKED},
}
"""Form -> how it is compiled. `separate`: no graph is linked with another one."""
TURN = 0.02
PROMPT, NEW = [1, 10, 20, 30], 24


def ints(*values: int) -> Any:
    """int64 [n]."""
    return np.array(values, np.int64)


FLOWS: dict[str, Callable[[], dict[str, Any]]] = {
    "branch-joins": lambda: {"x": np.ones((2, 3), np.float32), "flag": np.array(True), "selector": np.array(0)},
    "nested-loops": lambda: {
        "start": ints(2), "outer_limit": ints(5), "inner_limit": ints(3), "ceiling": ints(10_000)
    },
    "ragged-emit": lambda: {"x": ints(7, 1, 4)[:, None], "live": np.ones(3, np.bool_)},
    "bounded-growing": lambda: {"x": np.ones((2, 1), np.float32), "budget": ints(4, 4), "turns": ints(4)},
    "session-counter": lambda: {"step": ints(2), "times": ints(3), "start": ints(0)},
    "wide-search": lambda: {"word": ints(30_011), "bound": ints(-5), "limit": ints(64)},
    "tiny-denoiser": lambda: {
        "request.input_ids": ints(1, 2, 3)[None], "request.negative_input_ids": ints(7)[None],
        "noise": np.ones((1, 4, 3, 2), np.float32),
    },
}  # fmt: skip
"""Fixture -> the tensors of one request; the others are asked for tokens after PROMPT."""


def forms_of(place: Place, fixtures: Path, rounds: int) -> dict[str, Any]:
    """Compile every form of every fixture, and take turns in a process of its own."""
    folder = place.work / "forms"
    task: dict[str, dict[str, str]] = {}
    for case in sorted(each.name for each in fixtures.iterdir() if each.is_dir() and each.suffix != ".compiled"):
        task[case] = distinct_forms(fixtures / case, folder / case)
        print(f"  forms: {case}: {', '.join(task[case])}", file=sys.stderr, flush=True)
    (folder / "task.json").write_text(json.dumps(task), encoding="utf-8")
    command = [sys.executable, "-m", "tools.bench.forms", str(folder / "task.json"), str(folder / "turns.json")]
    command += ["--rounds", str(rounds)]
    subprocess.run(command, env=place.environment, cwd=ROOT, check=True)
    found: dict[str, Any] = json.loads((folder / "turns.json").read_text(encoding="utf-8"))
    return found


def distinct_forms(package: Path, out: Path) -> dict[str, str]:
    """Form -> compiled folder, without forms that are the same program as an earlier one."""
    known: dict[str, str] = {}
    found: dict[str, str] = {}
    for form, options in FORMS.items():
        folder = out / form.replace(" ", "-")
        compile_package(package, folder, options)
        program = program_hash(folder)
        if program not in known:
            known[program] = found[form] = str(folder)
    return found


def program_hash(folder: Path) -> str:
    """Of the files that run."""
    digest = hashlib.sha256()
    for file in sorted(each for each in folder.rglob("*") if each.suffix in (".py", ".onnx")):
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def request_of(case: str, folder: Path) -> Callable[[], object]:
    """One request of a loaded folder, run to its end."""
    import genai_runtime

    model = genai_runtime.load(folder, threads=1)
    if case in FLOWS:
        inputs = FLOWS[case]()
        return lambda: model.run(inputs)
    return lambda: model.generate(PROMPT, max_new_tokens=NEW, stop_on_eos=False).tokens


def time_forms(case: str, folders: dict[str, str], rounds: int) -> dict[str, Any]:
    """Seconds of a request by round and form; the chosen form takes part twice."""
    calls = {form: request_of(case, Path(folder)) for form, folder in folders.items()}
    calls[AGAIN] = request_of(case, Path(folders[CHOSEN]))
    count = calibrated(calls[CHOSEN])
    measured = []
    for number in range(rounds):
        found = {}
        for form in turns(tuple(calls), number):
            gc.collect()
            begun = time.perf_counter()
            for _ in range(count):
                calls[form]()
            found[form] = {"request": (time.perf_counter() - begun) / count}
        measured.append(found)
    return {"requests": count, "rounds": measured}


def calibrated(call: Callable[[], object]) -> int:
    """How many requests take about a turn's time."""
    call()
    begun = time.perf_counter()
    call()
    return max(1, int(TURN / (time.perf_counter() - begun)))


def main(arguments: list[str] | None = None) -> int:
    """Reads a task (fixture -> form -> folder) as JSON, writes the measurements as JSON."""
    parser = argparse.ArgumentParser(prog="python -m tools.bench.forms", description=__doc__)
    parser.add_argument("task", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args(arguments)
    found: dict[str, Any] = {}
    same: list[str] = []
    failed: dict[str, str] = {}
    for case, folders in json.loads(options.task.read_text(encoding="utf-8")).items():
        if list(folders) == [CHOSEN]:
            same.append(case)
            continue
        try:
            found[case] = time_forms(case, folders, options.rounds)
        except Exception as failure:  # one that needs more than a prompt is named, not timed
            failed[case] = str(failure)
        print(f"  forms: {case} timed", file=sys.stderr, flush=True)
    data = {"fixtures": found, "same": same, "failed": failed}
    options.out.write_text(json.dumps(data), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
