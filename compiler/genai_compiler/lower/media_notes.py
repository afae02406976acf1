"""What a dialect says of its media beside the graphs, and the file that says how tensors are made of files."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from genai_compiler.problem import CompileError, Place, Problem, Severity
from genai_compiler.read.artifacts import ArtifactFault, find_artifact
from genai_compiler.read.config_json import ConfigText, parse_config

IMAGE, AUDIO = "image", "audio"
NAMES: Mapping[str, tuple[str, ...]] = {
    IMAGE: ("processor_config.json", "image_processor.json", "vision_processor.json", "preprocessor_config.json"),
    AUDIO: (
        "audio_processor_config.json",
        "audio_feature_extraction.json",
        "audio_processor.json",
        "speech_processor.json",
        "preprocessor_config.json",
        "processor_config.json",
    ),
}
"""Where processor files lie; which of them is one tells its content, not its name."""


PATCH, MERGE, AREA = "patch", "merge", "area"
"""What a number is said of: pixels of a patch's edge, patches of an entry's edge, patches of an entry."""


@dataclass(frozen=True)
class SaidNumber:
    """A number that is said of a medium. of: PATCH, MERGE or AREA; key: its name; spot: where it stands."""

    of: str
    key: str
    value: int
    spot: tuple[Place, str]


@dataclass(frozen=True)
class Said:
    """What is said of one medium. config: the processor file, None: not stated; spot: where that stands, or would.

    program: the document's own program. token: the id that stands for an entry in a prompt; plain: it stands for a
    picture itself. count: entries of a picture; frames: of a sound, for which an entry stands. token_spot: where the
    token stands; numbers: what else is said.
    """

    config: str | None = None
    spot: tuple[Place, str] = (Place(""), "")
    program: Mapping[str, Any] | None = None
    token: int | None = None
    plain: bool = False
    count: int | None = None
    frames: int | None = None
    token_spot: tuple[Place, str] = (Place(""), "")
    numbers: tuple[SaidNumber, ...] = ()


@dataclass(frozen=True)
class MediaNotes:
    """What is said of the media of the package in `root`, by medium."""

    root: Path
    said: Mapping[str, Said]


def processor_file(
    root: Path, kind: str, said: Said, describes: Callable[[ConfigText], bool]
) -> tuple[str | None, tuple[Problem, ...]]:
    """(the file that describes the medium, problems): the one that is named, if its content is that; else another.

    Problems: missing-file and the like for a named file; bad-processor where no file describes the medium although
    one is named; missing-file, a warning, where none is there.
    """
    problems: list[Problem] = []
    names = NAMES[kind]
    if said.config is not None:
        try:
            names = (find_artifact(root, said.config).name, *names)
        except ArtifactFault as fault:
            return None, (fault.problem(*said.spot),)
    for name in names:
        text, faults = file_text(root, name)
        problems += faults
        if text is not None and describes(text):
            return name, tuple(problems)
    if said.config is not None:
        what = f"{said.config!r} describes no processor of {kind} files, and neither does another file of the package"
        return None, (*problems, Problem("bad-processor", *said.spot, what, "name the file that does"))
    what = f"no processor file says how {kind} files become tensors: {kind} goes in as tensors that the caller makes"
    help = f"add the model's own {NAMES[kind][0]}"
    return None, (*problems, Problem("missing-file", *said.spot, what, help, Severity.WARNING))


def file_text(root: Path, name: str) -> tuple[ConfigText | None, list[Problem]]:
    """(what a file holds, None where it is absent or can't be read; problems of an unreadable one)."""
    try:
        file = find_artifact(root, name)
        return parse_config(file.file.read_bytes(), file.name), []
    except ArtifactFault as fault:
        return None, [] if fault.code == "missing-file" else [fault.problem(Place(name), "")]
    except CompileError as error:
        return None, list(error.problems)
