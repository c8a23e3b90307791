"""Login: a session ends by itself. A client that sends wrong tokens must pause, and other clients are not affected."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard.asked import Server, served
from tocsin.dashboard import guard, login
from tocsin.dashboard.login import FREE_FAILURES, LONGEST_PAUSE_S, MOST_CLIENTS, FailedLogins, Sessions

TOKEN = "a-token-that-nobody-guesses"
FORM = {"method": "POST", "Content_Type": "application/x-www-form-urlencoded"}


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def log_in(server: Server, token: str = TOKEN, **headers: str) -> tuple[int, str]:
    """Return status and session."""
    answer = server.get("/login", body=f"token={quote(token)}", **FORM, **headers)
    return answer.code, answer.headers.get("set-cookie", "").partition(";")[0]


def test_session_is_valid_until_its_end() -> None:
    clock = Clock()
    sessions = Sessions(clock)
    text = sessions.begin_session()
    clock.now_s += login.SESSION_S - 1
    assert sessions.remaining_s(text) == 1.0
    clock.now_s += 1
    assert sessions.remaining_s(text) == 0.0


@given(st.text(max_size=100))
def test_session_is_invalid_when_this_process_did_not_sign_it(text: str) -> None:
    sessions = Sessions()
    end, _, signature = sessions.begin_session().partition(".")
    for forged in (text, f"{end}.{text}", f"{end}0.{signature}", f"9{end}.{signature}", Sessions().begin_session()):
        assert sessions.remaining_s(forged) == 0.0


def test_pause_doubles_up_to_a_minute_when_wrong_tokens_continue() -> None:
    clock = Clock()
    failures = FailedLogins(clock)
    pauses = []
    for _ in range(FREE_FAILURES + 10):
        failures.record_failure("192.0.2.7")
        pauses.append(failures.pause_s("192.0.2.7"))
        clock.now_s += pauses[-1]
        assert failures.pause_s("192.0.2.7") == 0.0
    free = [0.0] * (FREE_FAILURES - 1)
    assert pauses == [*free, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, *[LONGEST_PAUSE_S] * 5]
    assert failures.pause_s("192.0.2.8") == 0.0
    clock.now_s += login.EXPIRE_S + 1
    failures.record_failure("192.0.2.7")
    assert failures.pause_s("192.0.2.7") == 0.0


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0, 100)), max_size=60))
def test_pause_equals_the_definition_for_any_sequence_of_failures(steps: list[tuple[int, float]]) -> None:
    """The oracle keeps all failures of each client and counts those without a gap of `EXPIRE_S`."""
    clock, failures = Clock(), FailedLogins(lambda: clock.now_s)
    seen: dict[int, list[float]] = {}
    for client, later_s in steps:
        clock.now_s += later_s * 20
        times = seen.setdefault(client, [])
        times.append(clock.now_s)
        failures.record_failure(str(client))
        run = 1
        while run < len(times) and times[-run] - times[-run - 1] <= login.EXPIRE_S:
            run += 1
        wanted = 0.0 if run < FREE_FAILURES else min(60.0, 2.0 ** (run - FREE_FAILURES))
        assert failures.pause_s(str(client)) == pytest.approx(wanted)


def test_failures_use_bounded_memory_when_clients_are_many() -> None:
    failures = FailedLogins()
    for number in range(3 * MOST_CLIENTS):
        failures.record_failure(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}")
    failures.record_failure("x" * 1_000_000)
    assert len(failures) == MOST_CLIENTS
    assert len(json.dumps(list(failures._failures))) < 100 * MOST_CLIENTS


def test_addresses_of_one_ipv6_network_share_their_failures() -> None:
    failures = FailedLogins()
    for number in range(FREE_FAILURES):
        failures.record_failure(f"2001:db8::{number}")
    assert failures.pause_s("2001:db8::ffff") > 0
    assert failures.pause_s("2001:db8:0:1::1") == 0


@pytest.mark.parametrize("way", ["form", "bearer"])
def test_dashboard_rejects_all_tokens_of_one_client_during_its_pause(tmp_path: Path, way: str) -> None:
    """The server trusts the header of a proxy on this machine, so one test can be two clients."""
    attacker, other = {"X_Forwarded_For": "192.0.2.7"}, {"X_Forwarded_For": "192.0.2.8"}
    with served(tmp_path, token=TOKEN) as server:
        _, session = log_in(server, **attacker)
        for _ in range(FREE_FAILURES + 20):
            if way == "form":
                code, _ = log_in(server, "wrong", **attacker)
            else:
                code = server.get("/health", Authorization="Bearer wrong", **attacker).code
        assert code == 429
        rejected = server.get("/health", Authorization=f"Bearer {TOKEN}", **attacker)
        assert rejected.code == 429
        assert 0 < int(rejected.headers["retry-after"]) <= LONGEST_PAUSE_S
        assert log_in(server, **attacker) == (429, "")
        # Sessions, pages without a token and other clients are not affected.
        assert server.get("/health", Cookie=session, **attacker).code == 200
        assert server.get("/login", **attacker).code == 200
        assert log_in(server, **other)[0] == 303
        assert server.get("/health", Authorization=f"Bearer {TOKEN}", **other).code == 200


def test_dashboard_accepts_the_right_token_after_a_few_wrong_ones(tmp_path: Path) -> None:
    with served(tmp_path, token=TOKEN) as server:
        for _ in range(FREE_FAILURES - 1):
            assert log_in(server, "wrong")[0] == 303
        code, session = log_in(server)
        assert (code, server.get("/health", Cookie=session).code) == (303, 200)


def test_dashboard_ends_a_session_in_the_browser_and_in_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(tmp_path, token=TOKEN) as server:
        cookie = server.get("/login", body=f"token={TOKEN}", **FORM).headers["set-cookie"]
        assert f"Max-Age={login.SESSION_S};" in cookie
        monkeypatch.setattr(login, "SESSION_S", -1)
        monkeypatch.setattr(guard, "SESSION_S", -1)
        _, ended = log_in(server)
        assert server.get("/health", Cookie=ended).code == 401
        assert server.get("/health", Cookie=ended, Accept="text/html").code == 303
        assert server.get("/events", Cookie=ended).code == 401


def test_dashboard_ends_the_news_of_a_page_when_its_session_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(login, "SESSION_S", 3)
    with served(tmp_path, token=TOKEN) as server:
        _, session = log_in(server)
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as page:
            page.sendall(f"GET /events HTTP/1.1\r\nHost: localhost\r\nCookie: {session}\r\n\r\n".encode())
            found = b""
            while part := page.recv(1 << 16):
                found += part
        assert found.startswith(b"HTTP/1.1 200")
        assert server.get("/events", Cookie=session).code == 401
