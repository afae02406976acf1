from pathlib import Path

from tools.smollm2.checkpoint import Checkpoint


def write_workflow(folder: Path, checkpoint: Checkpoint, graph: str) -> None:
    raise NotImplementedError
