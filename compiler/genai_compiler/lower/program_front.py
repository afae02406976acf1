"""Picture files before the stages of a package whose document has an image program of its own.

The program is the standard's, from before workflows: its outputs are called `model.input`. In the workflow they are
values, with the contracts that the adapter's ports have.
"""

from typing import Any

from genai_compiler.lower.decoder_components import Data
from genai_compiler.lower.file_fronts import FileFront
from genai_compiler.lower.followed_picture import GRID
from genai_compiler.lower.media_notes import IMAGE, Said
from genai_compiler.lower.picture_fitting import Roles
from genai_compiler.lower.picture_front import ENCODED, PROGRAM, prompt_parameters, role_contract
from genai_compiler.lower.prompt_places import unknown_places
from genai_compiler.lower.stages import Medium
from genai_compiler.problem import Problem
from genai_compiler.read.special_tokens import SpecialTokens


def program_front(
    said: Said, medium: Medium, roles: Roles, tokens: SpecialTokens
) -> tuple[FileFront | None, tuple[Problem, ...]]:
    """The front of a medium of pictures; what is wrong with the program itself is found where programs are checked.

    Problems: processor-mismatch, where the program does not make what the stages take.
    """
    assert said.program is not None
    outputs = [each for each in said.program.get("outputs") or () if isinstance(each, dict)]
    by_port = {str(each.get("name")).rpartition(".")[2]: each for each in outputs}
    missing = [port.name for port in roles.values() if port.name not in by_port]
    if missing:
        what = (
            f"the image program makes {', '.join(by_port) or 'nothing'}, and the graph also takes {', '.join(missing)}"
        )
        return None, (Problem("processor-mismatch", *said.spot, what, "add the output to the program"),)
    transforms = [dict(each) for each in said.program.get("transforms") or () if isinstance(each, dict)]
    cut, cell = _cell(transforms)
    if cut and medium.merge and cell // cut != medium.merge:
        what = f"the image program makes an entry of {cell // cut} x {cell // cut} patches, and the graph of "
        what += f"{medium.merge} x {medium.merge}"
        return None, (Problem("processor-mismatch", *said.spot, what, "make the program and the graph agree"),)
    contracts = {role: role_contract(port, role, GRID not in roles) for role, port in roles.items()}
    program: Data = {
        "transforms": transforms,
        "outputs": [_output(by_port[port.name], f"image.{role}", contracts[role]) for role, port in roles.items()],
    }
    parameters = prompt_parameters(medium, said, tokens, cell)
    front = FileFront(
        kind=IMAGE,
        component="image_processor",
        declared={
            "implementation": {"kind": "adapter", "abi": PROGRAM, "version": "1"},
            "ports": {"inputs": {"encoded": ENCODED}, "outputs": contracts},
            "contract": {"id": PROGRAM, "version": "1", "parameters": parameters},
        },
        values={role: f"image.{role}" for role in roles},
        feeds={port.name: f"image.{role}" for role, port in roles.items()},
        each=GRID not in roles,
        grid=roles[GRID].name if GRID in roles else "",
        merge=cell // cut if cut else 1,
        token=parameters.get("entry_token"),
        program=program,
    )
    return front, tuple(unknown_places(parameters, said.spot))


def _output(stated: dict[str, Any], value: str, contract: Data) -> Data:
    kept: Data = {key: stated[key] for key in ("content", "pad_value") if key in stated}
    source = str(stated.get("source", stated.get("content")))
    return {"source": source, "name": value, **kept, "dtype": contract["dtype"], "contract": contract}


def _cell(transforms: list[Data]) -> tuple[int, int]:
    """(pixels of a patch's edge, of the edge that one entry stands for); 0 where the program cuts no patches."""
    of = {each.get("op"): each for each in transforms}
    patch = of.get("patchify", {}).get("patch_size")
    merge = of.get("patchify", {}).get("merge_size") or of.get("resize", {}).get("pooling_kernel_size") or 1
    if not isinstance(patch, int) or not isinstance(merge, int) or isinstance(patch, bool):
        return 0, 0
    return patch, patch * merge
