"""The one file that touches ONNX Runtime's own Python module: sessions, tensors, io-bindings.

The hot loop calls the C extension's objects (`InferenceSession._sess`, `IOBinding._iobinding`) rather than their Python
wrappers: the wrappers convert every value on every call, which costs more than a small graph does.
"""

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from threading import Lock
from typing import Any, Protocol, cast
from weakref import WeakKeyDictionary

import numpy as np

from genai_runtime.problem import LoadError
from genai_runtime.values import NUMPY, ONNX_TYPE, Array, Value

try:
    import onnxruntime as ort
    from onnxruntime.capi import onnxruntime_pybind11_state as native
except ImportError as missing:
    ort: Any = None  # type: ignore[no-redef]
    native: Any = None  # type: ignore[no-redef]
    _MISSING = str(missing)

CPU = native.OrtDevice(native.OrtDevice.cpu(), native.OrtDevice.default_memory(), 0) if native else None
RunWithValues = Callable[[dict[str, Value], list[str], None], Sequence[Value]]


class Bindings(Protocol):
    """The part of the C io-binding that this runtime uses."""

    def bind_ortvalue_input(self, name: str, value: Value) -> None: ...
    def bind_ortvalue_output(self, name: str, value: Value) -> None: ...
    def bind_input(self, name: str, device: object, kind: object, shape: list[int], address: int) -> None: ...
    def bind_output(self, name: str, device: object) -> None: ...
    def get_outputs(self) -> Sequence[Value]: ...


def allocate(shape: Sequence[int], dtype: str) -> Value:
    """An uninitialised CPU tensor that owns its memory."""
    if dtype in ONNX_TYPE:
        made = native.OrtValue.ortvalue_from_shape_and_onnx_type(list(shape), ONNX_TYPE[dtype], CPU)
    else:
        made = native.OrtValue.ortvalue_from_shape_and_type(list(shape), NUMPY[dtype], CPU)
    return cast(Value, made)


def allocate_like(array: Array) -> Value:
    """An uninitialised CPU tensor of the array's shape and type."""
    return cast(Value, native.OrtValue.ortvalue_from_shape_and_type(list(array.shape), array.dtype.type, CPU))


def write(value: Value, array: Array) -> None:
    """Copy `array` into the tensor."""
    cast(Any, value).update_inplace(array)


def home_of(session: Any) -> object:
    """The device on which a session keeps tensors that it updates in place: its first provider's."""
    first = session.get_providers()[0]
    if first != "CUDAExecutionProvider":
        return CPU
    number = int(session.get_provider_options().get(first, {}).get("device_id", 0))
    return native.OrtDevice(native.OrtDevice.cuda(), native.OrtDevice.default_memory(), number)


def placed(array: Array, dtype: str, home: object) -> Value:
    """The array's content as a tensor on a device; on the CPU over the array's own memory, which must stay alive."""
    return over(array, dtype) if home is CPU else cast(Value, native.OrtValue.ortvalue_from_numpy(array, home))


def over(array: Array, dtype: str = "") -> Value:
    """A tensor over the array's memory; it does not keep the array alive."""
    if dtype in ONNX_TYPE:
        return cast(Value, native.OrtValue.ortvalue_from_numpy_with_onnx_type(array, ONNX_TYPE[dtype]))
    return cast(Value, native.OrtValue.ortvalue_from_numpy(array, CPU))


def bind_at(bound: Bindings, name: str, dtype: str, shape: list[int], address: int) -> None:
    """Bind an input to memory of the CPU by its address, without a tensor of ours over it.

    For what moves at every step: a third of the time that a view and its tensor take. The memory stays the caller's,
    who keeps it alive until the run is over, and holds at least as many elements as the shape has.
    """
    bound.bind_input(name, CPU, ONNX_TYPE.get(dtype) or NUMPY[dtype], shape, address)


def as_bits(value: Value, dtype: str) -> Array:
    """A tensor of a type that numpy lacks, as an array of its bits: a view of its memory that keeps it alive."""
    import ctypes

    width = np.dtype(NUMPY[dtype])
    shape = tuple(value.shape())
    count = int(np.prod(shape, dtype=np.int64))
    if not count:
        return np.empty(shape, width)
    memory: Any = (ctypes.c_byte * (count * width.itemsize)).from_address(cast(Any, value).data_ptr())
    memory.tensor = value  # an address keeps nothing alive
    array: Array = np.frombuffer(memory, dtype=width, count=count).reshape(shape)
    return array


def require() -> None:
    """Raises LoadError `onnxruntime-missing`. Importing this package without ONNX Runtime is no failure, running is."""
    if native is None:
        help = "install one build of it: pip install 'genai-compile[cpu]', or 'genai-compile[gpu]' where there is a GPU"
        raise LoadError("onnxruntime-missing", f"ONNX Runtime can't be imported: {_MISSING}", help=help)


def available_providers() -> list[str]:
    """Execution providers that this build of ONNX Runtime was made with."""
    return list(ort.get_available_providers())


def build() -> str:
    """This build of ONNX Runtime, in words: its release, and what the build says of itself."""
    return f"ONNX Runtime {ort.__version__} ({ort.get_build_info().removeprefix('ORT Build Info: ')})"


SESSION_ATTRIBUTES = {
    "intra_op_num_threads": "intra_op_num_threads",
    "inter_op_num_threads": "inter_op_num_threads",
    "log_severity_level": "log_severity_level",
    "log_verbosity_level": "log_verbosity_level",
    "enable_cpu_mem_arena": "enable_cpu_mem_arena",
    "enable_mem_pattern": "enable_mem_pattern",
    "log_id": "logid",
    "graph_optimization_level": "graph_optimization_level",
}
"""Session options of a manifest that are no config entries -> attributes of ONNX Runtime's SessionOptions."""


