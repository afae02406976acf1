"""Sessions: one an ONNX graph, opened from the compiled folder's manifest, and the callables that steps run."""

from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any

import numpy as np

from genai_runtime import binding
from genai_runtime.ahead import AT_ONCE, Ahead
from genai_runtime.cores import allowed_cores
from genai_runtime.problem import ExecutionError, LoadError, RequestError
from genai_runtime.steady import Steady, steady_session
from genai_runtime.values import NUMPY, Array, Value

if TYPE_CHECKING:
    from genai_runtime.host_program import HostProgram
    from genai_runtime.host_run import HostRunner
    from genai_runtime.late_files import LateFiles
    from genai_runtime.lora.service import LoraService
    from genai_runtime.package_graphs import PackageGraph
    from genai_runtime.policy_graphs import PolicyGraphs
    from genai_runtime.stored import Stored
    from genai_runtime.timings import Timings

Ports = tuple[tuple[str, str], ...]
"""(port of the component that is replaced, port of the one in its place)."""


@dataclass(frozen=True)
class Graph:
    """A graph a component runs: file, and the folder its external weights are relative to.

    lengths_vary: whether its inputs have other shapes with every request. stored: what a session on the CPU alone opens
    in its place. part: it is one of two that run in turns.
    """

    file: Path
    weights: Path
    lengths_vary: bool = True
    stored: "Stored | None" = None
    part: bool = False


@dataclass(frozen=True)
class Table:
    """Weights that the runtime itself reads: where their bytes lie, and what they are."""

    file: Path
    offset: int
    dtype: str
    dims: tuple[int, ...]


@dataclass(frozen=True)
class Halves:
    """A component that two sessions run: their graphs' names, and what the first gives to the second."""

    graphs: tuple[str, ...]
    crossing: tuple[str, ...]


@dataclass(frozen=True)
class Settings:
    """How sessions are opened. providers: (name, options) by preference, all available; options: per session.

    threads_from: why so many threads, in words.
    """

    providers: tuple[tuple[str, dict[str, str]], ...] = (("CPUExecutionProvider", {}),)
    options: dict[str, str | int | bool] = field(default_factory=dict[str, str | int | bool])
    threads_from: str = ""


WAITING: Mapping[str, str | int | bool] = {
    "session.force_spinning_stop": "1",
    "session.intra_op.spin_duration_us": "1000",
}
"""Of sessions that run in turns: further threads of one must not wait for work on the cores that the other one needs,
and not long in between; behind a longer pause they are woken (docs/decisions/0042)."""


