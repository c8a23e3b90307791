"""What a rule file may say: one table per part of it, from which checks, messages and the reference page are made.

`default` is text as a file would have it; it is read like what a user writes. A field of the kind `part` has a shape of
its own and is read by the code of its section.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tocsin.rules.durations import MAX_AHEAD
from tocsin.rules.model import CLOSED, EMITS
from tocsin.rules.quality import MODEL_WORDS, OBSERVED, PREFER_WORDS, STRATEGIES, SUBSET

# Kind -> how messages and the reference page name it.
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


@dataclass(frozen=True)
class Kind:
    """A kind of source or sink, and its options."""

    name: str
    meaning: str
    fields: tuple[Field, ...]


FILE = (
    Field("streams", "part", "streams by name; `expr` reads a stream by this name", required=True),
    Field("limits", "part", "tables of limits per key, by name"),
    Field("groups", "part", "groups of rules", required=True),
    Field("sinks", "part", "receivers of alerts, one kind each"),
    Field("dashboard", "text", "address of the dashboard, for the links of all sinks"),
    Field("archive", "part", "storage of rows for backtests"),
    Field("quality", "part", "budgets of all rules together"),
)
STREAM = (
    Field("source", "part", "source of the rows: exactly one kind", required=True),
    Field("keys", "names", "key columns, which `on` may name"),
    Field("time", "text", "column of event time", default="ts"),
    Field("time_unit", "word", "unit of event times that are numbers", default="us", words=("s", "ms", "us", "ns")),
    Field(
        "arrival",
        "text",
        "column of arrival time; default: the time of the Kafka or MQTT message, otherwise the event time",
    ),
    Field("values", "part", "value columns; default: one column `value`"),
    Field(
        "idle_timeout",
        "duration",
        "a stream whose newest row is older than the newest row of the key by more than this does not delay rules; "
        "default: the span; a rule uses the maximum of its streams",
    ),
    Field(
        "max_ahead",
        "duration",
        "quarantine a row whose event time exceeds its arrival time or the processing time by more than this",
        default=MAX_AHEAD,
    ),
    Field("no_data", "part", "raise `NoData` if a key of this stream has no rows"),
)
VALUE = (
    Field("domain", "part", '`[low, high]` with numbers or `.inf`, or text such as `"[0, 100)"`'),
    Field("unit", "text", "unit of measurement, shown with values"),
)
NO_DATA = (
    Field("for", "duration", "time without rows before the alert fires", required=True, least=1),
    Field("labels", "map", "labels of the alert besides the keys and `stream`, the name of the stream"),
)
LIMITS = (
    Field("file", "path", "CSV file with key columns and columns of numbers", required=True),
    Field(
        "on", "names", "key columns of the table; `on` of a rule that reads the table must contain them", required=True
    ),
)
GROUP = (
    Field("name", "text", "name of the group, unique in the file", required=True),
    Field(
        "interval",
        "duration",
        "accepted for compatibility with Prometheus, without effect: rows are evaluated on arrival",
        least=1,
    ),
    Field("labels", "map", "labels of all rules of the group; labels of a rule override them"),
    Field("rules", "part", "the rules", required=True),
)
RULE = (
    Field("alert", "text", "name of the alert", required=True),
    Field("expr", "text", "the condition", required=True),
    Field("within", "part", "maximum time distance of any two rows, or bounds per pair of streams"),
    Field("on", "names", "key columns; rows with equal values are joined"),
    Field("for", "duration", "minimum time with a true condition before the alert fires", default="0s"),
    Field(
        "keep_firing_for",
        "duration",
        "minimum time that the alert stays open after the condition became false",
        default="0s",
    ),
    Field(
        "recovery",
        "number",
        "resolve only if the left side is also beyond this value; `expr` must be one comparison with a number or a "
        "limit",
    ),
    Field(
        "stale",
        "duration",
        "time without evaluations that ends an alert; default: the span of the rule, or 5m if the span is 0",
    ),
    Field(
        "allowed_lateness",
        "duration",
        "maximum lateness of a row that still joins every partner; default: 1h, "
        "with `quality.cpu`, `quality.deadline` or `quality.prefer: sample` the span",
    ),
    Field(
        "emit",
        "word",
        "alerts with the combination of the largest margin, or every true combination",
        default="witness",
        words=EMITS,
    ),
    Field("closed", "word", "ends of the time bounds that are included", default="both", words=CLOSED),
    Field("hop", "duration", "join inside windows that hop by this time; default: sliding windows", least=1),
    Field(
        "shapes",
        "map",
        "per variable `increasing`, `decreasing` or `quasiconvex`, if it is not proved; `unreduced`: omit no row",
    ),
    Field("tolerance", "map", "per variable, distance within which values count as equal when rows are omitted"),
    Field("quality", "part", "options of the answer: wait, memory budget, CPU budget"),
    Field("labels", "map", "labels of the alert besides its keys; plain text"),
    Field("annotations", "map", "texts for people; templates"),
)
QUALITY = (
    Field("recall", "number", "target share of the results that are found in order; rows wait as long as this needs"),
    Field("period", "duration", "length of event time for the measurement of the recall", default="1m", least=1),
    Field("adapt_every", "duration", "event time between two changes of the wait", default="1s", least=1),
    Field("step", "duration", "granularity of the wait; rows wait at most 8,192 steps", default="10ms", least=1),
    Field(
        "in_order",
        "word",
        "`true`: results out of order count as lost even if every alarm is raised without a wait",
        default="false",
        words=("true", "false"),
    ),
    Field("strategy", "word", "how the wait is chosen", default=OBSERVED, words=STRATEGIES),
    Field("wait", "text", "how long rows wait: a duration, `max` (the largest delay so far) or `none`", default="none"),
    Field("memory", "text", "memory budget of the join: `200MB`, or `10000 rows`; further rows are shed"),
    Field(
        "prefer",
        "word",
        "results that are kept if the memory budget is exceeded: as many as possible, or a random sample of all "
        "results with their probabilities",
        default=SUBSET,
        words=PREFER_WORDS,
    ),
    Field("model", "part", "how rows are ranked if the memory budget is exceeded"),
    Field("weight", "number", "share of the recall among joins with a common memory budget", default="1"),
    Field("cpu", "text", "CPU budget: `50%` of a core, or `2 cores`; needs `emit: all` and at most two streams"),
    Field(
        "deadline",
        "duration",
        "event time after a row within which it can be processed; needs `emit: all` and at most two streams",
        least=1,
    ),
)
MODEL = (
    Field(
        "by",
        "word",
        "`auto`: the model that fits the data; `none`: the newest rows stay",
        default=MODEL_WORDS[0],
        words=MODEL_WORDS,
    ),
    Field("granularity", "duration", "length of an age class; default: a twentieth of the window", least=1),
)
RUN_QUALITY = (
    Field("memory", "text", "memory budget of all joins together: `500MB`"),
    Field("cpu", "text", "CPU budget of all rules with `emit: all` together: `50%` of a core, or `2 cores`"),
    Field("deadline", "duration", "event time after a row within which these rules can process it", least=1),
)
RANGES = (
    Field("alert", "text", "name of the alert", required=True),
    Field(
        "ranges", "names", "columns of one stream that requests have ranges of, such as `trades.price`", required=True
    ),
    Field("requests", "text", "stream of requests", required=True),
    Field("weight", "text", "column with the weight of a row, an integer; default: each row counts 1"),
    Field("on", "names", "key columns; a request counts rows of its key"),
    Field("within", "duration", "count rows of this last period; default: all rows since the request", least=1),
    Field("rearm", "duration", "pause after a request matured, before it starts again; default: the request ends"),
    Field("shards", "whole", "number of shards of the requests of a key", default="1", least=1, most=1024),
    Field("labels", "map", "labels of the alert besides its keys and `query`, the id of the request; plain text"),
    Field("annotations", "map", "texts for people; templates"),
)
PAIR = (
    Field("between", "part", "two streams of `expr`", required=True),
    Field("bounds", "part", "`[l, u]`: l <= t_second - t_first <= u", required=True),
)
ARCHIVE = (Field("path", "path", "directory", required=True),)

_FILES = (
    Field("path", "path", "directory of files, or one file", required=True),
    Field("max_files_per_batch", "whole", "maximum number of new files in one micro-batch", least=1),
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
                Field("format", "word", "format of the value of a message", default="json", words=("json", "csv")),
                Field(
                    "starting_offsets",
                    "word",
                    "where a first run begins",
                    default="latest",
                    words=("latest", "earliest"),
                ),
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
                Field("topic", "text", "topic or topic filter", required=True),
                Field("qos", "whole", "0: at most once; 1: at least once", default="1", least=0, most=1),
                Field("client_id", "text", "client ID; default: derived from the name of the stream"),
                Field("spool", "path", "directory that stores messages for a restart; default: in the run directory"),
                *_LOGIN,
            ),
        ),
        Kind(
            "factory",
            "generated rows, for tests and examples",
            (
                Field(
                    "sensor",
                    "word",
                    "measured quantity; default: the name of the stream if it is one of these, else `air`",
                    words=("air", "humidity", "surface"),
                ),
                Field("machines", "whole", "number of keys", default="10", least=1),
                Field("seed", "whole", "equal seeds produce equal rows", default="0", least=0),
                Field(
                    "rows",
                    "whole",
                    "total number of rows, produced as fast as they are read; default: no limit, at `rate`",
                    least=1,
                ),
                Field("rate", "number", "rows per second; 0: one row per second and key", default="100", least=0),
                Field(
                    "start",
                    "time",
                    "the first event time; default: `now`, the first start of the run; with `rows` or a rate of 0, "
                    "2026-01-01",
                ),
                Field("disorder", "duration", "maximum disorder of rows", default="0s"),
                Field(
                    "outages",
                    "whole",
                    "number of outages per key in every 240 rows; the rows of an outage arrive after it",
                    default="0",
                    least=0,
                    most=20,
                ),
            ),
        ),
    )
}

_TIMEOUT = Field("timeout", "duration", "maximum time to wait for a response", default="10s", least=1)
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
                    "states that are printed; default: `firing`, `resolved` and `match`",
                    words=("pending", "firing", "resolved", "inactive", "match"),
                ),
                _DASHBOARD,
            ),
        ),
        Kind(
            "log",
            "log files, read by other sinks and the dashboard",
            (
                Field("path", "path", "directory", required=True),
                Field("format", "word", "format of the files", default="parquet", words=("parquet", "json")),
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
                    "security protocol; default: `SASL_SSL` with a `username`, else `PLAINTEXT`",
                    words=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
                ),
                Field(
                    "mechanism",
                    "word",
                    "SASL mechanism",
                    default="PLAIN",
                    words=("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"),
                ),
                _DASHBOARD,
            ),
        ),
        Kind(
            "alertmanager",
            "`POST /api/v2/alerts` of Alertmanager",
            (
                Field("url", "url", "address; user-info is secret", required=True, secret=True),
                Field(
                    "resend", "duration", "interval between two transmissions of an open alert", default="1m", least=1
                ),
                _TIMEOUT,
                Field(
                    "interval",
                    "duration",
                    "without updates, an alert ends after 4 times the maximum of this and `resend`",
                    default="1m",
                    least=1,
                ),
                Field(
                    "max_age",
                    "duration",
                    "alerts that ended longer ago are not sent",
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
                _DASHBOARD,
            ),
        ),
    )
}


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
