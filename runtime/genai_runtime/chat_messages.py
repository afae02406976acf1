"""Chat messages before a template sees them: checked, and brought into the form that it takes."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from genai_runtime.problem import RequestError

Message = Mapping[str, Any]
_MESSAGES_HELP = 'write chat([{"role": "user", "content": "..."}]); --prompt and generate take text as it is'


def checked_messages(messages: Any) -> list[dict[str, Any]]:
    """Copies of the messages. Raises RequestError `bad-messages`."""
    if not isinstance(messages, Sequence) or isinstance(messages, str) or not messages:
        what = "messages must be a non-empty list of mappings with 'role' and 'content'"
        raise RequestError("bad-messages", what, help=_MESSAGES_HELP)
    for i, message in enumerate(messages):
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise RequestError("bad-messages", f"messages[{i}] is not a mapping with a 'role'", help=_MESSAGES_HELP)
        if not isinstance(message.get("content"), str | list | None):
            raise RequestError("bad-messages", f"messages[{i}].content is neither text nor a list of parts")
    return [dict(message) for message in messages]


def with_media(text: str, counts: Mapping[str, int]) -> Any:
    """A user's text behind parts for so many files of each medium, `image` or `audio`; the text alone without any."""
    parts = [{"type": medium} for medium, count in counts.items() for _ in range(count)]
    return [*parts, {"type": "text", "text": text}] if parts else text


RESERVED = ("messages", "tools", "add_generation_prompt", "fold_system", "template", "tokenizer", "self")
"""Names that `template_options` may not set: `chat` has arguments of its own for them, or none at all."""


def variables_of(options: Any) -> dict[str, Any]:
    """A caller's further variables of the template. Raises RequestError `bad-template-options`."""
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        raise RequestError("bad-template-options", f"template_options are no mapping: {options!r}")
    given: Mapping[Any, Any] = options
    odd = [name for name in given if not isinstance(name, str) or name in RESERVED]
    if odd:
        what = f"template_options can't set {', '.join(map(repr, odd))}"
        raise RequestError("bad-template-options", what, help=f"names are text; reserved: {', '.join(RESERVED)}")
    return dict(given)


def checked_tools(tools: Any) -> list[Any] | None:
    """The tools as a list; None when there are none. Raises RequestError `bad-tools`."""
    if tools is None:
        return None
    if isinstance(tools, str | bytes | Mapping) or not isinstance(tools, Iterable):
        raise RequestError("bad-tools", f"tools are a list of JSON schemas, got {tools!r}")
    schemas: Iterable[Any] = tools
    return list(schemas) or None


def fold_system_messages(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """System (and developer) messages put before the text of the next user message, or at the end of the last one."""
    folded: list[dict[str, Any]] = []
    waiting: list[Any] = []
    for message in messages:
        if message["role"] in ("system", "developer"):
            waiting.append(message.get("content"))
        elif message["role"] == "user":
            folded.append({**message, "content": _together([*waiting, message.get("content")])})
            waiting = []
        else:
            folded.append(dict(message))
    if waiting and folded and folded[-1]["role"] == "user":
        folded[-1]["content"] = _together([folded[-1]["content"], *waiting])
    elif waiting:
        folded.append({"role": "user", "content": _together(waiting)})
    return folded


def _together(contents: Sequence[Any]) -> Any:
    contents = [each for each in contents if each]
    if all(isinstance(each, str) for each in contents):
        return "\n\n".join(contents)
    parts = [[{"type": "text", "text": each}] if isinstance(each, str) else each for each in contents]
    return [part for each in parts for part in each]


def as_text(content: Any) -> Any:
    """Parts that are all text as one string; text, and no content, as they are. Raises RequestError `bad-messages`."""
    if not isinstance(content, list):
        return content
    parts: list[Any] = content
    texts = [_text_of(part) for part in parts]
    if all(isinstance(text, str) for text in texts):
        return "".join(map(str, texts))
    what = "the chat template takes text only, but a message has parts of another kind"
    help = (
        "write the place of a picture or a sound in the message's text, or the whole prompt: --prompt, generate(TEXT)"
    )
    raise RequestError("bad-messages", what, help=help)


def _text_of(part: Any) -> Any:
    return cast(Mapping[str, Any], part).get("text") if isinstance(part, Mapping) else None
