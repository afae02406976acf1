"""One graph of a folder that declares nothing, with what its ports tell of it."""

from dataclasses import dataclass

from onnx import ModelProto

from genai_compiler.lower.matching import rank_of
from genai_compiler.lower.plain_ports import PlainPorts
from genai_compiler.read.signature import Port, Signature

_INTEGERS = ("int64", "int32")


@dataclass(frozen=True)
class Candidate:
    """A graph of the folder, and the ports of a decoder as far as it has them."""

    artifact: str
    model: ModelProto
    signature: Signature
    ports: PlainPorts

    @property
    def form(self) -> tuple[frozenset[tuple[str, int | None]], frozenset[tuple[str, int | None]]]:
        """Names and ranks of its ports: types differ from one variant to another."""
        inputs, outputs = self.signature.inputs, self.signature.outputs
        return frozenset((x.name, rank_of(x)) for x in inputs), frozenset((x.name, rank_of(x)) for x in outputs)

    @property
    def merged(self) -> bool:
        """Whether it holds two networks behind a flag."""
        return self.ports.keeps and any(x.dtype == "bool" and x.shape in ((), (1,)) for x in self.signature.inputs)

    @property
    def decodes(self) -> bool:
        """Whether it keeps state, or gives logits over token ids of its own."""
        return self.ports.keeps or "logits_output" in self.ports.io

    def is_network_of(self, other: "Candidate") -> bool:
        """Whether the other one has all its ports: it is one of the two networks there."""
        (mine, made), (inputs, outputs) = self.form, other.form
        return other.merged and not self.merged and self.decodes and mine < inputs and made <= outputs


def flat_integers(signature: Signature) -> list[Port]:
    """The inputs that could be token ids by their form: integers, [rows, tokens]."""
    return [each for each in signature.inputs if each.dtype in _INTEGERS and rank_of(each) == 2]


def alike(made: Port, port: Port) -> bool:
    """Whether an output has an input's type, rank and last extent."""
    one, other = (made.shape or (None,))[-1], (port.shape or (None,))[-1]
    return made.dtype == port.dtype and rank_of(made) == rank_of(port) and one == other
