"""Sessions: one an ONNX graph, opened from the compiled folder's manifest, and the callables that steps run."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from genai_runtime import binding
from genai_runtime.problem import ExecutionError, LoadError
from genai_runtime.values import Value


@dataclass(frozen=True)
class Graph:
    """A graph a component runs: file, and the folder its external weights are relative to."""

    file: Path
    weights: Path


@dataclass(frozen=True)
class Settings:
    """How sessions are opened. providers: (name, options) in order of preference, all available; options: per session."""

    providers: tuple[tuple[str, dict[str, str]], ...] = (("CPUExecutionProvider", {}),)
    options: dict[str, str | int | bool] = field(default_factory=dict[str, str | int | bool])


class Sessions:
    """Opens each graph at most once, when it is first asked for. Closing drops every session."""

    def __init__(self, graphs: dict[str, Graph], settings: Settings) -> None:
        self._graphs, self.settings = graphs, settings
        self._open: dict[str, Any] = {}

    def session(self, component: str) -> Any:
        """The session of a component. Raises LoadError `session-failed` with ONNX Runtime's words."""
        if component not in self._open:
            graph = self._graphs[component]
            options = dict(self.settings.options)
            options["session.model_external_initializers_file_folder_path"] = str(graph.weights)
            try:
                self._open[component] = binding.open_session(graph.file, options, self.settings.providers)
            except binding.RUN_FAILURES as failure:
                what = f"ONNX Runtime can't open {graph.file.name} of component '{component}': {failure}"
                raise LoadError("session-failed", what) from failure
        return self._open[component]

    def runner(self, component: str, inputs: Sequence[str], outputs: Sequence[str], origin: str) -> "Runner":
        """The callable for one invoke: values in the order of `inputs` in, values in the order of `outputs` out."""
        return Runner(self.session(component), inputs, outputs, f"{origin} (component '{component}')")

    def active_providers(self) -> dict[str, list[str]]:
        """Per opened component, the providers its session really uses."""
        return {name: list(session.get_providers()) for name, session in self._open.items()}

    def close(self) -> None:
        """Drop the sessions; values they made stay valid."""
        self._open.clear()


class Runner:
    """One invoke of the workflow: a session run with its ports fixed. Raises ExecutionError naming the step."""

    def __init__(self, session: Any, inputs: Sequence[str], outputs: Sequence[str], origin: str) -> None:
        self._run = binding.run_with_values(session)
        self._inputs, self._outputs, self._origin = tuple(inputs), list(outputs), origin

    def __call__(self, *values: Value) -> Sequence[Value]:
        try:
            return self._run(dict(zip(self._inputs, values, strict=True)), self._outputs, None)
        except binding.RUN_FAILURES as failure:
            raise ExecutionError("step-failed", str(failure), origin=self._origin) from failure
