from __future__ import annotations

import shutil
import ssl
import subprocess
import threading
from email.utils import formatdate
from pathlib import Path

import pytest

from deliver.alerts import ManualClock
from deliver.receivers import Behaviour, drip, drop, half, ok, receiver, slow, status
from servers import free_port
from tocsin.deliver.channel import Answer, Verdict
from tocsin.deliver.clock import Backoff
from tocsin.deliver.post import Post


def send(url: str, timeout_s: float = 5.0, path: str = "", body: bytes = b"{}") -> Answer:
    post = Post(url, path, {}, timeout_s, ManualClock())
    try:
        return post.send(body, "application/json")
    finally:
        post.close()


@pytest.mark.parametrize("code", [200, 201, 202, 204])
def test_any_success_is_delivered(code: int) -> None:
    with receiver(status(code)) as server:
        assert send(server.url).verdict is Verdict.DELIVERED


@pytest.mark.parametrize("code", [408, 425, 429, 500, 502, 503, 504, 301, 302, 303, 304])
def test_what_may_pass_is_tried_again(code: int) -> None:
    with receiver(status(code, "busy")) as server:
        answer = send(server.url)
    assert (answer.verdict, answer.status) == (Verdict.RETRY, code)


@pytest.mark.parametrize(("code", "split"), [(400, True), (401, False), (404, False), (410, False), (413, True)])
def test_a_fault_of_ours_is_refused_and_told_with_its_reason(code: int, split: bool) -> None:
    with receiver(status(code, "label `x y` is\x1b[2J\nbad")) as server:
        answer = send(server.url)
    assert (answer.verdict, answer.split) == (Verdict.REJECTED, split)
    assert answer.text == f"{server.url}: {code} label `x y` is [2J bad"


def test_nobody_there_is_tried_again() -> None:
    answer = send(f"http://127.0.0.1:{free_port()}")
    assert answer.verdict is Verdict.RETRY
    assert "Connection refused" in answer.text


def test_a_name_that_is_not_known_is_tried_again() -> None:
    assert send("http://nowhere.invalid").verdict is Verdict.RETRY


@pytest.mark.parametrize("behave", [drop, half(500), slow(0.6), drip])
def test_a_broken_or_slow_answer_is_tried_again(behave: Behaviour) -> None:
    with receiver(behave) as server:
        assert send(server.url, timeout_s=0.3).verdict is Verdict.RETRY


def test_a_success_that_breaks_off_after_its_status_is_a_success() -> None:
    with receiver(half(200)) as server:
        assert send(server.url).verdict is Verdict.DELIVERED


def test_a_connection_is_used_again_and_replaced_when_it_broke() -> None:
    with receiver(ok, ok, drop, ok, half(200), ok, half(500), ok) as server:
        post = Post(server.url, "", {}, 5.0, ManualClock())
        answers = [post.send(b"{}", "application/json").verdict for _ in range(8)]
        post.close()
    again = Verdict.RETRY
    assert answers == [*[Verdict.DELIVERED] * 2, again, *[Verdict.DELIVERED] * 3, again, Verdict.DELIVERED]


@pytest.mark.parametrize("code", [307, 308])
def test_a_redirect_on_the_same_host_is_followed_with_the_body(code: int) -> None:
    with receiver(status(code, Location="/there?x=1")) as server:
        assert send(f"{server.url}/here", body=b'{"a":1}').verdict is Verdict.DELIVERED
        assert [(path, body) for path, _, body in server.requests] == [
            ("/here", b'{"a":1}'),
            ("/there?x=1", b'{"a":1}'),
        ]


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_a_redirect_to_another_host_is_not_followed(code: int) -> None:
    with receiver() as other, receiver(status(code, Location=f"{other.url}/steal")) as server:
        answer = send(server.url)
        assert other.requests == []
    assert answer.verdict is Verdict.RETRY
    assert "redirect that is not followed" in answer.text


@pytest.mark.parametrize("location", ["", "http://[", "http://127.0.0.1:99999/", "ftp://127.0.0.1/", "//evil.invalid/"])
def test_a_redirect_that_makes_no_sense_is_not_followed(location: str) -> None:
    with receiver(status(307, Location=location)) as server:
        assert send(server.url).verdict is Verdict.RETRY
        assert len(server.requests) == 1


def test_redirects_in_a_circle_end() -> None:
    with receiver() as server:
        server.then = status(307, Location="/again")
        assert send(server.url).verdict is Verdict.RETRY
        assert len(server.requests) == 4


def test_retry_after_is_read_as_seconds_or_as_a_date() -> None:
    date = formatdate(ManualClock().now() + 90, usegmt=True)
    script = [status(503, Retry_After="7"), status(429, Retry_After=date), status(503, Retry_After="soon")]
    with receiver(*script) as server:
        assert [send(server.url).asked_s for _ in script] == [7.0, pytest.approx(90, abs=1), 0.0]


def test_waits_double_up_to_a_minute_with_chance_and_honour_what_was_asked() -> None:
    backoff = Backoff()
    waits = [backoff.next_s() for _ in range(12)]
    whole = [min(60.0, 0.5 * 2**i) for i in range(12)]
    assert all(0.5 * limit <= wait <= limit for wait, limit in zip(waits, whole, strict=True))
    assert len({Backoff().next_s() for _ in range(20)}) > 1
    assert backoff.next_s(asked_s=300) == 300
    assert backoff.next_s(asked_s=10**9) == 3600
    backoff.reset()
    assert backoff.next_s() <= 0.5


def test_the_path_is_added_behind_that_of_the_address() -> None:
    with receiver() as server:
        send(f"{server.url}/prefix/", path="/api/v2/alerts")
        send(server.url)
        send(f"{server.url}/hook/?token=7")
        assert [path for path, _, _ in server.requests] == ["/prefix/api/v2/alerts", "/", "/hook/?token=7"]


def test_a_certificate_that_nobody_vouches_for_is_not_trusted(tmp_path: Path) -> None:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("needs openssl to make a certificate: install openssl of Debian")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    make = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    subprocess.run([openssl, *make, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with receiver() as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        answer = send(server.url.replace("http", "https"))
        assert server.requests == []
    assert answer.verdict is Verdict.RETRY
    assert "SSL" in answer.text


def test_threads_other_than_ours_may_still_log_what_they_ask_for(caplog: pytest.LogCaptureFixture) -> None:
    import urllib3

    with receiver() as server, caplog.at_level("DEBUG"):
        send(f"{server.url}/hook/secret-path")
        assert "secret-path" not in caplog.text
        pool = urllib3.connection_from_url(server.url)
        thread = threading.Thread(target=pool.urlopen, args=("POST", "/public"), kwargs={"body": b"{}"})
        thread.start()
        thread.join()
        pool.close()
        assert "/public" in caplog.text
