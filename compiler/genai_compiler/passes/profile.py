"""What passes may know beyond the plan: the package's graphs and the caller's wishes. And the shape of a pass."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from genai_compiler.plan.ir import Plan
from genai_compiler.read.document import StateGroup
from genai_compiler.read.package import Graph


@dataclass(frozen=True)
class Profile:
    """Facts beside the plan. graphs by component; groups as the document declares them."""

    graphs: Mapping[str, Graph]
    groups: Mapping[str, StateGroup]


class Pass(Protocol):
    """A rewrite: never edits its input; its docstring shows before and after."""

    __name__: str

    def __call__(self, plan: Plan, profile: Profile) -> Plan: ...
