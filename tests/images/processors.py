"""Processor files written for a test, compiled to a program, and the program run by the runtime."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
from genai_compiler.emit.programs import program_literal
from genai_compiler.plan.image_processor import processor_program
from genai_compiler.read.image_processor import read_image_processor
from genai_runtime.adapters.files import join_files
from genai_runtime.adapters.image import program as classes
from genai_runtime.adapters.image.preprocess import image_preprocess
from genai_runtime.pictures import png_bytes

Array = np.ndarray[Any, Any]
DECODE = {"type": "DecodeImage", "name": "decode", "attrs": {"color_space": "RGB"}}
RESCALE = {"type": "Rescale"}


def processor_file(folder: Path, *operations: dict[str, Any]) -> Path:
    """A file of the extensions' dialect."""
    file = folder / "processor.json"
    transforms = [{"operation": {"name": "one", **each}} for each in operations]
    file.write_text(json.dumps({"processor": {"name": "p", "transforms": transforms}}))
    return file


def picture(height: int, width: int) -> tuple[Array, bytes]:
    """Random levels, and the PNG file of them."""
    levels = np.random.default_rng(height).integers(0, 256, (height, width, 3), np.uint8)
    return levels, png_bytes(levels)


def made(file: Path, files: list[bytes], *outputs: str) -> dict[str, Array]:
    """What the file's program makes of pictures, its constant written as generated code and read from there."""
    ports = [(each, "float32" if each == "pixel_values" else "int64") for each in outputs or ("pixel_values",)]
    text = program_literal(processor_program(read_image_processor(file.parent, file.name), ports))
    program = eval(text, dict(vars(classes)))
    encoded = np.frombuffer(join_files(files), np.uint8)
    return {name: np.asarray(each) for name, each in image_preprocess({}, program)({"encoded": encoded}).items()}


def opened(levels: Array) -> Any:
    """The picture as Pillow has it."""
    from PIL import Image

    return Image.open(io.BytesIO(png_bytes(levels)))
