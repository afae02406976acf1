"""The manifest's part about the whole document: identity, what a cached result depends on, profiles, sessions."""

from typing import Any

from genai_compiler.plan.dependencies import cache_dependencies
from genai_compiler.plan.ir import Plan
from genai_compiler.plan.of_request import published_input
from genai_compiler.plan.task_views import TaskView, task_views
from genai_compiler.read.document import Bounded, Growing, SequenceDecoding
from genai_compiler.read.package import Package


def task_facts(plan: Plan, package: Package) -> dict[str, Any]:
    """Entries of the manifest, as plain data."""
    views, _, _ = task_views(package)
    return {
        "identity": package.identity,
        "cache_dependencies": cache_dependencies(package.metadata),
        "profiles": [_profile(each, plan) for each in views],
        "session_cells": [
            {"name": each.name, "dtype": each.type.dtype, "shape": list(each.type.dims)}
            for each in plan.cells
            if each.scope == "session" and package.workflow.state[each.name].state_class == "semantic"
        ],
        "continuation": _continuation(package),
    }


def _profile(view: TaskView, plan: Plan) -> dict[str, Any]:
    profile, pooling = view.profile, view.profile.pooling
    return {
        "name": view.name,
        "kind": profile.kind,
        "version": profile.version,
        "batch_invariance": profile.batch_invariance or "",
        "generation_affecting": profile.generation_affecting,
        "outputs": dict(profile.outputs),
        "source": view.source,
        "lengths": view.lengths,
        "mask": view.mask,
        "marks_input": published_input(plan, view.lengths or view.mask),
        "rows": view.rows,
        "pooling": None if pooling is None else pooling.model_dump(),
        "decoding": None if profile.decoding is None else _decoding(profile.decoding),
    }


def _decoding(decoding: SequenceDecoding) -> dict[str, Any]:
    vocabulary = decoding.vocabulary
    return {
        "kind": decoding.kind,
        "blank": decoding.blank_id,
        "collapse_repeats": decoding.collapse_repeats,
        "time_axis": decoding.time_axis,
        "class_axis": decoding.class_axis,
        "vocabulary": None
        if vocabulary is None
        else {
            "tokens": list(vocabulary.tokens) or None,
            "word_delimiter": vocabulary.word_delimiter,
            "ignored_tokens": list(vocabulary.ignored_tokens),
        },
    }


def _continuation(package: Package) -> dict[str, Any] | None:
    """The conversation's cell, the ends it joins, and the input that bounds it (standard, 3.8)."""
    for name, cell in package.workflow.state.items():
        continuation = cell.session.continuation if cell.session is not None else None
        if continuation is not None and isinstance(cell.recurrence, Growing | Bounded):
            bound = package.workflow.inputs[cell.recurrence.max]
            return {
                "cell": name,
                "prompt_input": continuation.prompt_input,
                "tokens_output": continuation.tokens_output,
                "bound": cell.recurrence.max,
                "bound_default": bound.default,
            }
    return None
