"""A component's graph in two sessions, one behind the other, for whoever runs it as one.

Compiling cuts a heavy graph so that its sessions open at once. On the CPU, what crosses between them stays where the
first run with inputs of such shapes has put it: the later ones write there and read there, and a step is two run calls
and nothing between.
"""

from collections.abc import Callable, Sequence
from typing import Any

from genai_runtime import binding
from genai_runtime.values import Value


class Parted:
    """Two sessions. crossing: what the first gives and the second takes; its extents follow from those of the inputs.

    Everything that a caller may ask of a session is asked of this one by way of binding.py.
    """

    def __init__(self, first: Any, second: Any, crossing: Sequence[str]) -> None:
        self.first, self.second, self.crossing = first, second, tuple(crossing)
        self._taken = [
            tuple(each.name for each in taken if each.name not in crossing)
            for taken in ((*each.get_inputs(), *each.get_overridable_initializers()) for each in (first, second))
        ]
        self.given = frozenset(each.name for each in first.get_outputs())
        self.home = binding.home_of(first)
        self.stays = binding.reads_bound(second)  # else it would read what crossed when that was bound

    def get_providers(self) -> list[str]:
        """Of both, each once, the first one's first."""
        return list(dict.fromkeys((*self.first.get_providers(), *self.second.get_providers())))

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """Of both."""
        return {**self.second.get_provider_options(), **self.first.get_provider_options()}

    def get_inputs(self) -> list[Any]:
        """The ports of both that a caller feeds, each once."""
        ports = [*self.first.get_inputs(), *self.second.get_inputs()]
        return list({each.name: each for each in ports if each.name not in self.crossing}.values())

    def get_outputs(self) -> list[Any]:
        """The ports of both that a caller is given."""
        ports = (*self.first.get_outputs(), *self.second.get_outputs())
        return [each for each in ports if each.name not in self.crossing]

    def takers(self, port: str) -> tuple[bool, bool]:
        """Which of the two take an input; the first one where none does, so that its session says so."""
        first, second = (port in ports for ports in self._taken)
        return first or not second, second

    def run_with_values(self, origin: str) -> Callable[[dict[str, Value], list[str], None], Sequence[Value]]:
        """As of a session."""
        runs = [binding.run_with_values(each, origin) for each in (self.first, self.second)]
        known = dict[tuple[str, ...], tuple[list[str], list[str], list[tuple[int, int]]]]()
        ahead, behind = self._taken
        begin = iter((binding.shrinking(self.first),))  # the first run is a prompt's, as a rule

        def run(feeds: dict[str, Value], outputs: list[str], options: None) -> Sequence[Value]:
            asked = tuple(outputs)
            if asked not in known:
                known[asked] = self._asked(asked)
            first, second, places = known[asked]
            fed = {port: value for port, value in feeds.items() if port in ahead or port not in behind}
            made = runs[0](fed, first, next(begin, options))
            rest = {port: feeds[port] for port in behind if port in feeds}
            rest.update((port, made[at]) for at, port in enumerate(self.crossing))
            both = made, runs[1](rest, second, options) if second else ()
            return [both[side][at] for side, at in places]

        return run

    def _asked(self, outputs: Sequence[str]) -> tuple[list[str], list[str], list[tuple[int, int]]]:
        """What each of the two is asked for, and where each output stands: (which of the two, place)."""
        first = [*self.crossing, *(each for each in outputs if each in self.given)]
        second = [each for each in outputs if each not in self.given]
        sides = (first, second)
        places = [(int(each not in self.given), sides[each not in self.given].index(each)) for each in outputs]
        return first, second, places

    def new_bindings(self) -> "PartedBindings":
        """An empty io-binding of both."""
        return PartedBindings(self)

    def run_bound(self, origin: str) -> Callable[["PartedBindings", None], None]:
        """As of a session."""
        first, second = (binding.run_bound(each, origin) for each in (self.first, self.second))
        shrinking: Any = binding.shrinking(self.first)

        def run(bound: "PartedBindings", options: None) -> None:
            if bound.joined:
                first(bound.first, options)
            else:
                bound.open()
                first(bound.first, shrinking)
                bound.join()
            second(bound.second, options)

        return run


class PartedBindings:
    """The io-bindings of two sessions as one. joined: what crosses has its place, which suits the inputs' shapes."""

    def __init__(self, parted: Parted) -> None:
        self.first, self.second = binding.new_bindings(parted.first), binding.new_bindings(parted.second)
        self.joined, self._parted = False, parted
        self._shapes = dict[str, tuple[int, ...]]()  # of what the first one takes
        self._order = dict[str, int]()  # output -> which of the two gives it, in the order in which they were bound
        self._bound = ([*parted.crossing], list[str]())  # all that is bound of each
        for name in parted.crossing:
            self.first.bind_output(name, parted.home)

    def bind_ortvalue_input(self, name: str, value: Value) -> None:
        """As of an io-binding."""
        for each in self._takers(name, value.shape()):
            each.bind_ortvalue_input(name, value)

    def bind_input(self, name: str, device: object, kind: object, shape: list[int], address: int) -> None:
        """As of an io-binding."""
        for each in self._takers(name, shape):
            each.bind_input(name, device, kind, shape, address)

    def bind_ortvalue_output(self, name: str, value: Value) -> None:
        """As of an io-binding."""
        self._giver(name).bind_ortvalue_output(name, value)

    def bind_output(self, name: str, device: object) -> None:
        """As of an io-binding."""
        self._giver(name).bind_output(name, device)

    def get_outputs(self) -> Sequence[Value]:
        """What the outputs hold, in the order in which they were bound."""
        made = self.first.get_outputs(), self.second.get_outputs()
        return [made[side][self._bound[side].index(name)] for name, side in self._order.items()]

    def open(self) -> None:
        """The next run of the first session makes what crosses anew, in whatever extents it has then."""
        for name in self._parted.crossing:
            self.first.bind_output(name, self._parted.home)

    def join(self) -> None:
        """What that run has made is where the second session reads it, and where later runs write it."""
        made = self.first.get_outputs()
        for at, name in enumerate(self._parted.crossing):
            self.first.bind_ortvalue_output(name, made[at])
            self.second.bind_ortvalue_input(name, made[at])
        self.joined = self._parted.stays

    def _takers(self, name: str, shape: Sequence[int]) -> list[binding.Bindings]:
        """The io-bindings of the sessions that take an input, which is to have this shape."""
        first, second = self._parted.takers(name)
        if first and self._shapes.get(name) != tuple(shape):
            self._shapes[name], self.joined = tuple(shape), False
        return [each for each, takes in ((self.first, first), (self.second, second)) if takes]

    def _giver(self, name: str) -> binding.Bindings:
        """The io-binding of the session that has an output, which is noted as bound."""
        side = int(name not in self._parted.given)
        if name not in self._order:
            self._order[name] = side
            self._bound[side].append(name)
        return (self.first, self.second)[side]
