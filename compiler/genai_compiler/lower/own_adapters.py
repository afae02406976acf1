"""Components that are adapters of the compiler's own, which the runtime brings."""

from genai_compiler.lower.decoder_components import Data


def pin(workflow: Data, component: Data) -> None:
    """Name an adapter's ABI in the manifest."""
    how = component["implementation"]
    workflow["manifest"]["adapter_abis"][how["abi"]] = how["version"]


def adapter(workflow: Data, abi: str, inputs: Data, outputs: Data, parameters: Data | None = None) -> str:
    """Declare an adapter of the compiler's own, or find the same one; its name."""
    declared: Data = {
        "implementation": {"kind": "adapter", "abi": abi, "version": "1"},
        "ports": {"inputs": inputs, "outputs": outputs},
    }
    if parameters:
        declared["contract"] = {"id": abi, "version": "1", "parameters": parameters}
    name = abi.partition(".")[2].replace("-", "_")
    while workflow["components"].get(name, declared) != declared:
        name += "_"
    workflow["components"][name] = declared
    pin(workflow, declared)
    return name
