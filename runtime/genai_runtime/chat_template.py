"""Chat messages to prompt text, by the template that the package ships, with the conventions of transformers.

Where a template is looked for, first place that has one: the caller's own; `chat_template.jinja`; `chat_template.json`
(an object with the key `chat_template`); the key `chat_template` of tokenizer_config.json; that of
processor_config.json. In the JSON places it may be a string, or named templates (a list of `{name, template}` or an
object): then `tool_use` is taken when tools are given, else `default`, else the only one. There is no fall-back to a
format of our own: without a template chat is refused.

The text already holds the start token where the model wants one: encode it without added special tokens.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from genai_runtime.chat_messages import Message, as_text, checked_messages, checked_tools, fold_system_messages
from genai_runtime.problem import GenaiError, LoadError, RequestError
from genai_runtime.text_files import TextFiles
from genai_runtime.tokenizer import Tokenizer, read_json, read_text

if TYPE_CHECKING:
    from jinja2 import Template

MAX_TEMPLATE_BYTES = 256 << 10
_FAILURES = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RecursionError, MemoryError)
"""What an expression of a template can raise besides jinja2's own errors."""


class ChatTemplate:
    """The templates of one package, by name; compiled when first used.

    special: `bos_token` and so on, given to the template as variables. clock: what `strftime_now` reads.
    """

    def __init__(
        self,
        templates: Mapping[str, str],
        special: Mapping[str, str] | None = None,
        clock: Callable[[], datetime] = datetime.now,
    ) -> None:
        self.templates, self._special, self._clock = dict(templates), dict(special or {}), clock
        self._compiled: dict[str, Template] = {}

    def render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Any] | None = None,
        add_generation_prompt: bool = True,
        *,
        fold_system: bool = False,
        template: str | None = None,
        **extra: Any,
    ) -> str:
        """The prompt text of a conversation.

        messages: mappings with `role`, and `content` as text or as parts (`{"type": "text", "text": ...}`); parts that
        are all text are joined when the template knows nothing of parts. tools: JSON schemas, as the template expects
        them. fold_system: put system messages into the next user turn, for templates that refuse them.
        template: which of several named ones. extra: further variables of the template.
        Raises RequestError `no-chat-template`, `bad-messages`, `chat-template-refused` (with the template's own text),
        `bad-tools`, `chat-template-limit`; LoadError `chat-template-broken`.
        """
        schemas = checked_tools(tools)
        name = self._choose(template, bool(schemas))
        conversation = self._in_its_form(name, checked_messages(messages))
        if fold_system:
            conversation = fold_system_messages(conversation)
        variables = {
            **self._special,
            "messages": conversation,
            "tools": schemas,
            "documents": None,
            "add_generation_prompt": add_generation_prompt,
            **extra,
        }
        return self._run(name, variables)

    def knows(self, medium: str) -> bool:
        """Whether a template has a word for parts of a medium, `image` or `audio`."""
        return any(medium in each for each in self.templates.values())

    def parse(self) -> None:
        """Read all templates without running one, as far as they have no more characters together than one may have.

        Raises LoadError `chat-template-broken`.
        """
        read = 0
        for name, text in self.templates.items():
            read += len(text)
            if read <= MAX_TEMPLATE_BYTES or len(text) > MAX_TEMPLATE_BYTES:
                self._compile(name)

    def _choose(self, wanted: str | None, with_tools: bool) -> str:
        if not self.templates:
            raise RequestError(
                "no-chat-template",
                "the package has no chat template",
                help="give the prompt as text (--prompt, generate), or add chat_template.jinja to the package",
            )
        names = [wanted] if wanted else [*(["tool_use"] if with_tools else []), "default"]
        found = next((name for name in names if name in self.templates), None)
        if found is None and not wanted and len(self.templates) == 1:
            found = next(iter(self.templates))
        if found is None:
            raise RequestError(
                "no-chat-template", f"no chat template '{names[-1]}'; the package has {sorted(self.templates)}"
            )
        return found

    def _run(self, name: str, variables: Mapping[str, Any]) -> str:
        from jinja2.exceptions import TemplateError

        from genai_runtime.template_sandbox import OverBudget, render_bounded

        template = self._compile(name)
        try:
            return render_bounded(template, variables)
        except OverBudget as error:
            raise RequestError("chat-template-limit", f"chat template '{name}': {error}") from error
        except (TemplateError, *_FAILURES) as error:
            what = str(error) or type(error).__name__
            raise RequestError("chat-template-refused", what, help=_way_out(variables["messages"])) from error

    def _compile(self, name: str) -> "Template":
        if name not in self._compiled:
            from jinja2.exceptions import TemplateError

            if len(self.templates[name]) > MAX_TEMPLATE_BYTES:
                raise LoadError(
                    "chat-template-broken", f"chat template '{name}' has over {MAX_TEMPLATE_BYTES} characters"
                )
            try:
                self._compiled[name] = self._environment.from_string(self.templates[name])
            except (TemplateError, SyntaxError, ValueError, RecursionError, MemoryError) as error:
                line = getattr(error, "lineno", None)
                place = f" at line {line}" if line else ""
                raise LoadError("chat-template-broken", f"chat template '{name}'{place}: {error}") from error
        return self._compiled[name]

    @cached_property
    def _environment(self) -> Any:
        from genai_runtime.template_sandbox import BoundedEnvironment

        environment = BoundedEnvironment()
        environment.filters["tojson"] = _tojson
        functions: dict[str, Any] = environment.globals
        functions |= {"raise_exception": _raise_exception, "strftime_now": self._strftime_now}
        environment.guard()
        return environment

    def _strftime_now(self, form: str) -> str:
        return self._clock().strftime(form)

    def _in_its_form(self, name: str, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Parts that are all text as one string, for a template that never asks a part for its text."""
        if "text" in self.templates[name] or "type" in self.templates[name]:
            return messages
        return [{**each, "content": as_text(each.get("content"))} if "content" in each else each for each in messages]


def read_chat_template(
    folder: Path,
    files: TextFiles,
    tokenizer: Tokenizer | None = None,
    clock: Callable[[], datetime] = datetime.now,
) -> ChatTemplate:
    """The chat templates of a package, none perhaps: `render` says so then. The order of places is at the top.

    tokenizer: saves reading tokenizer_config.json again, and names the special tokens.
    Raises LoadError `missing-file`, `file-too-large`, `not-utf8`, `bad-json`, `chat-template-broken`.
    """
    config = tokenizer.config if tokenizer else read_json(folder, files.tokenizer_config)
    named = _named(config.get("chat_template"), "tokenizer_config.json")
    if files.chat_template and files.chat_template.endswith(".json"):
        named = _named(read_json(folder, files.chat_template).get("chat_template"), files.chat_template) or named
    elif files.chat_template:
        named = {"default": read_text(folder, files.chat_template, MAX_TEMPLATE_BYTES)}
    return ChatTemplate(named, tokenizer.special if tokenizer else {}, clock)


def encode_chat(tokenizer: Tokenizer, template: ChatTemplate, messages: Sequence[Message], **options: Any) -> list[int]:
    """The prompt ids of a conversation: its text, to which no special token is added. options: those of `render`."""
    return tokenizer.encode(template.render(messages, **options), add_special_tokens=False)


def doubles_start_token(tokenizer: Tokenizer, template: ChatTemplate) -> bool:
    """Whether the template's text starts with the token that the tokenizer would add again.

    False also when the template can't render a plain user message: then nothing is known.
    """
    try:
        ids = encode_chat(tokenizer, template, [{"role": "user", "content": "a"}])
    except GenaiError:
        return False
    prefix = tokenizer.added_prefix
    return bool(prefix) and tuple(ids[: len(prefix)]) == prefix


def _named(value: Any, place: str) -> dict[str, str]:
    if value is None:
        return {}
    if isinstance(value, str):
        return {"default": value}
    pairs: list[tuple[Any, Any]] | None = None
    if isinstance(value, Mapping):
        named: Mapping[Any, Any] = value
        pairs = list(named.items())
    elif isinstance(value, list):
        entries: list[Any] = value
        objects = [cast(Mapping[str, Any], each) for each in entries if isinstance(each, Mapping)]
        pairs = [(each.get("name"), each.get("template")) for each in objects] if len(objects) == len(entries) else None
    if pairs is None or not all(isinstance(name, str) and isinstance(text, str) for name, text in pairs):
        raise LoadError("chat-template-broken", f"chat_template in {place} is neither text nor named templates")
    return dict(pairs)


def _way_out(messages: Sequence[Message]) -> str:
    if any(each["role"] in ("system", "developer") for each in messages):
        return "if it refuses the system message, write it into the user's turn; in Python, fold_system=True does so"
    return ""


def _raise_exception(message: str) -> None:
    from jinja2.exceptions import TemplateError

    raise TemplateError(message)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """As transformers has it: no HTML escapes, and no ASCII escapes unless asked for."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
