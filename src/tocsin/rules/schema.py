"""Schema of a rule file: a pydantic model of each of its mappings.

Checks, messages, the JSON Schema (`tocsin schema`) and the reference page come from these models.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any

from tocsin.rules.compose import Node
from tocsin.rules.durations import MAX_AHEAD
from tocsin.rules.model import CLOSED, EMITS
from tocsin.rules.part import DURATION, TEXT, Kind, Nested, Part, any_of, by_name, list_of, one, option, refer_to
from tocsin.rules.quality import ANY, MODEL_WORDS, OBSERVED, ORDER_WORDS, PREFER_WORDS, STRATEGIES, SUBSET
from tocsin.rules.secret import Secret

TWO = Nested({"type": "array", "items": TEXT, "minItems": 2, "maxItems": 2})
DOMAIN = Nested({"anyOf": [{"type": "array", "items": TEXT, "minItems": 2, "maxItems": 2}, {"type": "string"}]})


class Archive(Part):
    """Storage of rows for backtests."""

    path: Annotated[str | None, Kind("path")] = option("directory", required=True)


class Model(Part):
    """Ranking of rows if the memory budget is exceeded."""

    by: Annotated[str | None, Kind("word", words=MODEL_WORDS)] = option(
        "`auto`: the model that fits the data; `none`: the newest rows stay", default=MODEL_WORDS[0]
    )
    granularity: Annotated[timedelta | None, Kind("duration", least=1)] = option(
        "length of an age class; default: a twentieth of the window"
    )


class RuleQuality(Part):
    """Options of the answer of a rule."""

    recall: Annotated[float | None, Kind("number")] = option(
        "target share of the results that are found in order; rows wait as long as this needs"
    )
    period: Annotated[timedelta | None, Kind("duration", least=1)] = option(
        "length of event time for the measurement of the recall", default="1m"
    )
    adapt_every: Annotated[timedelta | None, Kind("duration", least=1)] = option(
        "event time between two changes of the wait", default="1s"
    )
    step: Annotated[timedelta | None, Kind("duration", least=1)] = option(
        "granularity of the wait; rows wait at most 8,192 steps", default="10ms"
    )
    in_order: Annotated[str | None, Kind("word", words=("true", "false"))] = option(
        "`true`: results out of order count as lost even if every alarm is raised without a wait", default="false"
    )
    strategy: Annotated[str | None, Kind("word", words=STRATEGIES)] = option("how the wait is chosen", default=OBSERVED)
    wait: Annotated[str | None, Kind("text")] = option(
        "how long rows wait: a duration, `max` (the largest delay so far) or `none`", default="none"
    )
    order: Annotated[str | None, Kind("word", words=ORDER_WORDS)] = option(
        "results out of order: `any` marks them as late, `strict` drops and counts them", default=ANY
    )
    memory: Annotated[str | None, Kind("text")] = option(
        "memory budget of the join: `200MB`, or `10000 rows`; further rows are shed"
    )
    prefer: Annotated[str | None, Kind("word", words=PREFER_WORDS)] = option(
        "results that are kept if the memory budget is exceeded: as many as possible, or a random sample of all "
        "results with their probabilities",
        default=SUBSET,
    )
    model: Annotated[Node | None, one(Model)] = option("how rows are ranked if the memory budget is exceeded")
    weight: Annotated[float | None, Kind("number")] = option(
        "share of the recall among joins with a common memory budget", default="1"
    )
    cpu: Annotated[str | None, Kind("text")] = option(
        "CPU budget: `50%` of a core, or `2 cores`; needs `emit: all` and at most two streams"
    )
    deadline: Annotated[timedelta | None, Kind("duration", least=1)] = option(
        "event time after a row within which it can be processed; needs `emit: all` and at most two streams"
    )


class RunQuality(Part):
    """Budgets of all rules together."""

    memory: Annotated[str | None, Kind("text")] = option("memory budget of all joins together: `500MB`")
    cpu: Annotated[str | None, Kind("text")] = option(
        "CPU budget of all rules with `emit: all` together: `50%` of a core, or `2 cores`"
    )
    deadline: Annotated[timedelta | None, Kind("duration", least=1)] = option(
        "event time after a row within which these rules can process it"
    )


class Pair(Part):
    """Time bounds of a pair of streams."""

    between: Annotated[Node | None, TWO] = option("two streams of `expr`", required=True)
    bounds: Annotated[Node | None, TWO] = option("`[l, u]`: l <= t_second - t_first <= u", required=True)


class Value(Part):
    """Settings of a value column."""

    domain: Annotated[Node | None, DOMAIN] = option(
        '`[low, high]` with numbers or `.inf`, or text such as `"[0, 100)"`'
    )
    unit: Annotated[str | None, Kind("text")] = option("unit of measurement, shown with values")


class NoDataOptions(Part):
    """Alert for keys without rows."""

    for_: Annotated[timedelta | None, Kind("duration", least=1)] = option(
        "time without rows before the alert fires", required=True, alias="for"
    )
    labels: Annotated[dict[str, Any] | None, Kind("map")] = option(
        "labels of the alert besides the keys and `stream`, the name of the stream"
    )


class LimitsTable(Part):
    """Table of limits per key."""

    file: Annotated[str | None, Kind("path")] = option(
        "CSV file with key columns and columns of numbers", required=True
    )
    on: Annotated[tuple[str, ...] | None, Kind("names")] = option(
        "key columns of the table; `on` of a rule that reads the table must contain them", required=True
    )


class ParquetSource(Part):
    """Parquet files."""

    path: Annotated[str | None, Kind("path")] = option("directory of files, or one file", required=True)
    max_files_per_batch: Annotated[int | None, Kind("whole", least=1)] = option(
        "maximum number of new files in one micro-batch"
    )


class JsonSource(ParquetSource):
    """Files of one JSON object per line."""


class CsvSource(ParquetSource):
    """CSV files with a header."""


class KafkaSource(Part):
    """A topic of Kafka."""

    servers: Annotated[str | None, Kind("text")] = option("brokers, `host:port,host:port`", required=True)
    topic: Annotated[str | None, Kind("text")] = option("topic", required=True)
    format: Annotated[str | None, Kind("word", words=("json", "csv"))] = option(
        "format of the value of a message", default="json"
    )
    starting_offsets: Annotated[str | None, Kind("word", words=("latest", "earliest"))] = option(
        "where a first run begins", default="latest"
    )
    options: Annotated[dict[str, Any] | None, Kind("map")] = option("further options of Spark's Kafka source")
    username: Annotated[str | None, Kind("text", secret=True)] = option("user name")
    password: Annotated[str | None, Kind("text", secret=True)] = option("password")


class MqttSource(Part):
    """Topics of an MQTT broker."""

    host: Annotated[str | None, Kind("text")] = option("broker", required=True)
    port: Annotated[int | None, Kind("whole", least=1, most=65535)] = option("port", default="1883")
    topic: Annotated[str | None, Kind("text")] = option("topic or topic filter", required=True)
    qos: Annotated[int | None, Kind("whole", least=0, most=1)] = option(
        "0: at most once; 1: at least once", default="1"
    )
    client_id: Annotated[str | None, Kind("text")] = option("client ID; default: derived from the name of the stream")
    spool: Annotated[str | None, Kind("path")] = option(
        "directory that stores messages for a restart; default: in the run directory"
    )
    username: Annotated[str | None, Kind("text", secret=True)] = option("user name")
    password: Annotated[str | None, Kind("text", secret=True)] = option("password")


class FactorySource(Part):
    """Generated rows, for tests and examples."""

    sensor: Annotated[str | None, Kind("word", words=("air", "humidity", "surface"))] = option(
        "measured quantity; default: the name of the stream if it is one of these, else `air`"
    )
    machines: Annotated[int | None, Kind("whole", least=1)] = option("number of keys", default="10")
    seed: Annotated[int | None, Kind("whole", least=0)] = option("equal seeds produce equal rows", default="0")
    rows: Annotated[int | None, Kind("whole", least=1)] = option(
        "total number of rows, produced as fast as they are read; default: no limit, at `rate`"
    )
    rate: Annotated[float | None, Kind("number", least=0)] = option(
        "rows per second; 0: one row per second and key", default="100"
    )
    start: Annotated[int | str | None, Kind("time")] = option(
        "the first event time; default: `now`, the first start of the run; with `rows` or a rate of 0, 2026-01-01"
    )
    disorder: Annotated[timedelta | None, Kind("duration")] = option("maximum disorder of rows", default="0s")
    outages: Annotated[int | None, Kind("whole", least=0, most=20)] = option(
        "number of outages per key in every 240 rows; the rows of an outage arrive after it", default="0"
    )


SOURCES: Mapping[str, type[Part]] = {
    "parquet": ParquetSource,
    "json": JsonSource,
    "csv": CsvSource,
    "kafka": KafkaSource,
    "mqtt": MqttSource,
    "factory": FactorySource,
}


class LinkingSink(Part):
    """Sink whose alerts link to the dashboard."""

    dashboard: Annotated[str | None, Kind("text")] = option(
        "address of the dashboard, such as `http://host:8484`; `generatorURL` links to the alert there"
    )


class ConsoleSink(LinkingSink):
    """Print alerts."""

    states: Annotated[
        tuple[str, ...] | None, Kind("names", words=("pending", "firing", "resolved", "inactive", "match"))
    ] = option("states that are printed; default: `firing`, `resolved` and `match`")


class LogSink(Part):
    """Log files, read by other sinks and the dashboard."""

    path: Annotated[str | None, Kind("path")] = option("directory", required=True)
    format: Annotated[str | None, Kind("word", words=("parquet", "json"))] = option(
        "format of the files", default="parquet"
    )


class KafkaSink(LinkingSink):
    """A topic of Kafka."""

    servers: Annotated[str | None, Kind("text")] = option("brokers, `host:port,host:port`", required=True)
    topic: Annotated[str | None, Kind("text")] = option("topic", required=True)
    username: Annotated[str | None, Kind("text", secret=True)] = option("user name")
    password: Annotated[str | None, Kind("text", secret=True)] = option("password")
    security: Annotated[str | None, Kind("word", words=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"))] = option(
        "security protocol; default: `SASL_SSL` with a `username`, else `PLAINTEXT`"
    )
    mechanism: Annotated[str | None, Kind("word", words=("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"))] = option(
        "SASL mechanism", default="PLAIN"
    )


class AlertmanagerSink(LinkingSink):
    """`POST /api/v2/alerts` of Alertmanager."""

    url: Annotated[Secret | None, Kind("url", secret=True)] = option("address; user-info is secret", required=True)
    resend: Annotated[timedelta | None, Kind("duration", least=1)] = option(
        "interval between two transmissions of an open alert", default="1m"
    )
    timeout: Annotated[timedelta | None, Kind("duration", least=1)] = option(
        "maximum time to wait for a response", default="10s"
    )
    interval: Annotated[timedelta | None, Kind("duration", least=1)] = option(
        "without updates, an alert ends after 4 times the maximum of this and `resend`", default="1m"
    )
    max_age: Annotated[timedelta | None, Kind("duration")] = option(
        "alerts that ended longer ago are not sent", default="1d"
    )
    headers: Annotated[dict[str, Any] | None, Kind("map", secret=True)] = option("headers of the request")


class WebhookSink(LinkingSink):
    """A POST of Alertmanager's webhook body, version 4, with `id`, `firesAt` and `values`."""

    url: Annotated[Secret | None, Kind("url", secret=True)] = option("address; user-info is secret", required=True)
    timeout: Annotated[timedelta | None, Kind("duration", least=1)] = option(
        "maximum time to wait for a response", default="10s"
    )
    headers: Annotated[dict[str, Any] | None, Kind("map", secret=True)] = option("headers of the request")


