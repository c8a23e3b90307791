"""Labels and annotations of an alert: the names and texts that Prometheus and Alertmanager accept."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from tocsin.errors import NAME, Diagnostics
from tocsin.rules.suggestions import format_path, nearest
from tocsin.rules.template import TemplateError, read_template

# Labels with a meaning of their own in Prometheus, like all labels that begin with two underscores.
RESERVED = ("alertname", "alertstate")

_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_VALUE = re.compile(r"\{\{[^}]*\$values?\b")


def check_label_name(diagnostics: Diagnostics, name: object, *path: object) -> None:
    """Reject a name that Prometheus would not accept as a label, or that it reserves."""
    if not isinstance(name, str) or not _LABEL.fullmatch(name):
        diagnostics.add("invalid-label", path, "label and key names must look like `team_1`", repr(name))
    elif name in RESERVED or name.startswith("__"):
        message = f"label and key names must not be {' or '.join(RESERVED)}, nor begin with `__`"
        diagnostics.add("invalid-label", path, message, repr(name))


def check_label(diagnostics: Diagnostics, name: object, value: object) -> None:
    """Reject a label with an invalid name, or with a value that would change during the alert."""
    check_label_name(diagnostics, name, "labels", name, NAME)
    if isinstance(value, str) and "{{" in value:
        reason = "templates are for `annotations`"
        if _VALUE.search(value):
            reason = "a value would change the identity of the alert at every evaluation; use `annotations`"
        message = f"label {name!r} must be plain text: {reason}"
        diagnostics.add("template-in-label", ["labels", name], message, repr(value))


def check_annotations(diagnostics: Diagnostics, annotations: Mapping[str, str], labels: Iterable[str]) -> None:
    """Reject annotations with invalid names, invalid templates, and labels that the alert does not have."""
    known = ["alertname", *labels]
    for name, text in annotations.items():
        path = ("annotations", name)
        if not isinstance(name, str) or not _LABEL.fullmatch(name):
            message = "annotation names must look like `summary_1`"
            diagnostics.add("invalid-label", [*path, NAME], message, repr(name))
        if not isinstance(text, str):
            diagnostics.add("wrong-type", path, f"`{format_path(path)}` must be text", repr(text))
            continue
        _check_template(diagnostics, text, known, path)


def _check_template(diagnostics: Diagnostics, text: str, labels: Sequence[str], path: Sequence[object]) -> None:
    errors: list[TemplateError] = []
    template = read_template(text, errors.append)
    for error in errors:
        message = f"`{format_path(path)}`: {error}"
        diagnostics.add("invalid-template", path, message, quoted=text, span=error.span)
    for action in template.actions:
        if action.term[0] == "labels" and action.term[1] not in labels:
            message = f"`{format_path(path)}` must name labels of the alert"
            found, hint = f"`$labels.{action.term[1]}`", nearest(action.term[1], labels)
            diagnostics.add("unknown-label", path, message, found, hint, quoted=text, span=action.span)
