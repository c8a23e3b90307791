"""Processor time as a rule or a rule file states it: how many cores a join may use, and by when it must have worked."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tocsin.errors import RuleError
from tocsin.rules.durations import Duration, duration_text, microseconds
from tocsin.rules.memory import Memory

_AMOUNT = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?) ?(%|cores?)", re.ASCII)
# More than any cluster has.
_MOST = 100_000.0


@dataclass(frozen=True)
class Cpu:
    """What may be spent: `cores` of processor time, None: one; work on a row until `deadline_us` after it, if any."""

    cores: float | None = None
    deadline_us: int | None = None

    def __str__(self) -> str:
        """Say it as a rule file does."""
        parts = [] if self.cores is None else [f"{100 * self.cores:g}% of a core"]
        parts += [] if self.deadline_us is None else [f"at most {duration_text(self.deadline_us)} behind"]
        return ", ".join(parts)


def read_cores(given: object) -> float:
    """Read a share of processor time: `50%` of one core, or `1.5 cores`.

    >>> read_cores("50%"), read_cores("2 cores")
    (0.5, 2.0)
    """
    found = _AMOUNT.fullmatch(given) if isinstance(given, str) else None
    if found is None:
        message = f"`cpu` must be a share of a core such as 50%, or a number of them such as 2 cores; got {given!r}"
        raise RuleError(message)
    cores = float(found[1]) / (100 if found[2] == "%" else 1)
    if not 0 < cores <= _MOST:
        message = f"`cpu` must be above 0 and at most {_MOST:,.0f} cores; got {given!r}"
        raise RuleError(message)
    return cores


def read_cpu(cpu: object, deadline: Duration | None) -> Cpu | None:
    """Read what may be spent; None: nothing is said of it.

    >>> str(read_cpu("50%", "2s"))
    '50% of a core, at most 2s behind'
    """
    if cpu is None and deadline is None:
        return None
    deadline_us = None
    if deadline is not None:
        deadline_us = microseconds(deadline, "`deadline`")
        if deadline_us == 0:
            message = f"`deadline` must be longer than 0; got {deadline!r}"
            raise RuleError(message)
    return Cpu(None if cpu is None else read_cores(cpu), deadline_us)


def check_apart(cpu: Cpu | None, memory: Memory | None) -> None:
    """Refuse a run that limits both: a join that is short of time keeps all its rows."""
    if cpu is not None and memory is not None:
        name = "deadline" if cpu.cores is None else "cpu"
        message = f"`{name}` of a run must not stand beside its `memory`: a join keeps to one of them"
        message += f"; got {cpu} and {memory}: give one of them to rules instead"
        raise RuleError(message)
