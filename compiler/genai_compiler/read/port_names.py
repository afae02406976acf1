"""Graph names that a configuration gives to parts of a component, over the reference's defaults."""

from collections.abc import Mapping
from dataclasses import dataclass

from genai_compiler.read.config_keys import Form
from genai_compiler.read.config_section import Section


@dataclass(frozen=True)
class PortNames:
    """Graph names by config key: stated ones and the reference's defaults. `stated`: the keys that the file holds."""

    names: Mapping[str, str]
    stated: frozenset[str]

    def __getitem__(self, key: str) -> str:
        return self.names[key]


def port_names(component: Section, key: str, defaults: Mapping[str, str]) -> PortNames:
    """The `inputs` or `outputs` (key) of a component; unknown keys are warned of."""
    component.value(key, Form.OBJECT)
    section = component.section(key)
    section.check_keys(defaults)
    stated = {
        name: value for name in section.members if name in defaults and (value := section.string(name)) is not None
    }
    return PortNames({**defaults, **stated}, frozenset(stated))
