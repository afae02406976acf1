"""Well-formed workflow packages, made from the throws of a dice (hypothesis's, so that a failing one shrinks)."""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.property.capabilities import derived
from tests.property.components import BY_NAME, EXACT, OPERATIONS, Library, Operation
from tests.property.kinds import FREE, Document, Kind, contract, layout, mat, one, row, scalar
from tests.property.literals import literal_for
from tests.property.scopes import Scope, Value

ALL_DTYPES = (
    "int64", "float32", "bool", "int32", "int64", "float32", "int8", "int16", "uint8", "uint16", "uint32", "uint64",
    "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2",
)  # fmt: skip
SPELLED = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}
STORED = {"float8_e4m3fn": ("fp8_e4m3fn", "float8_e4m3", "fp8_e4m3"), "float8_e5m2": ("fp8_e5m2",)}
"""FP8 spellings of one storage type, which are not equal when contracts are compared (standard 1.4)."""


@dataclass
class Package:
    """A made package: its document, and what its requests and its judge have to know."""

    document: Document
    inputs: dict[str, Kind]
    limits: dict[str, int]
    rowwise: bool
    sessions: bool
    overrides: list[tuple[str, str]]
    timed: set[str]
    features: Counter[str]
    extents: dict[str, int]

    @property
    def workflow(self) -> Document:
        """The executable part."""
        workflow: Document = self.document["pipeline"]["workflow"]
        return workflow


