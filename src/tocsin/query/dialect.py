"""The SQL of promising tuples as a dialect of sqlglot: Spark's, with CREATE SUMMARY and the clauses of a preference.

    CREATE SUMMARY items ON sales(item) WITH GRANULARITY 1 MINUTE AND COLLAPSE(4, 3)
    SELECT ... FROM ... WHERE ... WITH PREFERENCE desc ... FADE FACTOR 0.8 WINDOW 1 MINUTE BUDGET 50 %

A tree can be written as text again (`tree.sql(dialect=Tocsin)`). Every node knows its place in the text, so that what
is not supported can be underlined wherever it stands (`span_of`). Statements of other kinds are refused here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any, NoReturn, TypeVar

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ErrorLevel, ParseError
from sqlglot.generators.spark import SparkGenerator
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

ORDERS = ("DESC", "ASC", "WEIGHTED")
# How a setting is written behind its name: its parts, and what must follow a number.
DURATION, NUMBER, LIST, WORD, NOTHING = "duration", "number", "list", "word", "nothing"
SETTINGS = {
    "GRANULARITY": DURATION,
    "COLLAPSE": LIST,
    "BUCKETS": NUMBER,
    "ZONES": NUMBER,
    "SKETCH": LIST,
    "HISTOGRAM": LIST,
    "EXACT": NOTHING,
    "THETA": NUMBER,
    "MAXLENGTH": DURATION,
    "VARIANT": WORD,
    "MEMORY": NUMBER,
}
# The clauses behind those of SQL, in the order in which they are written out.
CLAUSES = ("WITH", "FADE", "WINDOW", "BUDGET")
PERCENT, PER_TUPLE = "%", "UNITS PER TUPLE"
UNITS_US = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": 86_400_000_000,
    "WEEK": 604_800_000_000,
}
UNITS = {**UNITS_US, **{f"{unit}S": size for unit, size in UNITS_US.items()}}
_PLACE, _CLAUSE = "place", "clause"

Node = TypeVar("Node", bound=exp.Expr)
Place = tuple[int, int]


class CreateSummary(exp.Expression):
    """CREATE SUMMARY this ON stream(attribute) WITH settings."""

    arg_types = {"this": True, "stream": True, "attribute": True, "settings": False}  # noqa: RUF012


class Setting(exp.Expression):
    """A name, numbers or a word, and perhaps a unit; `listed` where the numbers stand in parentheses.

    `slide` is another one, of how often a window begins.
    """

    arg_types = {"this": True, "expressions": False, "unit": False, "listed": False, "slide": False}  # noqa: RUF012


class Prefer(exp.Expression):
    """WITH PREFERENCE order this."""

    arg_types = {"this": True, "order": True}  # noqa: RUF012


class MistakeError(ParseError):
    """What cannot be read, and where it stands."""

    def __init__(self, message: str, start: int, stop: int) -> None:
        self.message, self.start, self.stop = message, start, stop
        super().__init__(message)


def span_of(node: exp.Expr) -> Place:
    """Where a node stands in the text that it was read from.

    >>> tree = Tocsin().parse("SELECT a + b FROM s")[0]
    >>> span_of(tree.expressions[0])
    (7, 12)
    """
    places = [one for part in node.walk() for one in _places(part)]
    if not places:
        return (0, 0) if node.parent is None else span_of(node.parent)
    return min(start for start, _ in places), max(stop for _, stop in places)


def clause_of(node: exp.Expr) -> Place:
    """Where the words stand that a clause of SQL begins with; of other nodes, where they stand.

    >>> tree = Tocsin().parse("SELECT a FROM s GROUP BY a")[0]
    >>> clause_of(tree.args["group"])
    (16, 24)
    """
    place: Place = node.meta.get(_CLAUSE) or span_of(node)
    return place


def _noted(parse: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Note with which words a clause begins."""

    def parsed(parser: Any) -> Any:
        token = parser._curr
        name, value = parse(parser)
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, exp.Expr):
                part.meta[_CLAUSE] = (token.start, token.end + 1)
        return name, value

    return parsed


def _places(node: exp.Expr) -> Iterator[Place]:
    if "start" in node.meta:
        yield node.meta["start"], node.meta["end"] + 1
    if _PLACE in node.meta:
        yield node.meta[_PLACE]


def _join_texts(tokens: list[Token], text: str) -> list[Token]:
    """Return the tokens; texts without a gap between them, in equal quotes, become one token.

    An escape in the tokenizer would also collapse the other kind of quote: Spark keeps `""` inside of `'...'`.
    """
    joined: list[Token] = []
    for token in tokens:
        last = joined[-1] if joined else token
        quote = text[token.start]
        if (
            last.token_type == token.token_type == TokenType.STRING
            and last.end + 1 == token.start
            and text[last.start] == quote
        ):
            whole = f"{last.text}{quote}{token.text}"
            joined[-1] = Token(TokenType.STRING, whole, last.line, last.col, last.start, token.end, token.comments)
        else:
            joined.append(token)
    return joined


