"""Where the weights of a graph that was made here really lie, when names in the package are links.

ONNX Runtime opens external data below one folder and follows no link out of it. A hub cache keeps a snapshot as links
into another folder (docs/decisions/0003), so a made graph names the files that the links lead to.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from onnx import ModelProto

from genai_compiler.read.artifacts import find_artifact
from genai_compiler.read.external_data import external_tensors


def follow_links(content: bytes, folder: str, root: Path) -> tuple[bytes, str]:
    """(graph, folder of its weights) with no link left. folder: of the package, that locations are relative to.

    The graph's bytes stay as they are where no link is. The folder may begin with `..`; root: the package's folder.
    """
    model, home = ModelProto.FromString(content), root.resolve()
    files = _real_files(model, folder, root)
    if all(file == home / folder / location for location, file in files.items()):
        return content, folder
    base = Path(os.path.commonpath([file.parent for file in files.values()]))
    for tensor in external_tensors(model):
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = files[entry.value].relative_to(base).as_posix()
    made: bytes = model.SerializeToString(deterministic=True)
    return made, Path(os.path.relpath(base, home)).as_posix()


def _real_files(model: ModelProto, folder: str, root: Path) -> Mapping[str, Path]:
    """External data location -> the file behind it."""
    places = {
        entry.value for tensor in external_tensors(model) for entry in tensor.external_data if entry.key == "location"
    }
    return {each: find_artifact(root, f"{folder}/{each}").file for each in sorted(places)}