@dataclass
class Maker:
    """Makes one package. rowwise: every row of a batch must equal its solo run, so nothing crosses rows."""

    dice: random.Random
    library: Library
    rowwise: bool
    serving: bool = False
    budget: int = 14
    inputs: Document = field(default_factory=dict)
    outputs: Document = field(default_factory=dict)
    components: Document = field(default_factory=dict)
    state: Document = field(default_factory=dict)
    effects: Document = field(default_factory=dict)
    pins: Document = field(default_factory=dict)
    kinds: dict[str, Kind] = field(default_factory=dict)
    limits: dict[str, int] = field(default_factory=dict)
    overrides: list[tuple[str, str]] = field(default_factory=list)
    timed: set[str] = field(default_factory=set)
    features: Counter[str] = field(default_factory=Counter)
    fresh: int = 0
    extents: dict[str, int] = field(default_factory=dict)
    spelled: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """FP8 spellings are not equal when contracts are compared, so a package keeps to one."""
        for dtype, others in STORED.items():
            if self.dice.randrange(3) == 0:
                self.spelled[dtype] = self.dice.choice(others)

    # ---- dice and names ----------------------------------------------------------------------------------------------

    def chance(self, percent: int) -> bool:
        """True `percent` times of a hundred."""
        return self.dice.randrange(100) >= 100 - percent

    def name(self, stem: str) -> str:
        """A name that nothing has, now and then an odd one."""
        self.fresh += 1
        return f"{stem}{'.' if self.chance(10) else '_'}{self.fresh}"

    def used(self, feature: str) -> None:
        """Count a feature of the standard."""
        self.features[feature] += 1

    # ---- inputs ------------------------------------------------------------------------------------------------------

    def input(
        self,
        kind: Kind,
        scope: Scope,
        *,
        literal: bool | None = None,
        default: Any = None,
        defaults: bool = True,
    ) -> Value:
        """Declare one more workflow input: an application's or a literal. defaults: any default may be made up."""
        name = self.name("in")
        literal = self.chance(35) if literal is None else literal
        listed = False
        if defaults and (literal or self.chance(20)) and default is None:
            default, listed = literal_for(kind, self.dice, self.rowwise, self.extents)
        if literal and default is None:
            literal = False
        spec: Document = {"contract": self.contract(kind), "role": {"kind": "opaque"}}
        if literal:
            spec |= {"source": {"kind": "literal"}, "required": False, "default": default}
            self.used(f"literal {kind.dtype}{' list' if listed else ''}")
        else:
            alias = f"given.{name}" if self.chance(30) else name
            spec |= {"source": {"kind": "application", "name": alias}, "required": default is None}
            if default is not None:
                spec["default"] = default
            self.used("application input")
        self.inputs[name] = spec
        self.kinds[name] = kind
        return Value(name, kind)

    def role_input(self, role: str, kind: Kind) -> Value:
        """A field of the request."""
        name = self.name("request")
        role_spec = {"kind": "runtime", "version": "1.0", "role": role}
        self.inputs[name] = {"contract": contract(kind), "role": role_spec, "source": {"kind": "request"}}
        self.kinds[name] = kind
        self.used("request role")
        return Value(name, kind)

    def contract(self, kind: Kind) -> Document:
        """A contract, its dtype spelled one way or the other."""
        made = contract(kind)
        if self.chance(10) and kind.rank < 2:  # a prefix compares spellings (V268)
            made["dtype"] = SPELLED.get(kind.dtype, kind.dtype)
        return made

    def find(self, kind: Kind, scope: Scope) -> Value:
        """A value of this kind: one that is there, or a new input."""
        known = scope.where(lambda each: each.kind == kind and each.declared and (each.local or not self.rowwise))
        return self.dice.choice(known) if known and not self.chance(15) else self.input(kind, scope)

    def control(self, scope: Scope, most: int = 3) -> Value:
        """An integer that can bound a loop."""
        self.used("control")
        kind = self.dice.choice((one("int64"), scalar("int64"), one("int32"), scalar("uint8")))
        literal = self.chance(40)
        default = self.dice.randrange(most + 1) if literal or self.chance(20) else None
        return self.small(self.input(kind, scope, literal=literal, default=default, defaults=False), most)

    def small(self, value: Value, most: int) -> Value:
        """An input whose numbers are controls: requests give 0 to `most`."""
        self.limits[value.name] = most
        return value

    # ---- components and invokes --------------------------------------------------------------------------------------

    def apply(self, operation: Operation, given: Sequence[Value], scope: Scope) -> tuple[list[Document], list[Value]]:
        """Invoke an operation on values; its component is declared when it is not yet."""
        kinds = [each.kind for each in given]
        fixed = self.chance(40)
        artifact, made = self.library.graph(operation, kinds, fixed)
        inferred = self.chance(8) and not any(each.rows for each in made) and all(k.rank for k in made)
        component = self._component(operation, artifact, kinds, made, inferred)
        local = operation.local and all(each.local for each in given)
        outputs = [Value(self.name("v"), kind, local or not given, declared=not inferred) for kind in made]
        step = {
            "kind": "invoke",
            "component": component,
            "inputs": {f"x{at}": each.name for at, each in enumerate(given)},
            "outputs": {f"y{at}": each.name for at, each in enumerate(outputs)},
        }
        scope.values += outputs
        self.used(f"op {operation.name}")
        return [step], outputs

    def _component(
        self, operation: Operation, artifact: str, kinds: Sequence[Kind], made: Sequence[Kind], inferred: bool
    ) -> str:
        name = f"{artifact.removesuffix('.onnx').replace('.', '_')}{'_i' if inferred else ''}"
        effect = not inferred and self.chance(5)
        name += "_e" if effect else ""
        if name in self.components:
            return name
        spec: Document = {"implementation": {"kind": "onnx", "artifact": artifact}}
        if not inferred:
            spec["ports"] = {
                "inputs": {f"x{at}": self.port(kind) for at, kind in enumerate(kinds)},
                "outputs": {f"y{at}": self.port(kind) for at, kind in enumerate(made)},
            }
        if effect:
            self.effects["audit"] = {"retry": "idempotent", "speculation_safety": {"kind": "none"}}
            spec["effects"] = ["audit"]
            axes = {each.rows[0] for each in (*kinds, *made) if each.rows is not None}
            if len(axes) > 1:
                del spec["effects"]
            elif axes:
                spec["row_scope"] = {"axis": axes.pop()}
            self.used("effects")
        self.components[name] = spec
        return name

    def port(self, kind: Kind) -> Document:
        """A port's contract in symbols of its own; shapes now and then left out."""
        made: Document = {"dtype": kind.dtype, "rank": kind.rank}
        if kind.single or not self.chance(12):  # a control needs a known shape
            known = {"batch": "rows", "length": "n"}
            if self.chance(50):
                known = {"batch": "batch", "length": "length"}
            made["shape"] = [known.get(dim, f"free_{at}") if isinstance(dim, str) else dim
                             for at, dim in enumerate(kind.dims)]  # fmt: skip
        if (rows := layout(kind)) is not None:
            made["batch_layout"] = rows
        return made

    def invoke(self, scope: Scope) -> list[Document]:
        """One invoke of an operation that fits the values at hand."""
        pool = scope.where(lambda each: each.local or not self.rowwise)
        if not pool:
            pool = [self.input(self.any_kind(), scope)]
            scope.values += pool
        first = self.dice.choice(pool[-12:])
        usable = [
            each
            for each in OPERATIONS
            if (each.local or not self.rowwise or first.kind.rows is None) and self._fits(each, first, pool)
        ]
        operation = self.dice.choice(usable)
        return self.apply(operation, self._arguments(operation, first, pool), scope)[0]

    def _fits(self, operation: Operation, first: Value, pool: Sequence[Value]) -> bool:
        return bool(self._arguments(operation, first, pool, sure=True))

    def _arguments(self, operation: Operation, first: Value, pool: Sequence[Value], sure: bool = False) -> list[Value]:
        if operation.arity == 1:
            return [first] if operation.takes(first.kind) else []
        if operation.arity == 2:
            others = [each for each in pool if operation.takes(first.kind, each.kind)]
            return [first, others[0] if sure else self.dice.choice(others)] if others else []
        kind = first.kind
        flags = [each for each in pool if each.kind == kind.of("bool")]
        same = [each for each in pool if each.kind == kind]
        if not flags or not same or not operation.takes(flags[0].kind, kind, kind):
            return []
        return [flags[0], first, same[0] if sure else self.dice.choice(same)]

    def any_kind(self) -> Kind:
        """A kind for an input."""
        dtype = self.dice.choice(ALL_DTYPES)
        width = self.dice.choice((1, 2, 3, "length"))
        return self.dice.choice((
            row(dtype), mat(dtype, width), row(dtype), one(dtype), scalar(dtype), Kind(dtype, ("length",)),
            Kind(dtype, ("batch",), (0, 2)), Kind(dtype, (2, "batch"), (1, 1)), Kind(dtype, (2, 2)),
            Kind(dtype, ("batch", 2, 2), (0, 1)),
        ))  # fmt: skip

    def made_as(self, kind: Kind, scope: Scope, from_value: Value | None = None) -> tuple[list[Document], Value]:
        """Steps that compute a fresh value of this kind where arithmetic on it exists, else a value at hand."""
        source = from_value or self.find(kind, scope)
        names = ["identity", *(["affine", "neg", "add"] if kind.dtype in EXACT else ["not"] * (kind.dtype == "bool"))]
        operation = BY_NAME[self.dice.choice(names)]
        if operation.arity == 2 and kind.free:
            operation = BY_NAME["affine"]
        given = [source, *([self.find(kind, scope)] if operation.arity == 2 else [])]
        steps, values = self.apply(operation, given, scope)
        return steps, values[0]

    # ---- the whole ---------------------------------------------------------------------------------------------------

    def package(self, steps: Sequence[Document], serving: Document | None) -> Package:
        """The finished package around its root steps."""
        workflow: Document = {
            "manifest": {"capabilities": []},
            "inputs": self.inputs,
            "outputs": self.outputs,
            "components": self.components,
            "steps": list(steps),
        }
        for section, made in (("state", self.state), ("effects", self.effects), ("serving", serving)):
            if made:
                workflow[section] = made
        if self.pins:
            workflow["manifest"]["adapter_abis"] = self.pins
        workflow["manifest"]["capabilities"] = sorted(derived(workflow))
        return Package(
            respelled({"schema_version": "1.0", "pipeline": {"workflow": workflow}}, self.spelled),
            self.kinds,
            self.limits,
            self.rowwise,
            any(cell["scope"] == "session" for cell in self.state.values()),
            self.overrides,
            self.timed,
            self.features,
            self.extents,
        )


def respelled(node: Any, spelled: dict[str, str]) -> Any:
    """A document with other names for some dtypes."""
    if isinstance(node, dict):
        return {
            key: spelled.get(each, each) if key == "dtype" else respelled(each, spelled) for key, each in node.items()
        }
    return [respelled(each, spelled) for each in node] if isinstance(node, list) else node


__all__ = ["FREE", "Maker", "Package"]
