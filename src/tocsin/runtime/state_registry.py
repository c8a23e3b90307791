"""State registry: the only code that reads, writes, grows, shrinks, sizes and checks state of operators.

Algorithm: a bucket holds shards of some thousand keys. A shard has a key table and one section per operator. An
operator declares a schema. Its section holds the arrays of the schema, and grows and shrinks with the keys of the
shard. A section is named by the id of its operator. A stored section is adopted if the plan has an operator with this
id. All other sections are left over, and the code of their kind retires them.

Guarantees: `Shard.size` is an upper bound for the bytes of the page. A section that is adopted has exactly the arrays,
types and lengths of its schema; other content raises an error. A key that has only default values in a column takes no
bytes there.

Complexity: `add_keys` and `drop_keys` copy the arrays of the shard. A page costs one pass over each array.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import compress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tocsin.errors import RunError
from tocsin.runtime.contract import NEVER_SEEN, Bools, Int, Out, Pages
from tocsin.runtime.metrics import RowOutcome
from tocsin.runtime.state_codec import EncodedTexts, arrays_size, pack, packed_size, unpack

Key = tuple[str, ...]
Array = NDArray[Any]
_KEYS = "keys"


@dataclass(frozen=True)
class Column:
    """Column of a state: one value per key or per row, or `width` values.

    Attributes
    ----------
        name: Name, unique within the schema.
        kind: `np.int64`, `np.float64`, `np.bool_`, or `object` for a text or None.
        default: Value for a new key. A key or row that has this value takes almost no bytes.
        width: Number of values; None for a single value, which has no axis of its own.
        is_optional: The array may be missing. The operator then assumes a value for all rows.
        is_transient: The array is not written to pages. It identifies rows while a session records a trace.
    """

    name: str
    kind: type = np.int64
    default: Any = 0
    width: int | None = None
    is_optional: bool = False
    is_transient: bool = False

    def new(self, rows: int) -> Array:
        """Return the array of new rows."""
        shape = (rows,) if self.width is None else (rows, self.width)
        return np.full(shape, self.default, self.kind)

    def check(self, array: Array, rows: int) -> None:
        """Raise an error if an array does not fit this column."""
        shape = (rows,) if self.width is None else (rows, self.width)
        if array.dtype != self.kind or array.shape != shape:
            found = f"{array.dtype} of shape {array.shape}"
            message = f"column `{self.name}` must be {np.dtype(self.kind)} of shape {shape}; got {found}"
            raise ValueError(message)


@dataclass(frozen=True)
class Ragged:
    """Rows of each key, ordered by key: an array of offsets, and the columns of the rows."""

    offsets: str
    columns: tuple[Column, ...]


@dataclass(frozen=True)
class Table:
    """Rows in any order with the number of their key in column `key`, and other columns."""

    key: str
    columns: tuple[Column, ...] = ()


@dataclass(frozen=True)
class Derived:
    """Column of values that follow from the names of the keys. It is not written."""

    name: str
    compute: Callable[[Sequence[Key]], Array]


@dataclass(frozen=True)
class StateSchema:
    """Arrays of one operator in a shard.

    Attributes
    ----------
        kind: Kind of operator. It names the code that retires a section.
        per_key: Columns with one value per key.
        ragged: Rows of each key, ordered by key.
        tables: Rows in any order.
        derived: Columns that follow from the names of the keys.
        arrays: Columns of any length that belong to no key.
    """

    kind: str
    per_key: tuple[Column, ...] = ()
    ragged: tuple[Ragged, ...] = ()
    tables: tuple[Table, ...] = ()
    derived: tuple[Derived, ...] = ()
    arrays: tuple[Column, ...] = ()

    def defaults(self) -> dict[str, Any]:
        """Return the value that most cells of a written array have, by the name of the array."""
        return {column.name: column.default for column in (*self.per_key, *self.row_columns, *self.arrays)}

    @property
    def row_columns(self) -> list[Column]:
        """Columns of all rows."""
        columns = [column for ragged in self.ragged for column in ragged.columns]
        return columns + [column for table in self.tables for column in table.columns]

    def names(self) -> set[str]:
        """Return the names of all arrays."""
        places = {ragged.offsets for ragged in self.ragged} | {table.key for table in self.tables}
        return places | self.defaults().keys() | {derived.name for derived in self.derived}


@dataclass
class StoredSection:
    """Section of a page that no operator has adopted.

    Attributes
    ----------
        id: Id of the operator that wrote it.
        kind: Kind of the operator.
        facts: JSON values of the operator that do not change.
        owner: Id of the rule that the operator belongs to, or an empty text.
        arrays: Arrays by the names of the schema. Offsets of ragged rows are written as counts per key.
    """

    id: str
    kind: str
    facts: Any
    owner: str
    arrays: dict[str, Array] = field(default_factory=dict)


@dataclass(frozen=True)
class SectionSpec:
    """Declaration of a section: an operator has one of them per part of its state.

    Attributes
    ----------
        id: Id of the operator: a stable hash of everything that the state depends on.
        schema: Arrays of the section.
        facts: JSON values that the code needs to retire the section.
        owner: Id of the rule that the operator belongs to, or an empty text. It stays if the rule changes.
    """

    id: str
    schema: StateSchema
    facts: Any = None
    owner: str = ""


class Section:
    """State of one operator in one shard.

    Attributes
    ----------
        id, schema, facts, owner: Declaration of the section, as in `SectionSpec`.
        arrays: Arrays by name. An operator may replace an array by another array of the same schema.
        keys: Number of keys.
    """

    def __init__(self, spec: SectionSpec) -> None:
        schema = spec.schema
        self.id, self.schema, self.facts, self.owner, self.keys = spec.id, schema, spec.facts, spec.owner, 0
        self.arrays: dict[str, Array] = {column.name: column.new(0) for column in schema.per_key}
        for ragged in schema.ragged:
            self.arrays[ragged.offsets] = np.zeros(1, np.int64)
        for table in schema.tables:
            self.arrays[table.key] = np.zeros(0, np.int64)
        for derived in schema.derived:
            self.arrays[derived.name] = derived.compute(())
        for column in (*schema.row_columns, *schema.arrays):
            if not column.is_optional:
                self.arrays[column.name] = column.new(0)
        self._derived = {derived.name for derived in schema.derived}
        transient = {column.name for column in schema.row_columns if column.is_transient}
        self._unwritten = self._derived | transient
        self._defaults = {f"{spec.id}.{name}": default for name, default in schema.defaults().items()}

    def add_keys(self, names: Sequence[Key]) -> None:
        """Append new keys with default values and without rows."""
        count, arrays = len(names), self.arrays
        self.keys += count
        for column in self.schema.per_key:
            arrays[column.name] = np.concatenate([arrays[column.name], column.new(count)])
        for ragged in self.schema.ragged:
            offsets = arrays[ragged.offsets]
            arrays[ragged.offsets] = np.concatenate([offsets, np.full(count, offsets[-1])])
        for derived in self.schema.derived:
            arrays[derived.name] = np.concatenate([arrays[derived.name], derived.compute(names)])

    def drop_keys(self, gone: Bools) -> None:
        """Remove keys with their rows. The keys behind them move up."""
        stay, arrays = ~gone, self.arrays
        self.keys = int(stay.sum())
        for name in (*(column.name for column in self.schema.per_key), *self._derived):
            arrays[name] = arrays[name][stay]
        for ragged in self.schema.ragged:
            counts = np.diff(arrays[ragged.offsets])
            arrays[ragged.offsets] = np.concatenate([[0], np.cumsum(counts[stay])])
            self._pick(ragged.columns, np.repeat(stay, counts))
        for table in self.schema.tables:
            key = arrays[table.key]
            there = stay[key]
            arrays[table.key] = (np.cumsum(stay) - 1)[key[there]]
            self._pick(table.columns, there)

    def reset_keys(self, reset: Bools) -> None:
        """Give keys without rows the state of new keys. Their rows in tables are removed."""
        for column in self.schema.per_key:
            self.arrays[column.name][reset] = column.new(1)[0]
        for table in self.schema.tables:
            stays = ~reset[self.arrays[table.key]]
            self.arrays[table.key] = self.arrays[table.key][stays]
            self._pick(table.columns, stays)

    def _pick(self, columns: Sequence[Column], rows: Bools) -> None:
        for column in columns:
            if column.name in self.arrays:
                self.arrays[column.name] = self.arrays[column.name][rows]

    @property
    def size(self) -> int:
        """Upper bound for the bytes of the arrays on a page."""
        return arrays_size(self._named(self.arrays))

    def written(self) -> dict[str, Array]:
        """Return the arrays as they are written, by their names on the page."""
        arrays = self.arrays
        if self.schema.ragged:
            arrays = dict(arrays)
            for ragged in self.schema.ragged:
                arrays[ragged.offsets] = np.diff(arrays[ragged.offsets])
        return self._named(arrays)

    def _named(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        return {f"{self.id}.{name}": array for name, array in arrays.items() if name not in self._unwritten}

    def restore(self, stored: StoredSection, names: Sequence[Key]) -> None:
        """Replace the state of a new section by a stored section. Raise ValueError or KeyError if it does not fit."""
        self.keys, arrays = len(names), dict(stored.arrays)
        for ragged in self.schema.ragged:
            arrays[ragged.offsets] = np.concatenate([[0], np.cumsum(arrays[ragged.offsets])])
        for derived in self.schema.derived:
            arrays[derived.name] = derived.compute(names)
        self.arrays = arrays
        self.check()

    def check(self) -> None:
        """Raise ValueError or KeyError if an array does not fit the schema and the number of keys."""
        arrays, rows = self.arrays, list[tuple[Column, int]]()
        if unknown := sorted(arrays.keys() - self.schema.names()):
            message = f"section {self.id} must have the columns of its schema only; got {', '.join(unknown)}"
            raise ValueError(message)
        rows += [(column, self.keys) for column in self.schema.per_key]
        rows += [(column, len(arrays[column.name])) for column in self.schema.arrays if column.name in arrays]
        for ragged in self.schema.ragged:
            offsets = arrays[ragged.offsets]
            Column(ragged.offsets).check(offsets, self.keys + 1)
            if offsets[0] != 0 or (np.diff(offsets) < 0).any():
                message = f"column `{ragged.offsets}` must count up from 0"
                raise ValueError(message)
            rows += [(column, int(offsets[-1])) for column in ragged.columns]
        for table in self.schema.tables:
            key = arrays[table.key]
            Column(table.key).check(key, len(key))
            if len(key) and not 0 <= int(key.min()) <= int(key.max()) < self.keys:
                message = f"column `{table.key}` must number {self.keys} keys; got {key.min()} to {key.max()}"
                raise ValueError(message)
            rows += [(column, len(key)) for column in table.columns]
        for column, count in rows:
            if not column.is_optional or column.name in arrays:
                column.check(arrays[column.name], count)
        for derived in self.schema.derived:
            if len(arrays[derived.name]) != self.keys:
                message = f"column `{derived.name}` must have {self.keys} rows; got {len(arrays[derived.name])}"
                raise ValueError(message)


class OperatorState:
    """State of an operator in one shard: names for the arrays of its section.

    An operator creates it for each call from the shard that it receives.
    """

    def __init__(self, section: Section) -> None:
        self.section = section


class StateArray:
    """Attribute of an operator state: one array of its section."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, state: OperatorState, owner: type | None = None) -> Array:
        """Return the array."""
        return state.section.arrays[self.name]

    def __set__(self, state: OperatorState, array: Array) -> None:
        """Replace the array."""
        state.section.arrays[self.name] = array


