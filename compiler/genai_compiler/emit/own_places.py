"""The document that a package's author wrote, as far as places in it are told: what it holds, and on which line.

Steps of a lowered workflow that run no graph stand at the section that speaks of what they do.
"""

import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from genai_compiler.problem import CompileError, Place
from genai_compiler.read.config_json import parse_config
from genai_compiler.read.files import read_document
from genai_compiler.read.load import BARE, COMPOSITE, GENAI_CONFIG, GENAI_CONFIG_V2
from genai_compiler.read.package import Package
from genai_compiler.read.places import DocPath, format_path
from genai_compiler.read.wording import value_at

Kind = Literal["graph", "choose", "emit"]
COMPONENT = "<component>"
"""In a path: the name of the component that runs."""
SECTIONS: Mapping[str, Mapping[Kind, Sequence[DocPath]]] = {
    GENAI_CONFIG: {
        "graph": [("model", COMPONENT), ("model",)],
        "choose": [("search",), ("model",)],
        "emit": [("model",)],
    },
    GENAI_CONFIG_V2: {
        "graph": [("pipeline", "sessions", COMPONENT), ("pipeline", "sessions"), ("pipeline",)],
        "choose": [("generation",), ("pipeline",)],
        "emit": [("tokens",), ("pipeline",)],
    },
    BARE: {
        "graph": [("model", "io")],
        "choose": [("generation", "defaults"), ("generation",), ("model", "io")],
        "emit": [("model", "io")],
    },
    COMPOSITE: {
        "graph": [("pipeline", "models", COMPONENT), ("pipeline", "models")],
        "choose": [("generation", "defaults"), ("generation",), ("pipeline", "strategy"), ("pipeline",)],
        "emit": [("pipeline", "strategy"), ("pipeline",)],
    },
}
"""Dialect -> kind of step -> the sections that may speak of it, the first that is there. A plain folder has none."""
ADAPTED: Mapping[str, DocPath] = {"genai-compile.diffusion@1": ("pipeline", "strategy")}
"""Adapter of the runtime -> the section that it does the bidding of."""
SAMPLING = ("do_sample", "temperature", "top_k", "top_p")
"""Keys of a plain folder's generation_config.json that say how tokens are chosen."""


@dataclass(frozen=True)
class OwnDocument:
    """file: its name. data: what it holds; None where only Python reads it. key: where the key of a path stands."""

    file: str
    data: object
    key: Callable[[DocPath], Place]

    def holds(self, path: DocPath) -> bool:
        """Whether the document has a value there; one that is null is none."""
        return value_at(self.data, path) is not None

    def told(self, path: DocPath) -> str:
        """`genai_config.json:16 model.decoder.filename`."""
        return f"{self.key(path)} {format_path(path)}"

    def first(self, paths: Sequence[DocPath]) -> str:
        """The first of these that the document has, or its name."""
        return next((self.told(each) for each in paths if self.holds(each)), self.file)

    def files(self) -> dict[str, DocPath]:
        """The path of each text that may name a file; of two that say the same the first counts."""
        return dict(reversed([(posixpath.normpath(text), path) for text, path in _texts(self.data, ())]))


def own_document(package: Package) -> OwnDocument:
    """The document that was lowered; a configuration is read as leniently as before."""
    file = package.document_file
    if package.dialect in (BARE, COMPOSITE):
        data, places = read_document(package.root / file, package.root)
        return OwnDocument(file, data, places.find)
    return _configuration(package, file)


def sampling_place(package: Package) -> str:
    """Where a folder that declares nothing says how tokens are chosen, "" where it does not."""
    file = package.text.generation_config
    if file is None:
        return ""
    return _configuration(package, file).first([(each,) for each in SAMPLING])


def _configuration(package: Package, file: str) -> OwnDocument:
    try:
        text = parse_config((package.root / file).read_bytes(), file)
    except CompileError:  # in the JSON that only Python reads: its values have no places
        return OwnDocument(file, None, lambda path: Place(file))
    return OwnDocument(file, text.root, text.key_place)


def _texts(value: object, path: DocPath) -> Iterator[tuple[str, DocPath]]:
    """Texts of a document and where they stand, in its order."""
    if isinstance(value, str):
        yield value, path
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from _texts(each, (*path, key))
    elif isinstance(value, list):
        for at, each in enumerate(value):
            yield from _texts(each, (*path, at))
