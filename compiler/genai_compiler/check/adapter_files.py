"""The files of adapters: can each be read, and does it hold what the document says of it.

The runtime's own readers are asked, so that what is said here is what will happen there.
"""

from genai_compiler.problem import Problem
from genai_compiler.read.adapters import AdapterService
from genai_compiler.read.lora_data import artifact_data, lora_data
from genai_compiler.read.package import Package
from genai_compiler.read.places import format_path


def check_adapter_files(package: Package) -> tuple[Problem, ...]:
    """Every weight file that can't be used, whether a run would read it or another format of the same adapter.

    Codes: adapter-file, adapter-config, adapter-weights. The document must be sound and its files there.
    """
    return () if package.metadata.adapters is None else _refused(package, package.metadata.adapters)


def _refused(package: Package, service: AdapterService) -> tuple[Problem, ...]:
    from genai_runtime.lora.fault import AdapterFault
    from genai_runtime.lora.files import read_adapter
    from genai_runtime.lora.spec import artifact_of, spec_of

    spec = spec_of(lora_data(package))
    problems: list[Problem] = []
    if spec is None:
        return ()
    for alias, artifact in service.artifacts.items():
        for at, weights in enumerate(artifact.weights):
            if not package.complete and not (package.root / weights.location).exists():
                continue
            try:
                read_adapter(package.root, artifact_of(artifact_data(alias, artifact, weights)), spec.by_id)
            except AdapterFault as fault:
                field = "config_location" if fault.code == "adapter-config" else "location"
                path = ("adapters", "artifacts", alias, "weights", at, field)
                place = package.places.find(path)
                problems.append(Problem(fault.code, place, format_path(path), fault.what, fault.help))
    return tuple(problems)
