"""Views + templates -> text. Templates place text and decide nothing."""

from functools import cache

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from genai_compiler.emit.op_view import OpView
from genai_compiler.emit.tidy import tidy
from genai_compiler.emit.view import ExecutorView
from genai_compiler.shipped import shipped


def render_executor(view: ExecutorView) -> str:
    """The text of executor.py: formatted, checked to be Python, ends with a newline."""
    fields = {name: value for name, value in vars(view).items() if name != "body"}
    body = "\n".join(f"        {line}" if line else "" for line in _region(view.body).split("\n"))
    text = _templates().get_template("executor.py.j2").render(**fields, body=body)
    return tidy(_without_empty(text))


def _region(views: tuple[OpView, ...]) -> str:
    return "\n".join(_op(view) for view in views)


def _op(view: OpView) -> str:
    nested = {name: _region(each) for name, each in view.regions.items()}
    return _templates().get_template(view.template).render(**view.fields, **nested).rstrip("\n")


def _without_empty(text: str) -> str:
    """Lines of blanks only come from empty regions; they go. Truly empty lines stay."""
    return "\n".join(line for line in text.split("\n") if not line or line.strip())


@cache
def _templates() -> Environment:
    return Environment(  # the text is Python, not HTML, and no package string enters it unquoted
        loader=FileSystemLoader(shipped("templates")),
        undefined=StrictUndefined,
        trim_blocks=False,
        keep_trailing_newline=False,
        autoescape=False,
    )
