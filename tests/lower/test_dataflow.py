"""Edges between models, resolved against ports alone."""

from genai_compiler.lower.dataflow import resolve_dataflow
from genai_compiler.read.composite import CompositePipeline
from genai_compiler.read.places import Places
from genai_compiler.read.signature import Port, Signature


def signature(inputs: tuple[str, ...], outputs: tuple[str, ...]) -> Signature:
    ports = (tuple(Port(name, "float32", ("n",)) for name in names) for names in (inputs, outputs))
    return Signature(*ports, opsets=(), metadata=(), external_data=(), cache_ops=())


def test_a_model_whose_name_begins_with_anothers_takes_none_of_its_outputs() -> None:
    signatures = {"a": signature((), ("y",)), "ab": signature((), ("y",)), "t": signature(("p", "q"), ())}
    pipeline = CompositePipeline.model_validate(
        {
            "models": {name: {"filename": f"{name}.onnx"} for name in signatures},
            "dataflow": [{"from": "a.wrong", "to": "t.p"}, {"from": "ab.y", "to": "t.q"}],
            "strategy": {"kind": "autoregressive"},
        }
    )
    edges, problems = resolve_dataflow(pipeline, signatures, Places("inference_metadata.yaml"))
    assert [(each.source, each.output.name, each.input.name) for each in edges] == [("a", "y", "p"), ("ab", "y", "q")]
    assert [each.code for each in problems] == ["config-contradicts-graph"]
