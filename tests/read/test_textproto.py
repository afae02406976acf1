"""Models in text form: what is odd about a text is said of it, never of Python."""

import warnings

import pytest
from genai_compiler.read.textproto import TextprotoFault, parse_textproto


def test_an_escape_that_python_lacks_is_no_warning() -> None:
    r"""protobuf reads `\q` with Python's decoder, which warns of it; the text stays what it is."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert parse_textproto(r'producer_name: "a\q"').producer_name == r"a\q"


def test_a_text_that_ends_in_a_string_is_refused_at_its_line() -> None:
    with pytest.raises(TextprotoFault) as refused:
        parse_textproto('ir_version: 8\nproducer_name: "a')
    assert refused.value.line == 2
