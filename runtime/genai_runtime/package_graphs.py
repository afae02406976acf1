"""Graphs of the package for an adapter that runs them itself: numpy arrays by port name in and out."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from genai_runtime import binding
from genai_runtime.problem import ExecutionError
from genai_runtime.values import Array, to_array, to_value

if TYPE_CHECKING:
    from genai_runtime.sessions import Sessions


class PackageGraph:
    """One graph. inputs, outputs: its ports as (name, shape); an extent that is no number is a symbol or None."""

    def __init__(self, session: Any, component: str, origin: str) -> None:
        self._run = binding.run_with_values(session, origin)
        self._place = f"{origin} (component '{component}')"
        self.inputs = _ports(session.get_inputs())
        self.outputs = _ports(session.get_outputs())

    def __call__(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """All outputs by name. Raises ExecutionError `step-failed` with ONNX Runtime's words."""
        names = [name for name, _ in self.outputs]
        try:
            made = binding.results(self._run({name: to_value(array) for name, array in arrays.items()}, names, None))
        except binding.RUN_FAILURES as failure:
            raise ExecutionError("step-failed", str(failure), origin=self._place) from failure
        return {name: to_array(value) for name, value in zip(names, made, strict=True)}


def _ports(ports: Sequence[Any]) -> tuple[tuple[str, tuple[int | str | None, ...]], ...]:
    return tuple((each.name, tuple(each.shape)) for each in ports)


def graphs_of(sessions: "Sessions", components: Sequence[str], origin: str) -> dict[str, PackageGraph]:
    """The graphs of these components, opened. Raises LoadError as `Sessions.session`."""
    return {name: PackageGraph(sessions.session(name), name, origin) for name in components}