class TocsinParser(SparkParser):
    """Reads statements; the first mistake ends it."""

    # A time is written as a cast, and must be read as what it was.
    STRICT_CAST = True

    # WINDOW is how far back a stream is looked at; windows with names are functions over rows, which a stream has not.
    QUERY_MODIFIER_PARSERS = {  # noqa: RUF012
        kind: _noted(parser) for kind, parser in SparkParser.QUERY_MODIFIER_PARSERS.items() if kind != TokenType.WINDOW
    }

    def __init__(self, **options: Any) -> None:
        super().__init__(**{**options, "error_level": ErrorLevel.IMMEDIATE})

    def parse(self, raw_tokens: list[Token], sql: str) -> list[exp.Expr | None]:
        """Parse statements; a doubled quote in a text stands for one quote, as in Spark 4 and standard SQL."""
        return super().parse(_join_texts(raw_tokens, sql), sql)

    def raise_error(self, message: str, token: Token | None = None) -> NoReturn:
        """Tell a mistake in our words; sqlglot's own say little more than that there is one."""
        token = token or self._curr
        if not token:
            end = len(self.sql.rstrip())
            unfinished = "unexpected end of the statement"
            raise MistakeError(message if message.startswith("expected") else unfinished, end, end + 1)
        found = token.text if token.token_type != TokenType.STRING else f"'{token.text}'"
        if message.startswith("Expecting "):
            message = f"expected `{message.removeprefix('Expecting ')}`; got `{found}`"
        elif not message.startswith("expected"):
            message = f"unexpected `{found}`"
        raise MistakeError(message, token.start, token.end + 1)

    def expression(self, instance: Node, token: Token | None = None, comments: list[str] | None = None) -> Node:
        """Note where a node ends, with the token before, unless it is that token itself."""
        if self._prev and (token is None or isinstance(instance, Setting | Prefer)):
            instance.meta[_PLACE] = (self._prev.start, self._prev.end + 1)
        return super().expression(instance, token, comments)

    def _parse_statement(self) -> exp.Expr | None:
        if self._match_text_seq("CREATE"):
            return self._parse_create_summary()
        if self._match(TokenType.SELECT, advance=False):
            return self._parse_select()
        return self.expected("CREATE SUMMARY or SELECT")

    def expected(self, what: str) -> NoReturn:
        """Refuse the token at hand."""
        found = f"`{self._curr.text}`" if self._curr else "the end"
        self.raise_error(f"expected {what}; got {found}")

    def _word(self) -> str:
        """The word at hand in capitals; what stands in quotes is a name or a text, and none."""
        quoted = (TokenType.IDENTIFIER, TokenType.STRING)
        return self._curr.text.upper() if self._curr and self._curr.token_type not in quoted else ""

    def _need(self, *words: str) -> None:
        if not self._match_text_seq(*words):
            self.expected(f"`{' '.join(words)}`")

    def _name(self, what: str) -> exp.Expr:
        return self._parse_id_var(any_token=False) or self.expected(what)

    def _parse_create_summary(self) -> CreateSummary:
        self._need("SUMMARY")
        name = self._name("the name of the summary")
        self._need("ON")
        stream = self._name("the stream of the summary")
        self._need("(")
        attribute = self._name("the column of the summary")
        self._need(")")
        settings = []
        if self._match_text_seq("WITH"):
            settings.append(self._parse_setting())
            while self._curr:
                _ = self._match_text_seq("AND") or self._match(TokenType.COMMA)
                settings.append(self._parse_setting())
        node = CreateSummary(this=name, stream=stream, attribute=attribute, settings=settings)
        return self.expression(node)

    def _parse_setting(self) -> Setting:
        word, token = self._word(), self._curr
        if word not in SETTINGS:
            self.expected(f"one of {', '.join(SETTINGS)}")
        self._advance()
        kind, unit, values = SETTINGS[word], None, list[exp.Expr]()
        if kind == LIST:
            self._need("(")
            values = self._parse_csv(self._number)
            self._need(")")
        elif kind == WORD:
            values = [self._name(f"a word after `{word}`")]
        elif kind != NOTHING:
            values = [self._number()]
        if kind == DURATION:
            unit = self._unit()
        elif word == "MEMORY":
            self._need("TUPLES")
            unit = "TUPLES"
        node = Setting(this=word, expressions=values, unit=unit, listed=kind == LIST)
        return self.expression(node, token)

    def _number(self) -> exp.Expr:
        minus = self._match(TokenType.DASH)
        if not self._match(TokenType.NUMBER):
            self.expected("a number")
        number = self.expression(exp.Literal(this=self._prev.text, is_string=False), self._prev)
        return self.expression(exp.Neg(this=number)) if minus else number

    def _unit(self) -> str:
        unit = self._word()
        if unit not in UNITS:
            self.expected(f"a unit of time ({', '.join(UNITS_US)})")
        self._advance()
        return unit

    def _parse_query_modifiers(self, this: Any) -> Any:
        this = super()._parse_query_modifiers(this)
        if isinstance(this, exp.Select):
            while self._word() in CLAUSES:
                token, key = self._curr, self._word().lower()
                clause = self._parse_clause()
                if this.args.get(f"tocsin_{key}"):
                    message = f"`{key.upper()}` must be set once; this is the second time"
                    raise MistakeError(message, token.start, token.end + 1)
                this.set(f"tocsin_{key}", clause)
        return this

    def _parse_clause(self) -> exp.Expr:
        token = self._curr
        if self._match_text_seq("WITH"):
            return self._parse_preference(token)
        if self._match_text_seq("FADE"):
            self._need("FACTOR")
            return self.expression(Setting(this="FADE FACTOR", expressions=[self._number()]), token)
        if self._match_text_seq("WINDOW"):
            number, unit, slide = self._number(), self._unit(), self._curr
            if self._match_text_seq("SLIDE"):
                node = Setting(this="SLIDE", expressions=[self._number()], unit=self._unit())
                return self.expression(
                    Setting(this="WINDOW", expressions=[number], unit=unit, slide=self.expression(node, slide)), token
                )
            return self.expression(Setting(this="WINDOW", expressions=[number], unit=unit), token)
        self._need("BUDGET")
        number = self._number()
        if self._match(TokenType.MOD):
            unit = PERCENT
        elif self._match_text_seq("UNITS"):
            self._need("PER")
            self._need("TUPLE")
            unit = PER_TUPLE
        else:
            self.expected(f"`{PERCENT}` or `{PER_TUPLE}`")
        return self.expression(Setting(this="BUDGET", expressions=[number], unit=unit), token)

    def _parse_preference(self, token: Token) -> Prefer:
        self._need("PREFERENCE")
        if not self._match_texts(ORDERS):
            self.expected(f"one of {', '.join(ORDERS).lower()}")
        order = self._prev.text.upper()
        value = self._parse_disjunction() or self.expected("an expression")
        return self.expression(Prefer(this=value, order=order), token)

    def _parse_table_alias(self, alias_tokens: Collection[TokenType] | None = None) -> exp.TableAlias | None:
        if self._word() in CLAUSES:
            return None
        return super()._parse_table_alias(alias_tokens)


