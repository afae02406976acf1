"""What a configuration states that its graph denies, beyond what lowering itself compares: names of ports.

Nothing here decides anything: the graph is what runs. Each is one warning.
"""

from collections.abc import Iterator

from genai_compiler.lower.matching import INPUTS, OUTPUTS, has_slot, listed, template_layers
from genai_compiler.problem import Problem, Severity
from genai_compiler.read.genai_config import GenaiConfig, named
from genai_compiler.read.signature import Signature

_LOGITS = "logits"


def absent_ports(config: GenaiConfig, signature: Signature) -> Iterator[Problem]:
    """Ports that the file names and the graph has not, where something runs without them.

    What can't run without is an error of the matching: token ids, logits, one half of a cache.
    """
    sides = (
        (INPUTS, config.decoder.inputs, [each.name for each in signature.inputs]),
        (OUTPUTS, config.decoder.outputs, [each.name for each in signature.outputs]),
    )
    for path, names, ports in sides:
        for key in sorted(names.stated):
            name = names[key]
            if not name or key in ("input_ids", "inputs_embeds", _LOGITS, "hidden_states"):
                continue
            if not template_layers(name, ports):
                side = "input" if path == INPUTS else "output"
                instead = (
                    "the graph says itself what its state is" if has_slot(name) else "nothing is fed or taken there"
                )
                what = f"{key} names {name!r}, but the graph has no such {side}; {instead}"
                help = f"leave it out; the graph's {side}s are {listed(ports, 4)}"
                code = "config-contradicts-graph"
                yield Problem(code, *named(config, (*path, key)), what, help, Severity.WARNING)
