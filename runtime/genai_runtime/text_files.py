"""Which files of a package carry its text side, and the one written order in which they are looked for."""

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import PurePosixPath, PureWindowsPath

from genai_runtime.problem import LoadError

CHAT_TEMPLATE_FILES = ("chat_template.jinja", "chat_template.json")
"""Files that hold nothing but a chat template; the first one wins, also over `chat_template` in tokenizer_config.json,
as in transformers."""


@dataclass(frozen=True)
class TextFiles:
    """Package-relative names; None where the package has no such file. The manifest holds them as an object.

    tokenizer: a tokenizer.json. chat_template: a .jinja file, or a .json file with the key `chat_template`.
    """

    tokenizer: str | None = None
    tokenizer_config: str | None = None
    chat_template: str | None = None
    special_tokens_map: str | None = None

    def __post_init__(self) -> None:
        """Raises LoadError `bad-text-file` for a name that is not a relative path inside the package."""
        for field in fields(self):
            name = getattr(self, field.name)
            if name is not None and not (isinstance(name, str) and _inside(name)):
                raise LoadError("bad-text-file", f"text.{field.name} is not a path inside the package: {name!r}")

    def to_dict(self) -> dict[str, str | None]:
        """The manifest's form; every key is present."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> "TextFiles":
        """The inverse of `to_dict`. Raises LoadError `bad-text-file` for an unknown key or a bad name."""
        known = {field.name for field in fields(cls)}
        unknown = sorted(set(data) - known)
        if unknown:
            raise LoadError("bad-text-file", f"text has unknown keys {unknown}; known ones: {sorted(known)}")
        return cls(**dict(data))  # type: ignore[arg-type]


def find_text_files(names: Collection[str], folder: str = "") -> TextFiles:
    """The text files among `names` (package-relative, with `/`), all in `folder` ("" is the package's own)."""

    def first(*candidates: str) -> str | None:
        paths = (str(PurePosixPath(folder, each)) for each in candidates)
        return next((path for path in paths if path in names), None)

    return TextFiles(
        tokenizer=first("tokenizer.json"),
        tokenizer_config=first("tokenizer_config.json"),
        chat_template=first(*CHAT_TEMPLATE_FILES),
        special_tokens_map=first("special_tokens_map.json"),
    )


def _inside(name: str) -> bool:
    path = PureWindowsPath(name)  # the stricter reading: it knows drives, and both separators
    return bool(name) and "\0" not in name and not path.anchor and ".." not in path.parts
