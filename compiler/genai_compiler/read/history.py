"""Names this revision of the format no longer has, or does not have yet (sections 1.10, 14.2 and rule V015)."""

_WORKFLOW = "say it in pipeline.workflow"
_RUNTIME = "leave it out: storage and placement are the runtime's choice"

# (model class, field) -> (the rule broken, the way out)
RETIRED: dict[tuple[str, str], tuple[str, str]] = {
    ("LoopStep", "condition"): ("V015", "name the liveness value in continue_when"),
    ("EmitStep", "row_ids"): ("V015", "leave it out: rows are positional; guard them with when"),
    ("Serving", "slot_ids"): ("V015", _RUNTIME),
    ("Serving", "request_epochs"): ("V015", _RUNTIME),
    ("StateGroup", "paging"): ("V015", _RUNTIME),
    ("StateGroup", "allocation"): ("V015", _RUNTIME),
    ("StateGroup", "storage"): ("V015", _RUNTIME),
    ("StateGroup", "shared_buffer"): ("V015", "use aliasing: permitted, required or forbidden"),
    ("AdapterArtifact", "sha256"): ("V015", "leave it out: documents carry no hashes"),
    ("AdapterArtifact", "base_model_fingerprint"): ("V015", "leave it out: documents carry no hashes"),
    ("AdapterWeights", "sha256"): ("V015", "leave it out: documents carry no hashes"),
    ("AdapterWeights", "base_model_fingerprint"): ("V015", "leave it out: documents carry no hashes"),
    ("AdapterService", "sha256"): ("V015", "leave it out: documents carry no hashes"),
    ("AdapterService", "base_model_fingerprint"): ("V015", "leave it out: documents carry no hashes"),
    ("Workflow", "adapters"): ("V015", "move it to the top level: adapters"),
    ("Workflow", "initial_effects"): ("V003", "leave it out: effect tokens are derived"),
    ("Workflow", "graph"): ("V003", "write the steps as a list in steps"),
    ("Workflow", "phases"): ("V003", "frequency is a step's position: the root, a loop's setup, a loop's steps"),
    ("Workflow", "run_once"): ("V003", "frequency is a step's position: the root, a loop's setup, a loop's steps"),
    ("Workflow", "strategy"): ("V003", "write the steps as a list in steps"),
    ("Metadata", "kv_cache"): ("V002", "declare state cells and groups in pipeline.workflow"),
    ("Metadata", "strategy"): ("V002", _WORKFLOW),
    ("Metadata", "phases"): ("V002", _WORKFLOW),
    ("Metadata", "run_once"): ("V002", _WORKFLOW),
    ("Metadata", "graph"): ("V002", _WORKFLOW),
    ("Metadata", "initial_effects"): ("V002", "leave it out: effect tokens are derived"),
    ("Pipeline", "models"): ("V003", "this form predates workflows: declare the models as workflow.components"),
    ("Pipeline", "dataflow"): ("V003", "this form predates workflows: bind values in workflow.steps"),
    ("Pipeline", "strategy"): ("V003", "this form predates workflows: write a loop in workflow.steps"),
    ("Pipeline", "phases"): ("V003", "this form predates workflows: frequency is a step's position"),
    ("Pipeline", "vision"): ("V003", "this form predates workflows: declare the encoder as a component"),
    ("Pipeline", "positions"): ("V003", "this form predates workflows: compute positions in a component"),
    ("RuntimeConfigurable", "kv_cache"): ("V003", _RUNTIME),
    ("ModelIo", "kv_update"): ("V003", "leave it out: the graph itself says how it writes"),
    ("ModelIo", "inputs"): ("V003", "leave it out: the graph itself lists its ports"),
    ("ModelIo", "outputs"): ("V003", "leave it out: the graph itself lists its ports"),
}

DROPPED: dict[tuple[str, str], str] = {
    ("TensorContract", "rank"): "write the number of axes; documents of a newer revision of the format leave it out",
}
"""(model class, required field) -> help, for fields that later revisions no longer have."""

LATEST = (1, 0)
"""The newest schema_version that this reader knows; `v1` means the same."""

# Fields of later revisions of the format.
NEWER = frozenset(
    {
        ("TensorContract", "padding"),
        ("TokenPacked", "levels"),
        ("WorkflowOutput", "family"),
        ("WorkflowOutput", "publication"),
        ("EmitStep", "stream"),
        ("Component", "batch_capacity"),
        ("StateGroup", "properties"),
        ("BindingImplementation", "signature"),
    }
)

# Names that have their place elsewhere -> where
ELSEWHERE: dict[tuple[str, str], str] = {
    ("Metadata", "execution_hints"): "hints have no place in metadata: keep them in a file of their own, and name it "
    "with --hints",
}
