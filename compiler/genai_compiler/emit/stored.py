"""Stored sessions: graphs that sessions open, as ONNX Runtime's optimiser leaves them; weights by reference.

ONNX Runtime writes what it has optimised with a second copy of all weights. Of these, whatever the plain graph reads
has the same bytes there: the stored graph points at them in the package, and what is left are some hundred kB.
"""

import hashlib
import json
import mmap
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path, PurePosixPath
from typing import Any

from onnx import ModelProto

from genai_compiler.emit.weight_places import follow_links
from genai_compiler.problem import sized
from genai_compiler.read.external_data import bytes_of, external_tensors
from genai_compiler.read.onnx_wire import with_references

FOLDER = "stored"
MOST = 4 << 20
"""Bytes of a stored graph at most. More are weights that the optimiser has computed, and would lie on disk twice."""
_CPU = "CPUExecutionProvider"
_UNTOLD = "this system does not tell its processor"
Span = tuple[str, int, int]
"""(file, first byte, bytes) of a weight."""


def store_sessions(
    made: Path, package: Path, scratch: Path, manifest: Mapping[str, Any]
) -> tuple[dict[str, Any] | None, tuple[str, ...]]:
    """(manifest entry, notes). made: the compiled folder with all files; package: where its weights lie now.

    The entry is None where nothing could be stored; notes say why. scratch: a folder for ONNX Runtime's own copies.
    """
    others = [each["name"] for each in manifest["session"]["providers"] if each["name"] != _CPU]
    if others:
        return None, (f"sessions are not stored: the package prefers {others[0]}, and stored ones are the CPU's",)
    graphs, notes, facts = dict[str, Any](), list[str](), dict[str, str]()
    for name in (*manifest["opens"], *manifest["on_demand"]):
        graph, target = manifest["graphs"][name], scratch / "optimised" / "graph.onnx"
        plain = (package if graph["in"] == "package" else made) / graph["file"]
        weights = _folder(package, graph["weights"])
        target.parent.mkdir()
        try:
            found, refusal = _optimised(plain, weights, target, manifest["session"]["options"])
            content, size = _referring(target, plain, weights) if found else (b"", 0)
        finally:
            shutil.rmtree(target.parent)  # at once: it has a copy of all weights
        if refusal == _UNTOLD:  # of every other graph, too
            return None, (f"sessions are not stored: {refusal}",)
        if size > MOST:
            refusal = f"the optimiser computes weights: {sized(size)} would be on disk a second time"
        if refusal:
            notes.append(f"the session of '{name}' is not stored: {refusal}")
            continue
        links = graph["in"] == "package"  # those that lead to weights; a graph that was made here names none
        content, folder = follow_links(content, graph["weights"], package) if links else (content, graph["weights"])
        graphs[name], facts = _written(made, name, content, folder), found
    if not graphs:
        return None, tuple(notes)
    size = sum((made / each["file"]).stat().st_size for each in graphs.values())
    told = f"stored sessions: {len(graphs)}, {sized(size)}, for this processor and {facts['onnxruntime']}"
    return {"made": facts, "graphs": graphs}, (told, *notes)


def _folder(package: Path, name: str) -> Path:
    """The folder of weights as the runtime finds it (genai_runtime.manifest)."""
    return (package.resolve() / name).resolve() if name.startswith("..") else package / name


def _written(made: Path, name: str, content: bytes, weights: str) -> dict[str, str]:
    digest = hashlib.sha256(content).hexdigest()
    file = f"{FOLDER}/{hashlib.sha256(name.encode()).hexdigest()[:8]}-{digest[:8]}.onnx"
    (made / FOLDER).mkdir(exist_ok=True)
    (made / file).write_bytes(content)
    return {"file": file, "weights": weights, "sha256": digest}


def _optimised(graph: Path, weights: Path, target: Path, options: Mapping[str, Any]) -> tuple[dict[str, str], str]:
    """(what the optimised graph at `target` belongs to, ""), or ({}, why there is none).

    In a process of its own: native code reads the graph, and may end with it.
    """
    places = {"graph": str(graph.absolute()), "weights": str(weights.absolute()), "target": str(target.absolute())}
    task = json.dumps({**places, "options": dict(options)})
    command = [sys.executable, "-P", "-m", "genai_runtime.stored"]
    done = subprocess.run(command, input=task, capture_output=True, encoding="utf-8", errors="replace", check=False)
    if done.returncode:
        words = done.stderr.strip().splitlines()
        return {}, words[-1] if words else f"the process that opened it ended with {done.returncode}"
    facts = json.loads(done.stdout)
    return facts or {}, "" if facts else _UNTOLD


def _referring(optimised: Path, plain: Path, weights: Path) -> tuple[bytes, int]:
    """(the optimised graph, its bytes): every weight that the plain one reads is referred to where that reads it.

    Of more than MOST bytes the graph is not made: what the optimiser computes may be as large as all weights.
    """
    model = ModelProto.FromString(optimised.read_bytes())
    size = model.ByteSize()
    with ExitStack() as opened:
        known = _Known(_plain(plain, weights), weights, opened)
        copy = _Files(optimised.parent, opened)
        for tensor in external_tensors(model):
            entries = {each.key: each.value for each in tensor.external_data}
            data = copy.read((entries["location"], int(entries["offset"]), int(entries["length"])))
            found = known.find(tensor.name, data)
            del tensor.external_data[:]
            if found is None:
                size += len(data)
                tensor.ClearField("data_location")
                tensor.raw_data = data if size <= MOST else b""
                continue
            for key, value in zip(("location", "offset", "length"), found, strict=True):
                tensor.external_data.add(key=key, value=str(value))
    if size > MOST:
        return b"", size
    content: bytes = model.SerializeToString(deterministic=True)
    return content, len(content)


def _plain(graph: Path, weights: Path) -> ModelProto:
    """The plain graph; weights inside its file are referred to where sessions may look for them, beside the others."""
    content = graph.read_bytes()
    inside = graph.parent.absolute() == weights.absolute()
    return ModelProto.FromString(with_references(memoryview(content), graph.name) if inside else content)


class _Files:
    """Files of a folder, mapped when first read."""

    def __init__(self, folder: Path, opened: ExitStack) -> None:
        self._folder, self._opened, self._maps = folder, opened, dict[str, mmap.mmap]()

    def read(self, span: Span) -> bytes:
        name, start, size = span
        if name not in self._maps:
            file = self._opened.enter_context((self._folder / PurePosixPath(name)).open("rb"))
            self._maps[name] = self._opened.enter_context(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        return self._maps[name][start : start + size]


class _Known:
    """Where the weights of a graph lie, to be found by their bytes."""

    def __init__(self, model: ModelProto, folder: Path, opened: ExitStack) -> None:
        self._files, self._spans = _Files(folder, opened), dict[int, dict[str, Span]]()
        for name, span in _spans(model):
            self._spans.setdefault(span[2], {})[name] = span

    def find(self, name: str, data: bytes) -> Span | None:
        """A place with these bytes: the weight's of that name, or another's."""
        known = self._spans.get(len(data), {})
        own = [known[name]] if name in known else []
        for span in (*own, *known.values()):
            if self._files.read((span[0], span[1], 64)) == data[:64] and self._files.read(span) == data:
                return span
        return None


def _spans(model: ModelProto) -> Iterator[tuple[str, Span]]:
    for tensor in external_tensors(model):
        entries = {each.key: each.value for each in tensor.external_data}
        size = int(entries.get("length", "0")) or bytes_of(tensor)
        yield tensor.name, (entries["location"], int(entries.get("offset", "0")), size)
