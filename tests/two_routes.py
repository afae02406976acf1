"""One request, two routes: the compiled executor and the naive interpreter of the document."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
from genai_runtime import Event, Result

from tests.reference.interpreter import interpret
from tests.reference.machine import SessionStore
from tests.reference.values import Array, Events, Published, RowEvents, Rows


@dataclass
class TwoRoutes:
    """A model and the package it was compiled from; session cells of the interpreter live in `store`."""

    model: genai_runtime.Model
    package: Path
    store: SessionStore = field(default_factory=dict[tuple[str, str], Array])

    def agree(self, inputs: Mapping[str, Array], *, stop_on_eos: bool = True, session: str | None = None) -> Result:
        """The executor's result, after holding every output and the iteration count against the interpreter's."""
        wanted = interpret(self.package, inputs, stop_on_eos=stop_on_eos, session=session, sessions_store=self.store)
        result, events = collect(self.model, inputs, stop_on_eos=stop_on_eos, session=session)
        published = {*result.aggregate, *result.row_slots}
        assert published == set(wanted.outputs)
        for name, value in wanted.outputs.items():
            assert_published(name, value, result, events)
        if not result.finish_reasons:  # a decoder that the runtime drives counts tokens, not loop bodies
            assert result.iterations == wanted.iterations
        return result


def collect(model: genai_runtime.Model, inputs: Mapping[str, Any], **options: Any) -> tuple[Result, list[Event]]:
    """The result of a run and everything it published on the way."""
    events: list[Event] = []
    running = model.stream(inputs, **options)
    while True:
        try:
            events.append(next(running))
        except StopIteration as done:
            return done.value, events


def assert_published(name: str, wanted: Published, result: Result, events: list[Event]) -> None:
    """One output of the executor is what the interpreter published."""
    match wanted:
        case Rows(items):
            assert_rows(name, items, result.rows(name))
        case Events(items):
            assert_rows(name, items, result.events(name))
            assert_rows(name, items, [each.value for each in events if each.output == name])
        case RowEvents(rows):
            for row, items in enumerate(rows):
                mine = [each.value for each in events if (each.output, each.row) == (name, row)]
                assert_rows(f"{name} of row {row}", items, mine)
        case _:
            np.testing.assert_array_equal(result[name], wanted, err_msg=name, strict=True)


def assert_rows(name: str, wanted: tuple[Array | None, ...], got: list[Array | None] | list[Array]) -> None:
    """Two lists of arrays are equal, gaps included."""
    assert [each is None for each in got] == [each is None for each in wanted], name
    for mine, theirs in zip(got, wanted, strict=True):
        if theirs is not None:
            np.testing.assert_array_equal(mine, theirs, err_msg=name, strict=True)
