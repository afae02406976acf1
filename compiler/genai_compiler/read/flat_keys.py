"""Where the flat keys of a feature extractor stand: in a file's root, or in its part for sound."""

from collections.abc import Callable, Mapping

from genai_compiler.read.config_json import Json
from genai_compiler.read.places import DocPath

Members = Mapping[str, Json]
PARTS = ("feature_extractor", "audio_processor")


def members_of(root: Json, is_one: Callable[[Members], bool]) -> tuple[Members, DocPath] | None:
    """(the members of the first object that is one, where they stand), None where none is."""
    if not isinstance(root, dict):
        return None
    places: list[tuple[Json, DocPath]] = [(root, ()), *((root.get(key), (key,)) for key in PARTS)]
    return next(((part, at) for part, at in places if isinstance(part, dict) and is_one(part)), None)
