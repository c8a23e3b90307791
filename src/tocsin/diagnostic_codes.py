"""Diagnostic codes: the cause and the remedy of each code. The reference page is generated from this table.

Codes are stable: programs can compare them. Messages can change in every version.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Code(NamedTuple):
    """Cause and remedy of a kind of diagnostic."""

    cause: str
    remedy: str


CODES: Mapping[str, Code] = {
    "alert-delay": Code(
        "note: a stream that is slow delays the alerts of the rule",
        "set `idle_timeout` of the streams if the delay is too long",
    ),
    "ambiguous-column": Code(
        "a condition names a stream with several value columns, none of them `value`, without a column",
        "write `stream.column`",
    ),
    "column-conflict": Code("a column of a stream has two roles", "use a separate column for key, time and value"),
    "contradictory-bounds": Code(
        "no combination of rows can satisfy all bounds of `within`", "check the signs: bounds are t_second - t_first"
    ),
    "different-delay": Code("two series of a test form the same rows but have different delays", "use one `delay`"),
    "disconnected-streams": Code(
        "the bounds of `within` do not connect all streams of the condition", "add a pair that connects them"
    ),
    "duplicate-alert": Code(
        "two rules have the same name and the same labels, so their alerts cannot be told apart",
        "change `alert` or add a label to one of them",
    ),
    "duplicate-name": Code("a name that must be unique is used twice", "rename or remove one of the two"),
    "failed": Code("an error of a part that has no code of its own", "read the message"),
    "false-shape": Code(
        "a shape in `shapes` is refuted by a proof or by a counterexample", "remove it, or correct the condition"
    ),
    "file-limit": Code("a file is too large, too deep or has too many nodes", "split the file"),
    "flapping-alert": Code(
        "warning: the alert of a join can fire and resolve at every row", "set `keep_firing_for`, `for` or `recovery`"
    ),
    "invalid-bounds": Code(
        "a pair in `within` does not have two different streams and two ordered bounds",
        "write `{between: [a, b], bounds: [lower, upper]}`",
    ),
    "invalid-character": Code("a file is not UTF-8, or contains a control character", "save the file as UTF-8 text"),
    "invalid-condition": Code("`expr` cannot be parsed", "correct the underlined part"),
    "invalid-cpu": Code("a CPU budget has no unit or another unit", "write `50%` of a core, or `2 cores`"),
    "invalid-domain": Code("a domain is not a range with low < high", "write `[low, high]` or text as `[0, 100)`"),
    "invalid-duration": Code("a text is not a duration", "write a number and a unit: `500ms`, `10s`, `1h30m`"),
    "invalid-label": Code(
        "Prometheus does not accept the name of a label, a key column or an annotation",
        "use letters, digits and `_`, and no reserved name",
    ),
    "invalid-name": Code("a stream, a table or a column cannot have this name", "use letters, digits and `_`"),
    "invalid-notation": Code("the series, the samples or the delays of a test cannot be read", "see the notation"),
    "invalid-number": Code("a text is not a number of the required kind", "write a plain number"),
    "invalid-path": Code("a path contains a null character", "correct the path"),
    "invalid-recovery": Code(
        "`recovery` is on the firing side of the threshold, or the condition has not exactly one threshold",
        "choose a value on the other side, or compare with one number or one limit",
    ),
    "invalid-secret": Code("the value of a secret has line breaks or control characters", "correct the variable"),
    "invalid-sink": Code("the options of a sink do not fit together", "correct the option that the message names"),
    "invalid-size": Code("a memory budget is not a size", "write `200MB`, `64KiB` or `10000 rows`"),
    "invalid-table": Code("a table of limits has an error", "correct the CSV file at the reported line"),
    "invalid-template": Code("an annotation contains an invalid template", "use the terms that the message lists"),
    "invalid-time": Code("a text is not a time", "write ISO 8601: `2026-01-31` or `2026-01-31T08:00:00Z`"),
    "invalid-tolerance": Code(
        "`tolerance` is set for a stream whose rows are not compared by one column, or without domains",
        "declare the domains of the columns, or remove `tolerance`",
    ),
    "invalid-url": Code("a text is not an HTTP address", "write `http://host:port/path`"),
    "invalid-variable": Code("a reference to an environment variable is incomplete", "write `${NAME}`"),
    "invalid-yaml": Code("a file is not valid YAML", "correct the reported position; indent with spaces"),
    "missing-key": Code("a required key is not there", "add it"),
    "missing-key-column": Code(
        "a rule reads a table of limits without its key columns in `on`", "add the key columns to `on`"
    ),
    "missing-on": Code(
        "warning: a rule without `on` evaluates the rows of all keys together", "set `on`, or write `on: []`"
    ),
    "missing-series": Code("a test has no series for a column that a tested rule reads", "add the series"),
    "missing-variable": Code("an environment variable of a secret is not set", "set it, or correct its name"),
    "missing-within": Code("a condition over several streams has no time bounds", "set `within`"),
    "needs-emit-all": Code("an option that omits results is set for a rule with alert states", "set `emit: all`"),
    "needs-option": Code("an option is set without another option that it needs", "add the other option"),
    "no-effect": Code("warning: an option has no effect in this place", "remove it, or add what it needs"),
    "no-rules": Code("there is no rule to plan", "add a rule"),
    "not-combinable": Code("two options or columns exclude each other", "remove one of them"),
    "out-of-range": Code("a value is too small or too large", "use a value in the range that the message states"),
    "reserved-name": Code("a label or a key column has a name that Tocsin sets itself", "use another name"),
    "secret-in-file": Code("warning: a file contains a secret", "write `${VAR}` and set the environment variable"),
    "short-stale": Code(
        "warning: a pause that `no_data` permits ends the pending state of `for`", "set `stale` to the longest pause"
    ),
    "stream-count": Code("a rule or an option needs another number of streams", "change the condition or the option"),
    "template-in-label": Code("a label contains a template", "move the text to `annotations`"),
    "too-many-entries": Code("a list or a mapping is too long", "split it"),
    "too-many-errors": Code("a file has more errors than are reported", "correct the reported errors first"),
    "unknown-column": Code("a stream, a table or `on` has no such column", "declare the column, or correct its name"),
    "unknown-key": Code("a key is not known in this place", "correct or remove it; the hint names a similar key"),
    "unknown-label": Code("a template names a label that the alert does not have", "use a key column or a label"),
    "unknown-name": Code("a test names an alert, a stream or a label that its rule files do not have", "correct it"),
    "unknown-stream": Code("a rule names a stream that is not declared", "declare the stream, or correct its name"),
    "unknown-value": Code("a template names a value that the condition does not read", "use a value of `expr`"),
    "unknown-variable": Code("an option names a variable that the condition does not read", "use a name of `expr`"),
    "unknown-word": Code("a value is not one of the permitted words", "use one of the words that the message lists"),
    "unproved-shape": Code(
        "warning: rows are omitted because of a stated shape that is not proved", "declare domains, or test the rule"
    ),
    "unreadable-file": Code("a file does not exist or cannot be read", "correct the path or the permissions"),
    "unsupported-yaml": Code("a file uses a part of YAML that is not permitted", "write plain mappings and lists"),
    "unused-name": Code("warning: no rule reads a stream or a table", "remove it, or read it in a rule"),
    "variable-outside-secret": Code(
        "`${NAME}` is used in a field that is not secret", "write the value; variables are for secrets only"
    ),
    "wrong-type": Code("a value has the wrong type, such as text in the place of a list", "write what is required"),
}
