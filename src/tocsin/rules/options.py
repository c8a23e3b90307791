"""What a rule file may say: one table per part of it, from which checks, messages and the reference page are made.

`default` is text as a file would have it; it is read like what a user writes. A field of the kind `part` has a shape of
its own and is read by the code of its section.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tocsin.rules.durations import AHEAD
from tocsin.rules.memory import PREFERS, SUBSET
from tocsin.rules.model import CLOSED, EMITS

# Kind -> how messages and the reference page name it.
KINDS: Mapping[str, str] = {
    "text": "text",
    "names": "a name, or a list of names",
    "word": "one of some words",
    "whole": "a whole number",
    "number": "a number",
    "duration": "a duration",
    "time": "a time, or `now`",
    "path": "a path",
    "url": "a URL",
    "map": "a mapping of names to text",
    "part": "see above",
}


@dataclass(frozen=True)
class Field:
    """A key of a mapping: what it takes, and what it means in one line."""

    name: str
    kind: str
    meaning: str
    required: bool = False
    default: str | None = None
    secret: bool = False
    words: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    example: str = ""


@dataclass(frozen=True)
class Kind:
    """A kind of source or sink, and its options."""

    name: str
    meaning: str
    fields: tuple[Field, ...]


FILE = (
    Field("streams", "part", "the streams by name; the name is the variable of `expr`", required=True),
    Field("limits", "part", "tables of numbers that differ per key, by name"),
    Field("groups", "part", "groups of rules", required=True),
    Field("sinks", "part", "where alerts go, one kind each"),
    Field("archive", "part", "where rows are kept for backtests"),
    Field("memory", "text", "how much state all joins together may keep: `200MB` ([memory](../concepts/memory.md))"),
    Field(
        "cpu", "text", "what rules that emit all may use together: `50%` of a core ([processor](../concepts/cpu.md))"
    ),
    Field("deadline", "duration", "how long after a row these rules may still work on it", least=1),
)
STREAM = (
    Field("source", "part", "where rows come from: exactly one kind", required=True),
    Field("keys", "names", "key columns, which `on` may name"),
    Field("time", "text", "column of event time", default="ts"),
    Field("time_unit", "word", "unit of event times that are numbers", default="us", words=("s", "ms", "us", "ns")),
    Field("arrival", "text", "column by which rows arrived; without it, event time"),
    Field("values", "part", "value columns; one column `value` if there is nothing here"),
    Field("idle", "duration", "stop waiting for this stream after so long; a rule takes the longest of its streams"),
    Field(
        "ahead",
        "duration",
        "a row whose time is later than its arrival or the clock by more than this is quarantined",
        default=AHEAD,
    ),
    Field("no_data", "part", "raise `NoData` when a key of this stream is silent"),
)
VALUE = (
    Field("domain", "part", '`[low, high]` with numbers or `.inf`, or text such as `"[0, 100)"`'),
    Field("unit", "text", "unit of measurement, for people"),
)
NO_DATA = (
    Field("for", "duration", "how long the silence lasts before the alert", required=True, least=1),
    Field("labels", "map", "labels of the alert besides the keys and `stream`, the name of the stream"),
)
LIMITS = (
    Field("file", "path", "CSV file with the key columns and columns of numbers", required=True),
    Field("on", "names", "key columns of the table; a rule that reads it must have them in its `on`", required=True),
)
GROUP = (
    Field("name", "text", "name of the group, unique in the file", required=True),
    Field("interval", "duration", "taken as Prometheus has it, and not used: rows are evaluated as they come", least=1),
    Field("labels", "map", "labels of all rules of the group; a rule's own come first"),
    Field("rules", "part", "the rules", required=True),
)
RULE = (
    Field("alert", "text", "name of the alert", required=True),
    Field("expr", "text", "the condition", required=True),
    Field("within", "part", "largest distance in time of any two rows, or bounds per pair of streams"),
    Field("on", "names", "key columns that must be equal"),
    Field("for", "duration", "how long the condition must hold before the alert fires", default="0s"),
    Field("keep_firing_for", "duration", "how long the alert goes on after the condition ended", default="0s"),
    Field(
        "recovery", "number", "resolve only when the left side is past this, too; one comparison with a number or limit"
    ),
    Field("stale", "duration", "the silence that ends an alert; default: the span of the rule, or 5m if that is 0"),
    Field(
        "outage",
        "duration",
        "how far a row may lie behind and still find every partner; default: 1h, "
        "with `cpu`, `deadline` or `prefer: sample` the span",
    ),
    Field(
        "emit", "word", "alerts with their best combination, or every true combination", default="witness", words=EMITS
    ),
    Field("closed", "word", "which ends of the bounds belong to them", default="both", words=CLOSED),
    Field("hop", "duration", "join inside windows that hop by so much instead of sliding ones", least=1),
    Field(
        "shapes",
        "map",
        "per variable `increasing`, `decreasing`, `quasiconvex`, where it is not proved; `whole`: nothing is left out",
    ),
    Field("tolerance", "map", "per variable, how far apart values may be and still stand for each other, as numbers"),
    Field("wait", "text", "how long rows wait to be taken in order: a duration, `max` (the largest delay) or `none`"),
    Field(
        "quality",
        "map",
        "`{recall: 0.99, over: 1m}`: rows wait as long as that needs ([order](../concepts/order.md))",
        example="{recall: 0.99, over: 1m}",
    ),
    Field("memory", "text", "how much state this join may keep: `200MB`, or `10000 rows`", example="200MB"),
    Field("cpu", "text", "what this rule may use: `50%` of a core, or `2 cores`; with `emit: all`", example="50%"),
    Field(
        "deadline",
        "duration",
        "how long after a row it, or its pairs, may still be looked at; with `emit: all`",
        least=1,
    ),
    Field("prefer", "word", "what to keep when memory is short", default=SUBSET, words=PREFERS),
    Field(
        "model",
        "map",
        "`{by: key, granularity: 10s}`: by what rows are judged then, where it is not to be found out",
        example="{by: key}",
    ),
    Field("weight", "number", "how much a share of its results counts beside that of other joins", default="1"),
    Field("labels", "map", "labels of the alert besides its keys; plain text"),
    Field("annotations", "map", "texts for people; templates"),
)
RANGES = (
    Field("alert", "text", "name of the alert", required=True),
    Field("ranges", "names", "what ranges are over: columns of one stream, such as `trades.price`", required=True),
    Field("requests", "text", "the stream of requests ([standing ranges](../ranges.md))", required=True),
    Field("weight", "text", "the column that says how much a row counts, a whole number; without it each counts 1"),
    Field("on", "names", "key columns: a request counts rows of its own key"),
    Field("within", "duration", "count the rows of the last so long; without it all since the request", least=1),
    Field("rearm", "duration", "how long a request rests once it was reached, then it begins anew; without it it ends"),
    Field("spread", "whole", "into how many parts the requests of a key are divided", default="1", least=1, most=1024),
    Field("labels", "map", "labels of the alert besides its keys and `query`, the id of the request; plain text"),
    Field("annotations", "map", "texts for people; templates"),
)
PAIR = (
    Field("between", "part", "two streams of `expr`", required=True),
    Field("bounds", "part", "`[l, u]`: l <= t_second - t_first <= u", required=True),
)
ARCHIVE = (Field("path", "path", "folder", required=True),)

_FILES = (
    Field("path", "path", "folder of files, or one file", required=True),
    Field("max_files_per_batch", "whole", "most new files in one micro-batch", least=1),
)
_LOGIN = (
    Field("username", "text", "user name", secret=True),
    Field("password", "text", "password", secret=True),
)
_SERVERS = (
    Field("servers", "text", "brokers, `host:port,host:port`", required=True),
    Field("topic", "text", "topic", required=True),
)

SOURCES: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("parquet", "Parquet files", _FILES),
        Kind("json", "files of one JSON object per line", _FILES),
        Kind("csv", "CSV files with a header", _FILES),
        Kind(
            "kafka",
            "a topic of Kafka",
            (
                *_SERVERS,
                Field("format", "word", "what a message's value holds", default="json", words=("json", "csv")),
                Field("starting", "word", "where a first run begins", default="latest", words=("latest", "earliest")),
                Field("options", "map", "further options of Spark's Kafka source"),
                *_LOGIN,
            ),
        ),
        Kind(
            "mqtt",
            "topics of an MQTT broker",
            (
                Field("host", "text", "broker", required=True),
                Field("port", "whole", "port", default="1883", least=1, most=65535),
                Field("topic", "text", "topic or filter", required=True),
                Field("qos", "whole", "0: at most once; 1: at least once", default="1", least=0, most=1),
                Field("client_id", "text", "name of this client; default: made from the stream's name"),
                Field("spool", "path", "folder that keeps messages for a restart; default: in the run's folder"),
                *_LOGIN,
            ),
        ),
        Kind(
            "factory",
            "generated rows, for trying things out",
            (
                Field(
                    "sensor",
                    "word",
                    "what is measured; default: the stream's name if it is one of these, else `air`",
                    words=("air", "humidity", "surface"),
                ),
                Field("machines", "whole", "number of keys", default="10", least=1),
                Field("seed", "whole", "the same seed gives the same rows", default="0", least=0),
                Field("rows", "whole", "rows in all, as fast as they are taken; default: no end, at `rate`", least=1),
                Field("rate", "number", "rows per second; 0: one per second and key", default="100", least=0),
                Field(
                    "start",
                    "time",
                    "the first event time; default: `now`, the first start of the run; with `rows` or a rate of 0, "
                    "2026-01-01",
                ),
                Field("disorder", "duration", "how far a row may come behind", default="0s"),
                Field(
                    "outages",
                    "whole",
                    "how often a key falls silent and sends all later, in every 240 of its rows",
                    default="0",
                    least=0,
                    most=20,
                ),
            ),
        ),
    )
}

_TIMEOUT = Field("timeout", "duration", "how long to wait for an answer", default="10s", least=1)
_HEADERS = Field("headers", "map", "headers of the request", secret=True)
_DASHBOARD = Field(
    "dashboard", "text", "address of the dashboard, such as `http://host:8484`; `generatorURL` links to the alert there"
)

SINKS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind(
            "console",
            "print alerts",
            (
                Field(
                    "states",
                    "names",
                    "which changes are printed; default: `firing`, `resolved` and `match`",
                    words=("pending", "firing", "resolved", "inactive", "match"),
                ),
            ),
        ),
        Kind(
            "log",
            "files, which other sinks and the dashboard read",
            (
                Field("path", "path", "folder", required=True),
                Field("format", "word", "of the files", default="parquet", words=("parquet", "json")),
            ),
        ),
        Kind(
            "kafka",
            "a topic of Kafka",
            (
                *_SERVERS,
                *_LOGIN,
                Field(
                    "security",
                    "word",
                    "how to connect; default: `SASL_SSL` with a `username`, else `PLAINTEXT`",
                    words=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
                ),
                Field(
                    "mechanism",
                    "word",
                    "how to log in",
                    default="PLAIN",
                    words=("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"),
                ),
            ),
        ),
        Kind(
            "alertmanager",
            "`POST /api/v2/alerts` of Alertmanager",
            (
                Field("url", "url", "its address; user-info is secret", required=True, secret=True),
                Field("resend", "duration", "how often alerts that go on are sent again", default="1m", least=1),
                _TIMEOUT,
                Field(
                    "interval",
                    "duration",
                    "without news an alert ends after 4 times the longer of this and `resend`",
                    default="1m",
                    least=1,
                ),
                Field(
                    "show_past",
                    "duration",
                    "what had ended longer ago when it was read is history, of which nobody is notified",
                    default="1d",
                ),
                _HEADERS,
                _DASHBOARD,
            ),
        ),
        Kind(
            "webhook",
            "a POST of Alertmanager's webhook body, version 4, with `id`, `firesAt` and `values`",
            (
                Field("url", "url", "address; user-info is secret", required=True, secret=True),
                _TIMEOUT,
                _HEADERS,
                _DASHBOARD,
            ),
        ),
        Kind(
            "cloudevents",
            "a POST of CloudEvents 1.0 in JSON",
            (
                Field("url", "url", "address; user-info is secret", required=True, secret=True),
                Field("source", "text", "the `source` of the events", default="/tocsin"),
                _TIMEOUT,
                _HEADERS,
            ),
        ),
    )
}


def markdown(fields: tuple[Field, ...]) -> str:
    """Write a table of fields for the reference page."""
    rows = ["| key | takes | default | meaning |", "| --- | --- | --- | --- |"]
    rows += [f"| `{field.name}` | {takes(field)} | {_default(field)} | {field.meaning} |" for field in fields]
    return "\n".join(rows)


def takes(field: Field) -> str:
    """Say what a field takes."""
    if field.words:
        words = ", ".join(f"`{word}`" for word in field.words)
        return f"one or a list of {words}" if field.kind == "names" else words
    text = KINDS[field.kind]
    if field.kind == "duration":
        return f"{text} above 0" if field.least else text
    if field.least is not None:
        text += f" from {field.least:g}" + (f" to {field.most:g}" if field.most is not None else "")
    return text + (", `${VAR}` allowed" if field.secret else "")


def _default(field: Field) -> str:
    if field.required:
        return "*required*"
    return "" if field.default is None else f"`{field.default}`"


def sections() -> Iterator[tuple[str, str]]:
    """Give every table of the reference page, with its title."""
    tables = {"file": FILE, "streams": STREAM, "values": VALUE, "no_data": NO_DATA, "limits": LIMITS}
    tables |= {"groups": GROUP, "rules": RULE, "ranges": RANGES, "within": PAIR, "archive": ARCHIVE}
    for title, fields in tables.items():
        yield title, markdown(fields)
    for where, kinds in (("source", SOURCES), ("sink", SINKS)):
        for kind in kinds.values():
            yield (
                f"{where} {kind.name}",
                f"{kind.meaning}.\n\n{markdown(kind.fields)}" if kind.fields else f"{kind.meaning}.",
            )
