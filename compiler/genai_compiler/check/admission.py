"""A document against the files of its package (standard, 12.2 and 12.13)."""

from dataclasses import replace

from genai_compiler.check.artifacts import check_artifacts
from genai_compiler.check.geometry import check_geometry
from genai_compiler.check.graph_contracts import check_graph_contracts
from genai_compiler.check.problems import problems_of
from genai_compiler.check.replacement import check_replacement
from genai_compiler.check.speech import check_speech
from genai_compiler.problem import Problem, ordered
from genai_compiler.read.absent import tolerated, with_flag
from genai_compiler.read.package import Package


def check_admission(package: Package) -> tuple[Problem, ...]:
    """Every problem that only the package's files show. The document itself must have passed `check_document`."""
    files = check_artifacts(package.metadata, package.places, package.root)
    files = tuple(map(with_flag if package.complete else tolerated, files))
    there = replace(package, graphs={name: each for name, each in package.graphs.items() if not each.absent})
    faults = (*check_graph_contracts(there), *check_replacement(there), *check_geometry(package))
    return ordered((*files, *check_speech(package), *problems_of(faults, package.places)))
