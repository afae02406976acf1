"""What the text files beside a graph say: which ids end a generation, and where tokenizer and template lie.

End ids are the union of every source, because each of them is the only right one in some package (an end-of-turn id in
generation_config.json, a list in genai_config.json, the tokenizer's own end token).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from genai_compiler.problem import Place, Problem, Severity
from genai_compiler.read.genai_config import CONFIG_NAME, GenaiConfig, named
from genai_compiler.read.places import DocPath, format_path
from genai_compiler.read.side_files import SideFile, SideFiles, token_text
from genai_compiler.read.token_ids import TokenIds, token_ids

_PROCESSOR = "processor_config.json"
_MOST_DIGITS = 18  # of an id that is written as a key
_NO_IDS = TokenIds()


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
    files = SideFiles(root, config.tokenizer_dir, problems)
    tokenizer = files.load("tokenizer.json")
    names = ("generation_config.json", "tokenizer_config.json", "config.json", "special_tokens_map.json")
    side = {name: files.open(name) for name in names}
    for key in ("bos_token_id", "pad_token_id", "decoder_start_token_id"):
        side["generation_config.json"].ids(key)  # tells what is none, also where the configuration's own ids count
    ids = _Ids(tokenizer, side["tokenizer_config.json"].data)
    said = _end_claims(config, side, ids)
    end_ids = _checked(said, vocabulary, problems)
    first = _FirstIds(config, [side[name] for name in names[:3]], vocabulary, problems)
    bos = first.of(config.bos, config.bos_path, "bos_token_id", side=1)
    pad = first.stated(config.pad, config.pad_path)
    start = first.of(config.decoder_start, config.start_path, "decoder_start_token_id", side=3)
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
        chat_template=_chat_template(files, side["tokenizer_config.json"].data),
        special_tokens_map=files.name("special_tokens_map.json"),
        generation_config=files.name("generation_config.json"),
        context_length=_context_length(side),
        decoder_start=start,
        ids=token_ids(tokenizer),
    )
    return facts, tuple(problems)


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


def _without_tokenizer(files: SideFiles) -> Problem:
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


@dataclass(frozen=True)
class _Claim:
    """An id that a source names for an end token. spot: where that stands."""

    id: int
    said_by: str
    spot: tuple[Place, str]


def _end_claims(config: GenaiConfig, side: Mapping[str, SideFile], ids: "_Ids") -> list[_Claim]:
    """The ids of every source in turn."""
    own = f"{CONFIG_NAME} {format_path(config.eos_path)}"
    said = [_Claim(each, own, named(config, config.eos_path)) for each in config.eos]
    key: DocPath = ("eos_token_id",)
    for name in ("generation_config.json", "config.json"):
        file = side[name]
        said += [_Claim(each, f"{name} {key[0]}", (file.place(key), str(key[0]))) for each in file.ids(str(key[0]))]
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        token = side[name].token("eos_token")
        if token is not None and (number := ids.of(token)) is not None:
            spot = side[name].place(("eos_token",)), "eos_token"
            said.append(_Claim(number, f"{name} eos_token {token!r}", spot))
    return said


def _checked(said: list[_Claim], vocabulary: int | None, problems: list[Problem]) -> tuple[EndId, ...]:
    sources: dict[int, list[_Claim]] = {}
    for claim in said:
        sources.setdefault(claim.id, []).append(claim)
    for each in list(sources):
        if each < 0 or (vocabulary is not None and each >= vocabulary):
            limit = f"the vocabulary has {vocabulary} ids" if each >= 0 else "ids count from 0"
            claims = sources.pop(each)
            what = f"end token {each} ({'; '.join(one.said_by for one in claims)}) is left out: {limit}"
            problems.append(Problem("bad-token-id", *claims[0].spot, what, "correct the id", Severity.WARNING))
    return tuple(EndId(each, tuple(dict.fromkeys(one.said_by for one in who))) for each, who in sources.items())


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
    side: Sequence[SideFile]
    vocabulary: int | None
    problems: list[Problem]

    def of(self, own: int | None, path: DocPath, key: str, side: int) -> int | None:
        """The configuration's id, else that of the first so many files."""
        stated = self.stated(own, path)
        return stated if stated is not None else self.beside(key, side)

    def stated(self, own: int | None, path: DocPath) -> int | None:
        return self._in_vocabulary(own, str(path[-1]), *named(self.config, path))

    def beside(self, key: str, side: int) -> int | None:
        for file in self.side[:side]:
            each = file.first_id(key)
            found = None if each is None else self._in_vocabulary(each, key, file.place((key,)), key)
            if found is not None:
                return found
        return None

    def _in_vocabulary(self, each: int | None, key: str, place: Place, path: str) -> int | None:
        if each is None or (each >= 0 and (self.vocabulary is None or each < self.vocabulary)):
            return each
        what = f"{key} is {each}, which is no id of the vocabulary; it counts as not stated"
        self.problems.append(Problem("bad-token-id", place, path, what, "correct the id", Severity.WARNING))
        return None


def _chat_template(files: "SideFiles", tokenizer_config: Mapping[str, Any]) -> str | None:
    """The file with the chat template; a processor's counts where nothing else has one."""
    own = files.name("chat_template.jinja") or files.name("chat_template.json")
    if own is not None or tokenizer_config.get("chat_template"):
        return own
    return files.name(_PROCESSOR) if files.load(_PROCESSOR).get("chat_template") else None


def _warning(config: GenaiConfig, what: str, help: str) -> Problem:
    return Problem("no-end-token", *named(config, config.eos_path), what, help, Severity.WARNING)


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
        text = token_text(token)
        if text is not None and number.isascii() and number.isdigit() and len(number) <= _MOST_DIGITS:
            found[text] = int(number)
    return found


def _context_length(side: Mapping[str, SideFile]) -> tuple[str, int] | None:
    for name, key in (("config.json", "max_position_embeddings"), ("tokenizer_config.json", "model_max_length")):
        if (length := side[name].length(key)) is not None:
            return f"{name} {key}", length
    return None
