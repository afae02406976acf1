"""What a configuration states that its graph denies, beyond what lowering itself compares: names and lengths.

Nothing here decides anything: the graph is what runs. Each is one warning.
"""

from collections.abc import Iterator

from genai_compiler.lower.matching import INPUTS, OUTPUTS, has_slot, listed, template_layers
from genai_compiler.problem import Place, Problem, Severity
from genai_compiler.read.genai_config import GenaiConfig, named
from genai_compiler.read.places import DocPath, format_path
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


def short_tables(rows: int | None, length: int, where: Place, path: DocPath) -> Iterator[Problem]:
    """A context longer than the graph's shortest table of positions. rows: that table's, None where there is none.

    path: where the length is stated.
    """
    if rows is not None and rows < length:
        what = (
            f"{path[-1]} allows {length} positions, but the graph's table of positions has {rows} rows: a run fails, "
            f"or goes wrong, behind position {rows}"
        )
        help = f"set it to {rows}, or export with longer tables"
        code = "config-contradicts-graph"
        yield Problem(code, where, format_path(path), what, help, Severity.WARNING)
