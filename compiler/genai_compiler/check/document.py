"""A whole document: every structural rule at once, each fault at its place (standard, 12.3-12.11)."""

from genai_compiler.check.audio_program import check_audio_program
from genai_compiler.check.capabilities import check_capabilities
from genai_compiler.check.components import check_components
from genai_compiler.check.contracts_io import check_contracts_io
from genai_compiler.check.effects_rows import check_effects_rows
from genai_compiler.check.fault import Faults
from genai_compiler.check.generation_profiles import check_generation_profiles
from genai_compiler.check.group_ports import check_group_ports
from genai_compiler.check.groups import check_groups
from genai_compiler.check.image_program import check_image_program
from genai_compiler.check.lora_artifacts import check_adapters
from genai_compiler.check.lora_targets import check_overlays, check_service
from genai_compiler.check.preprocessing import check_preprocessing
from genai_compiler.check.problems import problems_of
from genai_compiler.check.rollback import check_rollback
from genai_compiler.check.serving import check_serving
from genai_compiler.check.sessions import check_sessions
from genai_compiler.check.speculative import check_speculative
from genai_compiler.check.state_cells import check_cells
from genai_compiler.check.steps import check_steps
from genai_compiler.check.walk import Walk
from genai_compiler.problem import Problem
from genai_compiler.read.document import Metadata, Workflow
from genai_compiler.read.places import Places


def check_document(metadata: Metadata, places: Places) -> tuple[Problem, ...]:
    """Every problem that the document has by itself, without its files, ordered by place."""
    return problems_of(_faults(metadata), places)


def _faults(metadata: Metadata) -> Faults:
    workflow = metadata.pipeline.workflow if metadata.pipeline is not None else None
    yield from check_generation_profiles(metadata)
    if metadata.adapters is not None:
        yield from check_service(metadata.adapters, workflow)
        yield from check_adapters(metadata.adapters)
    if metadata.speculative is not None:
        yield from check_speculative(metadata.speculative, workflow)
        if workflow is not None:
            yield from check_rollback(metadata.speculative, workflow)
    if metadata.preprocessing is not None and metadata.preprocessing.audio is not None:
        yield from check_audio_program(metadata.preprocessing.audio)
    if metadata.preprocessing is not None and metadata.preprocessing.image is not None:
        yield from check_image_program(metadata.preprocessing.image)
    if workflow is not None:
        yield from _workflow(metadata, workflow)


def _workflow(metadata: Metadata, workflow: Workflow) -> Faults:
    for check in (
        check_contracts_io,
        check_components,
        check_effects_rows,
        check_cells,
        check_sessions,
        check_groups,
        check_group_ports,
    ):
        yield from check(workflow)
    yield from check_capabilities(metadata, workflow)
    yield from check_preprocessing(metadata, workflow)
    yield from check_overlays(metadata, workflow)
    walk = Walk(workflow)
    end = check_steps(walk)
    yield from walk.faults
    yield from check_serving(workflow, end)
