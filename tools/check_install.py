"""`python -m tools.check_install`: install as users do, in new environments, and use both commands from elsewhere.

Each environment is made once and grows: first nothing but the wheel, then ONNX Runtime, then the compiler's needs.
"""

import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PIP = ("-m", "pip", "--disable-pip-version-check", "--quiet")


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Environment:
    """A virtual environment, and the empty folder from which its commands are run."""

    folder: Path
    cwd: Path

    def run(self, command: str, *arguments: object) -> Ended:
        """Run one of the environment's own commands."""
        line = [str(self.folder / "bin" / command), *map(str, arguments)]
        ended = subprocess.run(line, cwd=self.cwd, capture_output=True, text=True)
        return Ended(ended.returncode, ended.stdout, ended.stderr)

    def install(self, *what: object) -> None:
        """pip install. Raises RuntimeError with pip's words."""
        ended = self.run("python", *PIP, "install", *what)
        if ended.code:
            raise RuntimeError(f"pip install {' '.join(map(str, what))} failed:\n{ended.out}{ended.err}")

    def has(self, module: str) -> bool:
        """Whether a module can be imported there."""
        return self.run("python", "-c", f"import {module}").code == 0


def new_environment(folder: Path) -> Environment:
    """A fresh virtual environment of this interpreter's version."""
    subprocess.run([sys.executable, "-m", "venv", str(folder / "env")], check=True)
    (folder / "elsewhere").mkdir()
    return Environment(folder / "env", folder / "elsewhere")


def build_wheel(out: Path) -> Path:
    """Build the wheel from the checkout as pip does it: in an environment of its own."""
    command = [sys.executable, *PIP, "wheel", "--no-deps", "--wheel-dir", str(out), str(ROOT)]
    ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode:
        raise RuntimeError(f"the wheel can't be built:\n{ended.stdout}{ended.stderr}")
    (wheel,) = out.glob("*.whl")
    return wheel


def top_level(wheel: Path) -> set[str]:
    """What the wheel puts into site-packages."""
    with zipfile.ZipFile(wheel) as archive:
        return {name.partition("/")[0] for name in archive.namelist()}


def compile_and_run(environment: Environment, package: Path) -> str:
    """Ids that the environment makes of a package compiled there: `genai-run --tokens` of `genai-compile`'s folder."""
    out = environment.cwd / f"{package.name}.compiled"
    for command in (("genai-compile", package, "-o", out, "-q"), ("genai-run", out, "--tokens", "1,9,14", "-n", "6")):
        ended = environment.run(*command)
        if ended.code:
            raise RuntimeError(f"{' '.join(map(str, command))} ended with {ended.code}:\n{ended.err}")
    return ended.out.strip()


def main() -> int:
    """Print what each environment gives; 0 when all give the same."""
    package = ROOT / "fixtures" / "tiny-gqa-v1"
    made = {}
    with tempfile.TemporaryDirectory() as scratch:
        wheel = build_wheel(Path(scratch))
        print(f"{wheel.name}: {', '.join(sorted(top_level(wheel)))}", flush=True)
        for name, what in (("wheel", [f"{wheel}[compile,cpu]"]), ("editable", ["--editable", f"{ROOT}[compile,cpu]"])):
            (Path(scratch) / name).mkdir()
            environment = new_environment(Path(scratch) / name)
            environment.install(*what)
            made[name] = compile_and_run(environment, package)
            print(f"{name}: {package.name} gives {made[name]}", flush=True)
    return 0 if len(set(made.values())) == 1 else 1


if __name__ == "__main__":
    sys.exit(main())
