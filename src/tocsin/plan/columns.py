"""The columns of streams that a rule names: found, or refused in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tocsin.errors import RuleError
from tocsin.expr.syntax_tree import Key
from tocsin.rules.nearest import nearest
from tocsin.rules.no_data import AnyRule

# The columns of each stream; the names of event time and arrival among them.
Columns = Mapping[str, Sequence[str]]
Special = tuple[str, str | None]


def are_all(special: Special) -> bool:
    """Tell whether the columns are all that rows have: a rule file names those that rules read, and no time."""
    return not special[0].startswith(" ")


def check_stream(rule: AnyRule, stream: str, columns: Columns, special: Special) -> None:
    """Refuse a stream that is not there, or that lacks time, arrival or a key column."""
    if stream not in columns:
        message = (
            f"{rule.location}: `{stream}` must be one of the streams {', '.join(columns)}{nearest(stream, columns)}"
        )
        raise RuleError(message)
    have = list(columns[stream])
    time, arrival = special
    for needed in [time, *rule.on, *([] if arrival is None else [arrival])]:
        if needed not in have:
            what = f"{needed!r} (`arrival`)" if needed == arrival else repr(needed)
            message = (
                f"{rule.location}: stream `{stream}` must have the column {what}; its columns are {', '.join(have)}"
            )
            raise RuleError(message)


def column_of(rule: AnyRule, key: Key, columns: Columns, special: Special) -> str:
    """The column that a variable reads."""
    stream, column = key
    check_stream(rule, stream, columns, special)
    have = columns[stream]
    free = [name for name in have if name not in {*special, *rule.on}]
    if column is not None:
        if column not in free:
            have_text = f"its value columns are {', '.join(free)}{nearest(column, free)}"
            message = f"{rule.location}: stream `{stream}` must have the value column {column!r}; {have_text}"
            raise RuleError(message)
        return column
    if "value" in free or len(free) == 1:
        return "value" if "value" in free else free[0]
    found = f"the value columns of the stream are {', '.join(free)}" if free else "the stream has no value column"
    example = f"{stream}.{free[0] if free else 'value'}"
    message = f"{rule.location}: `{stream}` must name its column, for example `{example}`; {found}"
    raise RuleError(message)