class OptionalStateArray:
    """Attribute of an operator state: one optional array of its section, or None."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, state: OperatorState, owner: type | None = None) -> Array | None:
        """Return the array, or None if it is missing."""
        return state.section.arrays.get(self.name)

    def __set__(self, state: OperatorState, array: Array | None) -> None:
        """Replace the array, or remove it."""
        if array is None:
            state.section.arrays.pop(self.name, None)
        else:
            state.section.arrays[self.name] = array


@lru_cache(maxsize=1 << 17)
def name_bytes(key: Key) -> int:
    """Return an upper bound for the bytes of the name of a key on a page."""
    return len(json.dumps(key)) + len(", ")


class KeyTable:
    """Names of the keys of a shard. Each name is measured, hashed and encoded once."""

    def __init__(self, width: int, names: Sequence[Key] = ()) -> None:
        self.names, self.width = list(names), width
        self._bytes, self._hashes = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self._encoded: bytes | None = None

    def __len__(self) -> int:
        """Return the number of keys."""
        return len(self.names)

    def add(self, names: Sequence[Key]) -> None:
        """Append keys."""
        self.names += names
        self._encoded = None

    def drop(self, gone: Bools) -> None:
        """Remove keys."""
        self.names = list(compress(self.names, (~gone).tolist()))
        self._bytes, self._hashes = (part[~gone[: len(part)]] for part in (self._bytes, self._hashes))
        self._encoded = None

    def hashes(self, compute: Callable[[Key], int]) -> Int:
        """Return a number of each key. Every call must pass the same function."""
        new = self.names[len(self._hashes) :]
        if new:
            self._hashes = np.concatenate([self._hashes, np.fromiter(map(compute, new), np.int64, len(new))])
        return self._hashes

    @property
    def size(self) -> int:
        """Upper bound for the bytes of the names on a page."""
        new = self.names[len(self._bytes) :]
        if new:
            self._bytes = np.concatenate([self._bytes, np.fromiter(map(name_bytes, new), np.int64, len(new))])
        return int(self._bytes.sum())

    def encoded(self) -> EncodedTexts:
        """Return the names as a text array with one row per key."""
        if self._encoded is None:
            self._encoded = json.dumps([part for name in self.names for part in name]).encode()
        return EncodedTexts(self._encoded, (len(self.names), self.width))


class Shard:
    """Keys of a pipeline, and the sections of its operators.

    Attributes
    ----------
        keys: Names of the keys.
        sections: Sections by the id of their operator.
        leftover: Stored sections that no operator has adopted, by id.
        is_dirty: Whether the page must be written.
        is_full_width: Whether the page has no short forms. A memory budget counts full width, because the short forms
            of a page can grow with any row. Its pages then take what the budget counts.
    """

    def __init__(self, width: int) -> None:
        self.keys, self.is_full_width = KeyTable(width), False
        self.sections: dict[str, Section] = {}
        self.leftover: dict[str, StoredSection] = {}
        self.is_dirty = False
        # Bytes of the header of a page. The sections have their final facts before the first page is sized.
        self._heading: int | None = None

    @classmethod
    def read(cls, data: bytes, width: int) -> Shard:
        """Return the shard of a page. All its sections are left over. `width` is the number of key columns."""
        arrays, facts = unpack(data)
        shard, names = cls(width), arrays.pop(_KEYS)
        if names.shape[1] != width:
            message = f"keys must have {width} columns; got {names.shape[1]}"
            raise ValueError(message)
        shard.keys = KeyTable(width, [tuple(name) for name in names.tolist()])
        shard.leftover = {given[0]: StoredSection(*given) for given in facts["sections"]}
        for name, array in arrays.items():
            operator_id, _, column = name.partition(".")
            shard.leftover[operator_id].arrays[column] = array
        return shard

    def attach(self, spec: SectionSpec) -> StoredSection | None:
        """Add a section. Return the stored section of its id that it adopts, or None if it begins without state."""
        if spec.id in self.sections:
            message = f"operator ids must be unique in a shard; got {spec.id} twice"
            raise ValueError(message)
        section = self.sections[spec.id] = Section(spec)
        stored = self.leftover.get(section.id)
        if stored is None or stored.kind != section.schema.kind:
            section.add_keys(self.keys.names)
            return None
        section.restore(stored, self.keys.names)
        return self.leftover.pop(section.id)

    def add_keys(self, names: Sequence[Key]) -> None:
        """Append new keys to the key table and to all sections."""
        self.is_dirty = True  # A page that was not stored would leave a gap in the numbers of the pages behind it.
        self.keys.add(names)
        for section in self.sections.values():
            section.add_keys(names)

    def drop_keys(self, gone: Bools) -> None:
        """Remove keys from the key table and from all sections."""
        self.is_dirty = True
        self.keys.drop(gone)
        for section in self.sections.values():
            section.drop_keys(gone)

    def reset_keys(self, reset: Bools) -> None:
        """Give keys without rows the state of new keys. Their positions do not change."""
        self.is_dirty = True
        for section in self.sections.values():
            section.reset_keys(reset)

    @property
    def size(self) -> int:
        """Upper bound for the bytes of the page."""
        if self._heading is None:
            names = {_KEYS: np.zeros((0, self.keys.width), np.int64)}
            self._heading = packed_size(names, sections=self._facts()) + len("[]")
        return self._heading + self.keys.size + sum(section.size for section in self.sections.values())

    def _facts(self) -> list[list[Any]]:
        return [[one.id, one.schema.kind, one.facts, one.owner] for one in self.sections.values()]

    def to_bytes(self) -> bytes:
        """Return the page."""
        arrays: dict[str, Any] = {_KEYS: self.keys.encoded()}
        defaults: dict[str, Any] = {}
        for section in self.sections.values():
            arrays |= section.written()
            defaults |= section._defaults
        return pack(arrays, defaults, self.is_full_width, sections=self._facts())

    def check(self) -> None:
        """Raise an error if a section does not fit its schema or the keys."""
        for section in self.sections.values():
            section.check()
            if section.keys != len(self.keys):
                message = f"section {section.id} must have {len(self.keys)} keys; got {section.keys}"
                raise ValueError(message)


@dataclass(frozen=True)
class RetireContext:
    """Everything that the code of a kind may use to retire a section.

    Attributes
    ----------
        on: Names of the key columns.
        names: Names of the keys.
        newest: Newest event time of each key.
        is_adopted: Whether another pipeline continues with this section. Its alerts then stay open.
        out: Output of the call: receives closing alerts and the counts of rows.
    """

    on: tuple[str, ...]
    names: Sequence[Key]
    newest: Int
    is_adopted: bool
    out: Out

    def labels(self, key: int) -> dict[str, str]:
        """Return the key columns of a key."""
        return dict(zip(self.on, self.names[key], strict=True))


# Code that retires a section of one kind: it ends open alerts and counts rows as expired.
Retire = Callable[[StoredSection, RetireContext], None]


@contextmanager
def readable(page: str) -> Iterator[None]:
    """Add the page name to errors raised while a page is decoded. The content can be wrong under a valid checksum."""
    try:
        yield
    except RunError as error:
        raise RunError(str(error).replace("state page", f"state page `{page}`", 1)) from error
    except (LookupError, ValueError, TypeError, AttributeError) as error:
        message = f"state page `{page}` has unexpected content ({type(error).__name__}: {error})"
        raise RunError(message) from error


# Names of key columns with commas between them, a suffix that distinguishes groups with the same columns, and a part.
_NAME = re.compile(r"((\w*(?:,\w+)*)(?:~[0-9a-f]+)?)/(0|[1-9][0-9]{0,8}|[a-z]+)", re.ASCII)


def split_name(page: str, parts: Collection[str] = ()) -> tuple[str, str, str]:
    """Return the group of a page, its key columns, and the number of its shard or the name of another part."""
    found = _NAME.fullmatch(page)
    if not found or not (found[3].isdigit() or found[3] in parts):
        message = (
            f"state page `{page}` must have a name of key columns and a number, such as `machine/0`; it belongs to "
            "another plan"
        )
        raise RunError(message)
    return found[1], found[2], found[3]


def assign_groups(stored: Mapping[str, Set[str]], planned: Mapping[str, Set[str]]) -> dict[str, str]:
    """Return the stored group of shards that each pipeline adopts, by the name of the pipeline.

    Both mappings have the owners of the sections by name. A name is key columns, and after `~` a suffix that has no
    meaning here. A pipeline adopts the group of its name if they share an owner; otherwise the group with the same key
    columns and the first shared owner; otherwise the group of its name, if no other pipeline adopts it.
    """
    found = {name: name for name, owners in planned.items() if owners & stored.get(name, set())}
    for name in sorted(planned.keys() - found, key=lambda name: sorted(planned[name])):
        shared = {
            min(planned[name] & owners): group
            for group, owners in sorted(stored.items())
            if group.partition("~")[0] == name.partition("~")[0] and planned[name] & owners
        }
        if shared:
            found[name] = shared[min(shared)]
    free = stored.keys() - found.values()
    return found | {name: name for name in planned if name not in found and name in free}


def first_adopters(assigned: Mapping[str, str]) -> dict[str, str]:
    """Return the pipeline that continues a group under its name. All other pipelines of the group begin with a copy."""
    first: dict[str, str] = {}
    for name, group in sorted(assigned.items(), key=lambda pair: (pair[0] != pair[1], pair[0])):
        first.setdefault(group, name)
    return first


@dataclass
class ShardGroup:
    """State of one pipeline in a bucket: its shards, and pages of its own that have no keys.

    Attributes
    ----------
        name: First part of the names of its pages.
        width: Number of key columns.
        shards: Shards in the order of their numbers.
        parts: Stored pages without keys, by the last part of their name.
        is_copy: Whether another pipeline continues with the stored shards.
    """

    name: str
    width: int
    shards: list[Shard] = field(default_factory=list)
    parts: dict[str, bytes] = field(default_factory=dict)
    is_copy: bool = False

    def changed_pages(self) -> dict[str, bytes | None]:
        """Return the pages of the shards that changed since the last call."""
        changed: dict[str, bytes | None] = {}
        for number, shard in enumerate(self.shards):
            if shard.is_dirty:
                changed[f"{self.name}/{number}"] = shard.to_bytes()
                shard.is_dirty = False
        return changed


class StateRegistry:
    """Stored pages of a bucket: pipelines adopt them, and everything else is retired.

    A page belongs to a shard group, or to a family of pages with a name prefix of their own.
    """

    def __init__(self, pages: Pages, kinds: Mapping[str, Retire], parts: Collection[str]) -> None:
        """Read all shards. `kinds` retires sections; `parts` has the names of pages without keys."""
        # Pages of state that is not retired yet, and pages that no pipeline writes any more.
        self._retiring, self._removed = list[str](), list[str]()
        self._kinds, self._stored = kinds, dict[str, ShardGroup]()
        self._adopted: dict[str, list[ShardGroup]] = {}
        self._expired = Out()
        numbers: dict[str, dict[int, str]] = {}
        for page, data in pages.items():
            group, columns, part = split_name(page, parts)
            width = len(columns.split(",")) if columns else 0
            mine = self._stored.setdefault(group, ShardGroup(group, width))
            if part.isdigit():
                numbers.setdefault(group, {})[int(part)] = page
            else:
                mine.parts[part] = data
        for group, found in numbers.items():
            missing = set(range(len(found))) - found.keys()
            if missing:
                message = f"state page `{group}/{min(missing)}` is missing, but `{found[max(found)]}` exists"
                raise RunError(message)
            self._stored[group].shards = [self._read(pages, found[number], group) for number in sorted(found)]

    def _read(self, pages: Pages, page: str, group: str) -> Shard:
        with readable(page):
            return Shard.read(pages[page], self._stored[group].width)

    def adopt(self, planned: Mapping[str, Set[str]]) -> dict[str, ShardGroup]:
        """Return the shard group of each pipeline; `planned` has the rules of each pipeline by its name."""
        stored = {
            name: {section.owner for shard in group.shards for section in shard.leftover.values()} - {""}
            for name, group in self._stored.items()
        }
        assigned = assign_groups(stored, planned)
        first, groups = first_adopters(assigned), dict[str, ShardGroup]()
        taken = set(self._stored)
        for name in planned:
            if name not in assigned:
                groups[name] = ShardGroup(_free_name(name, taken), len(_columns_of(name)))
            elif first[assigned[name]] == name:
                groups[name] = self._stored[assigned[name]]
            else:
                groups[name] = _copy(self._stored[assigned[name]], _free_name(name, taken))
            taken.add(groups[name].name)
            if name in assigned:
                self._adopted.setdefault(assigned[name], []).append(groups[name])
        for group in self._stored.keys() - self._adopted.keys():
            numbers = range(len(self._stored[group].shards))
            self._retiring += [f"{group}/{part}" for part in (*numbers, *self._stored[group].parts)]
        return groups

    def adopt_family(self, pages: Pages, owner: Callable[[str], str], planned: Collection[str], rows: RowsOf) -> None:
        """Retire the pages of a family whose owner is not planned: remove them, and count their rows as expired."""
        for page, data in pages.items():
            if owner(page) not in planned:
                self._retiring.append(page)
                with readable(page):
                    for stream, count in rows(page, data).items():
                        self._expired.metrics.count_rows(
                            stream, {RowOutcome.RETAINED: -count, RowOutcome.EXPIRED: count}
                        )

    def retire(self, out: Out) -> None:
        """Retire every section that no pipeline has adopted. A second call has no effect."""
        for name, group in self._stored.items():
            adopters = self._adopted.get(name, [])
            elsewhere = {
                one for other in adopters if other is not group for shard in other.shards for one in shard.sections
            }
            for number, shard in enumerate(group.shards):
                if shard.leftover:
                    with readable(f"{name}/{number}"):
                        self._retire_shard(shard, tuple(_columns_of(name)), elsewhere, out)
                    shard.is_dirty |= bool(adopters)
            if adopters:  # Pages that no adopter has taken, such as the wait of rules that wait no longer.
                self._retiring += [f"{name}/{part}" for part in group.parts]
            group.parts = {}
        out.add(self._expired)
        self._expired = Out()
        self._removed += self._retiring
        self._retiring = []

    def removed_pages(self) -> list[str]:
        """Return the pages of retired state. A second call returns an empty list."""
        removed, self._removed = self._removed, []
        return removed

    def _retire_shard(self, shard: Shard, on: tuple[str, ...], elsewhere: Set[str], out: Out) -> None:
        newest = np.full(len(shard.keys), NEVER_SEEN)
        known = [section.arrays for section in shard.sections.values()]
        known += [section.arrays for section in shard.leftover.values()]
        for times in (arrays["newest"] for arrays in known if "newest" in arrays):
            newest = np.maximum(newest, times.max(axis=1) if times.ndim > 1 else times)
        for section in shard.leftover.values():
            context = RetireContext(on, shard.keys.names, newest, section.id in elsewhere, out)
            self._kinds[section.kind](section, context)
        shard.leftover = {}


# Number of retained rows by stream that a page of a family has.
RowsOf = Callable[[str, bytes], Mapping[str, int]]


def _columns_of(name: str) -> list[str]:
    """Return the key columns of a group or pipeline."""
    columns = name.partition("~")[0]
    return columns.split(",") if columns else []


def _free_name(name: str, taken: Set[str]) -> str:
    """Return a name of a new group that no other group has."""
    number, found = 0, name
    while found in taken:
        found, number = f"{name.partition('~')[0]}~{number:x}", number + 1
    return found


def _copy(group: ShardGroup, name: str) -> ShardGroup:
    """Return a copy of a group under another name. Its pages must be written."""
    shards = []
    for shard in group.shards:
        mine = Shard(group.width)
        mine.keys.add(shard.keys.names)
        mine.is_dirty = True
        mine.leftover = deepcopy(shard.leftover)
        shards.append(mine)
    return ShardGroup(name, group.width, shards, dict(group.parts), is_copy=True)
