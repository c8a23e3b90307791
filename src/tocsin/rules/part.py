"""Part: base class of the pydantic models of rule files and test files, the kinds of their fields, and their reader.

Each mapping of a file is a model. A field takes the node of its value, so that errors have positions. A field with an
error has no value, and the other fields of its mapping are read. A field that is a part of its own keeps its node; the
reader of its section reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PlainValidator,
    ValidationInfo,
)

from tocsin.rules.compose import MapNode, Node, Scalar
from tocsin.rules.context import Context, found
from tocsin.rules.suggestions import nearest_or_all

Json = dict[str, Any]

# Kind -> its name in messages and on the reference page.
KINDS: Mapping[str, str] = {
    "text": "text",
    "names": "a name, or a list of names",
    "word": "one of some words",
    "whole": "an integer",
    "number": "a number",
    "duration": "a duration",
    "time": "a time, or `now`",
    "path": "a path",
    "url": "a URL",
    "map": "a mapping of names to text",
}
# Marks of required fields and of models in the output of pydantic. They are replaced.
REQUIRED, MODEL = "x-required", "x-model"
NOTHING: Json = {"type": "null"}
BOOLEANS = ("true", "false")
# JSON Schema of each kind. YAML has numbers and booleans where a rule file has text.
TEXT: Json = {"type": ["string", "number", "boolean"]}
DURATION: Json = {
    "anyOf": [{"type": "string", "pattern": r"^\s*[+-]?([0-9]+(ms|us|w|d|h|m|s))+\s*$|^0$"}, {"const": 0}]
}
_SCHEMAS: Mapping[str, Json] = {
    "text": TEXT,
    "whole": {"type": "integer"},
    "number": {"type": "number"},
    "duration": DURATION,
    "time": {"type": "string"},
    "path": {"type": "string"},
    "url": {"type": "string"},
    "map": {"type": "object", "additionalProperties": TEXT},
}


@dataclass(frozen=True)
class Kind:
    """Kind of a field: the values that it takes. It gives pydantic the reader of the field."""

    kind: str
    words: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    secret: bool = False
    name: str = ""

    def __str__(self) -> str:
        """Return the values as messages and the reference page name them."""
        if self.words:
            words = ", ".join(f"`{word}`" for word in self.words)
            return f"one or a list of {words}" if self.kind == "names" else words
        text = KINDS[self.kind]
        if self.kind == "duration":
            return f"{text} above 0" if self.least else text
        if self.least is not None:
            text += f" from {self.least:g}" + (f" to {self.most:g}" if self.most is not None else "")
        return text + (", `${VAR}` allowed" if self.secret else "")

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> Any:
        """Read the node of a field with the reader of this kind."""
        return handler.generate_schema(Annotated[Any, PlainValidator(self._read)])

    def _read(self, node: Any, info: ValidationInfo) -> Any:
        from tocsin.rules.values import default_value, read_value

        kind = _named(self, str(info.field_name).removesuffix("_"))
        if isinstance(node, str):
            return default_value(kind, node)
        context, where = info.context  # type: ignore[misc]
        return read_value(context, node, kind, where)

    def __get_pydantic_json_schema__(self, core: Any, handler: GetJsonSchemaHandler) -> Json:
        """Return the JSON Schema."""
        # YAML reads `true` as a boolean.
        words = [*self.words, True, False] if self.words == BOOLEANS else list(self.words)
        if self.kind == "names":
            item: Json = {"enum": words} if words else TEXT
            return {"anyOf": [item, {"type": "array", "items": item, "uniqueItems": True, "maxItems": 100}]}
        if words:
            return {"enum": words}
        schema = dict(_SCHEMAS[self.kind])
        if self.kind in {"whole", "number"}:
            schema |= {} if self.least is None else {"minimum": self.least}
            schema |= {} if self.most is None else {"maximum": self.most}
        return schema


@lru_cache(maxsize=1024)
def _named(kind: Kind, name: str) -> Kind:
    return replace(kind, name=name)


@dataclass(frozen=True)
class Nested:
    """Annotation of a field that is a part of its own: it keeps its node. A model in its JSON Schema is a reference."""

    schema: Json

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> Any:
        """Accept the node of the field."""
        return handler.generate_schema(Any)

    def __get_pydantic_json_schema__(self, core: Any, handler: GetJsonSchemaHandler) -> Json:
        """Return the JSON Schema."""
        return self.schema


Parts = type["Part"] | Mapping[str, type["Part"]]


def one(part: Parts) -> Nested:
    """Return the annotation of a mapping, or of a mapping with exactly one kind and its options."""
    return Nested(refer_to(part))


def list_of(*parts: Parts) -> Nested:
    """Return the annotation of a list of mappings."""
    return Nested({"type": "array", "items": any_of(*map(refer_to, parts))})


def by_name(part: type[Part]) -> Nested:
    """Return the annotation of a mapping from names to mappings, or to nothing."""
    return Nested({"type": "object", "additionalProperties": any_of(refer_to(part), NOTHING)})


def any_of(*schemas: Json) -> Json:
    """Return the JSON Schema of a value that one of some schemas permits."""
    return schemas[0] if len(schemas) == 1 else {"anyOf": list(schemas)}


def refer_to(part: Parts) -> Json:
    """Return the JSON Schema of a mapping, or of a mapping with exactly one kind and its options."""
    if not isinstance(part, Mapping):
        return {MODEL: part}
    kinds = {name: any_of(refer_to(kind), NOTHING) for name, kind in part.items()}
    return {
        "type": "object", "properties": kinds, "additionalProperties": False, "minProperties": 1, "maxProperties": 1
    }  # fmt: skip


def option(meaning: str, default: str | None = None, *, required: bool = False, alias: str | None = None) -> Any:
    """Return a field of a model. The default is text, as a file would have it."""
    extra: Any = {REQUIRED: True} if required else None
    given: Any = default
    is_read = default is not None
    return Field(given, alias=alias, description=meaning, validate_default=is_read, json_schema_extra=extra)


class Part(BaseModel):
    """Mapping of a file."""

    model_config = ConfigDict(extra="forbid", defer_build=True, arbitrary_types_allowed=True)

    @classmethod
    def names(cls) -> dict[str, str]:
        """Return the name of each field in a file with its name in the model."""
        return {field.alias or name: name for name, field in cls.model_fields.items()}

    @classmethod
    def required(cls) -> list[str]:
        """Return the names of required fields."""
        extras = {name: field.json_schema_extra for name, field in cls.model_fields.items()}
        return [cls.model_fields[name].alias or name for name, extra in extras.items() if extra]


@dataclass
class Fields:
    """Values of the fields of a mapping, and the nodes of the given ones."""

    node: Node
    values: dict[str, Any]
    nodes: dict[str, Node]

    def __getitem__(self, name: str) -> Any:
        return self.values.get(name)

    def at(self, name: str) -> Node:
        """Return the node of a field, or of the whole mapping if the field is not given."""
        return self.nodes.get(name, self.node)


def read_fields(context: Context, node: Node, model: type[Part], where: str, what: str) -> Fields | None:
    """Read a mapping by its model; `what` names it in messages. Return None for another type."""
    if not isinstance(node, MapNode):
        context.report(node, where, "wrong-type", f"{what} must be a mapping", found(node))
        return None
    names = model.names()
    for name, (key, _) in node.entries.items():
        if name not in names:
            hint = nearest_or_all(name, names) if names else "it has no keys"
            context.report(key, where, "unknown-key", f"`{name[:60]}` is not a key of {what}", hint=hint)
    for name in model.required():
        if name not in node.entries:
            message = f"`{name}` must be given; found {', '.join(node.entries)[:200] or 'nothing'}"
            context.report(node, where, "missing-key", message)
    nodes = {name: value for name, (_, value) in node.entries.items() if name in names}
    values = vars(model.model_validate(nodes, context=(context, where)))
    return Fields(node, {name: values[attribute] for name, attribute in names.items()}, nodes)


def default_of(model: type[Part], name: str) -> Any:
    """Return the default of a field, as if it were in a file."""
    return getattr(model.model_validate({}, context=None), model.names()[name])


def read_kind(
    context: Context, node: Node, kinds: Mapping[str, type[Part]], where: str, what: str
) -> tuple[str, dict[str, Any]] | None:
    """Read a source or a sink: a mapping with exactly one kind, which has its options."""
    if not isinstance(node, MapNode) or len(node.entries) != 1:
        given = ", ".join(node.entries) if isinstance(node, MapNode) and node.entries else found(node)
        context.report(node, where, "wrong-type", f"a {what} must have exactly one kind of {', '.join(kinds)}", given)
        return None
    name, (key, options) = next(iter(node.entries.items()))
    if name not in kinds:
        message, hint = f"`{name[:60]}` is not a kind of {what}", nearest_or_all(name, kinds)
        context.report(key, where, "unknown-word", message, hint=hint)
        return None
    if isinstance(options, Scalar) and options.is_nothing:
        options = MapNode(key.line, key.column)
    fields = read_fields(context, options, kinds[name], f"{where}: {name}", f"{what} `{name}`")
    return None if fields is None else (name, {key: value for key, value in fields.values.items() if value is not None})


def json_schema(model: type[Part]) -> Json:
    """Return the JSON Schema of a file, with a definition for each model that it contains."""
    definitions: dict[str, Json] = {}
    root = _define(model, definitions)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **root,
        "$defs": dict(sorted(definitions.items())),
    }


def _define(model: type[Part], definitions: dict[str, Json]) -> Json:
    """Return the JSON Schema of a model, and add the definitions of the models that it contains."""
    schema = model.model_json_schema(by_alias=True)
    fields = {name: model.model_fields[attribute] for name, attribute in model.names().items()}
    for name, field in schema["properties"].items():
        for word in ("title", REQUIRED, *(["default"] if fields[name].default is None else [])):
            field.pop(word, None)
    return {**_resolve(schema, definitions), "required": model.required()}


def _resolve(schema: Any, definitions: dict[str, Json]) -> Any:
    """Replace the models in a JSON Schema by references to their definitions."""
    if isinstance(schema, list):
        return [_resolve(one, definitions) for one in schema]
    if not isinstance(schema, dict):
        return schema
    resolved = {name: _resolve(one, definitions) for name, one in schema.items() if name != MODEL}
    if MODEL in schema:
        model = schema[MODEL]
        if model.__name__ not in definitions:
            definitions[model.__name__] = {}
            definitions[model.__name__] = _define(model, definitions)
        resolved["$ref"] = f"#/$defs/{model.__name__}"
    return resolved