class CloudEventsSink(LinkingSink):
    """A POST of CloudEvents 1.0 in JSON."""

    url: Annotated[Secret | None, Kind("url", secret=True)] = option("address; user-info is secret", required=True)
    source: Annotated[str | None, Kind("text")] = option("the `source` of the events", default="/tocsin")
    timeout: Annotated[timedelta | None, Kind("duration", least=1)] = option(
        "maximum time to wait for a response", default="10s"
    )
    headers: Annotated[dict[str, Any] | None, Kind("map", secret=True)] = option("headers of the request")


SINKS: Mapping[str, type[Part]] = {
    "console": ConsoleSink,
    "log": LogSink,
    "kafka": KafkaSink,
    "alertmanager": AlertmanagerSink,
    "webhook": WebhookSink,
    "cloudevents": CloudEventsSink,
}


class Stream(Part):
    """Stream of rows."""

    source: Annotated[Node | None, one(SOURCES)] = option("source of the rows: exactly one kind", required=True)
    keys: Annotated[tuple[str, ...] | None, Kind("names")] = option("key columns, which `on` may name")
    time: Annotated[str | None, Kind("text")] = option("column of event time", default="ts")
    time_unit: Annotated[str | None, Kind("word", words=("s", "ms", "us", "ns"))] = option(
        "unit of event times that are numbers", default="us"
    )
    arrival: Annotated[str | None, Kind("text")] = option(
        "column of arrival time; default: the time of the Kafka or MQTT message, otherwise the event time"
    )
    values: Annotated[Node | None, by_name(Value)] = option("value columns; default: one column `value`")
    idle_timeout: Annotated[timedelta | None, Kind("duration")] = option(
        "a stream whose newest row is older than the newest row of the key by more than this does not delay rules; "
        "default: the span; a rule uses the maximum of its streams"
    )
    max_ahead: Annotated[timedelta | None, Kind("duration")] = option(
        "quarantine a row whose event time exceeds its arrival time or the processing time by more than this",
        default=MAX_AHEAD,
    )
    no_data: Annotated[Node | None, one(NoDataOptions)] = option("raise `NoData` if a key of this stream has no rows")


