"""An adapter's files -> its factors, whatever their format (standard, 6.1). Files are data of others."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from genai_runtime.lora.fault import AdapterFault
from genai_runtime.lora.json_text import read_json
from genai_runtime.lora.onnx_adapter import read_onnx_adapter
from genai_runtime.lora.peft import MAX_CONFIG, check_config, check_scale, module_of
from genai_runtime.lora.safetensors_file import SafetensorsFile
from genai_runtime.lora.spec import Artifact, Binding, Target

MAX_JSON = 256 << 20
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Factors:
    """One adapter's part in one target: the delta is factor * b (a x). a: [rank, inputs]; b: [width, rank]."""

    a: Floats
    b: Floats
    factor: float


Reader = Callable[[Path, Artifact, Iterable[tuple[Binding, Target]]], dict[str, Factors]]


def read_adapter(package: Path, artifact: Artifact, targets: Mapping[str, Target]) -> dict[str, Factors]:
    """Target id -> factors, in float32, finite, with the extents that the document states.

    Raises AdapterFault: `adapter-file`, `adapter-config`, `adapter-weights`.
    """
    bound = [(each, targets[each.target]) for each in artifact.bindings]
    try:
        return READERS[artifact.format](package, artifact, bound)
    except OSError as failure:
        raise AdapterFault("adapter-file", f"'{artifact.file}' can't be read: {failure.strerror}") from failure


def _from_json(package: Path, artifact: Artifact, bound: Iterable[tuple[Binding, Target]]) -> dict[str, Factors]:
    file = package / artifact.file
    content = read_json(file, MAX_JSON)
    if set(content) != {"targets"} or not isinstance(content["targets"], dict):
        raise AdapterFault("adapter-file", f'{file.name} is not of the form {{"targets": {{key: {{a, b}}}}}}')
    made = {}
    for binding, target in bound:
        entry = content["targets"].get(binding.key)
        if not isinstance(entry, dict) or set(entry) != {"a", "b"}:
            raise AdapterFault("adapter-weights", f"{file.name} has no factors a and b for '{binding.key}'")
        shapes = _shapes(binding, target)
        pair = [
            _numbers(entry[name], shape, f"'{binding.key}'.{name} of {file.name}") for name, shape in shapes.items()
        ]
        made[target.id] = _factors(pair[0], pair[1], binding, file.name)
    return made


def _numbers(value: Any, shape: tuple[int, int], what: str) -> Floats:
    """A flat list of numbers as an array."""
    if not isinstance(value, list) or any(type(each) not in (int, float) for each in value):
        raise AdapterFault("adapter-weights", f"{what} is no list of numbers")
    if len(value) != shape[0] * shape[1]:
        raise AdapterFault("adapter-weights", f"{what} has {len(value)} numbers, wanted are {shape[0]} x {shape[1]}")
    try:
        with np.errstate(over="ignore"):  # what overflows is infinite, and refused as such
            return np.array(value, dtype=np.float64).astype(np.float32).reshape(shape)
    except OverflowError as fault:
        raise AdapterFault("adapter-weights", f"{what} holds a number that no float can hold") from fault


def _from_safetensors(package: Path, artifact: Artifact, bound: Iterable[tuple[Binding, Target]]) -> dict[str, Factors]:
    file = SafetensorsFile(package / artifact.file)
    return {
        target.id: _named(file, (f"{binding.key}.a", f"{binding.key}.b"), artifact, binding, target)
        for binding, target in bound
    }


def _from_peft(package: Path, artifact: Artifact, bound: Iterable[tuple[Binding, Target]]) -> dict[str, Factors]:
    file, name = SafetensorsFile(package / artifact.file), Path(artifact.config).name
    config = read_json(package / artifact.config, MAX_CONFIG)
    check_config(config, name)
    made = {}
    for binding, target in bound:
        module = module_of(file, binding.key, Path(artifact.file).name)
        check_scale(config, name, module, binding)
        pair = (f"{module}.lora_A.weight", f"{module}.lora_B.weight")
        made[target.id] = _named(file, pair, artifact, binding, target)
    return made


