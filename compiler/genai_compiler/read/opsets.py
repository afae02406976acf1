"""Of which versions of operator sets graphs are, and whether one version can stand for those of several graphs.

A graph imports each set at one version. Where members of a linked graph import different ones, the highest serves all
of them if each operator that is written for a lower version is the same there: no version in between changed it. ONNX
asks just that of local functions and the graphs that call them, and each operator's schema states the version that it
has been in force since.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from onnx import ModelProto, NodeProto, defs

from genai_compiler.read.nodes import graphs_of, operator_of

_NAMES = {"": "ONNX"}


@dataclass(frozen=True)
class Opsets:
    """versions: domain -> the highest that is imported. used: (domain, operator, version that it is written for)."""

    versions: Mapping[str, int]
    used: frozenset[tuple[str, str, int]]

    def joined(self, other: "Opsets") -> "Opsets":
        """Those of both."""
        domains = {**self.versions, **other.versions}
        versions = {each: max(self.versions.get(each, 0), other.versions.get(each, 0)) for each in domains}
        return Opsets(versions, self.used | other.used)

    def conflict(self) -> str:
        """Why the highest versions can't stand for all, "" when they can."""
        for domain, operator, version in sorted(self.used):
            highest = self.versions.get(domain, version)
            if version == highest:
                continue
            here, there = (_since(domain, operator, each) for each in (version, highest))
            name = f"'{operator}' of {_NAMES.get(domain, domain)} {version}"
            if not here or not there:
                return f"nothing says whether {name} is the same in version {highest}"
            if here != there:
                return f"{name} is another operator since version {there}, and others are of version {highest}"
        return ""


NO_OPSETS = Opsets({}, frozenset())


def opsets_of(model: ModelProto) -> Opsets:
    """What a graph and its local functions import and use."""
    imports = _imports(model.opset_import)
    local = {(each.domain, each.name) for each in model.functions}
    found, used = Opsets(imports, frozenset()), set(_used(model.graph.node, imports))
    for function in model.functions:
        own = _imports(function.opset_import)
        found = found.joined(Opsets(own, frozenset()))
        used.update(_used(function.node, {**imports, **own}))
    return Opsets(found.versions, frozenset(each for each in used if each[:2] not in local))


def _imports(stated: Iterable[object]) -> dict[str, int]:
    pairs = [(str(getattr(each, "domain", "")), int(getattr(each, "version", 0))) for each in stated]
    return {"" if domain == "ai.onnx" else domain: version for domain, version in pairs}


def _used(nodes: Iterable[NodeProto], imports: Mapping[str, int]) -> Iterator[tuple[str, str, int]]:
    pending = list(nodes)
    while pending:
        node = pending.pop()
        domain, operator = operator_of(node)
        yield domain, operator, imports.get(domain, 0)
        pending.extend(each for attribute in node.attribute for graph in graphs_of(attribute) for each in graph.node)


@cache
def _since(domain: str, operator: str, version: int) -> int:
    """The version since which an operator is as it is in this one; 0 where the onnx library knows no such operator, or
    not that version.
    """
    if version > _newest(domain):
        return 0
    try:
        return int(defs.get_schema(operator, version, domain).since_version)
    except defs.SchemaError:
        return 0


@cache
def _newest(domain: str) -> int:
    """The newest version of a set whose operators the onnx library has, 0 for a set that it does not know."""
    if not domain:
        return int(defs.onnx_opset_version())
    known = (each for each in defs.get_all_schemas_with_history() if each.domain == domain)
    return max((int(each.since_version) for each in known), default=0)
