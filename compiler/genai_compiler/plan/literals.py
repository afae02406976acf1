"""Literals of inputs: what a document writes as `default`, held against the contract it fills (standard, 3.2; V326)."""

from genai_compiler.plan.dtypes import FLOATS, INTEGERS, SIZE
from genai_compiler.plan.ir import Type

Element = bool | int | float
Written = Element | str | tuple[Element | str, ...] | None


def literal(written: Written, type: Type, shaped: bool) -> tuple[Element | tuple[Element, ...] | None, str]:
    """The literal, and what is wrong with it in words ("" when nothing is; otherwise the literal is None).

    shaped: the contract has a `shape`. How many elements a list needs shows only when the request's symbols are bound.
    """
    if written is None:
        return None, ""
    elements = written if isinstance(written, tuple) else (written,)
    numbers = tuple(each for each in elements if not isinstance(each, str))
    if len(numbers) < len(elements):
        return None, "a string is no tensor"
    if not elements:
        return None, "an empty list is no literal"
    if type.rank and not shaped:
        return None, "a literal needs the contract's shape, unless the rank is 0"
    fault = next((fault for each in numbers if (fault := _element_fault(each, type.dtype))), "")
    if fault:
        return None, fault
    return numbers if isinstance(written, tuple) else numbers[0], ""


def _element_fault(element: Element, dtype: str) -> str:
    """Why an element can't be of a dtype: each kind of literal is for dtypes of its own."""
    if isinstance(element, bool):
        return "" if dtype == "bool" else f"{str(element).lower()} is a bool, the contract says {dtype}"
    if isinstance(element, float):
        return "" if dtype in FLOATS else f"{element} is a float, the contract says {dtype}"
    if dtype in FLOATS:
        return f"{element} is an integer, the contract says {dtype}; write {element}.0"
    if dtype not in INTEGERS:
        return f"{element} is an integer, the contract says {dtype}"
    bits = 8 * SIZE[dtype]
    low, high = (0, 2**bits - 1) if dtype.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return "" if low <= element <= high else f"{element} is outside {dtype}, {low} to {high}"
