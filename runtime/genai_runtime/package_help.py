"""What a compiled folder takes and gives, for `genai-run DIR --help`: said from its manifest, nothing is opened."""

import json
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from genai_runtime.problem import printable

if TYPE_CHECKING:
    from genai_runtime.manifest import Manifest

Data = Mapping[str, Any]
"""A manifest's content."""
TEXT, PICTURES, SPEECH, TASKS = "text", "pictures", "speech", "tasks"
DRAFTS, ADAPTERS = "drafts", "adapters"
_BY_ROLE = {
    "negative_prompt_tokens": "--negative-prompt",
    "max_output_tokens": "-n",
    "max_iterations": "-n",
    "sampling_temperature": "--temperature",
    "sampling_top_k": "--top-k",
    "sampling_top_p": "--top-p",
    "sampling_min_p": "--min-p",
    "seed": "--seed",
    "guidance_scale": "--guidance-scale",
    "denoising_strength": "--strength",
    "width": "--width",
    "height": "--height",
}
"""Role -> the option that gives a value for it."""
_DRAWN = {"max_iterations": "--steps", "max_output_tokens": "--steps"}
_WIDEST = 48
"""Characters of a name or a type behind which nothing is lined up any more."""


class PackageHelp(NamedTuple):
    """The lines, and what the package makes: some of TEXT, PICTURES, SPEECH, TASKS.

    takes: the kinds of files that go in, `image` and `audio`; DRAFTS and ADAPTERS where it has such.
    """

    text: str
    makes: frozenset[str]
    takes: frozenset[str]


def package_help(folder: Path) -> PackageHelp:
    """What there is to say of a folder. Raises LoadError as loading it does, as far as the manifest tells; OSError."""
    from genai_runtime.abi import ABI_VERSION
    from genai_runtime.manifest import read_manifest

    manifest = read_manifest(folder, ABI_VERSION)
    makes = frozenset(_made(manifest.data))
    lines = (*_lines(manifest.data, makes), "for example", *(f"  {each}" for each in _examples(manifest, makes)))
    return PackageHelp("\n".join(map(printable, lines)), makes, frozenset(_taken(manifest.data)))


def _made(data: Data) -> Iterator[str]:
    roles = [each["role"] for each in data["outputs"]]
    if data["generation"]["tokens_output"]:
        yield TEXT
    elif "image" in roles:
        yield PICTURES
    if data["speech"]["assemblies"] and data["speech"]["outputs"]:
        yield SPEECH
    if data["profiles"]:
        yield TASKS


def _taken(data: Data) -> Iterator[str]:
    yield from (each["kind"] for each in data["media"])
    if data["sound"] is not None:
        yield "audio"
    if data["speculation"] is not None and data["speculation"]["driven"]:
        yield DRAFTS
    if data["adapters"].get("artifacts"):
        yield ADAPTERS


def _lines(data: Data, makes: frozenset[str]) -> Iterator[str]:
    words = [each for each in (TEXT, PICTURES, SPEECH) if each in makes]
    yield f"{data['name']} ({data['dialect']}) makes {' and '.join(words) or 'what its outputs say'}"
    yield "it takes"
    yield from _table([_input(each, data, makes) for each in data["inputs"] if each["source"] != "literal"])
    yield "it gives"
    yield from _table([(each["name"], each["type"], _given_by(each, makes)) for each in data["outputs"]])
    for each in data["profiles"]:
        yield f"  --task {each['name']}: {each['kind']} of {', '.join(map(str, each['outputs'].values()))}"
    if context := data["generation"]["context_length"]:
        whose = "prompt and output have" if data["generation"]["prompt_decoded"] else "the output has"
        yield f"{whose} {context} tokens at most"
    if aliases := [each["alias"] for each in data["adapters"].get("artifacts", ())]:
        yield f"adapters: {', '.join(f'--adapter {each}' for each in aliases)}"


def _input(spec: Data, data: Data, makes: frozenset[str]) -> tuple[str, str, str]:
    """Name, type, and how the command line gives it."""
    from genai_runtime.description import is_asked_for

    how = _option(spec, data, makes)
    default, asked = spec["default"], is_asked_for(spec)
    plain = isinstance(default, int | float) and not asked
    needed = ", required" if asked and how not in _BY_ROLE.values() else f" (default {default})" if plain else ""
    return _name(spec), spec["type"], f"{how}{needed}"


