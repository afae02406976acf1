"""Names whose modules are imported when first asked for (PEP 562): what a package doesn't need costs no start-up.

Two modules have such names: `genai_runtime`, for who writes `import genai_runtime`, and `genai_runtime.abi`, for
generated executors. Elsewhere an import inside a function says the same of one place. What one `load` imports is held
by tests/runtime/test_start.py.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def on_demand(module: str, names: dict[str, Any], homes: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a module. names: its globals, which keep what was found; homes: name -> module of ours."""

    def found(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module '{module}' has no attribute '{name}'")
        value = names[name] = getattr(import_module(f"genai_runtime.{home}"), name)
        return value

    return found
