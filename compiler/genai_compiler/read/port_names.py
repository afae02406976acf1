"""Graph names that a configuration gives to parts of a component, over the reference's defaults."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from genai_compiler.read.config_keys import Form
from genai_compiler.read.config_section import Section


@dataclass(frozen=True)
class PortNames:
    """Graph names by config key: stated ones and the reference's defaults. `stated`: the keys that the file holds."""

    names: Mapping[str, str]
    stated: frozenset[str]

    def __getitem__(self, key: str) -> str:
        return self.names[key]


_NONE: Mapping[str, str] = {}


def _renamed(section: Section, older: Mapping[str, str]) -> Section:
    """The section with earlier names of keys replaced, where the file does not state both."""
    members = dict(section.members)
    for old in [each for each in older if each in members and older[each] not in members]:
        members[older[old]] = members.pop(old)
        section.warn("renamed-key", old, f"{old!r} is an earlier name of {older[old]!r}; it is read as that")
    return replace(section, members=members)


def port_names(
    component: Section, key: str, defaults: Mapping[str, str], older: Mapping[str, str] = _NONE
) -> PortNames:
    """The `inputs` or `outputs` (key) of a component; unknown keys are warned of.

    older: names that keys had in earlier releases -> their names now.
    """
    component.value(key, Form.OBJECT)
    section = _renamed(component.section(key), older)
    section.check_keys(defaults)
    stated = {
        name: value for name in section.members if name in defaults and (value := section.string(name)) is not None
    }
    return PortNames({**defaults, **stated}, frozenset(stated))
