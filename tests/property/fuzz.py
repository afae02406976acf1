"""Fuzz the compiler's front end: damaged packages must compile or be refused by name, soon and within bounds.

    python -m tests.property.fuzz --seconds 600 --seed 7

A finding is any exception but CompileError, a run of more than SECONDS or MEGABYTES, a folder written although the
package was refused, or a package changed. Packages that reach something new (a line of the compiler where Python can
tell, else a problem code) are damaged further. Findings are kept as folders; the same seed walks the same way.
"""

import argparse
import hashlib
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType

from genai_compiler import CompileError, Options, compile_package
from genai_compiler.problem import errors
from google.protobuf import text_format
from onnx import ModelProto

from tests.data import ROOT
from tests.property.components import Library
from tests.property.fuzz_inputs import Files, damage
from tests.property.judge import Bench
from tests.property.packages import Maker
from tests.property.regions import make_package

SECONDS, MEGABYTES, MADE = 5.0, 400, 12


class TooLong(Exception):
    """A run went on past the alarm."""


@dataclass
class Fuzzer:
    """One walk. seeds: whole packages; corpus: those, and what reached something new."""

    seed: int
    home: Path
    findings: Path
    corpus: list[Files] = field(default_factory=list[Files])
    known: set[str] = field(default_factory=set[str])
    counts: Counter[str] = field(default_factory=Counter[str])
    found: dict[str, int] = field(default_factory=dict[str, int])
    lines: int = 0

    def __post_init__(self) -> None:
        self.seeds = [*_fixtures(), *_made(self.home / "made", self.seed)]
        self.corpus = list(self.seeds)

    def run(self, seconds: float, runs: int) -> None:
        """Damage and compile until the time is over, or so many times."""
        end, number = time.monotonic() + seconds, 0
        with _new_lines(self):
            while time.monotonic() < end and number < runs:
                dice = random.Random(f"{self.seed} {number}")
                chosen = self.seeds if dice.randrange(3) == 0 else self.corpus[-400:]
                self.judge(damage(dice.choice(chosen), dice, self.seeds), number)
                number += 1

    def judge(self, files: Files, number: int) -> None:
        """One compilation."""
        package, out, lines = self.home / "package", self.home / "out", self.lines
        for folder in (package, out):
            shutil.rmtree(folder, ignore_errors=True)
        _write(package, files)
        before, started = _peak(), time.process_time()
        try:
            outcome = self._compiled(package, out)
        except Exception as failure:
            outcome = f"{type(failure).__name__} at {_place(failure)}"
            self._finding(outcome, files, number, traceback.format_exc())
        spent, grown = time.process_time() - started, _peak() - before
        if spent > SECONDS:
            self._finding(f"slow: {outcome}", files, number, f"{spent:.1f} s")
        if grown > MEGABYTES:
            self._finding(f"large: {outcome}", files, number, f"{grown} MB")
        if number % 16 == 0 and _read(package) != files:
            self._finding("the package was changed", files, number, "")
        self.counts[outcome.split()[0]] += 1
        if outcome not in self.known or self.lines > lines:
            self.known.add(outcome)
            self.corpus.append(files)

    def _compiled(self, package: Path, out: Path) -> str:
        try:
            with _alarm(int(SECONDS * 6)):
                compile_package(package, out=out, options=Options(force=True))
        except CompileError as refused:
            if out.exists():
                raise AssertionError("refused, and a folder was written") from refused
            if not errors(refused.problems) or not str(refused):
                raise AssertionError("refused without a reason") from refused
            return f"refused {' '.join(sorted({each.code for each in refused.problems})[:3])}"
        compile((out / "executor.py").read_text("utf-8"), "executor.py", "exec")
        return "compiled"

    def _finding(self, what: str, files: Files, number: int, detail: str) -> None:
        self.found[what] = self.found.get(what, 0) + 1
        if self.found[what] > 1:
            return
        kept = self.findings / hashlib.sha256(what.encode()).hexdigest()[:12]
        _write(kept, files)
        (kept / "FINDING.txt").write_text(f"{what}\nseed {self.seed}, run {number}\n{detail}\n", "utf-8")
        print(
            f"finding {len(self.found)}: {what} (seed {self.seed}, run {number}; kept in {kept})\n{detail}", flush=True
        )


