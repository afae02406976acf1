"""The JSON of a file beside a graph, as Python's library reads it, and what is wrong with one in plain words."""

import json
from pathlib import Path
from typing import Any

from genai_compiler.problem import CompileError, Place, Problem, Severity


def json_of(file: Path, name: str, most: int, severity: Severity = Severity.ERROR) -> Any:
    """What the file holds. name: what it is called in the package; most: bytes that are read.

    Raises CompileError malformed-json, of that severity.
    """
    where, what, help = Place(name), "", ""
    try:
        if file.stat().st_size <= most:
            return json.loads(file.read_bytes().decode("utf-8-sig"))
        what = f"it has more than {most} bytes"
    except json.JSONDecodeError as fault:
        where, what = Place(name, fault.lineno, fault.colno), fault.msg
        if what.startswith("Unexpected UTF-8 BOM"):  # behind the one that is taken away
            what = "a second byte order mark stands before the text"
    except UnicodeDecodeError as fault:
        what, help = f"it is not UTF-8 at byte {fault.start}", "save it as UTF-8"
    except RecursionError:
        what = "its values are nested too deep"
    except ValueError:  # how the library refuses to spend time on a number of thousands of digits
        what = "it holds a number of more digits than are read"
    except OSError as fault:
        what = f"it can't be read: {fault.strerror or fault}"
    raise CompileError([Problem("malformed-json", where, "", what, help, severity)])
