"""Throughput of the alert log and of the webhook sink on this machine."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from delivery.alerts import row
from tocsin.delivery import AlertWriter, WebhookSink, deliver

ALERTS, BATCHES = 100_000, 100

# The server runs in another process, so that it does not share the interpreter.
SERVER = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()
    def log_message(self, *_): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
"""


@pytest.mark.slow
def test_webhook_receives_one_hundred_thousand_alerts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writer, each = AlertWriter(tmp_path / "alerts"), ALERTS // BATCHES
    begin = time.perf_counter()
    for batch in range(BATCHES):
        writer.write(batch, (row(key=f"k{i}", start=batch) for i in range(each)))
    write_s = time.perf_counter() - begin
    server = subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE)
    try:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        begin = time.perf_counter()
        found = deliver(tmp_path, {"hook": WebhookSink(f"http://127.0.0.1:{port}")}, drain=True)["hook"]
        delivery_s = time.perf_counter() - begin
    finally:
        server.kill()
        server.wait()
        assert server.stdout is not None
        server.stdout.close()
    with capsys.disabled():
        print(
            f"\nalert log: {ALERTS / write_s:,.0f} alerts/s written",
            f"webhook: {ALERTS / delivery_s:,.0f} alerts/s delivered",
            sep="\n",
        )
    assert (found["delivered"], found["pending"], found["retries"]) == (ALERTS, 0, 0)
