"""`python -m tools.make_packages_page`: write docs/packages.md, what becomes of every package of the test data.

Compiled or refused is what the compiler says now; equal to a reference is what tests hold, package by package.
"""

import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from genai_compiler import CompileError, compile_package
from genai_compiler.convert import convert_package
from genai_compiler.driver import Options
from genai_compiler.passes import PASSES
from genai_compiler.plan.text import plan_text
from genai_compiler.problem import errors

from tests import test_bare_packages, test_conformance
from tests.data import DATA, ROOT
from tests.lower import test_plain_folder
from tests.lower.plain_folders import undeclared
from tests.lower.test_pipeline_pass import said_of
from tests.lower.test_plain_stages import unsaid
from tests.real_packages import DRAWN, ENCODED, MEDIA, NAMES, PACKAGES, PAGED, RUN, SINGLE
from tests.said_again import SAID_AGAIN, said_again

PAGE = Path(__file__).resolve().parent.parent / "docs" / "packages.md"
WORKFLOW, GENAI, AGAIN = "workflow", "genai_config v1", "genai_config v2"
IO, MODELS, PLAIN = "model.io", "pipeline.models", "plain folder"
DIALECTS = (WORKFLOW, GENAI, AGAIN, IO, MODELS, PLAIN)
HEAD = """\
# Packages: what is compiled, what runs, what equals a reference

Written by `python -m tools.make_packages_page` from the test data: packages of the field's own exporters, and the
conformance suite. *Equal* means: compiled and run, and what came out is what another runtime, PyTorch or an independent
interpreter had got (tests/test_real_packages.py, test_real_stages.py, test_real_diffusion.py, test_real_pipelines.py,
test_bare_packages.py, test_conformance.py, lower/test_plain_folder.py, lower/test_plain_stages.py and
lower/test_single_pass.py hold it, package by package); for this repository's own fixtures, what a plain loop over their
graphs gives (test_pipelines.py, test_own_tokens.py, test_stages.py, test_vision_stages.py, lower/test_config_models.py,
lower/test_pipeline_pass.py).
*Compiled* is what needs an operator that no CPU has, caches in pages (with it written out in other operators,
lower/test_paged.py gets the expected tokens). *Refused* means: with a code, a place and a way out, before anything was
written. A test holds this page against what the compiler does.

No exporter writes version 2 yet: the exporters' packages stand in its column said again in its words, and in the last
column once more, without their metadata ([plain folders](plain-folders.md)).
"""
SAME = ("og-llama", "mobius-llama-og", "mobius-llama-meta")
"""One checkpoint through three dialects."""
FIXTURES = {
    "tiny-encoder-decoder-v1": (GENAI, "encoder-decoder, caches computed once"),
    "tiny-stages-v1": (GENAI, "decoder in stages"),
    "tiny-vision-stages-v1": (GENAI, "vision model and decoder in stages"),
    "tiny-own-tokens-v1": (GENAI, "pictures and sound before an embedding"),
    "tiny-minimal-v2": (AGAIN, "dense decoder"),
    "tiny-encoder-v2": (AGAIN, "encoder-decoder"),
    "tiny-vision-v2": (AGAIN, "VLM"),
    "tiny-embedder-v2": (AGAIN, "text encoder"),
    "tiny-media-v2": (AGAIN, "pictures and sound before an embedding"),
}
"""Classes of which the exporters' data have no package in that dialect of its own; each has a test of its tokens."""


@dataclass(frozen=True)
class Row:
    """One package as the compiler sees it. code: of the first refusal, "" when it compiles; equal: tests hold it so."""

    name: str
    dialect: str
    kind: str
    code: str
    equal: bool


def page() -> str:
    """The whole page."""
    with tempfile.TemporaryDirectory() as folder:
        rows = [*_real(), *_suite(), *_fixtures(), *_again(Path(folder)), *_plain(Path(folder))]
        return "\n".join([HEAD, *_summary(rows), *_listing(rows), *_side_by_side(Path(folder)), ""])


# ---- rows ------------------------------------------------------------------------------------------------------------


def _real() -> Iterator[Row]:
    kinds = _kinds()
    for name in NAMES:
        code = refusal(PACKAGES / name)
        yield Row(name, _dialect(PACKAGES / name), kinds[name], code, name in (*RUN, *ENCODED, *MEDIA, *SINGLE, *DRAWN))


def _suite() -> Iterator[Row]:
    folder = DATA / "conformance" / "packages"
    offered = test_conformance.workflow_packages()
    for name in test_conformance.workflow_packages():
        yield Row(name, WORKFLOW, "authored workflow", refusal(folder / name), name in offered)
    for name in (*test_bare_packages.NAMES, *(each for each, _, _ in test_bare_packages.REFUSED)):
        yield Row(name, IO, "dense decoder", refusal(folder / name), name in test_bare_packages.NAMES)


def _fixtures() -> Iterator[Row]:
    for name, (dialect, kind) in FIXTURES.items():
        code = refusal(ROOT / "fixtures" / name)
        yield Row(name, dialect, kind, code, not code)


def _again(folder: Path) -> Iterator[Row]:
    kinds = _kinds()
    for name in SAID_AGAIN:
        yield Row(name, AGAIN, kinds[name], refusal(said_again(name, folder / AGAIN / name)), True)
    for name in SINGLE:
        yield Row(name, AGAIN, kinds[name], refusal(said_of(name, folder / AGAIN / name)), True)


