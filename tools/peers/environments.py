"""An environment for each peer: the packages' builder, Optimum (it holds transformers back), llama.cpp (built here)."""

import os
import subprocess
import venv
from collections.abc import Iterable
from pathlib import Path

PEERS = Path("build/peers")
ENVIRONMENTS = {
    "builder": (
        ("torch>=2.9",),
        ("onnxruntime", "onnxruntime-genai>=0.18", "onnx-ir", "onnxscript", "transformers", "gguf", "safetensors"),
    ),
    "optimum": (("torch>=2.9",), ("optimum-onnx>=0.1", "onnxruntime")),
    "llama": (("--no-binary", "llama-cpp-python", "llama-cpp-python>=0.3.36"),),
}
"""Name -> what pip installs, one call after another: torch alone first, so that nothing else decides its build."""
GGML = {
    "avx2": "AVX2",
    "fma": "FMA",
    "f16c": "F16C",
    "bmi2": "BMI2",
    "avx_vnni": "AVX_VNNI",
    "avx512f": "AVX512",
    "avx512_vnni": "AVX512_VNNI",
    "avx512_vbmi": "AVX512_VBMI",
    "avx512_bf16": "AVX512_BF16",
}
"""Flags of /proc/cpuinfo -> ggml's build options (its CMakeLists.txt)."""


class PeerError(Exception):
    """A peer can't be made; the text says what was tried and what to do."""


def python_of(peers: Path, name: str) -> Path:
    """The interpreter of a peer's environment, there or not."""
    return peers / name / "bin" / "python"


def made(peers: Path, name: str) -> bool:
    """Whether an environment is whole: it gets its mark after everything is installed."""
    return (peers / name / "made").is_file()


def make_environment(name: str, peers: Path) -> None:
    """Make one environment; one that is whole is left alone. Raises PeerError when pip fails."""
    if made(peers, name):
        print(f"{name}: {peers / name} (already there)", flush=True)
        return
    print(f"{name}: {peers / name}", flush=True)
    venv.create(peers / name, with_pip=True, clear=True)
    for requirements in ENVIRONMENTS[name]:
        command = [str(python_of(peers, name)), "-m", "pip", "--disable-pip-version-check", "install", *requirements]
        print("+", *command, flush=True)
        if subprocess.run(command, env=build_settings(name), check=False).returncode:
            raise PeerError(f"pip failed in {peers / name}. Mend what it says and repeat; the others are not affected")
    (peers / name / "made").touch()


def build_settings(name: str) -> dict[str, str]:
    """The environment variables of pip. llama.cpp gets this processor's instruction sets by name, without AMX.

    A build for the native processor is what it would do by itself; its AMX kernels were seen to crash.
    """
    if name != "llama" or "CMAKE_ARGS" in os.environ or not Path("/proc/cpuinfo").exists():
        return dict(os.environ)
    return {**os.environ, "CMAKE_ARGS": cmake_options(processor_flags(Path("/proc/cpuinfo").read_text("utf-8")))}


def processor_flags(text: str) -> set[str]:
    """The first processor's flags, of the text of /proc/cpuinfo."""
    lines = (line.partition(":") for line in text.splitlines())
    return next((set(value.split()) for key, _, value in lines if key.strip() == "flags"), set())


def cmake_options(flags: Iterable[str]) -> str:
    """Options for ggml's build: only what these flags name."""
    present = set(flags)
    return " ".join(["-DGGML_NATIVE=OFF", *(f"-DGGML_{option}=ON" for flag, option in GGML.items() if flag in present)])


def require(peers: Path, name: str) -> Path:
    """The interpreter of an environment that must be there. Raises PeerError where it is not."""
    found = python_of(peers, name)
    if not found.exists():
        raise PeerError(f"{found} is not there. Make it: python -m tools.peers environments {name}")
    return found
