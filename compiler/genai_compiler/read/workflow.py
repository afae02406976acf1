"""The executable part of a document: `pipeline.workflow` (section 2 of the metadata standard)."""

from pydantic import Field

from genai_compiler.read.components import Component, EffectContract
from genai_compiler.read.contracts import WorkflowInput, WorkflowOutput
from genai_compiler.read.fields import Closed, Items, UniqueNames
from genai_compiler.read.state import Serving, StateCell
from genai_compiler.read.steps import Step


class Manifest(Closed):
    """Exact adapter ABI pins {abi: version} and the declared capabilities."""

    adapter_abis: dict[str, str] = Field(default_factory=dict)
    capabilities: UniqueNames = ()


class Workflow(Closed):
    """What runs: typed inputs, outputs, components and state, and the root sequence of steps."""

    manifest: Manifest
    inputs: dict[str, WorkflowInput] = Field(default_factory=dict)
    outputs: dict[str, WorkflowOutput] = Field(default_factory=dict)
    components: dict[str, Component]
    state: dict[str, StateCell] = Field(default_factory=dict)
    effects: dict[str, EffectContract] = Field(default_factory=dict)
    serving: Serving | None = None
    steps: Items[Step]


class Pipeline(Closed):
    """The holder of the workflow."""

    workflow: Workflow
