"""Which labels and annotations an alert may have: those that Prometheus and Alertmanager would take."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from tocsin.rules.field_error import FieldError, written
from tocsin.rules.nearest import nearest
from tocsin.rules.template import TemplateError, parse_template

# Labels that Prometheus gives a meaning of its own; so have all that begin with two underscores.
RESERVED = ("alertname", "alertstate")

_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_VALUE = re.compile(r"\{\{[^}]*\$values?\b")


def check_label_name(name: object, location: str, *path: object) -> None:
    """Refuse a name that Prometheus would not take for a label, or that it keeps for itself."""
    sentence = ""
    if not isinstance(name, str) or not _LABEL.fullmatch(name):
        sentence = f"label and key names must look like `team_1`; got {name!r}"
    elif name in RESERVED or name.startswith("__"):
        sentence = f"label and key names must not be {' or '.join(RESERVED)}, nor begin with `__`; got {name!r}"
    if sentence:
        raise FieldError(sentence, path, location=location)


def check_label(name: object, value: object, location: str) -> None:
    """Refuse a label that is misnamed, or whose value would change while the alert lives."""
    check_label_name(name, location, "labels", name, "name")
    if isinstance(value, str) and "{{" in value:
        reason = "templates are for `annotations`"
        if _VALUE.search(value):
            reason = "a value would change the identity of the alert at every evaluation; use `annotations`"
        sentence = f"label {name!r} must be plain text: {reason}; got {value!r}"
        raise FieldError(sentence, ["labels", name], location=location)


def check_annotations(annotations: Mapping[str, str], labels: Iterable[str], location: str) -> None:
    """Refuse annotations that are misnamed, no templates, or name labels that the alert does not have."""
    known = ["alertname", *labels]
    for name, text in annotations.items():
        path = ("annotations", name)
        if not isinstance(name, str) or not _LABEL.fullmatch(name):
            sentence = f"annotation names must look like `summary_1`; got {name!r}"
            raise FieldError(sentence, [*path, "name"], location=location)
        if not isinstance(text, str):
            sentence = f"`{written(path)}` must be text; got {text!r}"
            raise FieldError(sentence, path, location=location)
        _check_template(text, known, path, location)


def _check_template(text: str, labels: Sequence[str], path: Sequence[object], location: str) -> None:
    try:
        template = parse_template(text)
    except TemplateError as error:
        sentence = f"`{written(path)}`: {error}"
        raise FieldError(sentence, path, location=location, offset=error.offset) from None
    for action in template.actions:
        if action.term[0] == "labels" and action.term[1] not in labels:
            sentence = f"`{written(path)}` must name labels of the alert; got `$labels.{action.term[1]}`"
            sentence += nearest(action.term[1], labels)
            raise FieldError(sentence, path, location=location, offset=action.offset)