def _named(
    file: SafetensorsFile, pair: tuple[str, str], artifact: Artifact, binding: Binding, target: Target
) -> Factors:
    """The two tensors of these names."""
    name, found = Path(artifact.file).name, list[Floats]()
    for tensor, shape in zip(pair, _shapes(binding, target).values(), strict=True):
        if tensor not in file.names:
            raise AdapterFault("adapter-weights", f"{name} has no tensor '{tensor}'")
        _expect(*file.described(tensor), shape, artifact, f"'{tensor}' of {name}")
        found.append(file.tensor(tensor))
    return _factors(found[0], found[1], binding, name)


def _from_onnx_adapter(
    package: Path, artifact: Artifact, bound: Iterable[tuple[Binding, Target]]
) -> dict[str, Factors]:
    """Parameters named and shaped like the graph inputs that they are for, scale included."""
    pairs = tuple(bound)
    wanted = {port for _, target in pairs for port in target.ports}
    parameters, name = read_onnx_adapter(package / artifact.file, wanted), Path(artifact.file).name
    made = {}
    for binding, target in pairs:
        found = list[Floats]()
        for (side, shape), port in zip(_shapes(binding, target).items(), target.ports, strict=False):
            if port not in parameters:
                raise AdapterFault("adapter-weights", f"{name} has no parameter '{port}'")
            dtype, array = parameters[port]
            turned = _is_turned(target, side)
            if array.ndim == 3 and array.shape[0] == 1 and target.seam is not None and target.seam.a.rows:
                array = array[0]  # as ONNX Runtime itself would bind it: one set for all rows
            _expect(dtype, array.shape, shape[::-1] if turned else shape, artifact, f"'{port}' of {name}")
            found.append(array.T if turned else array)
        made[target.id] = _factors(found[0], found[1] * _scale(parameters, target, name), binding, name)
    return made


def _is_turned(target: Target, side: str) -> bool:
    """Whether the graph input holds a factor transposed. Without such an input, as the factors' own product says."""
    if target.seam is None:
        return True
    features = target.seam.a.features if side == "a" else target.seam.b.features
    return features != (1 if side == "a" else 0)


def _scale(parameters: Mapping[str, tuple[str, Floats]], target: Target, name: str) -> np.float32:
    port = target.ports[2]
    if not port or port not in parameters:
        return np.float32(1)
    value = parameters[port][1]
    if value.size != 1:
        raise AdapterFault("adapter-weights", f"'{port}' of {name} has {value.size} numbers, a scale is one")
    return np.float32(value.reshape(-1)[0])


def _shapes(binding: Binding, target: Target) -> dict[str, tuple[int, int]]:
    return {"a": (binding.rank, target.inputs), "b": (target.width, binding.rank)}


def _expect(dtype: str, found: tuple[int, ...], wanted: tuple[int, int], artifact: Artifact, what: str) -> None:
    if found != wanted:
        raise AdapterFault("adapter-weights", f"{what} has the shape {list(found)}, wanted is {list(wanted)}")
    if dtype != artifact.dtype:
        raise AdapterFault("adapter-weights", f"{what} is {dtype}, the document says {artifact.dtype}")


def _factors(a: Floats, b: Floats, binding: Binding, name: str) -> Factors:
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        raise AdapterFault("adapter-weights", f"the factors of '{binding.key}' in {name} are not all finite")
    if not 0 < binding.factor < float(np.finfo(np.float32).max):
        raise AdapterFault("adapter-weights", f"the delta of '{binding.key}' is scaled by {binding.factor:g}")
    return Factors(np.ascontiguousarray(a), np.ascontiguousarray(b), binding.factor)


READERS: dict[str, Reader] = {
    "json": _from_json,
    "safetensors": _from_safetensors,
    "hf_peft": _from_peft,
    "ort_genai": _from_onnx_adapter,
}
"""Weight format of the standard -> its reader."""
