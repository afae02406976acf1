"""Read a package's document into plain dicts whose mapping keys are all strings."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.reference.values import Document, ReferenceError

NAMES = ("inference_metadata.yaml", "inference_metadata.yml", "inference_metadata.json")


class _Loader(yaml.SafeLoader):
    """YAML with the scalars of version 1.2: `yes` and `on` are strings, `1e-5` is a number."""


_OWN = {f"tag:yaml.org,2002:{kind}" for kind in ("bool", "float", "timestamp")}
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in _OWN]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(?:true|false)$"), list("tf"))
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?$"),
    list("-+0123456789."),
)


def _string_keys(node: Any) -> Any:
    if isinstance(node, dict):
        return {_key(key): _string_keys(value) for key, value in node.items()}
    return [_string_keys(item) for item in node] if isinstance(node, list) else node


def _key(key: object) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def read_document(package: Path) -> Document:
    """The metadata document of a package folder. Raises ReferenceError of kind artifact when there is none."""
    for name in NAMES:
        if (package / name).is_file():
            loaded = yaml.load((package / name).read_text("utf-8"), _Loader)
            return dict(_string_keys(loaded))
    raise ReferenceError("artifact", f"no inference metadata in {package.name}")


def steps_below(steps: list[Document]) -> Iterator[Document]:
    """Every step of a tree, parents before children."""
    for step in steps:
        yield step
        yield from steps_below(child_steps(step))


def child_steps(step: Document) -> list[Document]:
    """The steps directly inside a step."""
    match step["kind"]:
        case "sequence":
            return list(step["steps"])
        case "loop":
            return [*step.get("setup", []), *step["steps"]]
        case "branch":
            default = [step["default"]] if step.get("default") else []
            return [*step["cases"].values(), *default]
        case _:
            return []
