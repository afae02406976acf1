"""What the text files beside a graph say: which ids end a generation, and where tokenizer and template lie.

End ids are the union of every source, because each of them is the only right one in some package (an end-of-turn id in
generation_config.json, a list in genai_config.json, the tokenizer's own end token).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from genai_compiler.problem import CompileError, Place, Problem, Severity
from genai_compiler.read.artifacts import ArtifactFault, find_artifact
from genai_compiler.read.genai_config import CONFIG_NAME, GenaiConfig, named
from genai_compiler.read.json_file import json_of
from genai_compiler.read.places import DocPath, format_path
from genai_compiler.read.token_ids import TokenIds, token_ids
from genai_compiler.read.wording import shown

_PROCESSOR = "processor_config.json"
_MOST_DIGITS = 18  # of an id that is written as a key
_NO_IDS = TokenIds()
MAX_BYTES = 256 << 20  # tokenizers of large vocabularies take tens of MB


@dataclass(frozen=True)
class EndId:
    """One end token id, and the file and key of each source that names it."""

    id: int
    said_by: tuple[str, ...]


@dataclass(frozen=True)
class TextFacts:
    """Token ids and text files. File names are package-relative with `/`; None where the package has no such file.

    bos, pad, decoder_start: None where nobody says; decoder_start begins what a decoder beside an encoder makes.
    context_length: (file, length) of a side file that states one. ids: those that the tokenizer has.
    """

    end_ids: tuple[EndId, ...]
    bos: int | None
    pad: int | None
    tokenizer: str | None
    tokenizer_config: str | None
    chat_template: str | None
    special_tokens_map: str | None
    generation_config: str | None
    context_length: tuple[str, int] | None
    decoder_start: int | None = None
    ids: TokenIds = _NO_IDS

    @property
    def eos(self) -> tuple[int, ...]:
        """The end token ids, in the order the sources give them."""
        return tuple(each.id for each in self.end_ids)


def read_text_facts(root: Path, config: GenaiConfig, vocabulary: int | None) -> tuple[TextFacts, tuple[Problem, ...]]:
    """Collect the facts. `vocabulary`: ids at or above it can't be produced and are dropped with a warning.

    The first source of another id counts whose id is one of the vocabulary.

    Problems: bad-token-id, no-end-token (an error where ids are stated and none of them is one), missing-file
    (tokenizer, a warning: token ids still run), malformed-json.
    """
    problems: list[Problem] = []
    files = _SideFiles(root, config.tokenizer_dir, problems)
    tokenizer = files.load("tokenizer.json")
    side = {name: files.load(name) for name in ("generation_config.json", "tokenizer_config.json", "config.json")}
    special = files.load("special_tokens_map.json")
    ids = _Ids(tokenizer, side["tokenizer_config.json"])
    said = _end_claims(config, side, special, ids)
    end_ids = _checked(said, vocabulary, config, problems)
    first = _FirstIds(config, {files.place(name): stated for name, stated in side.items()}, vocabulary, problems)
    bos = first.of(config.bos, config.bos_path, "bos_token_id", side=1)
    pad = first.stated(config.pad, config.pad_path)
    start = first.of(config.decoder_start, config.start_path, "decoder_start_token_id", side=len(side))
    if not end_ids:
        end_ids = _without_end(bool(said), pad, config, problems)
    if files.name("tokenizer.json") is None:
        problems.append(_without_tokenizer(files))
    facts = TextFacts(
        end_ids=end_ids,
        bos=bos,
        pad=pad if pad is not None else first.beside("pad_token_id", side=1),
        tokenizer=files.name("tokenizer.json"),
        tokenizer_config=files.name("tokenizer_config.json"),
        chat_template=_chat_template(files, side["tokenizer_config.json"]),
        special_tokens_map=files.name("special_tokens_map.json"),
        generation_config=files.name("generation_config.json"),
        context_length=_context_length(side),
        decoder_start=start,
        ids=token_ids(tokenizer),
    )
    return facts, tuple(problems)


@dataclass
class _SideFiles:
    """Optional JSON files of the package; a damaged one is a problem and reads as empty."""

    root: Path
    folder: str
    problems: list[Problem]

    def name(self, name: str) -> str | None:
        """The package-relative name if the file is there."""
        relative = f"{self.folder}/{name}" if self.folder else name
        try:
            return find_artifact(self.root, relative).name
        except ArtifactFault as fault:
            if fault.code != "missing-file":
                self._add(fault.problem(Place(relative), ""))
            elif (self.root / relative).is_symlink():
                self._add(_broken_link(relative, str((self.root / relative).readlink())))
            return None

    def place(self, name: str) -> Place:
        """The file, where it is or would be."""
        return Place(f"{self.folder}/{name}" if self.folder else name)

    def load(self, name: str) -> Mapping[str, Any]:
        relative = self.name(name)
        if relative is None:
            return {}
        try:
            value = json_of(find_artifact(self.root, relative).file, relative, MAX_BYTES)
        except CompileError as damaged:
            for each in damaged.problems:
                self._add(each)
            return {}
        if not isinstance(value, dict):
            what = f"it holds {shown(value)}, and an object is expected"
            self._add(Problem("malformed-json", Place(relative), "", what, "copy the file of the model again"))
            return {}
        return value

    def _add(self, problem: Problem) -> None:
        if problem not in self.problems:
            self.problems.append(problem)


OTHER_FORMS: Mapping[str, str] = {
    "tokenizer.model": "SentencePiece",
    "spiece.model": "SentencePiece",
    "sentencepiece.bpe.model": "SentencePiece",
    "source.spm": "SentencePiece",
    "target.spm": "SentencePiece",
    "merges.txt": "vocabulary and merges",
    "vocab.txt": "a list of word pieces",
    "tokenizer.tiktoken": "ranks",
}
"""Files of tokenizers in forms that are not read, and what they hold."""


def _without_tokenizer(files: _SideFiles) -> Problem:
    """The warning that text can't become ids; forms that are there and not read are named."""
    found = [f"{name} ({kind})" for name, kind in OTHER_FORMS.items() if files.name(name) is not None]
    place = f"{files.folder}/tokenizer.json" if files.folder else "tokenizer.json"
    what = f"there is no {place}: the package runs on token ids only"
    help = f"copy tokenizer.json and tokenizer_config.json of the model beside {CONFIG_NAME}"
    if found:
        what += f"; the tokenizer is there as {', '.join(found)}, a form that is not read"
        help = "convert it: AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER) of the transformers library "
        help += "writes a tokenizer.json"
    return Problem("missing-file", Place(CONFIG_NAME), "", what, help, Severity.WARNING)


