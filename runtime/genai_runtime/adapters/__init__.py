"""Adapters: components that are native code under an exact ABI name and version (standard, section 5).

Third parties provide one through the entry-point group `genai_runtime.adapters`: the entry's name is `abi@version`, its
object a factory as in `adapters.registry.Factory`.
"""

from genai_runtime.adapters.registry import Adapter, AdapterCall, Factory, open_adapter

__all__ = ["Adapter", "AdapterCall", "Factory", "open_adapter"]
