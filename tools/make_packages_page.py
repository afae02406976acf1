"""`python -m tools.make_packages_page`: write docs/packages.md, what becomes of every package of the test data.

Each package is compiled, loaded, and its first case run now (package_runs.py); nothing in the tables is stated here.
"""

import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from genai_compiler import compile_package
from genai_compiler.convert import convert_package
from genai_compiler.driver import Options
from genai_compiler.passes import PASSES
from genai_compiler.plan.text import plan_text

from tests import test_bare_packages, test_conformance
from tests.data import DATA, ROOT
from tests.lower import test_plain_folder
from tests.lower.plain_folders import undeclared
from tests.lower.test_pipeline_pass import said_of
from tests.lower.test_plain_stages import seen_unsaid, unsaid
from tests.paged_graphs import write_out
from tests.real_packages import DRAWN, ENCODED, MEDIA, NAMES, PACKAGES, PAGED, RUN, SINGLE
from tests.said_again import SAID_AGAIN, said_again
from tools.package_runs import Outcome, generated, of_bare, of_exporter, of_fixture, of_workflow, outcome

PAGE = Path(__file__).resolve().parent.parent / "docs" / "packages.md"
WORKFLOW, GENAI, AGAIN = "workflow", "genai_config v1", "genai_config v2"
IO, MODELS, PLAIN = "model.io", "pipeline.models", "plain folder"
DIALECTS = (WORKFLOW, GENAI, AGAIN, IO, MODELS, PLAIN)
HEAD = """\
# Packages: what is compiled, what runs, what equals a reference

Written by `python -m tools.make_packages_page`, which takes every package of the test data (packages of the field's own
exporters, the conformance suite, and fixtures of this repository for classes that neither has), compiles it into a
temporary folder, loads that on the CPU and runs the package's first case:

- *compiles*: a compiled folder was written; else the code of the refusal, which has a place and a way out and leaves
  nothing behind;
- *runs*: it was loaded and the case ran to its end; else the code of the refusal;
- *equals*: what came out is what another runtime, PyTorch or an independent interpreter had got; of a fixture, what a
  plain loop over its graphs gives.

Caches in pages need an operator that no CPU has. Such packages compile and plan; they run where the operator has a
kernel, which no test has seen. Their last column is of the same package with the operator written out in others, as in
tests/lower/test_paged.py; without metadata only the operator tells that there are pages, so there it can't be.

A test makes this page anew and compares; others run all cases of each package, rows together and step by step.

No exporter writes version 2 yet: the exporters' packages stand in its column said again in its words, and in the last
column once more, without their metadata ([plain folders](plain-folders.md)).

An empty cell: the data has no package of that class in that dialect. Of what is compiled, no row shows speech
encoder-decoders of version 1 (tests/test_v1_classes.py says an exporter's package again in its words) and DPM-Solver
(tests/runtime/test_diffusion.py, of a fixture). Diffusion as a plain folder is not read: nothing but metadata says how
its graphs go together.
"""
SAME = ("og-llama", "mobius-llama-og", "mobius-llama-meta")
"""One checkpoint through three dialects."""
FIXTURES = {
    "tiny-encoder-decoder-v1": (GENAI, "encoder-decoder, caches computed once"),
    "tiny-ssru-v1": (GENAI, "encoder and recurrent decoder"),
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
    """One package and what became of it. written_out: the same with paged attention in other operators."""

    name: str
    dialect: str
    kind: str
    made: Outcome
    written_out: Outcome | None = None

    @property
    def compiles(self) -> bool:
        """A compiled folder was written."""
        return not self.made.refused

    @property
    def runs(self) -> bool:
        """Its first case ran to its end."""
        return self.compiles and not self.made.failed

    @property
    def equals(self) -> bool:
        """What came out is the reference's."""
        return self.runs and self.made.equal


def page() -> str:
    """The whole page."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = [*_real(folder), *_suite(), *_fixtures(folder), *_again(folder), *_plain(folder)]
        return "\n".join([HEAD, *_summary(rows), *_listing(rows), *_side_by_side(folder), ""])


# ---- rows ------------------------------------------------------------------------------------------------------------


def _real(folder: Path) -> Iterator[Row]:
    kinds = _kinds()
    for name in NAMES:
        package, ran = PACKAGES / name, name in (*RUN, *ENCODED, *MEDIA, *SINGLE, *DRAWN, *PAGED)
        check = of_exporter(name) if ran else None
        yield Row(name, _dialect(package), kinds[name], outcome(package, check), _paged(name, folder))


def _suite() -> Iterator[Row]:
    folder = DATA / "conformance" / "packages"
    for name in test_conformance.workflow_packages():
        yield Row(name, WORKFLOW, "authored workflow", outcome(folder / name, of_workflow(name)))
    for name in test_bare_packages.NAMES:
        yield Row(name, IO, "dense decoder", outcome(folder / name, of_bare(name)))
    for name, _, _ in test_bare_packages.REFUSED:
        yield Row(name, IO, "dense decoder", outcome(folder / name, None))


def _fixtures(folder: Path) -> Iterator[Row]:
    for name, (dialect, kind) in FIXTURES.items():
        (home := folder / "loops" / name).mkdir(parents=True)
        yield Row(name, dialect, kind, outcome(ROOT / "fixtures" / name, of_fixture(name, home)))


def _again(folder: Path) -> Iterator[Row]:
    kinds = _kinds()
    for name in (*SAID_AGAIN, *SINGLE):
        said = said_of if name in SINGLE else said_again
        made = said(name, folder / AGAIN / name)
        yield Row(name, AGAIN, kinds[name], outcome(made, of_exporter(name, starts=False)))


def _plain(folder: Path) -> Iterator[Row]:
    kinds = _kinds()
    ran = (*test_plain_folder.ALONE, *SINGLE, *PAGED)
    for name in (*ran, *(each for each, _, _ in test_plain_folder.REFUSED)):
        made = undeclared(PACKAGES / name, folder / name, test_plain_folder.model_config(name))
        check = None if name not in ran else of_exporter(name) if name in SINGLE else generated(name)
        yield Row(name, PLAIN, kinds[name], outcome(made, check))
    for name in ENCODED:
        made = unsaid(name, folder / "stages" / name)
        yield Row(name, PLAIN, kinds[name], outcome(made, of_exporter(name, starts=False)))
    for name in MEDIA:
        yield Row(name, PLAIN, kinds[name], outcome(seen_unsaid(name, folder / "media" / name), of_exporter(name)))


def _paged(name: str, folder: Path) -> Outcome | None:
    """Of a package that needs it: the same with its attention written out."""
    if name not in PAGED:
        return None
    return outcome(write_out(PACKAGES / name, folder / "written out" / name), generated(name))


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
    yield "Each cell: how many packages *compile / run / equal* their reference; then the refused, with their codes."
    yield ""
    yield "| class | " + " | ".join(DIALECTS) + " |"
    yield "|---" * (len(DIALECTS) + 1) + "|"
    for kind in kinds:
        cells = [_cell([each for each in rows if (each.kind, each.dialect) == (kind, one)]) for one in DIALECTS]
        yield f"| {kind} | " + " | ".join(cells) + " |"
    yield ""
    compiled, run, equal = _counts(rows)
    refused = len(rows) - compiled
    yield f"{len(rows)} packages: {compiled} compile, {run} run, {equal} equal their reference, {refused} are refused."


def _counts(rows: Sequence[Row]) -> tuple[int, int, int]:
    return sum(each.compiles for each in rows), sum(each.runs for each in rows), sum(each.equals for each in rows)


def _cell(rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    codes = Counter(each.made.refused for each in rows if not each.compiles)
    parts = [" / ".join(map(str, _counts(rows)))] if any(each.compiles for each in rows) else []
    parts += [f"{codes[code]} refused (`{code}`)" for code in sorted(codes)]
    return "; ".join(parts)


def _listing(rows: Sequence[Row]) -> Iterator[str]:
    yield "\n## Package by package\n"
    yield "| package | dialect | class | compiles | runs | equals |"
    yield "|---|---|---|---|---|---|"
    for each in rows:
        yield f"| {each.name} | {each.dialect} | {each.kind} | " + " | ".join(_columns(each)) + " |"


def _columns(row: Row) -> tuple[str, str, str]:
    if not row.compiles:
        return f"no: `{row.made.refused}`", "-", "-"
    if row.runs:
        return "yes", "yes", "yes" if row.equals else "no"
    alike = "-" if row.written_out is None else f"written out: {'yes' if row.written_out.equal else 'no'}"
    return "yes", f"no: `{row.made.failed}`", alike


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