def _broken_link(name: str, target: str) -> Problem:
    what = f"{name!r} is a link to {target!r}, where no file is; it counts as absent"
    return Problem("missing-file", Place(name), "", what, "copy the file in place of the link", Severity.WARNING)


def _end_claims(
    config: GenaiConfig,
    side: Mapping[str, Mapping[str, Any]],
    special: Mapping[str, Any],
    ids: "_Ids",
) -> list[tuple[int, str]]:
    """(id, who says so) of every source in turn."""
    said = [(each, f"{CONFIG_NAME} {format_path(config.eos_path)}") for each in config.eos]
    for name in ("generation_config.json", "config.json"):
        said += [(each, f"{name} eos_token_id") for each in _listed(side[name].get("eos_token_id"))]
    for name, holder in (
        ("tokenizer_config.json", side["tokenizer_config.json"]),
        ("special_tokens_map.json", special),
    ):
        token = _content(holder.get("eos_token"))
        if token is not None and (number := ids.of(token)) is not None:
            said.append((number, f"{name} eos_token {token!r}"))
    return said


def _checked(
    said: list[tuple[int, str]], vocabulary: int | None, config: GenaiConfig, problems: list[Problem]
) -> tuple[EndId, ...]:
    sources: dict[int, list[str]] = {}
    for each, who in said:
        sources.setdefault(each, []).append(who)
    for each in list(sources):
        if each < 0 or (vocabulary is not None and each >= vocabulary):
            limit = f"the vocabulary has {vocabulary} ids" if each >= 0 else "ids count from 0"
            what = f"end token {each} ({'; '.join(sources.pop(each))}) is left out: {limit}"
            problems.append(_warning(config, what, "correct the id", "bad-token-id"))
    return tuple(EndId(each, tuple(dict.fromkeys(who))) for each, who in sources.items())


def _without_end(said: bool, pad: int | None, config: GenaiConfig, problems: list[Problem]) -> tuple[EndId, ...]:
    """The pad token, where nobody names an end token; the caller is told. said: ids were, and none is one."""
    help = f"state {format_path(config.eos_path)}"
    if said:
        what = "no end token is left: every id that is stated for one is none of the vocabulary"
        problems.append(replace(_warning(config, what, help), severity=Severity.ERROR))
        return ()
    if pad is None:
        what = "no end token is named anywhere: generation stops only at its length limit"
        problems.append(_warning(config, what, help))
        return ()
    what = "no end token is named anywhere; the pad token ends a generation, as it does in the reference runtime"
    problems.append(_warning(config, what, help))
    return (EndId(pad, (f"{CONFIG_NAME} {format_path(config.pad_path)}",)),)


