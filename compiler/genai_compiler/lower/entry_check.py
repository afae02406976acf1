"""The step before the loop that holds the prompt's tokens for entries of a medium against the entries there are."""

from genai_compiler.lower.decoder_components import Data, media_contract, token_contract
from genai_compiler.lower.decoder_facts import DecoderFacts
from genai_compiler.lower.own_adapters import adapter
from genai_compiler.read.signature import Port

COUNT = "genai-compile.entry-count"
ENTRY_TOKEN = "entry_token"


def count_entries(workflow: Data, facts: DecoderFacts, taken: tuple[Port, str], token: int, kind: str = "") -> Data:
    """The step; the loop's cell for the entries then starts as what it gives. taken: the front's input, and the value
    there with the prompt; token: what stands for an entry; kind: of the medium, "" for pictures.
    """
    port, given = taken
    contract, counted = media_contract(port), f"{given}.counted"
    parameters: Data = {ENTRY_TOKEN: token, **({"kind": kind} if kind else {})}
    ports = {"tokens": token_contract(facts), "entries": contract}
    name = adapter(workflow, COUNT, ports, {"entries": contract}, parameters)
    carried = workflow["steps"][-1]["carried"]
    next(each for each in carried if each.get("initial") == given)["initial"] = counted
    inputs = {"tokens": facts.prompt, "entries": given}
    return {"kind": "invoke", "component": name, "inputs": inputs, "outputs": {"entries": counted}}