class Sessions:
    """Opens each graph at most once, when it is first asked for. Closing drops every session."""

    def __init__(
        self,
        graphs: dict[str, Graph],
        settings: Settings,
        own: Mapping[str, Settings] | None = None,
        lora: "LoraService | None" = None,
        tables: Mapping[str, Table] | None = None,
        timings: "Timings | None" = None,
        prefill_chunk: int = 0,
        policy_graphs: "PolicyGraphs | None" = None,
        length_switch: str = "keep",
        files: "LateFiles | None" = None,
        parts: Mapping[str, Halves] | None = None,
    ) -> None:
        """own: settings that hints gave single components; one that can't be opened with them gets the common ones.

        timings: notes every run. prefill_chunk: tokens that one run of a decoder's prompt takes at most, 0: all.
        policy_graphs: what may draw tokens in the host's place. length_switch: what a request does where the graph
        takes other tables behind a length (length_switch.py). files: what late openings are held against.
        parts: components that two sessions run.
        """
        self._graphs, self.settings, self._own, self._lora = graphs, settings, own or {}, lora
        self._tables, self.timings, self.prefill_chunk = tables or {}, timings, prefill_chunk
        self.policy_graphs, self.length_switch, self._files = policy_graphs, length_switch, files
        self._parts, self._open = parts or {}, dict[str, Any]()
        self._opening = RLock()
        self._ahead: Ahead | None = None
        self._closed = False

    @contextmanager
    def ahead(self, components: Sequence[str]) -> Iterator[None]:
        """Open the sessions of these components by threads, from now on, for whoever asks within the block.

        Left to who asks: components with settings of their own, whose refusal is told and answered by the common ones.
        """
        names = sorted(set(components) & set(self._graphs) - set(self._own), key=self._size, reverse=True)
        plain = all(name == "CPUExecutionProvider" for name, _ in self.settings.providers)
        ahead = self._ahead = Ahead(self._begun, names, min(AT_ONCE, allowed_cores().number) if plain else 1)
        try:
            ahead.start()
            yield
        finally:
            self._ahead = None
            ahead.stop()

    def _size(self, component: str) -> tuple[int, str]:
        """What says, as far as known, how long a session takes to open: the size of its graph."""
        try:
            return self._graphs[component].file.stat().st_size, component
        except OSError:
            return 0, component

    def _begun(self, component: str) -> Any:
        return self._opened(component, self._graphs[component])

    def session(self, component: str) -> Any:
        """The session of a component. Raises LoadError `session-failed` with ONNX Runtime's words."""
        known = self._open.get(component)  # once: another thread may close them between two looks
        if known is not None:
            return known
        with self._opening:
            return self._first(component)

    def _first(self, component: str) -> Any:
        """The session of a component that was not open just now; another thread may have opened it since."""
        known = self._open.get(component)
        if known is not None:
            return known
        if component in self._parts:
            return self._kept(component, self._joined(self._parts[component]))
        graph = self._graphs.get(component)
        if graph is None:
            raise LoadError("damaged-folder", f"the manifest names no graph for component '{component}'")
        if self._ahead is None:
            self.hold_files()
        ahead = self._ahead if self._ahead is not None and component in self._ahead else None
        session = ahead.take(component) if ahead is not None else self._opened(component, graph)
        if self.timings is not None:
            binding.watch(session, partial(self.timings.timed, "session run", component))
        return self._kept(component, session)

    def _joined(self, parts: Halves) -> Any:
        """The sessions of both graphs as one. Raises LoadError `damaged-folder`."""
        from genai_runtime.parted import Parted

        first, second = (self._first(each) for each in parts.graphs)
        given, taken = ({each.name for each in ports} for ports in (first.get_outputs(), second.get_inputs()))
        if first is second or not parts.crossing or not given & taken >= set(parts.crossing):
            what = f"of the manifest's parts, {parts.graphs[0]} hands other values to {parts.graphs[1]}"
            raise LoadError("damaged-folder", f"{what} than {list(parts.crossing)}")
        return Parted(first, second, parts.crossing)

    def _kept(self, component: str, session: Any) -> Any:
        self._open[component] = session
        if self._closed:  # meanwhile, by another thread: the request that asks is the last to have it
            self._open.clear()
        return session

    def _opened(self, component: str, graph: Graph) -> Any:
        """A session with the component's own settings, or the common ones where ONNX Runtime refuses those."""
        own = self._own.get(component)
        if own is not None:
            try:
                return _open(graph, own)
            except binding.RUN_FAILURES as failure:
                import logging

                said = f"hints for '{component}' can't be followed, it runs as the package prefers: {failure}"
                logging.getLogger("genai_runtime").warning("%s", said)
        try:
            return _open(graph, self.settings)
        except binding.RUN_FAILURES as failure:
            what = f"ONNX Runtime can't open {graph.file.name} of component '{component}': {failure}"
            raise LoadError("session-failed", what) from failure

    def table(self, component: str) -> Array:
        """The table of a component, mapped: only rows that are read come into memory. Types numpy lacks: their bits.
        Raises LoadError `damaged-folder`, `unreadable-file`.
        """
        table = self._tables.get(component)
        if table is None:
            raise LoadError("damaged-folder", f"the manifest names no table for component '{component}'")
        try:
            return np.memmap(table.file, NUMPY[table.dtype], "r", table.offset, table.dims)
        except (OSError, ValueError) as failure:
            what = f"the table of component '{component}' can't be read from '{table.file}': {failure}"
            raise LoadError("unreadable-file", what) from failure

    def runner(
        self,
        component: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        origin: str,
        replacements: Mapping[str, Ports] | None = None,
        lazy: bool = False,
    ) -> "Runner":
        """The callable for one invoke: values in the order of `inputs` in, values in the order of `outputs` out.

        replacements: components that a request may choose instead, with (port, their port) pairs. lazy: the session is
        opened when it is first needed, not now.
        """
        return Runner(self, component, (tuple(inputs), tuple(outputs)), origin, replacements or {}, lazy)

    def host_runner(
        self,
        component: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        origin: str,
        program: "HostProgram",
        replacements: Mapping[str, Ports] | None = None,
    ) -> "HostRunner":
        """As `runner`, done by numpy; the session is opened for what only it can do."""
        from genai_runtime.host_run import HostRunner

        runner = self.runner(component, inputs, outputs, origin, replacements, lazy=True)
        timed = None if self.timings is None else partial(self.timings.timed, "host", component, origin)
        return HostRunner(runner, program, (tuple(inputs), tuple(outputs)), origin, timed)

    def graphs(self, components: Sequence[str], origin: str) -> "dict[str, PackageGraph]":
        """Graphs for an adapter that runs them itself, by component. Raises LoadError as `session`."""
        from genai_runtime.package_graphs import graphs_of

        return graphs_of(self, components, origin)

    @property
    def lora(self) -> "LoraService":
        """The package's adapters. Raises LoadError `damaged-folder` where the manifest has none."""
        if self._lora is None:
            raise LoadError("damaged-folder", "the manifest has no adapters, and the executor asks for them")
        return self._lora

    def hold_files(self, only: Container[str] | None = None) -> None:
        """What is read from now on belongs to what was loaded. Raises LoadError as LateFiles.hold."""
        if self._files is not None:
            self._files.hold(only)

    def active_providers(self) -> dict[str, list[str]]:
        """Per opened component, the providers its session really uses; of one in two sessions, those of both."""
        halves = {graph for each in self._parts.values() for graph in each.graphs}
        opened = ((name, each) for name, each in tuple(self._open.items()) if name not in halves)
        return {name: list(session.get_providers()) for name, session in opened}

    def close(self) -> None:
        """Drop the sessions; values they made stay valid."""
        self._closed = True
        self._open.clear()
        if self.policy_graphs is not None:
            self.policy_graphs.close()


