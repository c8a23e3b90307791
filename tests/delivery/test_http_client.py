from __future__ import annotations

import shutil
import ssl
import subprocess
import threading
from email.utils import formatdate
from pathlib import Path

import pytest

from delivery.alerts import ManualClock
from delivery.receivers import Behaviour, cut_off, drip, drop, ok, receiver, slow, status
from servers import free_port
from tocsin.delivery.backoff import Backoff
from tocsin.delivery.http_client import HttpClient
from tocsin.delivery.sink_channel import DeliveryStatus, SinkResponse


def send(url: str, timeout_s: float = 5.0, path: str = "", body: bytes = b"{}") -> SinkResponse:
    client = HttpClient(url, path, {}, timeout_s, ManualClock())
    try:
        return client.send(body, "application/json")
    finally:
        client.close()


@pytest.mark.parametrize("code", [200, 201, 202, 204])
def test_send_is_delivered_when_the_status_is_2xx(code: int) -> None:
    with receiver(status(code)) as server:
        assert send(server.url).status is DeliveryStatus.DELIVERED


@pytest.mark.parametrize("code", [408, 425, 429, 500, 502, 503, 504, 301, 302, 303, 304])
def test_send_is_retried_when_the_status_may_be_temporary(code: int) -> None:
    with receiver(status(code, "busy")) as server:
        response = send(server.url)
    assert (response.status, response.http_status) == (DeliveryStatus.RETRY, code)


@pytest.mark.parametrize(("code", "split"), [(400, True), (401, False), (404, False), (410, False), (413, True)])
def test_send_is_rejected_with_the_response_text_when_the_request_is_invalid(code: int, split: bool) -> None:
    with receiver(status(code, "label `x y` is\x1b[2J\nbad")) as server:
        response = send(server.url)
    assert (response.status, response.split) == (DeliveryStatus.REJECTED, split)
    assert response.text == f"{server.url}: {code} label `x y` is [2J bad"


def test_send_is_retried_when_no_server_listens() -> None:
    response = send(f"http://127.0.0.1:{free_port()}")
    assert response.status is DeliveryStatus.RETRY
    assert "Connection refused" in response.text


def test_send_is_retried_when_the_host_is_unknown() -> None:
    assert send("http://nowhere.invalid").status is DeliveryStatus.RETRY


@pytest.mark.parametrize("behave", [drop, cut_off(500), slow(0.6), drip])
def test_send_is_retried_when_the_response_is_slow_or_incomplete(behave: Behaviour) -> None:
    with receiver(behave) as server:
        assert send(server.url, timeout_s=0.3).status is DeliveryStatus.RETRY


def test_send_is_delivered_when_the_connection_breaks_after_a_2xx_status() -> None:
    with receiver(cut_off(200)) as server:
        assert send(server.url).status is DeliveryStatus.DELIVERED


def test_client_replaces_the_connection_when_it_breaks() -> None:
    with receiver(ok, ok, drop, ok, cut_off(200), ok, cut_off(500), ok) as server:
        client = HttpClient(server.url, "", {}, 5.0, ManualClock())
        results = [client.send(b"{}", "application/json").status for _ in range(8)]
        client.close()
    retry = DeliveryStatus.RETRY
    assert results == [
        *[DeliveryStatus.DELIVERED] * 2,
        retry,
        *[DeliveryStatus.DELIVERED] * 3,
        retry,
        DeliveryStatus.DELIVERED,
    ]


@pytest.mark.parametrize("code", [307, 308])
def test_redirect_on_the_same_host_is_followed_with_the_body(code: int) -> None:
    with receiver(status(code, Location="/there?x=1")) as server:
        assert send(f"{server.url}/here", body=b'{"a":1}').status is DeliveryStatus.DELIVERED
        assert [(path, body) for path, _, body in server.requests] == [
            ("/here", b'{"a":1}'),
            ("/there?x=1", b'{"a":1}'),
        ]


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_redirect_to_another_host_is_not_followed(code: int) -> None:
    with receiver() as other, receiver(status(code, Location=f"{other.url}/steal")) as server:
        response = send(server.url)
        assert other.requests == []
    assert response.status is DeliveryStatus.RETRY
    assert "redirect not followed" in response.text


@pytest.mark.parametrize("location", ["", "http://[", "http://127.0.0.1:99999/", "ftp://127.0.0.1/", "//evil.invalid/"])
def test_redirect_to_an_invalid_location_is_not_followed(location: str) -> None:
    with receiver(status(307, Location=location)) as server:
        assert send(server.url).status is DeliveryStatus.RETRY
        assert len(server.requests) == 1


def test_redirect_loop_ends_after_three_redirects() -> None:
    with receiver() as server:
        server.default = status(307, Location="/again")
        assert send(server.url).status is DeliveryStatus.RETRY
        assert len(server.requests) == 4


def test_retry_after_accepts_seconds_and_dates() -> None:
    date = formatdate(ManualClock().now() + 90, usegmt=True)
    script = [status(503, Retry_After="7"), status(429, Retry_After=date), status(503, Retry_After="soon")]
    with receiver(*script) as server:
        assert [send(server.url).retry_after_s for _ in script] == [7.0, pytest.approx(90, abs=1), 0.0]


def test_backoff_doubles_up_to_one_minute_and_honours_retry_after() -> None:
    backoff = Backoff()
    waits = [backoff.next_delay_s() for _ in range(12)]
    limits = [min(60.0, 0.5 * 2**i) for i in range(12)]
    assert all(0.5 * limit <= wait <= limit for wait, limit in zip(waits, limits, strict=True))
    assert len({Backoff().next_delay_s() for _ in range(20)}) > 1
    assert backoff.next_delay_s(retry_after_s=300) == 300
    assert backoff.next_delay_s(retry_after_s=10**9) == 3600
    backoff.reset()
    assert backoff.next_delay_s() <= 0.5


def test_client_appends_the_path_to_the_path_of_the_url() -> None:
    with receiver() as server:
        send(f"{server.url}/prefix/", path="/api/v2/alerts")
        send(server.url)
        send(f"{server.url}/hook/?token=7")
        assert [path for path, _, _ in server.requests] == ["/prefix/api/v2/alerts", "/", "/hook/?token=7"]


def test_send_is_retried_when_the_certificate_is_not_trusted(tmp_path: Path) -> None:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("needs openssl to make a certificate: install the Debian package openssl")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    make = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    subprocess.run([openssl, *make, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with receiver() as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        response = send(server.url.replace("http", "https"))
        assert server.requests == []
    assert response.status is DeliveryStatus.RETRY
    assert "SSL" in response.text


def test_urllib3_log_is_suppressed_only_in_the_sending_thread(caplog: pytest.LogCaptureFixture) -> None:
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
