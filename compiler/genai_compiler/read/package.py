"""A package as the front end has understood it: one typed document, its graphs' signatures, and who said what."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onnx import ModelProto

from genai_compiler.problem import Problem
from genai_compiler.read.document import Metadata, Workflow
from genai_compiler.read.hint_sources import Hint
from genai_compiler.read.link_graphs import Linked
from genai_compiler.read.places import Places
from genai_compiler.read.prompt_chunk import PromptChunk
from genai_compiler.read.session_options import SessionOptions
from genai_compiler.read.signature import Signature
from genai_compiler.read.text_facts import TextFacts


@dataclass(frozen=True)
class Graph:
    """The graph of one ONNX component. model: the graph without bulk weights. textproto: needs converting for ORT.

    absent: there is no such file; this stands in for it (`absent.stand_in`). linked: it is of several files, and how.
    """

    artifact: str
    signature: Signature
    model: ModelProto
    textproto: bool
    absent: bool = False
    linked: Linked | None = None


@dataclass(frozen=True)
class Package:
    """Everything later stages read.

    dialect: `workflow` as authored, else what it was lowered from. sampled_ids: only token ids below it exist, None:
    all. identity: the document's semantic identity, "" where it was lowered from something else. title: what the plan
    is called, "": the folder's name. complete: every named file must be there; assumptions: what is taken for granted
    where one is not. hints: where the document would have its sessions run. lowered: the document that was made of
    another dialect's, {} for an authored one. chunk: how much of a prompt a run should take, where it says so.
    """

    root: Path
    dialect: str
    document_file: str
    metadata: Metadata
    places: Places
    graphs: Mapping[str, Graph]
    text: TextFacts
    session: SessionOptions = field(default_factory=SessionOptions)
    sampled_ids: int | None = None
    notes: tuple[str, ...] = ()
    warnings: tuple[Problem, ...] = ()
    identity: str = ""
    title: str = ""
    complete: bool = True
    assumptions: tuple[str, ...] = ()
    hints: tuple[Hint, ...] = ()
    lowered: Mapping[str, Any] = field(default_factory=dict[str, Any])
    chunk: PromptChunk | None = None

    @property
    def workflow(self) -> Workflow:
        """The one workflow that is compiled."""
        assert self.metadata.pipeline is not None
        return self.metadata.pipeline.workflow
