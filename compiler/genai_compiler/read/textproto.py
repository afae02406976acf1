"""`.onnx.textproto`: an ONNX model in protobuf's text form, parsed within bounds."""

import re
import warnings

from google.protobuf import text_format
from onnx import ModelProto

MAX_BYTES = 64 << 20
MAX_DEPTH = 60
SUFFIX = ".textproto"
_TOKENS = re.compile(r"#[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|[{}<>]", re.DOTALL)


class TextprotoFault(ValueError):
    """The text is no ONNX model within the bounds. `line` and `column` count from 1; 0 means unknown."""

    def __init__(self, what: str, line: int = 0, column: int = 0) -> None:
        super().__init__(what)
        self.line, self.column = line, column


def is_textproto(name: str) -> bool:
    """Whether the file name says that the model is in text form."""
    return name.endswith(SUFFIX)


def parse_textproto(text: str) -> ModelProto:
    """The model that `text` writes out. Raises TextprotoFault: too large, nested too deeply, syntax, unknown field."""
    if len(text) > MAX_BYTES:
        raise TextprotoFault(f"the text form is limited to {MAX_BYTES} characters; this has {len(text)}")
    _check_depth(text)
    model = ModelProto()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escape sequences that Python would not write so
            text_format.Parse(text, model)
    except text_format.ParseError as fault:
        raise TextprotoFault(str(fault), fault.GetLine() or 0, fault.GetColumn() or 0) from fault
    except (RecursionError, ValueError, OverflowError) as fault:
        raise TextprotoFault(str(fault)) from fault
    return model


def _check_depth(text: str) -> None:
    """text_format recurses once a message, so depth is counted first (outside strings and comments)."""
    depth = 0
    for token in _TOKENS.finditer(text):
        if token[0] in "{<":
            depth += 1
            if depth > MAX_DEPTH:
                line = text.count("\n", 0, token.start()) + 1
                raise TextprotoFault(f"messages are nested deeper than {MAX_DEPTH}", line)
        elif token[0] in "}>":
            depth -= 1
