"""`python -m tools.peers`: what `make bench` compares with. Heavy and networked; no test and no check needs it.

    python -m tools.peers environments [builder optimum llama]
    python -m tools.peers packages [int4 int8 fp32 tiny small medium]

The first makes an environment each, since the peers' requirements exclude one another; the second lets
onnxruntime-genai's own builder write packages in the `builder` environment. What is there already is left alone.
"""

import argparse
import sys
from pathlib import Path

from tools.peers.environments import ENVIRONMENTS, PEERS, PeerError, make_environment
from tools.peers.packages import PACKAGES, build_package
from tools.smollm2.download import DownloadError


def main(arguments: list[str] | None = None) -> int:
    """Make what is named, or everything; 2 where that fails."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.peers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("environments", "packages"))
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these (default: all)")
    parser.add_argument("--peers", type=Path, default=PEERS, help="folder of the environments and packages")
    parser.add_argument("--cache", type=Path, default=Path("build/download"), help="folder of the wheel and the GGUF")
    options = parser.parse_args(arguments)
    known = tuple(ENVIRONMENTS) if options.what == "environments" else tuple(PACKAGES)
    names = options.names or known
    if unknown := [each for each in names if each not in known]:
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(known)}")
    try:
        for name in names:
            if options.what == "environments":
                make_environment(name, options.peers)
            else:
                build_package(name, options.peers, options.cache)
    except (PeerError, DownloadError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
