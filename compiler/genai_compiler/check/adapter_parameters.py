"""Parameters of the runtime's own adapters whose values decide what they can do: asked of the adapters themselves.

What is said here is what loading would say, before anything is written.
"""

from collections.abc import Callable, Mapping
from typing import Any

from genai_compiler.check.fault import COMPONENTS
from genai_compiler.problem import Problem
from genai_compiler.read.document import AdapterImplementation
from genai_compiler.read.package import Package
from genai_compiler.read.places import format_path


def _diffusion(parameters: Mapping[str, Any]) -> object:
    from genai_runtime.adapters.diffusion import diffusion

    return diffusion(parameters)


_FACTORIES: Mapping[str, Callable[[Mapping[str, Any]], object]] = {"genai-compile.diffusion@1": _diffusion}
"""The runtime's own, by ABI and version; imported when a package has one."""


def check_adapter_parameters(package: Package) -> tuple[Problem, ...]:
    """Every component whose adapter refuses its parameters. Code: adapter-parameters."""
    problems: list[Problem] = []
    for name, component in package.workflow.components.items():
        how, contract = component.implementation, component.contract
        if not isinstance(how, AdapterImplementation) or contract is None:
            continue
        factory = _FACTORIES.get(f"{how.abi}@{how.version}")
        try:
            if factory is not None:
                factory(contract.parameters)
        except ValueError as fault:
            path = (*COMPONENTS, name, "contract", "parameters")
            what = f"{how.abi}@{how.version} refuses its parameters: {fault}"
            help = "correct the parameter named; docs/diffusion.md lists them"
            problems.append(Problem("adapter-parameters", package.places.find(path), format_path(path), what, help))
    return tuple(problems)