def _fixtures() -> Iterator[Files]:
    for folder in sorted((ROOT / "fixtures").iterdir()):
        files = _read(folder)
        yield files
        graphs = [name for name in files if name.endswith(".onnx") and len(files[name]) < 20_000]
        if graphs and "inference_metadata.yaml" in files:
            as_text = dict(files)
            for name in graphs:
                model = ModelProto.FromString(files[name])
                as_text[name + ".textproto"] = text_format.MessageToString(model).encode()
                del as_text[name]
            document = files["inference_metadata.yaml"].replace(b".onnx", b".onnx.textproto")
            yield {**as_text, "inference_metadata.yaml": document}


def _made(home: Path, seed: int) -> Iterator[Files]:
    bench = Bench(home)
    library = Library(bench.package)
    for number in range(MADE):
        dice = random.Random(f"{seed} {number}")
        package = make_package(Maker(dice, library, rowwise=False, budget=6))
        bench.write(package.document, "yaml" if number % 2 else "json")
        used = {each["implementation"].get("artifact") for each in package.workflow["components"].values()}
        yield {name: data for name, data in _read(bench.package).items() if name in used or "metadata" in name}


def _read(folder: Path) -> Files:
    return {
        each.relative_to(folder).as_posix(): each.read_bytes() for each in sorted(folder.rglob("*")) if each.is_file()
    }


def _write(folder: Path, files: Files) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


def _peak() -> int:
    """The most memory that this process has held so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // (1024 if sys.platform == "linux" else 1 << 20)


def _place(failure: BaseException) -> str:
    frames = [each for each in traceback.extract_tb(failure.__traceback__) if "genai_" in each.filename]
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "?"


@contextmanager
def _alarm(seconds: int) -> Iterator[None]:
    def ring(*_: object) -> None:
        raise TooLong(f"more than {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def _new_lines(fuzzer: Fuzzer) -> Iterator[None]:
    """Count lines of the compiler as they run for the first time (Python 3.12 and later)."""
    if not hasattr(sys, "monitoring"):
        yield
        return
    monitoring = sys.monitoring

    def line(code: CodeType, _: int) -> object:
        fuzzer.lines += "genai_compiler" in code.co_filename
        return monitoring.DISABLE

    monitoring.use_tool_id(monitoring.COVERAGE_ID, "fuzz")
    monitoring.register_callback(monitoring.COVERAGE_ID, monitoring.events.LINE, line)
    monitoring.set_events(monitoring.COVERAGE_ID, monitoring.events.LINE)
    try:
        yield
    finally:
        monitoring.set_events(monitoring.COVERAGE_ID, 0)
        monitoring.free_tool_id(monitoring.COVERAGE_ID)


def fuzz(*, seed: int, findings: Path, seconds: float = float("inf"), runs: int = sys.maxsize) -> Fuzzer:
    """Fuzz for a while or for so many runs; what was found lies in `findings` too."""
    with tempfile.TemporaryDirectory() as home:
        fuzzer = Fuzzer(seed, Path(home), findings)
        fuzzer.run(seconds, runs)
    return fuzzer


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; 1 when something was found."""
    parser = argparse.ArgumentParser(description="fuzz the compiler's front end")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=None, help="default: the time")
    parser.add_argument("--findings", type=Path, default=ROOT / "build" / "fuzz")
    options = parser.parse_args(argv)
    seed = options.seed if options.seed is not None else int(time.time())
    print(f"seed {seed}, {options.seconds:g} s", flush=True)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (6 << 30, resource.getrlimit(resource.RLIMIT_AS)[1]))
    fuzzer = fuzz(seed=seed, findings=options.findings, seconds=options.seconds)
    total = fuzzer.counts.total()
    print(f"{total} packages: {dict(fuzzer.counts.most_common())}; corpus {len(fuzzer.corpus)}, peak {_peak()} MB")
    print(*(f"{count:6} {what}" for what, count in fuzzer.found.items()), sep="\n")
    return 1 if fuzzer.found else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
