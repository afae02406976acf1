"""A compiled folder -> a Model: check, begin to open sessions, import the executor meanwhile."""

import hashlib
import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import SourceFileLoader
from pathlib import Path
from threading import RLock
from types import ModuleType
from typing import TYPE_CHECKING, Any

from genai_runtime import abi, binding
from genai_runtime.cores import allowed_cores
from genai_runtime.huge_pages import gathered_behind
from genai_runtime.kernels import check_kernels
from genai_runtime.late_files import LateFiles
from genai_runtime.length_switch import hold_choice
from genai_runtime.manifest import COMPILE_AGAIN, Manifest, check_files, read_manifest, unreadable
from genai_runtime.placement import placed
from genai_runtime.policy_graphs import policy_graphs
from genai_runtime.problem import GenaiError, LoadError
from genai_runtime.prompt_chunks import loaded_chunk
from genai_runtime.providers import CPU, check_active, preferred_by_package, wanted_by_user
from genai_runtime.sessions import Graph, Halves, Sessions, Settings, Table

if TYPE_CHECKING:
    from genai_runtime.lora.service import LoraService
    from genai_runtime.model import Model
    from genai_runtime.stored import Stored
    from genai_runtime.timings import Timings
    from genai_runtime.tokenizer import Tokenizer

MAX_THREADS = 1024
_IMPORTING = RLock()
"""Held while an executor is imported: another thread that loads the same folder would find half a module."""


def load(
    folder: str | Path,
    providers: str | Sequence[str] | None = None,
    threads: int | None = None,
    verify: bool = False,
    timings: bool = False,
    prefill_chunk: int | None = None,
    policy: str | None = None,
    length_switch: str = "keep",
    text: bool = False,
    eager: bool = False,
) -> "Model":
    """Load a compiled folder.

    providers: an execution provider, or several in order, any spelling; strict: one that can't be used is an error.
    None: what the package prefers where it exists (a notice is logged where not), else CPU. threads: intra-op threads,
    default: the cores this process really has (cores.py). verify: check large files by content too. timings: note where
    time goes, in `model.timings`. prefill_chunk: tokens of a prompt that one run takes at most, for decoders that this
    runtime drives: less memory for long prompts; 0: all of them; None: what the package asks for.
    policy: who draws sampled tokens, `host` or `graph`; None: the
    folder's choice. length_switch: where a graph takes other tables of positions behind a length, `keep` what the
    caches hold, `recompute` it there, or `refuse` requests that would cross it. text: requests bring text, so that the
    tokenizer is opened beside the sessions, not by the first of them. eager: open also what only some requests need (a
    model of pictures, say), which otherwise the first of these opens; so it is where providers are named. The folder's
    executor.py is code and is executed: load only what you trust as you would trust a Python package.
    Raises LoadError: not-compiled, damaged-folder, abi-mismatch, package-moved, package-changed, unknown-provider,
    provider-unavailable, no-kernel, session-failed, onnxruntime-missing, bad-threads, bad-chunk, bad-policy,
    no-policy-graphs, bad-length-switch, bad-huge-pages, unreadable-file, bad-path.
    """
    binding.require()
    hold_choice(length_switch)
    manifest, files = _checked(Path(folder), verify)
    chunk = loaded_chunk(prefill_chunk, manifest.data)
    strict = wanted_by_user(providers) if providers is not None else ()
    chosen, notices = (strict, ()) if strict else preferred_by_package(manifest.data["session"]["providers"])
    options, reason = _options(manifest.data["session"]["options"], threads)
    common = Settings(chosen, options, reason)
    own, more = placed(manifest.data["placement"], common, strict=bool(strict))
    check_kernels(manifest.data["kernels"], common, own)
    stored, told = _stored(manifest)
    if notices or more or told:
        import logging

        for each in (*notices, *told):
            logging.getLogger("genai_runtime").warning("%s", each)
        for each in more:  # of advice that compiling has told: it changes no result
            logging.getLogger("genai_runtime").info("%s", each)
    notices = (*notices, *more, *told)
    noted = _timings(manifest) if timings else None
    drawn = policy_graphs(manifest.data["policy_graphs"], manifest.folder, policy)
    driven = noted, chunk, drawn, length_switch
    sessions = Sessions(
        _graphs(manifest, stored), common, own, _lora(manifest), _tables(manifest), *driven, files, _parts(manifest)
    )
    seldom = manifest.data.get("on_demand", ()) if eager or strict else ()
    opens = (*manifest.data.get("opens", ()), *seldom)
    with gathered_behind(sum(each["size"] for each in manifest.data["files"])), sessions.ahead(opens):
        made = _executor_class(manifest)
        from genai_runtime.model import Model

        tokenizer = _tokenizer(manifest) if text else None
        executor = _executor(made, manifest, sessions)
        for each in seldom:
            sessions.session(each)
    if noted is not None:
        noted.watch_adapters(executor)
    check_active(sessions.active_providers(), tuple(each for each in strict if each[0] != CPU))
    model = Model(manifest, executor, sessions, notices)
    if tokenizer is not None:
        model.tokenizer = tokenizer
    return model


def _tokenizer(manifest: Manifest) -> "Tokenizer | None":
    """The package's tokenizer; None where it has none that opens, which is told when text is asked for."""
    from genai_runtime.text_files import TextFiles
    from genai_runtime.tokenizer import open_tokenizer

    try:
        return open_tokenizer(manifest.package, TextFiles.from_dict(manifest.data["text"]))
    except LoadError:
        return None