def _open(graph: Graph, settings: Settings) -> Any:
    options = dict(settings.options)
    if graph.lengths_vary:  # else it would keep a layout for every length that it has seen (docs/memory.md)
        options.setdefault("enable_mem_pattern", False)
    if graph.part:
        options = {**WAITING, **options}
    if graph.stored is not None and all(name == "CPUExecutionProvider" for name, _ in settings.providers):
        try:
            return _open_stored(graph.stored, options, settings)
        except binding.RUN_FAILURES as failure:
            import logging

            said = f"the stored session {graph.stored.file.name} can't be opened, its plain graph is: {failure}"
            logging.getLogger("genai_runtime").warning("%s", said)
    if graph.weights != graph.file.parent:  # with it, ONNX Runtime refuses links that it follows from the graph's own
        options["session.model_external_initializers_file_folder_path"] = str(graph.weights)
    return binding.open_session(graph.file, options, settings.providers)


def _open_stored(stored: "Stored", options: Mapping[str, str | int | bool], settings: Settings) -> Any:
    """A session of what the optimiser has left: it does nothing more."""
    known = {
        **options,
        "graph_optimization_level": "ORT_DISABLE_ALL",
        "session.model_external_initializers_file_folder_path": str(stored.weights),
    }
    return binding.open_session(stored.file, known, settings.providers)


class Runner:
    """One invoke of the workflow: a session run with its ports fixed. Raises ExecutionError naming the step."""

    def __init__(
        self,
        sessions: Sessions,
        component: str,
        ports: tuple[tuple[str, ...], tuple[str, ...]],
        origin: str,
        replacements: Mapping[str, Ports],
        lazy: bool = False,
        stands_in: bool = False,
    ) -> None:
        """stands_in: a request has put it in the place of another component."""
        if not lazy:
            self._run = binding.run_with_values(sessions.session(component), origin)
        self._inputs, self._outputs, self._take = ports[0], list(ports[1]), binding.taker(len(ports[1]))
        self._origin, self._place = origin, f"{origin} (component '{component}')"
        self._sessions, self._component, self._replacements = sessions, component, replacements
        self._made: dict[str, Runner] = {}
        self._stands_in = stands_in

    def __getattr__(self, name: str) -> Any:
        """Of a lazy runner: its session's run call, from the first use on."""
        if name != "_run":
            raise AttributeError(name)
        self._run = binding.run_with_values(self._sessions.session(self._component), self._origin)
        return self._run

    def __call__(self, *values: Value, adapted: Mapping[str, Value] | None = None) -> Sequence[Value]:
        """adapted: further graph inputs, the factors of the request's adapters."""
        feeds = dict(zip(self._inputs, values, strict=True))
        if adapted:
            self._adapt(feeds, adapted)
        try:
            return self._take(self._run(feeds, self._outputs, None))
        except binding.RUN_FAILURES as failure:
            raise ExecutionError("step-failed", str(failure), origin=self._place) from failure

    def steady(self, most: int) -> Steady:
        """The same for one loop whose runs give results of the same extents each time; every loop has its own.

        most: how many iterations it is allowed.
        """
        session = self._sessions.session(self._component)
        return steady_session(session, (self._inputs, self._outputs), self, most, self._origin)

    def _adapt(self, feeds: dict[str, Value], factors: Mapping[str, Value]) -> None:
        if self._stands_in:
            what = f"component '{self._component}' stands in for one that the selected adapters change"
            raise RequestError("bad-override", what, help="select no adapters, or replace nothing")
        feeds.update(factors)

    def chosen(self, overrides: Mapping[str, str]) -> "Runner":
        """This runner, or the one that a request puts in its place. Raises RequestError `bad-override`."""
        other = overrides.get(self._component)
        if other is None or other == self._component:
            return self
        if other not in self._made:
            self._made[other] = self._replaced(other)
        return self._made[other]

    def _replaced(self, other: str) -> "Runner":
        ports = dict(self._replacements[other])
        uncovered = sorted({*self._inputs, *self._outputs} - set(ports))
        if uncovered:
            what = f"the step binds {uncovered} of '{self._component}', which its contract does not name"
            raise RequestError("bad-override", what)
        mapped = tuple(ports[each] for each in self._inputs), tuple(ports[each] for each in self._outputs)
        return Runner(self._sessions, other, mapped, self._origin, {}, stands_in=True)
