"""Pictures and programs of the tests: a document's program made ready as the compiler and the runtime do it."""

import io
from typing import Any

import genai_runtime.adapters.image.program as runtime_program
import numpy as np
from genai_compiler.check.document import check_document
from genai_compiler.emit.programs import program_literal
from genai_compiler.plan.image_program import image_program
from genai_compiler.read.places import Places
from genai_compiler.read.validate import parse_metadata
from genai_runtime.adapters.files import join_files
from genai_runtime.adapters.image.preprocess import Preprocess
from genai_runtime.values import Array, to_array
from PIL import Image


def picture(height: int, width: int, seed: int = 0) -> Array:
    """A picture with slopes, an edge and noise: uint8 [height, width, 3]."""
    random = np.random.default_rng(seed)
    down, across = np.mgrid[0:height, 0:width]
    slopes = np.stack([down * 255 / height, across * 255 / width, 255 * (down + across > height)], axis=2)
    return np.clip(slopes + random.integers(-40, 40, (height, width, 3)), 0, 255).astype(np.uint8)


def encoded(pixels: Array, kind: str = "PNG", **options: Any) -> bytes:
    """The bytes of a picture file."""
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, kind, **options)
    return stream.getvalue()


def document(transforms: list[dict[str, Any]], outputs: list[dict[str, Any]]) -> dict[str, Any]:
    """`preprocessing.image`; an output's source and name are its content when it names none."""
    return {
        "transforms": transforms,
        "outputs": [{"source": each["content"], "name": each["content"], **each} for each in outputs],
    }


def ready(program: dict[str, Any]) -> Preprocess:
    """A document's program, checked, compiled, written as code, and read from it by the runtime's own classes."""
    places = Places("m.yaml")
    metadata = parse_metadata({"preprocessing": {"image": program}}, places)
    assert check_document(metadata, places) == ()
    assert metadata.preprocessing is not None
    assert metadata.preprocessing.image is not None
    names = [each["name"] for each in program["outputs"]]
    compiled = image_program(metadata.preprocessing.image, dict(zip(names, names, strict=True)))
    return Preprocess(eval(program_literal(compiled), vars(runtime_program)))


def made(program: dict[str, Any], *pictures: Array) -> dict[str, Array]:
    """What the runtime makes of pictures, given as PNG files."""
    data = join_files([encoded(each) for each in pictures])
    outputs = ready(program)({"encoded": np.frombuffer(data, np.uint8)})
    return {name: each if isinstance(each, np.ndarray) else to_array(each) for name, each in outputs.items()}
