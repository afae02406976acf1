"""What the manifest says of a package's adapters, typed."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any


@dataclass(frozen=True)
class Port:
    """A graph input that takes a factor. features: the axis that holds them, of the last two; the other is the rank.

    rows: an axis before these holds one factor a row. rank: the extent that the graph fixes for the rank, 0: any.
    """

    name: str
    dtype: str
    features: int
    rows: bool
    rank: int


@dataclass(frozen=True)
class ScalePort:
    """A graph input that multiplies the delta. dims: its extents, 0 for the one that holds rows."""

    name: str
    dtype: str
    dims: tuple[int, ...]


@dataclass(frozen=True)
class Seam:
    """The graph inputs of one target. symbols: what the graph calls its rank, on either side."""

    a: Port
    b: Port
    scale: ScalePort | None
    symbols: tuple[str, ...]


@dataclass(frozen=True)
class Target:
    """A weight that adapters change. inputs, outputs: its features; the delta covers `width` outputs from `offset`.

    ports: names of the graph inputs that the document states (a, b, scale; "" none), whether the graph has them or not.
    """

    id: str
    component: str
    parameter: str
    inputs: int
    outputs: int
    offset: int
    width: int
    ports: tuple[str, str, str]
    seam: Seam | None


@dataclass(frozen=True)
class Binding:
    """Which tensors of an adapter's file belong to which target, and what their product is multiplied by."""

    target: str
    key: str
    rank: int
    factor: float


@dataclass(frozen=True)
class Artifact:
    """One adapter: its number in selections, its file (package-relative), and what it changes."""

    alias: str
    index: int
    format: str
    file: str
    config: str
    dtype: str
    bindings: tuple[Binding, ...]


@dataclass(frozen=True)
class LoraSpec:
    """The service. inputs: names of the workflow inputs that select, in the order segments, counts, scales, active."""

    inputs: tuple[str, str, str, str]
    slots: int
    cache: int
    portable: bool
    targets: tuple[Target, ...]
    artifacts: tuple[Artifact, ...]

    @cached_property
    def by_index(self) -> Mapping[int, Artifact]:
        """Adapters by their number in selections."""
        return {each.index: each for each in self.artifacts}

    @cached_property
    def by_alias(self) -> Mapping[str, Artifact]:
        """Adapters by the name that the document gives them."""
        return {each.alias: each for each in self.artifacts}

    @cached_property
    def by_id(self) -> Mapping[str, Target]:
        """Targets by id."""
        return {each.id: each for each in self.targets}

    @property
    def by_row(self) -> bool:
        """Whether rows of one run may use different adapters everywhere."""
        return all(each.seam is None or each.seam.a.rows for each in self.targets)


def spec_of(data: Mapping[str, Any]) -> LoraSpec | None:
    """The service of a manifest's `adapters`, None where it is empty: a package without adapters.

    Raises KeyError, TypeError, ValueError for what no compiler writes.
    """
    if not data:
        return None
    selection = data["selection"]
    spec = LoraSpec(
        inputs=(selection["segments"], selection["counts"], selection["scales"], selection["active"]),
        slots=int(selection["slots"]),
        cache=int(data["cache"]),
        portable=bool(data["portable_fallback"]),
        targets=tuple(_target(each) for each in data["targets"]),
        artifacts=tuple(artifact_of(each) for each in data["artifacts"]),
    )
    if (
        spec.slots < 1
        or spec.cache < 1
        or any(each.target not in spec.by_id for a in spec.artifacts for each in a.bindings)
    ):
        raise ValueError("its numbers or names do not fit together")
    return spec


def artifact_of(data: Mapping[str, Any]) -> Artifact:
    """One adapter of a manifest."""
    bindings = tuple(
        Binding(str(each["target"]), str(each["key"]), int(each["rank"]), float(each["factor"]))
        for each in data["bindings"]
    )
    return Artifact(
        alias=str(data["alias"]),
        index=int(data["index"]),
        format=str(data["format"]),
        file=str(data["file"]),
        config=str(data["config"]),
        dtype=str(data["dtype"]),
        bindings=bindings,
    )


def _target(data: Mapping[str, Any]) -> Target:
    seam = data["seam"]
    a, b, scale = data["ports"]
    return Target(
        id=str(data["id"]),
        component=str(data["component"]),
        parameter=str(data["parameter"]),
        inputs=int(data["inputs"]),
        outputs=int(data["outputs"]),
        offset=int(data["offset"]),
        width=int(data["width"]),
        ports=(str(a), str(b), str(scale)),
        seam=None if seam is None else _seam(seam),
    )


def _seam(data: Mapping[str, Any]) -> Seam:
    symbols = tuple(str(each) for each in data["symbols"])
    return Seam(_port(data["a"]), _port(data["b"]), _scale(data["scale"]), symbols)


def _port(data: Mapping[str, Any]) -> Port:
    numbers = int(data["features"]), bool(data["rows"]), int(data["rank"])
    return Port(str(data["name"]), str(data["dtype"]), *numbers)


def _scale(data: Mapping[str, Any] | None) -> ScalePort | None:
    return None if data is None else ScalePort(str(data["name"]), str(data["dtype"]), tuple(map(int, data["dims"])))