def _lora(manifest: Manifest) -> "LoraService | None":
    spec = manifest.lora
    if spec is None:
        return None
    from genai_runtime.lora.service import LoraService

    return LoraService(manifest.package, spec)


def _timings(manifest: Manifest) -> "Timings":
    from genai_runtime.timings import Timings

    return Timings(origins=manifest.data.get("origins") or {})


def _checked(folder: Path, verify: bool) -> tuple[Manifest, LateFiles]:
    try:
        manifest = read_manifest(folder, abi.ABI_VERSION)
        files = LateFiles(manifest)
        check_files(manifest, verify)
    except OSError as failure:
        raise unreadable(failure) from failure
    return manifest, files


def _stored(manifest: Manifest) -> "tuple[Mapping[str, Stored], tuple[str, ...]]":
    """What the folder has of optimised graphs, and notices of what is not used."""
    if manifest.data.get("stored") is None:
        return {}, ()
    from genai_runtime.stored import stored_graphs

    return stored_graphs(manifest)


def _graphs(manifest: Manifest, stored: "Mapping[str, Stored]") -> dict[str, Graph]:
    homes = {"package": manifest.package, "compiled": manifest.folder}
    parts = {graph for each in manifest.data.get("parts", {}).values() for graph in each["graphs"]}
    graphs = {
        name: Graph(
            homes[each["in"]] / each["file"],
            manifest.weights(each["weights"]),
            each["lengths_vary"],
            stored.get(name),
            name in parts,
        )
        for name, each in manifest.data["graphs"].items()
    }
    for path in (path for graph in graphs.values() for path in (graph.file, graph.weights)):
        try:
            str(path).encode()
        except UnicodeEncodeError as fault:
            what = f"ONNX Runtime opens only names that are UTF-8, and {str(path)!r} is none"
            raise LoadError("bad-path", what, help="rename the folder") from fault
    return graphs


def _parts(manifest: Manifest) -> dict[str, Halves]:
    stated = manifest.data.get("parts", {}).items()
    return {name: Halves(tuple(each["graphs"]), tuple(each["crossing"])) for name, each in stated}


def _tables(manifest: Manifest) -> dict[str, Table]:
    homes = {"package": manifest.package, "compiled": manifest.folder}
    return {
        name: Table(homes[each["in"]] / each["file"], each["offset"], each["dtype"], tuple(each["dims"]))
        for name, each in manifest.data["tables"].items()
    }


def _options(stated: dict[str, Any], threads: int | None) -> tuple[dict[str, str | int | bool], str]:
    """Session options, and why so many threads: the package's, else the cores there are; the user's beat both."""
    options = {"inter_op_num_threads": 1, "log_severity_level": 3, **stated}
    whole: Any = threads
    if whole is not None and (whole is True or not hasattr(whole, "__index__") or not 1 <= whole <= MAX_THREADS):
        what = f"threads is a whole number within 1..{MAX_THREADS}, got {threads!r}"
        raise LoadError("bad-threads", what, help="leave it out for the cores that this process may use")
    if threads is not None:
        return {**options, "intra_op_num_threads": threads}, "asked for"
    if "intra_op_num_threads" in options:
        return options, "the package's session options"
    cores = allowed_cores()
    return {**options, "intra_op_num_threads": cores.number}, cores.reason


def _executor(made: Any, manifest: Manifest, sessions: Sessions) -> Any:
    try:
        return made(sessions)
    except (GenaiError, MemoryError):
        raise
    except (Exception, SystemExit) as failure:
        what = f"the Executor of '{manifest.executor}' can't be made: {failure!r}"
        raise LoadError("damaged-folder", what, help=COMPILE_AGAIN) from failure


def _executor_class(manifest: Manifest) -> Any:
    home = hashlib.sha256(os.fsencode(manifest.executor.resolve())).hexdigest()[:8]
    name = f"genai_executor_{manifest.data['executor_sha256'][:16]}_{home}"
    with _IMPORTING:
        module = sys.modules.get(name) or _import(name, manifest.executor, manifest.data["executor_sha256"])
    made_for = getattr(module, "ABI_VERSION", None)
    if made_for == abi.ABI_VERSION and hasattr(module, "Executor"):
        return module.Executor
    sys.modules.pop(name, None)
    if made_for == abi.ABI_VERSION:
        raise LoadError("damaged-folder", f"'{manifest.executor}' has no Executor", help=COMPILE_AGAIN)
    what = f"executor.py in '{manifest.folder}' is written for ABI {made_for}, this runtime has {abi.ABI_VERSION}"
    raise LoadError("abi-mismatch", what, help=COMPILE_AGAIN)


class _ByContent(SourceFileLoader):
    """Takes compiled code of a source with this hash only.

    Python tells by time stamp and size whether that is of the source. An executor that was written over another one may
    share both with it: numbers of as many digits, time stamps that an archive or an image has made equal.
    """

    def __init__(self, name: str, file: str, sha256: str) -> None:
        super().__init__(name, file)
        self._stamp = int(sha256[:8], 16)

    def path_stats(self, path: str) -> Mapping[str, Any]:
        return {**super().path_stats(path), "mtime": self._stamp}


def _import(name: str, file: Path, sha256: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, file, loader=_ByContent(name, str(file), sha256))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as failure:
        del sys.modules[name]
        if not isinstance(failure, Exception | SystemExit):
            raise
        raise LoadError("damaged-folder", f"'{file}' can't be imported: {failure!r}", help=COMPILE_AGAIN) from failure
    return module