def _write_summary(writer: SparkGenerator, node: CreateSummary) -> str:
    name, stream, attribute = (writer.sql(node, part) for part in ("this", "stream", "attribute"))
    settings = " AND ".join(writer.sql(setting) for setting in node.args.get("settings") or [])
    return f"CREATE SUMMARY {name} ON {stream}({attribute})" + (f" WITH {settings}" if settings else "")


def _write_setting(writer: SparkGenerator, node: Setting) -> str:
    numbers = ", ".join(writer.sql(number) for number in node.expressions)
    if node.args.get("listed"):
        return f"{node.this}({numbers})"
    return " ".join(filter(None, [node.this, numbers, node.args.get("unit"), writer.sql(node, "slide")]))


def _write_preference(writer: SparkGenerator, node: Prefer) -> str:
    return f"WITH PREFERENCE {node.args['order']} {writer.sql(node, 'this')}"


class TocsinGenerator(SparkGenerator):
    """Writes trees as text."""

    TRANSFORMS = {  # noqa: RUF012
        **SparkGenerator.TRANSFORMS,
        CreateSummary: _write_summary,
        Setting: _write_setting,
        Prefer: _write_preference,
    }

    def after_limit_modifiers(self, expression: exp.Expr) -> list[str]:
        """Write our clauses behind all others."""
        ours = [self.sql(expression, f"tocsin_{clause.lower()}") for clause in CLAUSES]
        return [*super().after_limit_modifiers(expression), *(f" {clause}" for clause in ours if clause)]


class Tocsin(Spark):
    """The dialect."""

    class Tokenizer(Spark.Tokenizer):
        """Spark's, with the signs that print has for multiplication."""

        SINGLE_TOKENS = {**Spark.Tokenizer.SINGLE_TOKENS, "·": TokenType.STAR, "×": TokenType.STAR}  # noqa: RUF012

    Parser: type[SparkParser] = TocsinParser
    Generator = TocsinGenerator