def open_session(
    graph: Path, options: dict[str, str | int | bool], providers: Sequence[tuple[str, dict[str, str]]]
) -> Any:
    """An inference session. options: names with a dot are config entries, others stand in SESSION_ATTRIBUTES.

    Raises LoadError `damaged-folder` for an attribute that is none, or whose value can't be one.
    """
    return ort.InferenceSession(str(graph), _settings(options), providers=list(providers))


def write_optimised(graph: Path, target: Path, options: Mapping[str, str | int | bool]) -> None:
    """Write a graph as the optimiser leaves it for the CPU, with all weights in a new file beside it.

    Raises LoadError as `open_session`, and what ONNX Runtime raises.
    """
    settings = _settings(options)
    settings.optimized_model_filepath = str(target)
    settings.add_session_config_entry(f"{_WEIGHTS}_file_name", f"{target.name}.data")
    settings.add_session_config_entry(f"{_WEIGHTS}_min_size_in_bytes", "1024")
    ort.InferenceSession(str(graph), settings, providers=["CPUExecutionProvider"])


_WEIGHTS = "session.optimized_model_external_initializers"


def _settings(options: Mapping[str, str | int | bool]) -> Any:
    settings = ort.SessionOptions()
    for key, value in options.items():
        if "." in key:
            settings.add_session_config_entry(key, str(value))
        else:
            _set_attribute(settings, key, value)
    return settings


def _set_attribute(settings: Any, key: str, value: object) -> None:
    try:
        if key == "graph_optimization_level":
            value = ort.GraphOptimizationLevel.__members__[str(value)]
        setattr(settings, SESSION_ATTRIBUTES[key], value)
    except (KeyError, TypeError) as fault:
        raise LoadError("damaged-folder", f"there is no session option {key!r} with the value {value!r}") from fault


Watch = Callable[[str, Callable[..., Any]], Callable[..., Any]]
"""Given a place in the document and a session's run call: the call to use in its stead."""

_WATCHED: "WeakKeyDictionary[Any, Watch]" = WeakKeyDictionary()


def watch(session: Any, watcher: Watch) -> None:
    """Let a profile see every run of this session from now on."""
    _WATCHED[session] = watcher


def _seen(session: Any, run: Callable[..., Any], origin: str) -> Callable[..., Any]:
    run = _alone(session, run)
    watcher = _WATCHED.get(session) if _WATCHED else None
    return run if watcher is None else watcher(origin, run)


CONCURRENT = frozenset({"CPUExecutionProvider", "CUDAExecutionProvider"})
"""Providers of which several threads may run one session. DirectML's documentation forbids it; others say nothing."""

_LOCKS: "WeakKeyDictionary[Any, Lock]" = WeakKeyDictionary()


def _alone(session: Any, run: Callable[..., Any]) -> Callable[..., Any]:
    """The run call of a session, one thread at a time where a provider is not known to allow more."""
    if CONCURRENT.issuperset(session.get_providers()):
        return run
    lock = _LOCKS.setdefault(session, Lock())

    def locked(*given: Any) -> Any:
        with lock:
            return run(*given)

    return locked


def run_with_values(session: Any, origin: str = "") -> RunWithValues:
    """The session's run call on tensors by name. origin: the step that calls it, for profiles.

    A session in two parts (parted.py) makes its own call; so it does of its io-bindings.
    """
    if hasattr(session, "run_with_values"):
        return cast(RunWithValues, session.run_with_values(origin))
    return cast(RunWithValues, _seen(session, session._sess.run_with_ort_values, origin))


def results(made: Sequence[Value]) -> list[Value]:
    """What a run gave, one by one. Iterating over ONNX Runtime's own vector ends in a C++ exception: tens of us."""
    return [made[at] for at in range(len(made))]


def taker(count: int) -> Callable[[Sequence[Value]], Sequence[Value]]:
    """The same for runs that give `count` values each, made once for all of them."""
    return itemgetter(*range(count)) if count > 1 else results


def new_bindings(session: Any) -> Bindings:
    """An empty io-binding of the session."""
    if hasattr(session, "new_bindings"):
        return cast(Bindings, session.new_bindings())
    return cast(Bindings, session.io_binding()._iobinding)


def run_bound(session: Any, origin: str = "") -> Callable[[Bindings, None], None]:
    """The session's run call on an io-binding. origin: the step that calls it, for profiles."""
    if hasattr(session, "run_bound"):
        return cast(Callable[[Bindings, None], None], session.run_bound(origin))
    return cast(Callable[[Bindings, None], None], _seen(session, session._sess.run_with_iobinding, origin))


def shrinking(session: Any) -> Any:
    """Options of a run behind which the session gives back what it does not use of its memory.

    None beyond the CPU, and without an arena, of which nothing is kept: ONNX Runtime refuses such a run.
    """
    if list(session.get_providers()) != ["CPUExecutionProvider"]:
        return None
    if not session.get_session_options().enable_cpu_mem_arena:
        return None
    options = native.RunOptions()
    options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    return options


def reads_bound(session: Any) -> bool:
    """Whether a run reads a bound input where it lies, so that what is written there after it was bound counts.

    Other providers than the CPU's copy an input to their device when it is bound, and read the copy from then on
    (https://github.com/microsoft/onnxruntime/issues/11133, /issues/29782).
    """
    return list(session.get_providers()) == ["CPUExecutionProvider"]


RUN_FAILURES: tuple[type[Exception], ...] = (
    *(each for each in vars(native or object).values() if isinstance(each, type) and issubclass(each, Exception)),
    RuntimeError,
)
"""What a session's run can raise."""