class RuleOptions(Part):
    """Rule with a condition."""

    alert: Annotated[str | None, Kind("text")] = option("name of the alert", required=True)
    expr: Annotated[str | None, Kind("text")] = option("the condition", required=True)
    within: Annotated[Node | None, Nested(any_of(DURATION, {"type": "array", "items": refer_to(Pair)}))] = option(
        "maximum time distance of any two rows, or bounds per pair of streams"
    )
    on: Annotated[tuple[str, ...] | None, Kind("names")] = option("key columns; rows with equal values are joined")
    for_: Annotated[timedelta | None, Kind("duration")] = option(
        "minimum time with a true condition before the alert fires", default="0s", alias="for"
    )
    keep_firing_for: Annotated[timedelta | None, Kind("duration")] = option(
        "minimum time that the alert stays open after the condition became false", default="0s"
    )
    recovery: Annotated[float | None, Kind("number")] = option(
        "resolve only if the left side is also beyond this value; `expr` must be one comparison with a number or a "
        "limit"
    )
    stale: Annotated[timedelta | None, Kind("duration")] = option(
        "time without evaluations that ends an alert; default: the span of the rule, or 5m if the span is 0"
    )
    allowed_lateness: Annotated[timedelta | None, Kind("duration")] = option(
        "maximum lateness of a row that still joins every partner; default: 1h, "
        "with `quality.cpu`, `quality.deadline` or `quality.prefer: sample` the span"
    )
    emit: Annotated[str | None, Kind("word", words=EMITS)] = option(
        "alerts with the combination of the largest margin, or every true combination", default="witness"
    )
    closed: Annotated[str | None, Kind("word", words=CLOSED)] = option(
        "ends of the time bounds that are included", default="both"
    )
    hop: Annotated[timedelta | None, Kind("duration", least=1)] = option(
        "join inside windows that hop by this time; default: sliding windows"
    )
    shapes: Annotated[dict[str, Any] | None, Kind("map")] = option(
        "per variable `increasing`, `decreasing` or `quasiconvex`, if it is not proved; `unreduced`: omit no row"
    )
    tolerance: Annotated[dict[str, Any] | None, Kind("map")] = option(
        "per variable, distance within which values count as equal when rows are omitted"
    )
    quality: Annotated[Node | None, one(RuleQuality)] = option("options of the answer: wait, memory budget, CPU budget")
    labels: Annotated[dict[str, Any] | None, Kind("map")] = option("labels of the alert besides its keys; plain text")
    annotations: Annotated[dict[str, Any] | None, Kind("map")] = option("texts for people; templates")