@dataclass
class _FirstIds:
    """Ids of which there is one: the configuration's, else what the files beside it say. side: by file, in order.

    An id that no logit belongs to (exporters write -1 for "none") is told, and counts as not stated.
    """

    config: GenaiConfig
    side: Mapping[Place, Mapping[str, Any]]
    vocabulary: int | None
    problems: list[Problem]

    def of(self, own: int | None, path: DocPath, key: str, side: int) -> int | None:
        """The configuration's id, else that of the first so many files."""
        stated = self.stated(own, path)
        return stated if stated is not None else self.beside(key, side)

    def stated(self, own: int | None, path: DocPath) -> int | None:
        return self._in_vocabulary(own, str(path[-1]), *named(self.config, path))

    def beside(self, key: str, side: int) -> int | None:
        for place, stated in list(self.side.items())[:side]:
            found = self._in_vocabulary(next(iter(_listed(stated.get(key))), None), key, place, key)
            if found is not None:
                return found
        return None

    def _in_vocabulary(self, each: int | None, key: str, place: Place, path: str) -> int | None:
        if each is None or (each >= 0 and (self.vocabulary is None or each < self.vocabulary)):
            return each
        what = f"{key} is {each}, which is no id of the vocabulary; it counts as not stated"
        self.problems.append(Problem("bad-token-id", place, path, what, "correct the id", Severity.WARNING))
        return None


def _chat_template(files: "_SideFiles", tokenizer_config: Mapping[str, Any]) -> str | None:
    """The file with the chat template; a processor's counts where nothing else has one."""
    own = files.name("chat_template.jinja") or files.name("chat_template.json")
    if own is not None or tokenizer_config.get("chat_template"):
        return own
    return files.name(_PROCESSOR) if files.load(_PROCESSOR).get("chat_template") else None


def _warning(config: GenaiConfig, what: str, help: str, code: str = "no-end-token") -> Problem:
    return Problem(code, *named(config, config.eos_path), what, help, Severity.WARNING)


class _Ids:
    """Text -> id: tokens that a tokenizer.json adds count more than its vocabulary, and both more than what a
    tokenizer_config.json adds. The vocabulary is asked where it is: it can be large.
    """

    def __init__(self, tokenizer: Mapping[str, Any], config: Mapping[str, Any]) -> None:
        added, model = tokenizer.get("added_tokens"), tokenizer.get("model")
        vocabulary = model.get("vocab") if isinstance(model, dict) else None
        self._vocabulary: Mapping[str, Any] = vocabulary if isinstance(vocabulary, dict) else {}
        self._stated = _added_ids(config)
        self._added: dict[str, int] = {}
        for token in added if isinstance(added, list) else []:
            if isinstance(token, dict) and isinstance(token.get("id"), int) and isinstance(token.get("content"), str):
                self._added[token["content"]] = token["id"]

    def of(self, text: str) -> int | None:
        """The id of a token, None where no file has it."""
        found = self._added.get(text, self._vocabulary.get(text))
        return found if isinstance(found, int) else self._stated.get(text)


def _added_ids(config: Mapping[str, Any]) -> dict[str, int]:
    """Text -> id of the tokens that a tokenizer_config.json adds."""
    stated = config.get("added_tokens_decoder")
    found: dict[str, int] = {}
    for number, token in stated.items() if isinstance(stated, dict) else ():
        text = _content(token)
        if text is not None and number.isascii() and number.isdigit() and len(number) <= _MOST_DIGITS:
            found[text] = int(number)
    return found


def _content(token: Any) -> str | None:
    """The text of a special token, written as a string or as an object with `content`."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else None


def _listed(value: Any) -> list[int]:
    listed = value if isinstance(value, list) else [value]
    return [each for each in listed if isinstance(each, int) and not isinstance(each, bool)]


def _context_length(side: Mapping[str, Mapping[str, Any]]) -> tuple[str, int] | None:
    for name, key in (("config.json", "max_position_embeddings"), ("tokenizer_config.json", "model_max_length")):
        value = side[name].get(key)
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**31:
            return f"{name} {key}", value
    return None
