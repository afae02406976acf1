"""Which sessions an executor opens when it is made: what the runtime may begin with before the executor is imported."""

from genai_compiler.emit.op_view import Uses
from genai_compiler.plan.graph_program import GraphProgram
from genai_compiler.plan.ir import Plan
from genai_compiler.plan.on_demand import on_demand


def opened_sessions(uses: Uses, plan: Plan) -> tuple[str, ...]:
    """Graphs in the order of emit/view.py. Absent are those that a request may never need, and numpy's."""
    names, seldom = list[str](), on_demand(plan)
    for runner, (name, *_) in uses.runners.items():
        component = plan.component(name)
        if component.adapter is None and component.host is None and runner not in uses.spare:
            names += [name] if name not in seldom else []
        elif component.adapter is not None and isinstance(component.adapter.program, GraphProgram):
            names += component.adapter.program.components
    names += [hold.run.component for _, _, hold in uses.held.values()]
    facts = plan.decoder
    if facts is not None:
        names += [facts.component, facts.prompt_component or "", facts.front.component if facts.front else ""]
    graphs = (graph for name in filter(None, names) for graph in plan.component(name).sessions)
    return tuple(dict.fromkeys(graphs))