class RangeRuleOptions(Part):
    """Rule with ranges that requests register."""

    alert: Annotated[str | None, Kind("text")] = option("name of the alert", required=True)
    ranges: Annotated[tuple[str, ...] | None, Kind("names")] = option(
        "columns of one stream that requests have ranges of, such as `trades.price`", required=True
    )
    requests: Annotated[str | None, Kind("text")] = option("stream of requests", required=True)
    weight: Annotated[str | None, Kind("text")] = option(
        "column with the weight of a row, an integer; default: each row counts 1"
    )
    on: Annotated[tuple[str, ...] | None, Kind("names")] = option("key columns; a request counts rows of its key")
    within: Annotated[timedelta | None, Kind("duration", least=1)] = option(
        "count rows of this last period; default: all rows since the request"
    )
    rearm: Annotated[timedelta | None, Kind("duration")] = option(
        "pause after a request matured, before it starts again; default: the request ends"
    )
    shards: Annotated[int | None, Kind("whole", least=1, most=1024)] = option(
        "number of shards of the requests of a key", default="1"
    )
    labels: Annotated[dict[str, Any] | None, Kind("map")] = option(
        "labels of the alert besides its keys and `query`, the id of the request; plain text"
    )
    annotations: Annotated[dict[str, Any] | None, Kind("map")] = option("texts for people; templates")