def _plain(folder: Path) -> Iterator[Row]:
    kinds = _kinds()
    equal = (*test_plain_folder.ALONE, *SINGLE)
    for name in (*equal, *PAGED, *(each for each, _, _ in test_plain_folder.REFUSED)):
        made = undeclared(PACKAGES / name, folder / name, test_plain_folder.model_config(name))
        yield Row(name, PLAIN, kinds[name], refusal(made), name in equal)
    for name in ENCODED:
        yield Row(name, PLAIN, kinds[name], refusal(unsaid(name, folder / "stages" / name)), True)


def refusal(package: Path) -> str:
    """The code of the first error, "" where the package compiles."""
    try:
        compile_package(package, options=Options(stop_after=PASSES[-1].__name__))
    except CompileError as refused:
        return errors(refused.problems)[0].code
    return ""


def _kinds() -> dict[str, str]:
    """Package -> its class, in the words of the data's index without the name of the network."""
    index = (PACKAGES / "INDEX.md").read_text("utf-8")
    rows = re.findall(r"^\| ([\w.-]+) \| [^|]+ \| ([^|]+) \|", index, re.MULTILINE)
    return {name: re.split(r"[(,]", kind)[0].strip() for name, kind in rows}


def _dialect(package: Path) -> str:
    if (package / "genai_config.json").is_file():
        return GENAI
    return MODELS if "\npipeline:" in "\n" + (package / "inference_metadata.yaml").read_text("utf-8") else IO


# ---- tables ----------------------------------------------------------------------------------------------------------


def _summary(rows: Sequence[Row]) -> Iterator[str]:
    kinds = sorted({each.kind for each in rows})
    yield "| class | " + " | ".join(DIALECTS) + " |"
    yield "|---" * (len(DIALECTS) + 1) + "|"
    for kind in kinds:
        cells = [_cell([each for each in rows if (each.kind, each.dialect) == (kind, one)]) for one in DIALECTS]
        yield f"| {kind} | " + " | ".join(cells) + " |"
    yield ""
    equal, refused = sum(each.equal for each in rows), sum(bool(each.code) for each in rows)
    yield f"{len(rows)} packages: {equal} equal, {len(rows) - equal - refused} compiled only, {refused} refused."


def _cell(rows: Sequence[Row]) -> str:
    equal = [each for each in rows if each.equal]
    only = [each for each in rows if not each.equal and not each.code]
    codes = sorted({each.code for each in rows if each.code})
    parts = [f"{len(equal)} equal"] if equal else []
    parts += [f"{len(only)} compiled"] if only else []
    parts += [f"{sum(each.code == code for each in rows)} refused ({code})" for code in codes]
    return ", ".join(parts)


def _listing(rows: Sequence[Row]) -> Iterator[str]:
    yield "\n## Package by package\n"
    yield "| package | dialect | class | compiles | equal |"
    yield "|---|---|---|---|---|"
    for each in rows:
        compiles = f"no: `{each.code}`" if each.code else "yes"
        yield f"| {each.name} | {each.dialect} | {each.kind} | {compiles} | {'yes' if each.equal else '-'} |"


# ---- one network through several dialects ----------------------------------------------------------------------------


def one_network(folder: Path) -> dict[str, Path]:
    """Packages of one checkpoint by what they are: three dialects of exporters, and one of these said in the others."""
    one = SAME[1]
    lowered = folder / "converted" / one
    shutil.copytree(PACKAGES / one, lowered)
    (lowered / "inference_metadata.yaml").write_text(convert_package(PACKAGES / one).text, "utf-8")
    return {name: PACKAGES / name for name in SAME} | {
        "version 2": said_again(one, folder / "again" / one),
        "converted": lowered,
        "plain folder": undeclared(PACKAGES / one, folder / "plain" / one, test_plain_folder.model_config(one)),
    }


def _side_by_side(folder: Path) -> Iterator[str]:
    texts = {name: shape(each) for name, each in one_network(folder).items()}
    yield "\n## One network through several dialects\n"
    yield "The plans of one checkpoint: two exporters, three dialects; and the second one's package said in version 2,"
    yield "converted to a workflow, and without its metadata. The program is one; what differs is what the graphs"
    yield "differ in. Origins and the defaults of requests are left out."
    yield ""
    yield "| | " + " | ".join(texts) + " |"
    yield "|---" * (len(texts) + 1) + "|"
    facts = {name: _facts(text) for name, text in texts.items()}
    for key in next(iter(facts.values())):
        yield f"| {key} | " + " | ".join(each.get(key, "-") for each in facts.values()) + " |"
    bodies = {body(text) for text in texts.values()}
    for each in sorted(bodies):
        yield f"\n```text\n{each}\n```"


def shape(package: Path) -> str:
    """The last plan of a package without what names its source: origins, dialect, values of requests."""
    last = PASSES[-1].__name__
    plan = compile_package(package, options=Options(stop_after=last)).plan
    assert plan is not None
    lines = [line.split("  # ")[0].rstrip() for line in plan_text(plan).splitlines()[1:]]
    kept = [
        re.sub(r",? default .*", "", line) for line in lines if not line.startswith(("requires ", "input %package.eos"))
    ]
    return "\n".join(kept)


def body(text: str) -> str:
    """The run of a plan's text."""
    return text[text.index("run {") : text.index("\n}") + 2]


def _facts(text: str) -> dict[str, str]:
    found = {"token ids": r"tokens (\S+ \(\w+\))", "mask": r"  (?:mask|in a mask's place) (.*)"}
    found |= {
        "positions": r"  positions (.*)",
        "caches": r"group \w+ of decoder: (.*)",
        "rows together": r"rows of different length: (\w+)",
    }
    return {key: match[1] if (match := re.search(pattern, text)) else "-" for key, pattern in found.items()}


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), "utf-8")


if __name__ == "__main__":
    main()
