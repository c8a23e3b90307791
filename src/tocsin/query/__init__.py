"""Queries in SQL: text -> tree -> values that the plan's steps are made of.

`parse_sql` reads statements with a dialect of our own for sqlglot, `resolve` makes a join, a selection or aggregates of
them, given the columns of the streams; `check_script` finds mistakes without them. What is not supported is refused,
with its place in the text.
"""

try:
    import sqlglot as _sqlglot  # noqa: F401
except ImportError:
    _message = "reading SQL needs the package sqlglot; install tocsin[spark]"
    raise ImportError(_message) from None

from tocsin.query.assume import check_script
from tocsin.query.model import Aggregate, Aggregates, Budget, Column, Filter, JoinQuery, Selection, Source
from tocsin.query.read import parse_sql
from tocsin.query.resolve import resolve

__all__ = [
    "Aggregate",
    "Aggregates",
    "Budget",
    "Column",
    "Filter",
    "JoinQuery",
    "Selection",
    "Source",
    "check_script",
    "parse_sql",
    "resolve",
]
