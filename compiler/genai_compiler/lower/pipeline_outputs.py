"""What a version 2 file says that its processors make, held against the sessions that take it."""

from genai_compiler.lower.dataflow import Edge
from genai_compiler.lower.matching import rank_of, spell_port
from genai_compiler.lower.pipeline_edges import SessionGraphs
from genai_compiler.read.artifacts import ArtifactFault, find_artifact
from genai_compiler.read.pipeline_form import PIPELINE, PipelineForm, Resolving
from genai_compiler.read.pipeline_rules import processors
from genai_compiler.read.places import format_path
from genai_compiler.read.suggest import did_you_mean


def check_processors(form: PipelineForm, graphs: SessionGraphs, edges: tuple[Edge, ...], resolving: Resolving) -> None:
    """Files that are absent, and expected outputs that differ from the inputs they are for (wrong-port)."""
    fed = {(each.target, each.input.name) for each in edges}
    asked = {
        port.name: (name, port)
        for name in form.running
        for port in graphs.signatures[name].inputs
        if (name, port.name) not in fed
    }
    for medium, processor in processors(form):
        path = (*PIPELINE, "preprocessing", medium)
        if processor.config is not None:
            try:
                find_artifact(form.text.root, processor.config)
            except ArtifactFault as fault:
                where = (*path, "config")
                resolving.problems.append(fault.problem(form.text.places.find(where), format_path(where)))
        for name, expected in processor.expected_outputs.items():
            where = (*path, "expected_outputs", name)
            if name not in asked:
                what = f"no session takes {name!r} from outside"
                resolving.report("config-contradicts-graph", where, what, did_you_mean(name, asked), True)
                continue
            session, port = asked[name]
            wrong = expected.dtype not in (None, port.dtype)
            wrong |= expected.rank is not None and rank_of(port) not in (None, expected.rank)
            if wrong:
                stated = [f"rank {expected.rank}" if expected.rank is not None else "", expected.dtype or ""]
                what = f'Expected output "{name}" is {" ".join(filter(None, stated))}, but session "{session}" takes '
                resolving.report("wrong-port", where, what + spell_port(port), "make the processor and the graph agree")
