"""Documents from before `pipeline.workflow`: one decoder described by its ports (`model.io`, standard, section 10).

Beside the standard's fields they carry what exporters wrote at that time: notes on every port, how caches are updated,
the caches' dtype. Notes never decide anything; they are held against the graph.
"""

from genai_compiler.read.document import DocumentFacts, Preprocessing
from genai_compiler.read.fields import Closed, Count, Dimension, Items, Name, Open
from genai_compiler.read.model import ModelFacts
from genai_compiler.read.model_io import ModelIo


class PortNote(Open):
    """What a document says of one port. dtype: `fp32`, `fp16`, `bf16`, or the graph's own name; shape: `?` unknown."""

    name: Name
    dtype: Name | None = None
    rank: Count | None = None
    shape: Items[Dimension] | None = None


class BareIo(ModelIo):
    """The ports by role, and notes on them."""

    inputs: Items[PortNote] = ()
    outputs: Items[PortNote] = ()
    kv_update: Name | None = None


class BareModel(ModelFacts):
    """Facts of the model, with the ports of its one decoder."""

    io: BareIo | None = None


class CacheNote(Closed):
    """What a document says of the caches' storage."""

    native_dtype: Name | None = None


class BareDocument(DocumentFacts):
    """A document without a workflow."""

    model: BareModel | None = None
    kv_cache: CacheNote | None = None
    preprocessing: Preprocessing | None = None
