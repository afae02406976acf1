"""Values drawn from a JSON Schema: what it says of type, members and choices is followed, and now and then not."""

from typing import Any, cast

from hypothesis import strategies as st

from tests.read.mutations import ODD_VALUES

Draw = Any
DEEPEST = 7
WORDS = ("x", "batch", "tokens", "y.z", "")


class Drawn:
    """Draws values of one schema. wrong: how many of a hundred choices go against it."""

    def __init__(self, draw: Draw, root: dict[str, Any], wrong: int) -> None:
        self._draw, self._root, self._wrong = draw, root, wrong

    def value(self, schema: Any, depth: int = 0) -> Any:
        """A value that mostly fits `schema`."""
        schema = self._resolved(schema)
        if self._goes_wrong():
            return self._pick(ODD_VALUES)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return self._pick(schema["enum"])
        kind = schema.get("type")
        kind = self._pick(kind) if isinstance(kind, list) else kind
        match kind:
            case "object":
                return self._object(schema, depth)
            case "array":
                return self._array(schema, depth)
            case "string":
                return self._pick([each for each in WORDS if len(each) >= schema.get("minLength", 0)])
            case "integer":
                least = schema.get("minimum", -2)
                return self._draw(st.integers(least, min(least + 4, schema.get("maximum", least + 4))))
            case "number":
                return self._pick([schema.get("minimum", 0), schema.get("minimum", 0) + 0.5, 3])
            case "boolean":
                return self._draw(st.booleans())
            case "null":
                return None
            case _:
                return self._pick(ODD_VALUES)

    def _resolved(self, schema: Any) -> dict[str, Any]:
        """References followed and one choice made, its keywords beside those of the schema itself."""
        while isinstance(schema, dict):
            if "$ref" in schema:
                target: Any = self._root
                for step in schema["$ref"].removeprefix("#/").split("/"):
                    target = target[step]
                schema = {**target, **{key: each for key, each in schema.items() if key != "$ref"}}
                continue
            choice = next((key for key in ("oneOf", "anyOf") if key in schema), None)
            if choice is None:
                return cast("dict[str, Any]", schema)
            rest = {key: each for key, each in schema.items() if key != choice}
            schema = _both(rest, self._pick(schema[choice]))
        return {}

    def _object(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        required, found = schema.get("required", ()), dict[str, Any]()
        for name, each in schema.get("properties", {}).items():
            wanted = name in required or (depth < DEEPEST and self._draw(st.integers(0, 2)) == 0)
            if wanted != self._goes_wrong():
                found[name] = self.value(each, depth + 1)
        more = schema.get("additionalProperties", True)
        if isinstance(more, dict) and depth < DEEPEST:
            for name in self._draw(st.lists(st.sampled_from(("a", "b", "c.d")), max_size=2, unique=True)):
                found[name] = self.value(more, depth + 1)
        if self._goes_wrong() or (more is True and self._draw(st.integers(0, 9)) == 0):
            found["future"] = 1
        return found

    def _array(self, schema: dict[str, Any], depth: int) -> list[Any]:
        least = schema.get("minItems", 0)
        count = self._draw(st.integers(least, least + (2 if depth < DEEPEST else 0)))
        return [self.value(schema.get("items", {}), depth + 1) for _ in range(count)]

    def _goes_wrong(self) -> bool:
        return bool(self._wrong) and self._draw(st.integers(1, 1000)) <= self._wrong

    def _pick(self, choices: Any) -> Any:
        return self._draw(st.sampled_from(list(choices)))


def _both(one: dict[str, Any], other: Any) -> dict[str, Any]:
    other = other if isinstance(other, dict) else {}
    properties = {**one.get("properties", {}), **other.get("properties", {})}
    required = [*one.get("required", ()), *other.get("required", ())]
    return {**one, **other, **({"properties": properties} if properties else {}), "required": required}


@st.composite
def documents(draw: Draw, schema: dict[str, Any], wrong: int) -> Any:
    """Whole documents. wrong: of a thousand choices, how many go against the schema."""
    return Drawn(draw, schema, wrong).value(schema)
