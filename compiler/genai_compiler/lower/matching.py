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
    """Stages of later tokens as one graph, for a decoder that is cut into several, of which others run with the prompt.

    prompt: those as a graph, None where they are the same. window: how prompts are cut, None where they go in whole.
    shifts: the caches move by what a run adds.
    """

    model: ModelProto
    signature: Signature
    prompt: tuple[ModelProto, Signature] | None
    window: PromptWindow | None
    shifts: bool = False


@dataclass(frozen=True)
class Surroundings:
    """What is known of inputs from beyond the block. fed: input -> the workflow value that a stage feeds it with.

    unread: inputs that no node of the graph reads; zeros: inputs that are fed a constant 0. tokens: the port of the
    model that makes embeddings of tokens; streams: the decoder's inputs that it feeds. flag: the input that picks one
    network for the prompt and one for later tokens; crossed: (past, present) of the caches that the first gives.
    over_source: masks over what an encoder gives. joined: the stages that the decoder is cut into. combined: (past,
    present) of the caches that hold keys and values together. looked_up: inputs behind a model that makes embeddings
    which look into a table of the vocabulary all the same.
    """

    tokens: Port | None = None
    streams: frozenset[str] = frozenset()
    fed: Mapping[str, str] = field(default_factory=dict[str, str])
    unread: frozenset[str] = frozenset()
    zeros: tuple[Port, ...] = ()
    flag: Port | None = None
    crossed: tuple[tuple[str, str], ...] = ()
    over_source: frozenset[str] = frozenset()
    joined: Joined | None = None
    combined: tuple[tuple[str, str], ...] = ()
    looked_up: frozenset[str] = frozenset()


@dataclass
class Matching:
    """The matching under way: ports not yet claimed, pasts that no present has been found for, and problems."""

    config: GenaiConfig
    inputs: dict[str, Port]
    outputs: dict[str, Port]
    unclaimed: dict[str, Port]
    unpaired: dict[str, Problem] = field(default_factory=dict[str, Problem])
    problems: list[Problem] = field(default_factory=list)

    def problem(self, code: str, path: DocPath, what: str, help: str = "") -> None:
        self.problems.append(Problem(code, *named(self.config, path), what, help))

    def warn(self, code: str, path: DocPath, what: str, help: str = "") -> None:
        self.problems.append(Problem(code, *named(self.config, path), what, help, Severity.WARNING))

    def claim(self, key: str) -> Port | None:
        name = self.config.decoder.inputs[key]
        self.unclaimed.pop(name, None)
        return self.inputs.get(name) if name else None


_SLOT = re.compile(r"%0(?P<width>[1-9])d|%(?P<letter>.)|\{\w*\}", re.DOTALL)
"""Where a layer's number goes: printf's (`%d`, `%i`, `%02d`), or `{layer}`, `{i}`, `{}` as other formats write it."""


def template_layers(template: str, names: Iterable[str]) -> dict[int, str]:
    """Layer number -> name, for the names that a template with one integer (`past.%d.key`) gives.

    A template without a slot is the name of layer 0, and so is one that is a name itself, slot or not.
    """
    names = list(names)
    slot = _SLOT.search(template)
    if slot is None or template in names:
        return {0: template} if template in names else {}
    number = rf"([0-9]{{{slot['width']}}}|[1-9][0-9]{{{slot['width']},5}})" if slot["width"] else "(0|[1-9][0-9]{0,5})"
    pattern = re.compile(re.escape(template[: slot.start()]) + number + re.escape(template[slot.end() :]))
    found = {int(match[1]): match[0] for name in names if (match := pattern.fullmatch(name))}
    return dict(sorted(found.items()))


def has_slot(template: str) -> bool:
    """Whether a template has a place for a layer's number."""
    return _SLOT.search(template) is not None


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
    slot = _SLOT.search(template)
    if slot is None:
        return template
    number = f"{layer:0{slot['width']}d}" if slot["width"] else str(layer)
    return template[: slot.start()] + number + template[slot.end() :]


def listed(names: Iterable[str], most: int = 8) -> str:
    """Names for a message, the first few of many."""
    every = list(names)
    return ", ".join(map(repr, every[:most])) + (f" and {len(every) - most} more" if len(every) > most else "")
