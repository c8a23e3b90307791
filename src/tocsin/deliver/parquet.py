"""The alert log's Parquet form: the columns of the JSON form, times as timestamps in UTC."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any

from tocsin.deliver.encode import Alert, alert_of
from tocsin.logic import ALERT_TIMES

_ROWS = 1_000


def parquet_of(alerts: Sequence[Alert]) -> bytes:
    """Write a whole file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_pylist([_row(alert) for alert in alerts], schema=_schema())
    out = BytesIO()
    pq.write_table(table, out)
    return out.getvalue()


def read_parquet(path: Path) -> Iterator[Alert]:
    """Read the alerts of a file in steps; a ValueError says that it is not one."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=_ROWS):
                yield from (_alert(row) for row in batch.to_pylist())
    except (pa.ArrowException, OSError, KeyError, TypeError, AttributeError, OverflowError) as error:
        # Arrow calls damage an OSError too, then without a number.
        if isinstance(error, OSError) and error.errno is not None:
            raise
        message = f"a Parquet file of alerts must be whole; {type(error).__name__}"
        raise ValueError(message) from error


def count_parquet(path: Path) -> int:
    """Count the alerts of a file by its footer alone."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return int(pq.read_metadata(path).num_rows)
    except (pa.ArrowException, OSError):
        return 0


def _schema() -> Any:
    import pyarrow as pa

    texts, time = pa.map_(pa.string(), pa.string()), pa.timestamp("us", tz="UTC")
    values = pa.map_(pa.string(), pa.float64())
    part = pa.struct({"stream": pa.string(), "time": time, "values": values, "payload": texts})
    columns = {"alert": pa.string(), "id": pa.string(), "state": pa.string(), "labels": texts}
    columns |= {**dict.fromkeys(ALERT_TIMES, time), "value": pa.float64(), "margin": pa.float64()}
    return pa.schema(columns | {"witness": pa.list_(part), "quality": pa.string(), "annotations": texts})


def _row(alert: Alert) -> dict[str, Any]:
    witness = [
        {**part, "time": _moment(part["time"]), "values": _pairs(part["values"]), "payload": _pairs(part["payload"])}
        for part in alert["witness"]
    ]
    times = {key: _moment(alert[key]) for key in ALERT_TIMES}
    maps = {key: _pairs(alert[key]) for key in ("labels", "annotations")}
    return {**alert, **times, **maps, "witness": witness}


def _alert(row: dict[str, Any]) -> Alert:
    maps = {key: dict(row[key]) for key in ("labels", "annotations")}
    witness = [
        {**part, "values": dict(part["values"]), "payload": None if part["payload"] is None else dict(part["payload"])}
        for part in row["witness"]
    ]
    return alert_of({**row, **maps, "witness": witness})


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text).astimezone(UTC)


def _pairs(mapping: dict[str, Any] | None) -> list[tuple[str, Any]] | None:
    return None if mapping is None else list(mapping.items())
