"""Parquet: the Parquet format of the alert log, with the columns of the JSON format and times as UTC timestamps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any

from tocsin.delivery.alert_json import Alert, alert_from_row
from tocsin.runtime.contract import ALERT_TIMES

_ROWS = 1_000


def encode_parquet(alerts: Sequence[Alert]) -> bytes:
    """Return the content of a Parquet file of the alert log."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_pylist([_to_row(alert) for alert in alerts], schema=_build_schema())
    out = BytesIO()
    pq.write_table(table, out)
    return out.getvalue()


def read_parquet(path: Path) -> Iterator[Alert]:
    """Yield the alert events of a file, read in batches of 1,000 rows.

    Raise a ValueError if it is not a complete Parquet file of alert events.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=_ROWS):
                yield from (_from_row(row) for row in batch.to_pylist())
    except (pa.ArrowException, OSError, KeyError, TypeError, AttributeError, OverflowError) as error:
        # Arrow also raises an OSError, without an error number, if the file is damaged.
        if isinstance(error, OSError) and error.errno is not None:
            raise
        message = f"not a complete Parquet file of alerts ({type(error).__name__})"
        raise ValueError(message) from error


def count_parquet(path: Path) -> int:
    """Return the number of alert events of a file from its footer; 0 if it cannot be read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return int(pq.read_metadata(path).num_rows)
    except (pa.ArrowException, OSError):
        return 0


def _build_schema() -> Any:
    import pyarrow as pa

    texts, time = pa.map_(pa.string(), pa.string()), pa.timestamp("us", tz="UTC")
    values = pa.map_(pa.string(), pa.float64())
    part = pa.struct({"stream": pa.string(), "time": time, "values": values, "payload": texts})
    columns = {"alert": pa.string(), "id": pa.string(), "state": pa.string(), "labels": texts}
    columns |= {**dict.fromkeys(ALERT_TIMES, time), "value": pa.float64(), "margin": pa.float64()}
    return pa.schema(columns | {"witness": pa.list_(part), "quality": pa.string(), "annotations": texts})


def _to_row(alert: Alert) -> dict[str, Any]:
    witness = [
        {
            **part,
            "time": _parse_time(part["time"]),
            "values": _to_pairs(part["values"]),
            "payload": _to_pairs(part["payload"]),
        }
        for part in alert["witness"]
    ]
    times = {key: _parse_time(alert[key]) for key in ALERT_TIMES}
    maps = {key: _to_pairs(alert[key]) for key in ("labels", "annotations")}
    return {**alert, **times, **maps, "witness": witness}


def _from_row(row: dict[str, Any]) -> Alert:
    maps = {key: dict(row[key]) for key in ("labels", "annotations")}
    witness = [
        {**part, "values": dict(part["values"]), "payload": None if part["payload"] is None else dict(part["payload"])}
        for part in row["witness"]
    ]
    return alert_from_row({**row, **maps, "witness": witness})


def _parse_time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text).astimezone(UTC)


def _to_pairs(mapping: dict[str, Any] | None) -> list[tuple[str, Any]] | None:
    return None if mapping is None else list(mapping.items())
