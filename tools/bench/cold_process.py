"""The program of one cold process. Run by path with `-P` and a task as JSON; prints what it measured as JSON.

kinds: `sessions` imports numpy and onnxruntime and opens the graphs of the compiled folder; `executor` loads that;
`loop` opens the package's graph for the hand-written loop; `genai` opens the package with onnxruntime-genai. Nothing
else is imported before that is done: the time is what is measured.
"""

import json
import sys
import time
from typing import Any

KIB = 1024


def open_sessions(task: dict[str, Any]) -> Any:
    """The sessions that the executor opens, with the same options."""
    import numpy  # noqa: F401  (its import is part of what is measured)
    import onnxruntime

    made = []
    for graph, weights in task["graphs"]:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = task["threads"], 1
        options.log_severity_level = 3
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", weights)
        made.append(onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"]))
    return made


def open_loop(task: dict[str, Any]) -> Any:
    """The hand-written loop."""
    sys.path.insert(0, task["root"])
    from pathlib import Path

    from tools.bench.bound_loop import BoundLoop
    from tools.bench.run_clock import RunClock

    return BoundLoop(Path(task["package"]), task["threads"], RunClock())


def load_executor(task: dict[str, Any]) -> Any:
    """The compiled folder, loaded."""
    import genai_runtime

    if task.get("parts"):
        watch_load(task["parts_found"])
    return genai_runtime.load(task["compiled"], threads=task["threads"], text="text" in task)


def watch_load(found: dict[str, float]) -> None:
    """Time the parts of `load`; milliseconds, by what they do."""
    from genai_runtime import binding, opening

    watched = (
        (opening, "read_manifest", "read and check manifest.json"),
        (opening, "check_files", "hash the small files"),
        (binding, "open_session", "open the sessions"),
        (opening, "_import", "import executor.py"),
    )
    for module, name, title in watched:
        inner = getattr(module, name)

        def timed(*values: Any, inner: Any = inner, title: str = title) -> Any:
            begin = time.perf_counter()
            try:
                return inner(*values)
            finally:
                found[title] = found.get(title, 0.0) + (time.perf_counter() - begin) * 1e3

        setattr(module, name, timed)


def open_genai(task: dict[str, Any]) -> Any:
    """onnxruntime-genai's model."""
    sys.path.insert(0, task["root"])
    from pathlib import Path

    from tools.bench.genai_loop import GenaiLoop
    from tools.bench.run_clock import RunClock

    return GenaiLoop(Path(task["package"]), task["threads"], RunClock())


def generate(kind: str, opened: Any, task: dict[str, Any]) -> float:
    """A request of the task's size on what was opened; the seconds to its first token."""
    sys.path.insert(0, task["root"])
    from tools.bench import contestants
    from tools.bench.run_clock import RunClock

    ids, new = [task["ids"]], task["new"]
    if kind == "executor":
        return contestants.executor(opened, RunClock())(ids, new).ttft
    ttft: float = opened.generate(ids, new).ttft
    return ttft


def first_text(kind: str, opened: Any, text: str) -> str:
    """The first piece of text behind a prompt of text."""
    if kind == "genai":
        piece: str = opened.first_text(text)
        return piece
    return next(iter(opened.generate(text, max_new_tokens=8, stop_on_eos=False, temperature=0.0)))


def unique_memory() -> dict[str, float]:
    """Memory of this process in MB now: uss (its own pages) and pss (shared pages by their share); {} off Linux."""
    try:
        with open("/proc/self/smaps_rollup", encoding="ascii") as file:  # noqa: PTH123  (pathlib would be imported)
            fields = dict(line.split(":", 1) for line in file.read().splitlines()[1:])
    except OSError:
        return {}
    sizes = {name: int(text.split()[0]) * KIB / 1e6 for name, text in fields.items() if text.strip().endswith("kB")}
    return {"uss": sizes["Private_Clean"] + sizes["Private_Dirty"], "pss": sizes["Pss"]}


def peak_while(work: Any) -> tuple[Any, dict[str, float]]:
    """What `work()` returns, and the largest memory seen while it ran (looked at every 5 ms)."""
    import threading

    peak, done = unique_memory(), threading.Event()

    def look() -> None:
        while not done.wait(0.005):
            for name, size in unique_memory().items():
                peak[name] = max(peak[name], size)

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    result = work()
    done.set()
    watcher.join()
    return result, peak


def main() -> None:
    """One process: open, say when that was done, and go on as the task says."""
    kind, task = sys.argv[1], json.loads(sys.argv[2])
    task["parts_found"] = {}
    openers = {"sessions": open_sessions, "executor": load_executor, "loop": open_loop, "genai": open_genai}
    opened = openers[kind](task)
    found: dict[str, Any] = {"ready": time.monotonic(), "parts": task["parts_found"]}
    if task.get("memory"):
        found["loaded"] = unique_memory()
        _, found["peak"] = peak_while(lambda: generate(kind, opened, task))
    elif task.get("text"):
        found["piece"] = first_text(kind, opened, task["text"])
        found["answered"] = time.monotonic()
    elif task.get("new"):
        found["first"] = generate(kind, opened, task) * 1e3
    if task.get("parts"):
        begin = time.perf_counter()
        _ = opened.tokenizer
        found["tokenizer"] = (time.perf_counter() - begin) * 1e3
    print(json.dumps(found))


if __name__ == "__main__":
    main()
