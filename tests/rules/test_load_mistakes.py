"""Every sentence that refuses a rule file, and its place: `»` stands where the mistake must be shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from rules.files import GOOD, check, marked, said

AIR, GROUP = 'stream "air": ', 'group "cold-store": '
FIRST, SECOND = GROUP + 'rule "Condensation": ', GROUP + 'rule "Pair": '
DURATION = "must be a duration such as '10s', '1h30m' or '500ms'; got "
NO_UNIT = "'{0}', a number without a unit; for seconds write '{0}s'"
TEMPLATE = "`annotations['summary']`: "
KNOWN = (
    "a template must name `$labels.x`, `$value`, `$values.stream`, `$values.stream.column`, `$startsAt` or `$firesAt`; "
    "got "
)
SECRETS_ONLY = "must not use `${...}`: variables are for secrets only"

# What is replaced in the good file, by what, and what is said.
CASES: dict[str, tuple[str, str, str]] = {
    "an unknown key of the file": (
        "archive:", "»archiv:", "rule file: `archiv` is not a key of a rule file; did you mean `archive`?"),
    "a section that is no mapping": (
        "by_machine: {file: limits.csv, on: [machine]}\n  by_site: {file: sites.csv, on: site}", "»- x",
        "rule file: `limits` must be a mapping by name; got a list"),
    "an unknown key without a near one": (
        "keys: [machine, site]", "»colour: red\n    keys: [machine, site]",
        AIR + "`colour` is not a key of a stream; expected one of source, keys, time, time_unit, arrival, values, "
        "idle_timeout, max_ahead, no_data"),
    "a name that is a function": (
        "  surface:", "  »max: {source: {csv: {path: x}}}\n  surface:",
        'stream "max": a name must consist of letters, digits and `_` and must not be a function or a reserved word; '
        "got 'max'"),
    "a name with a dash": (
        "  surface:", "  »a-b: {source: {csv: {path: x}}}\n  surface:",
        'stream "a-b": a name must consist of letters, digits and `_` and must not be a function or a reserved word; '
        "got 'a-b'"),
    "a stream that is no mapping": (
        "  surface:", "  x: »5\n  surface:", 'stream "x": a stream must be a mapping; got \'5\''),
    "a stream without a source": (
        "  surface:", "  x: »{keys: [a]}\n  surface:", 'stream "x": `source` must be given; found keys'),
    "two kinds of source": (
        "{parquet: {path: data/air}}", "»{parquet: {path: x}, csv: {path: x}}",
        AIR + "a source must have exactly one kind of parquet, json, csv, kafka, mqtt, factory; got parquet, csv"),
    "a source that is a word": (
        "{parquet: {path: data/air}}", "»parquet",
        AIR + "a source must have exactly one kind of parquet, json, csv, kafka, mqtt, factory; got 'parquet'"),
    "an unknown kind of source": (
        "{parquet: {path: data/air}}", "{»parket: {}}",
        AIR + "`parket` is not a kind of source; did you mean `parquet`?"),
    "an unknown option": (
        "{path: data/air}", "{path: x, »max_files: 3}",
        AIR + "parquet: `max_files` is not a key of source `parquet`; expected one of path, max_files_per_batch"),
    "a missing option": ("{path: data/air}", "»{}", AIR + "parquet: `path` must be given; found nothing"),
    "an option of another type": (
        "{path: data/air}", "{path: x, max_files_per_batch: »many}",
        AIR + "parquet: `max_files_per_batch` must be an integer from 1; got 'many'"),
    "an option out of its range": (
        "{parquet: {path: data/air}}", "{mqtt: {host: h, topic: t, port: »70000}}",
        AIR + "mqtt: `port` must be an integer from 1 to 65535; got '70000'"),
    "a time that is none": (
        "{parquet: {path: data/air}}", "{factory: {start: »tomorrow}}",
        AIR + "factory: `start` must be `now`, or it must be a time such as 2026-01-01T00:00:00Z; got 'tomorrow'"),
    "an option of the wrong word": (
        "topic: surface,", "topic: surface, format: »jsn,",
        'stream "surface": kafka: `format` must be one of json, csv; got \'jsn\'; did you mean `json`?'),
    "an option that is a list": (
        "topic: surface,", "topic: »[a],", 'stream "surface": kafka: `topic` must be text; got a list'),
    "a map that is none": (
        "topic: surface,", "topic: surface, options: »5,",
        'stream "surface": kafka: `options` must map names to text; got \'5\''),
    "a map of maps": (
        "topic: surface,", "topic: surface, options: {a: »{}},",
        'stream "surface": kafka: `options.a` must be text; got a mapping'),
    "a key column that is no label": (
        "keys: [machine, site]", 'keys: [machine, site, »"a b"]',
        AIR + "label and key names must look like `team_1`; got 'a b'"),
    "a key column twice": (
        "keys: [machine, site]", "keys: [machine, site, »site]",
        AIR + "`keys` must list each column once; got 'site' twice"),
    "key columns that are a mapping": (
        "keys: [machine, site]", "keys: [machine, site, »{}]",
        AIR + "`keys` must be a name, or a list of names; got a mapping"),
    "a time that is a key": (
        "keys: [machine, site]", "keys: [machine, site]\n    time: »site",
        AIR + "`time` must be a separate column; 'site' is also a key column"),
    "a value that is the time": (
        "      temp:", "      temp:\n      »ts:",
        AIR + "a value must be a separate column; 'ts' is also the column of `time`"),
    "an unknown unit of time": (
        "keys: [machine, site]", "keys: [machine, site]\n    time_unit: »min",
        AIR + "`time_unit` must be one of s, ms, us, ns; got 'min'"),
    "no values": (
        'values: {heat: {domain: "[0, 100)"}}', "values: »{}",
        'stream "surface": `values` must map at least one column to its settings; got a mapping'),
    "a value with a dot": (
        "      temp:", "      temp:\n      »a.b:",
        AIR + "value 'a.b': the name of a column must consist of letters, digits and `_`; got 'a.b'"),
    "a reversed domain": (
        "[-40, 85]", "»[85, -40]",
        AIR + "value 'value': `domain` must be [low, high] with low < high, or text such as \"[0, 100)\"; got "
        "[85, -40]"),
    "a domain of one number": (
        "[-40, 85]", "»40",
        AIR + "value 'value': `domain` must be [low, high] with low < high, or text such as \"[0, 100)\"; got '40'"),
    "a domain without a number in it": (
        "[-40, 85]", '»"(5, 5)"',
        AIR + "value 'value': `domain` must be [low, high] with low < high, or text such as \"[0, 100)\"; got "
        "'(5, 5)'"),
    "a duration with a space": ("idle_timeout: 1m", "idle_timeout: »1 m", AIR + "`idle_timeout` " + DURATION + "'1 m'"),
    "a duration that is a number": (
        "idle_timeout: 1m", "idle_timeout: »60", AIR + "`idle_timeout` " + DURATION + NO_UNIT.format(60)),
    "a duration that is nothing": (
        "idle_timeout: 1m", "idle_timeout: »~", AIR + "`idle_timeout` must be a duration; got nothing"),
    "a negative duration": (
        "idle_timeout: 1m", "idle_timeout: »-1m", AIR + "`idle_timeout` must not be negative; got '-1m'"),
    "silence of no length": ("{for: 10m,", "{for: »0s,", AIR + "no_data: `for` must be longer than 0; got '0s'"),
    "silence without a length": ("{for: 10m, labels", "»{labels", AIR + "no_data: `for` must be given; found labels"),
    "a reserved label": (
        "{severity: warning}", "{»alertname: x}",
        AIR + "no_data: label and key names must not be alertname or alertstate, nor begin with `__`; got 'alertname'"),
    "a label of silence that it has already": (
        "{severity: warning}", "{severity: x, »stream: x}",
        AIR + "no_data: `labels` must not contain `stream`, the label with the name of the stream"),
    "a label of silence that is a key": (
        "{severity: warning}", "{»machine: x}",
        AIR + "no_data: `labels` must not repeat key columns; both have 'machine'"),
    "a table that is a stream": (
        "limits:\n", "limits:\n  »air: {file: limits.csv, on: [machine]}\n",
        'limits "air": a table must not have the name of a stream; got \'air\''),
    "a table that is not there": (
        "limits:\n", "limits:\n  x: {file: »none.csv, on: [machine]}\n",
        'limits "x": `file` cannot be read; {folder}/none.csv: no such file or directory'),
    "a group without a name": (
        "- name: cold-store\n    interval", "- »interval",
        "group 1: `name` must be given; found interval, labels, rules"),
    "a group twice": (
        "sinks:", "  - name: »cold-store\n    rules: []\nsinks:",
        GROUP + "`name` must be unique in the file; the group in line 18 has the same name"),
    "groups that are a mapping": (
        "sinks:", "  - name: x\n    rules: »{}\nsinks:", 'group "x": `rules` must be a list; got a mapping'),
    "a group that is a word": ("sinks:", "  - »word\nsinks:", "group 2: a group must be a mapping; got 'word'"),
    "an interval of no length": ("interval: 30s", "interval: »0", GROUP + "`interval` must be longer than 0; got '0'"),
    "a group label that is no name": (
        "{team: hvac}", "{»te-am: hvac}", GROUP + "label and key names must look like `team_1`; got 'te-am'"),
    "a value in a group label": (
        "{team: hvac}", '{team: »"{{ $value }}"}',
        GROUP + "label 'team' must be plain text: a value would change the identity of the alert at every "
        "evaluation; use `annotations`; got '{{ $value }}'"),
    "an unknown key of a rule": (
        "recovery:", "»recover:", FIRST + "`recover` is not a key of a rule; did you mean `recovery`?"),
    "a rule without a condition": (
        "- alert: Pair\n        expr: air.temp - surface > 15\n", "- »alert: Pair\n",
        SECOND + "`expr` must be given; found alert, within, on, keep_firing_for"),
    "a rule without a name": (
        "- alert: Condensation\n        expr", "- »expr",
        GROUP + "rule 1: `alert` must be given; found expr, within, on, for, recovery, shapes, labels, annotations, "
        "stale"),
    "a blank name": ("alert: Pair", 'alert: »" "', GROUP + 'rule " ": `alert` must be a name; got \' \''),
    "the same rule twice": (
        "- alert: Pair", "- alert: Pair\n        expr: air > 1\n      - alert: »Pair",
        SECOND + "`alert` and `labels` together must be unique in the group; rule 3 has the same"),
    "a condition that breaks off": (
        "air - surface > by_machine.margin", "air - surface >»",
        FIRST + "`expr`: expected a number, a stream, a function or `(`; got the end"),
    "a model by luck": (
        "keep_firing_for: 1m", "quality: {model: {by: »luck}}",
        SECOND + "`quality.model.by` must be one of auto, key, age, none; got 'luck'"),
    "a model with another key": (
        "keep_firing_for: 1m", "quality: {model: {»grain: 5s}}",
        SECOND + "`grain` is not a key of `quality.model`; expected one of by, granularity"),
    "a model that is a word": (
        "keep_firing_for: 1m", "quality: {model: »key}",
        SECOND + "`quality.model` must be a mapping such as {by: key}; got 'key'"),
    "an equality": (
        "air - surface > by_machine.margin", "'air »== surface'",
        FIRST + "`expr`: `==` is not supported; use `>=` and `<=`, because equality of "
        "measured values is not stable"),
    "an unknown function in double quotes": (
        "air - surface > by_machine.margin", '"3 > »sqr(air)"',
        FIRST + "`expr`: `sqr` is not a function; did you mean `sqrt`?"),
    "a condition in a block": (
        "air - surface > by_machine.margin", "|\n          air -\n          »surfac > 0",
        FIRST + "`expr`: `surfac` must be one of the streams by_machine, by_site, air, surface; did you mean "
        "`surface`?"),
    "an unknown column": (
        "air - surface > by_machine.margin", "»air.tmp - surface > 0",
        FIRST + "`expr`: stream `air` must have the value column 'tmp'; its value columns are value, temp; did you "
        "mean `temp`?"),
    "an unknown limit": (
        "by_machine.margin", "»by_machine.margn",
        FIRST + "`expr`: `by_machine` must name a column of its table (margin, max_temp); got margn; "
        "did you mean `margin`?"),
    "a table without a column": (
        "by_machine.margin", "»by_machine",
        FIRST + "`expr`: `by_machine` must name a column of its table (margin, max_temp); got no column"),
    "a limit without its keys": (
        "air.temp - surface > 15", "air.temp - surface > »by_site.most",
        SECOND + "`on` must have the key columns of the limits 'by_site' (site); add 'site'"),
    "only limits": (
        "air.temp - surface > 15", "»by_machine.max_temp > by_machine.margin",
        SECOND + "`expr` must read 1 to 8 streams; got 0"),
    "a key that a stream does not have": (
        "on: [machine]\n        for", "on: [machine, »site]\n        for",
        FIRST + "`on` must name key columns of all streams of `expr`; the keys of 'surface' are machine; got 'site'"),
    "a negative window": ("within: 10s", "within: »-10s", FIRST + "`within` must not be negative; got '-10s'"),
    "a window that is a mapping": (
        "within: 10s", "within: »{}",
        FIRST + "`within` must be a duration, or a list of pairs such as {between: [air, surface], bounds: "
        "[-5s, 10s]}; "
        "got a mapping"),
    "no window": (
        "- alert: Pair\n        expr: air.temp - surface > 15\n        within:\n"
        "          - {between: [air, surface], bounds: [-5s, 10s]}\n",
        "- »alert: Pair\n        expr: air.temp - surface > 15\n",
        SECOND + "`within` is needed to join air, surface"),
    "reversed bounds": (
        "- {between: [air, surface], bounds: [-5s, 10s]}", "- »{between: [air, surface], bounds: [10s, -5s]}",
        SECOND + "`within[('air', 'surface')]` must have lower <= upper; got ('10s', '-5s')"),
    "a bound that is a number": (
        "- {between: [air, surface], bounds: [-5s, 10s]}", "- »{between: [air, surface], bounds: [-5, 10s]}",
        SECOND + "`within[('air', 'surface')]` " + DURATION + NO_UNIT.format(-5)),
    "one bound": (
        "bounds: [-5s, 10s]", "bounds: »[10s]",
        SECOND + "within: `bounds` must be [lower, upper] in durations; got a list"),
    "a pair of a stream with itself": (
        "- {between: [air, surface]", "- »{between: [air, air]",
        SECOND + "`within[('air', 'air')]` must name two different streams"),
    "a pair with an unknown stream": (
        "bounds: [-5s, 10s]}", "bounds: [-5s, 10s]}\n          - {between: [air, »hum], bounds: [0, 1s]}",
        SECOND + "`within` must name streams of `expr` (air, surface); got 'hum'"),
    "a pair twice": (
        "bounds: [-5s, 10s]}", "bounds: [-5s, 10s]}\n          - »{between: [air, surface], bounds: [0, 1s]}",
        SECOND + "`within` must have one bound per pair; air and surface have two"),
    "bounds that no rows meet": (
        "          - {between: [air, surface], bounds: [-5s, 10s]}",
        "          »- {between: [air, surface], bounds: [1s, 2s]}\n          - {between: [surface, air], "
        "bounds: [1s, 2s]}",
        SECOND + "`within` must not have contradictory bounds; no combination of rows satisfies all"),
    "a graph in two parts": (
        "          - {between: [air, surface], bounds: [-5s, 10s]}", "          »[]",
        SECOND + "`within` must connect all streams; no bound connects 'air' and 'surface'"),
    "hop with pairs": (
        "on: machine\n", "on: machine\n        hop: »1s\n",
        SECOND + "`hop` needs one `within`, the length of its windows; got bounds per pair"),
    "a hop that stands still": ("for: 10m\n", "hop: »0s\n", FIRST + "`hop` must be longer than 0; got '0s'"),
    "an unknown emit": ("for: 10m\n", "emit: »some\n", FIRST + "`emit` must be one of witness, all; got 'some'"),
    "an unknown closed": (
        "for: 10m\n", "closed: »lft\n",
        FIRST + "`closed` must be one of both, neither, left, right; got 'lft'; did you mean `left`?"),
    "an unknown shape": (
        "{air: increasing}", "{air: »convex}",
        FIRST + "`shapes['air']` must be one of increasing, decreasing, quasiconvex, unreduced; got 'convex'; "
        "did you mean `quasiconvex`?"),
    "a shape of an unknown variable": (
        "{air: increasing}", "{air: increasing, »hum: decreasing}",
        FIRST + "`shapes` must name variables of `expr` (air, surface); got 'hum'"),
    "a recovery that is a word": ("recovery: -1", "recovery: »low", FIRST + "`recovery` must be a number; got 'low'"),
    "a recovery that is endless": (
        "recovery: -1", "recovery: ».inf", FIRST + "`recovery` must be a number; got '.inf'"),
    "a recovery on the firing side of a limit": (
        "recovery: -1", "recovery: »1",
        FIRST + "`recovery` must not be above the threshold of `>`; got 1 and the threshold -0.5"),
    "a recovery on the firing side below": (
        "> by_machine.margin\n        within: 10s\n        on: [machine]\n        for: 10m\n        recovery: -1\n"
        "        shapes: {air: increasing}",
        "< -2\n        within: 10s\n        on: [machine]\n        recovery: »-3",
        FIRST + "`recovery` must not be below the threshold of `<`; got -3 and the threshold -2"),
    "a recovery without one threshold": (
        "> by_machine.margin\n        within: 10s\n        on: [machine]\n        for: 10m\n        recovery: -1\n"
        "        shapes: {air: increasing}",
        "> air * 2\n        within: 10s\n        on: [machine]\n        recovery: »-3",
        FIRST + "`recovery` needs one comparison with a number or a column of limits on its right side; "
        "got `air - surface > air * 2`"),
    "a recovery without lives": (
        "for: 10m\n        recovery: -1", "emit: all\n        recovery: »-1",
        FIRST + "`recovery` needs `emit: witness`, because a match has no end; got `emit: all`"),
    "a label that is no name": (
        "{severity: critical}", '{»"a b": critical}', FIRST + "label and key names must look like `team_1`; got 'a b'"),
    "a label that is hidden": (
        "{severity: critical}", "{»__x: critical}",
        FIRST + "label and key names must not be alertname or alertstate, nor begin with `__`; got '__x'"),
    "a label that is nothing": (
        "{severity: critical}", "{severity: »}", FIRST + "`labels.severity` must be text; got nothing"),
    "values in a label": (
        "{severity: critical}", '{severity: »"at {{ $values.air }}"}',
        FIRST + "label 'severity' must be plain text: a value would change the identity of the alert at every "
        "evaluation; use `annotations`; got 'at {{ $values.air }}'"),
    "a template in a label": (
        "{severity: critical}", '{severity: »"{{ $labels.machine }}"}',
        FIRST + "label 'severity' must be plain text: templates are for `annotations`; got '{{ $labels.machine }}'"),
    "an annotation that is no name": (
        "{summary:", "{»a-b: x, summary:", FIRST + "annotation names must look like `summary_1`; got 'a-b'"),
    "an unknown label in a template": (
        "$labels.machine }}", "»$labels.machin }}",
        FIRST + "`annotations['summary']` must name labels of the alert; got `$labels.machin`; did you mean "
        "`machine`?"),
    "an unknown stream in a template": (
        "$values.air", "»$values.hum",
        FIRST + "`annotations['summary']` must name values that `expr` reads (air.value, surface.heat); got "
        "`$values.hum`"),
    "a column in a template that is not read": (
        "$values.air", "»$values.air.temp",
        FIRST + "`annotations['summary']` must name values that `expr` reads (air.value, surface.heat); "
        "got `$values.air.temp`"),
    "a function in a template": ("$values.air", "»query $values.air", FIRST + TEMPLATE + KNOWN + "`query $values.air`"),
    "a template that does not end": (
        "{{ $values.air }}", "»{{ $values.air",
        FIRST + TEMPLATE + "a template must end with `}}`; the text ends before"),
    "a sink of two kinds": (
        "- console:", "- »console:\n    log: {path: x}",
        "sink 1: a sink must have exactly one kind of console, log, kafka, alertmanager, webhook, cloudevents; "
        "got console, log"),
    "an unknown option of a sink": (
        "- console:", "- console: {»colour: red}",
        "sink 1: console: `colour` is not a key of sink `console`; expected one of states, dashboard"),
    "a state that is none": (
        "- console:", "- console: {states: [firing, »resolvd]}",
        "sink 1: console: `states` must name some of pending, firing, resolved, inactive, match; got 'resolvd'; did "
        "you mean `resolved`?"),
    "a state twice": (
        "- console:", "- console: {states: [firing, »firing]}",
        "sink 1: console: `states` must list each word once; got 'firing' twice"),
    "no state": (
        "- console:", "- console: {states: »[]}",
        "sink 1: console: `states` must contain one or more of pending, firing, resolved, inactive, match; "
        "got an empty list"),
    "half a login": (
        "- console:", '- kafka: {servers: h, topic: t, username: »"${PASS}"}',
        "sink 1: kafka: `username` and `password` must be set together; got only one of them"),
    "a protocol without a login": (
        "- console:", "- kafka: {servers: h, topic: t, security: »SASL_SSL}",
        "sink 1: kafka: `security` must be a SASL protocol with a `username`, and another protocol without; got "
        "'SASL_SSL'"),
    "a way to log in that is unknown": (
        "- console:", "- kafka: {servers: h, topic: t, mechanism: »SCRAM}",
        "sink 1: kafka: `mechanism` must be one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512; got 'SCRAM'"),
    "a topic that is none": (
        "- console:", "- kafka: {servers: h, topic: »a/b}",
        "sink 1: kafka: `topic` must be a valid name of a Kafka topic; got 'a/b'"),
    "the same sink twice": (
        "- console:", "- console:\n  - »console: {states: pending}",
        "sink 2: console: sinks must have different targets; sink 1 has the same target"),
    "a URL without a host": (
        "- console:", "- alertmanager: {url: »alerts:9093}",
        "sink 1: alertmanager: `url` must be a URL such as http://host:9093; got `alerts:9093`"),
    "a variable in a field that is no secret": (
        "servers: broker", 'servers: »"${PASS}"',
        'stream "surface": kafka: `servers` ' + SECRETS_ONLY + "; got '${PASS}'"),
    "a variable in a label": (
        "{team: hvac}", '{team: »"${PASS}"}', GROUP + "`labels.team` " + SECRETS_ONLY + "; got '${PASS}'"),
    "a variable in a condition": (
        "air - surface > by_machine.margin", '»"air - surface > ${PASS}"',
        FIRST + "`expr` " + SECRETS_ONLY + "; got 'air - surface > ${PASS}'"),
    "a variable in a key": (
        "keys: [machine, site]", 'keys: [machine, site, »"${PASS}"]', AIR + "`keys` " + SECRETS_ONLY),
    "a variable in the path of a URL": (
        '"https://bell:${PASS}@host/x"', '»"https://host/${PASS}"',
        "sink 2: webhook: `url` may use `${...}` for user and password only, before the `@`; got "
        "`https://host/${PASS}`"),
    "a dashboard that no link can start with": (
        "headers: {X-Key", "dashboard: »board:8484, headers: {X-Key",
        "sink 2: webhook: `dashboard` must be an http or https URL with only host, port and path; "
        "the URL has another scheme"),
    "a dashboard of a sink that sends no links": (
        "- console:", "- log: {path: copy, »dashboard: http://board}",
        "sink 1: log: `dashboard` is not a key of sink `log`; expected one of path, format"),
    "a variable that is not set": (
        'password: "${PASS}"', 'password: »"${NONE}"',
        'stream "surface": kafka: `${NONE}` must be set in the environment; this variable is not set'),
    "a variable without a name": (
        'password: "${PASS}"', 'password: »"${}"',
        'stream "surface": kafka: a variable must be written `${NAME}`; got `${` without a name and `}`'),
    "an archive without a path": ("{path: archive}", "»{}", "archive: `path` must be given; found nothing"),
    "a tag": (
        "interval: 30s", "interval: »!!str 30s", "rule file: a file must not use tags; got `tag:yaml.org,2002:str`"),
    "a key twice": (
        "interval: 30s", "interval: 30s\n    »interval: 31s",
        "rule file: keys must be unique; `interval` is already in line 19"),
    "a key that is a list": (
        "interval: 30s", "? »[a]\n    : 1", "rule file: a key must be a scalar; got a list or a mapping"),
    "a merge": (
        "interval: 30s", "»<<: {interval: 30s}",
        "rule file: merge keys (`<<`) are not supported; write the keys, or use an alias as a value"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_refused(name: str, tmp_path: Path) -> None:
    old, new, message = CASES[name]
    assert GOOD.count(old) >= 1
    text, place = marked(GOOD.replace(old, new, 1))
    assert said(tmp_path, text) == [f"{place}: {message}".replace("{folder}", str(tmp_path))]


def test_all_mistakes_of_a_file_come_at_once_in_the_order_of_their_places(tmp_path: Path) -> None:
    text = (
        GOOD.replace("archive:", "archiv:")
        .replace("idle_timeout: 1m", "idle_timeout: soon")
        .replace("> 15", ">= fifteen")
    )
    text = text.replace("{air: increasing}", "{air: up, hum: increasing}").replace("$values.air", "$values.hum")
    places = [(mistake.line, mistake.sentence.split(";", maxsplit=1)[0]) for mistake in check(tmp_path, text).errors]
    assert places == [
        (8, "`idle_timeout` must be a duration such as '10s', '1h30m' or '500ms'"),
        (28, "`shapes['air']` must be one of increasing, decreasing, quasiconvex, unreduced"),
        (28, "`shapes` must name variables of `expr` (air, surface)"),
        (30, "`annotations['summary']` must name values that `expr` reads (air.value, surface.heat)"),
        (36, "`expr`: `fifteen` must be one of the streams by_machine, by_site, air, surface"),
        (44, "`archiv` is not a key of a rule file"),
    ]


def test_a_stream_with_a_mistake_is_not_held_against_the_rules_that_read_it(tmp_path: Path) -> None:
    text, place = marked(GOOD.replace("values: {heat:", "values: {»h-eat:"))
    assert [line.split(" ")[0] for line in said(tmp_path, text)] == [f"{place}:"]


def test_mistakes_in_one_template_are_all_found(tmp_path: Path) -> None:
    text = GOOD.replace("{{ $values.air }}", "{{ x }} {{ $labels.y }} {{ $values.z }} {{ $value | q }}")
    assert len(said(tmp_path, text)) == 4


def test_what_is_seen_twice_through_an_alias_is_said_once(tmp_path: Path) -> None:
    text = GOOD.replace("labels: {severity: critical}", "labels: &bad {a-b: x}")
    text = text.replace("on: machine\n", "on: machine\n        labels: *bad\n")
    assert [line.count("a-b") for line in said(tmp_path, text)] == [1, 1]
    assert said(tmp_path, text)[0].startswith("29:23: ")


def test_a_label_of_the_group_that_is_a_key_of_its_rules_is_said_for_each(tmp_path: Path) -> None:
    text, place = marked(GOOD.replace("{team: hvac}", "{»machine: hvac}"))
    message = "`labels` must not repeat key columns; both have 'machine'"
    assert said(tmp_path, text) == [f"{place}: {FIRST}{message}", f"{place}: {SECOND}{message}"]
