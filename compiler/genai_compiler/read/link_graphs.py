"""Which graphs are linked, by which values; and the linked graph, to be looked at."""

from collections.abc import Mapping
from dataclasses import dataclass

from onnx import ModelProto


@dataclass(frozen=True)
class Member:
    """One component of a linked graph: (port, value) pairs in and out.

    origins: paths of the steps that it is, one wherever the linked graph runs; () where it is in one step with all.
    """

    component: str
    inputs: tuple[tuple[str, str], ...]
    outputs: tuple[tuple[str, str], ...]
    origins: tuple[str, ...] = ()


@dataclass(frozen=True)
class Hoist:
    """A selection of positions that moves before the projection it selects from (pass hoist_selection).

    projected: the value that the first member's graph gives, [rows, positions, features]; hidden: what all of it comes
    from; behind: the values from there on, in that graph's names. drops: the selection leaves no axis of positions.
    """

    projected: str
    hidden: str
    behind: tuple[str, ...]
    drops: bool


@dataclass(frozen=True)
class Linked:
    """Members' graphs in order, linked by value (fuse_islands, link_readers, stages). outputs: what leaves it.

    own: (member's component, serialised graph), for graphs of the compiler's own, which are in no file of the package.
    """

    members: tuple[Member, ...]
    outputs: tuple[str, ...]
    hoist: Hoist | None = None
    own: tuple[tuple[str, bytes], ...] = ()


def linked_model(members: tuple[Member, ...], models: Mapping[str, ModelProto], outputs: tuple[str, ...]) -> ModelProto:
    """The members' graphs as one, to be looked at: weights may be absent. models: by component."""
    import onnx_ir as ir  # tens of MB with what it imports: only for packages whose graphs are linked

    from genai_compiler.read.link import Link

    link = Link()
    for at, member in enumerate(members):
        copy = ModelProto()
        copy.CopyFrom(models[member.component])
        del copy.graph.value_info[:]
        link.add(member, copy, f"{at}.{member.component}/")
    return ir.to_proto(link.model(outputs, "stages"))
