"""The names of a configuration against the ports of a graph: the matching under way, and how ports are spelled."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from onnx import ModelProto

from genai_compiler.lower.decoder_facts import PromptWindow
from genai_compiler.problem import Problem, Severity
from genai_compiler.read.genai_config import GenaiConfig, named
from genai_compiler.read.places import DocPath
from genai_compiler.read.signature import Port, Signature

INPUTS: DocPath = ("model", "decoder", "inputs")
OUTPUTS: DocPath = ("model", "decoder", "outputs")


@dataclass(frozen=True)
class Joined:
    """Stages as one graph, for a decoder that is cut into several. two_phases: others run with the prompt.

    window: how prompts are cut, None where they go in whole.
    """

    model: ModelProto
    signature: Signature
    two_phases: bool
    window: PromptWindow | None


@dataclass(frozen=True)
class Surroundings:
    """What is known of inputs from beyond the block. fed: input -> the workflow value that a stage feeds it with.

    unread: inputs that no node of the graph reads; zeros: inputs that are fed a constant 0. tokens: the port of the
    model that makes embeddings of tokens; streams: the decoder's inputs that it feeds. joined: the stages that the
    decoder is cut into.
    """

    tokens: Port | None = None
    streams: frozenset[str] = frozenset()
    fed: Mapping[str, str] = field(default_factory=dict[str, str])
    unread: frozenset[str] = frozenset()
    zeros: tuple[Port, ...] = ()
    joined: Joined | None = None


@dataclass
class Matching:
    """The matching under way: ports not yet claimed, and problems."""

    config: GenaiConfig
    inputs: dict[str, Port]
    outputs: dict[str, Port]
    unclaimed: dict[str, Port]
    problems: list[Problem] = field(default_factory=list)

    def problem(self, code: str, path: DocPath, what: str, help: str = "") -> None:
        self.problems.append(Problem(code, *named(self.config, path), what, help))

    def warn(self, code: str, path: DocPath, what: str, help: str = "") -> None:
        self.problems.append(Problem(code, *named(self.config, path), what, help, Severity.WARNING))

    def claim(self, key: str) -> Port | None:
        name = self.config.decoder.inputs[key]
        self.unclaimed.pop(name, None)
        return self.inputs.get(name) if name else None


def template_layers(template: str, names: Iterable[str]) -> dict[int, str]:
    """Layer number -> name, for the names that a printf template with one integer (`past.%d.key`) gives.

    As in the reference, the slot is `%` and one letter. A template without a slot is the name of layer 0.
    """
    if "%" not in template:
        return {0: template} if template in names else {}
    prefix, _, rest = template.partition("%")
    pattern = re.compile(re.escape(prefix) + r"(0|[1-9][0-9]{0,5})" + re.escape(rest[1:]))
    found = {int(match[1]): match[0] for name in names if (match := pattern.fullmatch(name))}
    return dict(sorted(found.items()))


def spell_port(port: Port) -> str:
    """`float32 [batch, 2, ?, 16]`, for messages."""
    if port.shape is None:
        return f"{port.dtype} of unknown rank"
    return f"{port.dtype} [{', '.join(_spell_extent(each) for each in port.shape)}]"


def _spell_extent(extent: int | str | None) -> str:
    if extent is None:
        return "?"
    return str(extent) if str(extent).isprintable() else repr(extent)


def rank_of(port: Port) -> int | None:
    """The number of axes, None when the graph does not say."""
    return None if port.shape is None else len(port.shape)


def filled(template: str, layer: int) -> str:
    """The name that a template gives for a layer."""
    prefix, slot, rest = template.partition("%")
    return f"{prefix}{layer}{rest[1:]}" if slot else template


def listed(names: Iterable[str], most: int = 8) -> str:
    """Names for a message, the first few of many."""
    every = list(names)
    return ", ".join(map(repr, every[:most])) + (f" and {len(every) - most} more" if len(every) > most else "")
