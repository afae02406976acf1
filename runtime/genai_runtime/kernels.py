"""Whether the providers that a component runs on have a kernel for all its operators, before any weight is read."""

from collections.abc import Mapping, Sequence
from typing import Any

from genai_runtime.problem import LoadError
from genai_runtime.sessions import Settings


def check_kernels(needs: Sequence[Mapping[str, Any]], common: Settings, own: Mapping[str, Settings]) -> None:
    """Raises LoadError `no-kernel`, all operators at once.

    needs: the manifest's; own: settings of single components, common: of all others.
    """
    faults: list[str] = []
    having: list[str] = []
    for each in needs:
        providers = [name for name, _ in own.get(each["component"], common).providers]
        if all(name in each["lacking"] for name in providers):
            place = f"component '{each['component']}' ({each['artifact']})"
            faults.append(f"{place} has the operator {each['operator']}, which {', '.join(providers)} can't run")
            having += [name for name in each["having"] if name not in having]
    if faults:
        names = " or ".join(having)
        help = f"run it where ONNX Runtime has {names}: install genai-compile[gpu] on a machine with such a device"
        raise LoadError("no-kernel", "; ".join(faults), help=help)