class Group(Part):
    """Group of rules."""

    name: Annotated[str | None, Kind("text")] = option("name of the group, unique in the file", required=True)
    interval: Annotated[timedelta | None, Kind("duration", least=1)] = option(
        "accepted for compatibility with Prometheus, without effect: rows are evaluated on arrival"
    )
    labels: Annotated[dict[str, Any] | None, Kind("map")] = option(
        "labels of all rules of the group; labels of a rule override them"
    )
    rules: Annotated[Node | None, list_of(RuleOptions, RangeRuleOptions)] = option("the rules", required=True)


class RuleFileOptions(Part):
    """Rule file."""

    streams: Annotated[Node | None, by_name(Stream)] = option(
        "streams by name; `expr` reads a stream by this name", required=True
    )
    limits: Annotated[Node | None, by_name(LimitsTable)] = option("tables of limits per key, by name")
    groups: Annotated[Node | None, list_of(Group)] = option("groups of rules", required=True)
    sinks: Annotated[Node | None, list_of(SINKS)] = option("receivers of alerts, one kind each")
    dashboard: Annotated[str | None, Kind("text")] = option("address of the dashboard, for the links of all sinks")
    archive: Annotated[Node | None, one(Archive)] = option("storage of rows for backtests")
    quality: Annotated[Node | None, one(RunQuality)] = option("budgets of all rules together")