def _name(spec: Data) -> str:
    return str(spec["application"] or spec["name"])


def _option(spec: Data, data: Data, makes: frozenset[str]) -> str:
    kinds = [each["kind"] for each in data["media"] if each["input"] == spec["name"]]
    if data["sound"] is not None and data["sound"]["input"] == spec["name"]:
        kinds = ["audio"]
    if kinds:
        return f"--{kinds[0]} FILE"
    if spec["role"] == "prompt_tokens":
        ways = "--prompt, --chat, --tokens or standard input" if TEXT in makes else "--prompt or --tokens"
        return ways if makes & {TEXT, PICTURES} else f"{ways} with --task"
    option = {**_BY_ROLE, **(_DRAWN if PICTURES in makes else {})}.get(spec["role"], "")
    if option and makes & {TEXT, PICTURES}:
        return option
    value = f"--input {_name(spec)}=VALUE"
    return value if PICTURES in makes else f"{value} with --task" if TASKS in makes else "run(inputs) in Python"


def _given_by(output: Data, makes: frozenset[str]) -> str:
    if output["role"] == "tokens":
        return "printed as text; as ids with --tokens"
    if output["role"] == "image" and PICTURES in makes:
        return "written with -o FILE.png"
    return "run(inputs) in Python"


def _table(rows: list[tuple[str, str, str]]) -> Iterator[str]:
    names, types = (min(_WIDEST, max((len(row[at]) for row in rows), default=0)) for at in (0, 1))
    yield from (f"  {name:<{names}}  {kind:<{types}}  {how}".rstrip() for name, kind, how in rows)


def _examples(manifest: "Manifest", makes: frozenset[str]) -> Iterator[str]:
    """Commands that fit the package; a FILE and a VALUE are the caller's."""
    data, start = manifest.data, f"genai-run {shlex.quote(str(manifest.folder))}"
    files = "".join(f" --{each['kind']} FILE" for each in data["media"] if each["required"])
    files += " --audio FILE.wav" if data["sound"] is not None and "--audio" not in files else ""
    text = data["text"]["tokenizer"] is not None
    prompt = any(each["role"] == "prompt_tokens" for each in data["inputs"])
    if TEXT in makes:
        yield f"{start} {_asked('Once upon a time', text)} -n 64{files}"
        if text and _has_template(manifest):
            yield f'{start} --chat "What is the capital of France?"{files}'
    if PICTURES in makes:
        unsaid = [
            each["role"] for each in data["inputs"] if each["role"] in ("width", "height") and not each["default"]
        ]
        size = "".join(f" --{each} PIXELS" for each in unsaid)
        yield f"{start} {_asked('a red boat', text)}{size} --seed 7 -o boat.png{files}"
    if SPEECH in makes:
        yield f'{start} --speech "Good morning." -o morning.wav'
    for each in data["profiles"][:1]:
        asked = f" {_asked('Once upon a time', text)}" if prompt else ""
        yield f"{start} --task {each['name']}{asked}{''.join(_values(data, makes))}{files}"
    if not makes:
        yield f"{start} --describe"


def _values(data: Data, makes: frozenset[str]) -> Iterator[str]:
    """What a task asks for that has no option of its own."""
    from genai_runtime.description import is_asked_for

    named = (_option(each, data, makes) for each in data["inputs"] if is_asked_for(each))
    yield from (f" {each.removesuffix(' with --task')}" for each in named if each.startswith("--input "))


def _asked(words: str, text: bool) -> str:
    """A prompt of words; of ids where the package has no tokenizer."""
    return f'--prompt "{words}"' if text else "--tokens 1,2,3"


def _has_template(manifest: "Manifest") -> bool:
    """Whether the package has a chat template: a file of its own, or an entry of the tokenizer's configuration."""
    text = manifest.data["text"]
    if text["chat_template"]:
        return True
    try:
        stated = json.loads((manifest.package / (text["tokenizer_config"] or "")).read_text("utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(stated, dict) and bool(stated.get("chat_template"))
