"""Codes of reading faults, and the rules of the metadata standard (section 12.1) that each one stands for."""

RULES: dict[str, tuple[str, ...]] = {
    # the file as text
    "not-utf8": ("V001",),
    "invalid-yaml": ("V001",),
    "invalid-json": ("V001",),
    "several-documents": ("V001",),
    "not-a-mapping": ("V001",),
    "duplicate-key": ("V001",),
    "odd-key": ("V001",),
    "merge-key": ("V001",),
    "yaml-tag": ("V001",),
    "bad-alias": ("V001",),
    "number-out-of-range": ("V008",),
    # the fields
    "unknown-field": ("V002", "V003", "V023"),
    "retired-field": ("V002", "V003", "V015"),
    "missing-field": ("V004", "V012", "V013", "V020", "V021"),
    "wrong-type": ("V005",),
    "not-in-list": ("V006", "V023"),
    "missing-kind": ("V007",),
    "unknown-kind": ("V007", "V014"),
    "fractional-number": ("V008",),
    "below-minimum": ("V008", "V016", "V022", "V023"),
    "out-of-range": ("V008",),
    "bad-extent": ("V009",),
    "empty-string": ("V010", "V011", "V017"),
    "empty-list": ("V018",),
    "duplicate-item": ("V019",),
    "empty-selector": ("V023",),
    "ports-beside-workflow": ("V024",),
    # bounds of this reader; no rule of the standard speaks of them
    "unreadable-file": (),
    "outside-package": (),
    "not-a-file": (),
    "file-too-large": (),
    "forbidden-character": (),
    "too-deep": (),
    "too-many-values": (),
    "too-long": (),
    "too-many-problems": (),
}

# Missing fields with a rule of their own: (struct, field) -> rule. Every other one breaks V004.
MISSING: dict[tuple[str, str], str] = {
    ("AdapterWeights", "scale_encoding"): "V012",
    ("EmitStep", "mode"): "V013",
    ("WorkflowOutput", "stage"): "V013",
    ("StateCell", "recurrence"): "V013",
    ("StateCell", "scope"): "V013",
    ("Component", "implementation"): "V013",
    ("WorkflowInput", "role"): "V013",
    ("WorkflowInput", "source"): "V013",
    ("StatePair", "init"): "V021",
    ("StatePair", "update"): "V021",
}
