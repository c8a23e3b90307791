"""Real servers for tests: Alertmanager, Kafka and Mosquitto.

Each server listens on the loopback interface and has a directory of its own. A test is skipped, with the name of the
missing component, if a server is not installed.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import socket
import subprocess
import time
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tocsin.jvm import BOUNDED

ROOT = Path(__file__).resolve().parent.parent
KAFKA_VERSION = "4.1.0"
KAFKA_HOME = ROOT / ".cache" / f"kafka-{KAFKA_VERSION}"
CONNECTOR_VERSION = "4.2.0"
CONNECTOR_HOME = ROOT / ".cache" / f"spark-kafka-{CONNECTOR_VERSION}"
START_S = 300.0

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>tocsin</groupId><artifactId>for-tests</artifactId><version>1</version>
<dependencies>{}</dependencies></project>
"""
_DEPENDENCY = "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>{}</dependency>"
_EXCLUSION = "<exclusions><exclusion><groupId>{}</groupId><artifactId>{}</artifactId></exclusion></exclusions>"
_TOKEN_PROVIDER = "spark-token-provider-kafka-0-10_2.13"
_KAFKA_POM = _POM.format(_DEPENDENCY.format("org.apache.kafka", "kafka_2.13", KAFKA_VERSION, ""))
# Some registries have only version 4.0.0 of the token provider. The tests use no delegation tokens.
_CONNECTOR_POM = _POM.format(
    _DEPENDENCY.format(
        "org.apache.spark",
        "spark-sql-kafka-0-10_2.13",
        CONNECTOR_VERSION,
        _EXCLUSION.format("org.apache.spark", _TOKEN_PROVIDER),
    )
    + _DEPENDENCY.format("org.apache.spark", _TOKEN_PROVIDER, "4.0.0", _EXCLUSION.format("*", "*"))
)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Process:
    """Server process that can be killed and restarted with the same ports and directory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._process: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        raise NotImplementedError

    def is_ready(self) -> bool:
        raise NotImplementedError

    def start(self) -> None:
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(self.command(), stdout=log, stderr=log, cwd=self.folder)
        deadline = time.monotonic() + START_S
        while not self.is_ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                tail = (self.folder / "server.log").read_text("utf-8", "replace")[-2000:]
                self.kill()
                pytest.fail(f"{type(self).__name__} did not start within {START_S:g} s; end of its log:\n{tail}")
            time.sleep(0.05)

    def kill(self) -> None:
        """Kill the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        """Terminate the process; kill it if it does not end."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()
            self._process = None


class Alertmanager(Process):
    """Alertmanager of the Debian package `prometheus-alertmanager`; `hook` is the URL of a webhook, or empty."""

    def __init__(self, folder: Path, hook: str = "") -> None:
        super().__init__(folder)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        receiver: dict[str, Any] = {"name": "hook"}
        if hook:
            receiver["webhook_configs"] = [{"url": hook, "send_resolved": True}]
        route = {"receiver": "hook", "group_by": ["..."], "group_wait": "0s", "group_interval": "1s"}
        # YAML is a superset of JSON.
        (folder / "alertmanager.yml").write_text(json.dumps({"route": route, "receivers": [receiver]}))

    def command(self) -> list[str]:
        return [
            _alertmanager() or "",
            f"--config.file={self.folder / 'alertmanager.yml'}",
            f"--storage.path={self.folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
            "--cluster.listen-address=",
        ]

    def is_ready(self) -> bool:
        try:
            return bool(urllib.request.urlopen(f"{self.url}/-/ready", timeout=1).status == 200)
        except OSError:
            return False

    def active(self) -> list[dict[str, Any]]:
        """Return the active alerts."""
        with urllib.request.urlopen(f"{self.url}/api/v2/alerts?active=true", timeout=10) as response:
            return list(json.load(response))


class Kafka(Process):
    """Kafka broker in KRaft mode, with one node."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.port, self.controller_port = free_port(), free_port()
        self.servers = f"127.0.0.1:{self.port}"
        self._settings = folder / "server.properties"
        self._settings.write_text("\n".join(f"{name}={value}" for name, value in self._properties().items()))
        # The first letter is fixed, because an id that starts with a dash would be parsed as an option.
        cluster_id = "A" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22]
        tool = ["kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(self._settings)]
        subprocess.run([*self._java(), *tool], check=True, capture_output=True, cwd=folder)

    def command(self) -> list[str]:
        return [*self._java(), "kafka.Kafka", str(self._settings)]

    def is_ready(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def _java(self) -> list[str]:
        return [_java() or "", *BOUNDED, "-Xmx512m", "-cp", str(KAFKA_HOME / "libs" / "*")]

    def _properties(self) -> dict[str, str]:
        listener, controller = f"PLAINTEXT://127.0.0.1:{self.port}", f"127.0.0.1:{self.controller_port}"
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{controller}",
            "listeners": f"{listener},CONTROLLER://{controller}",
            "advertised.listeners": listener,
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": str(self.folder / "data"),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
        }


class Mosquitto(Process):
    """MQTT broker. `stop` keeps the messages of its persistent sessions on disk; `kill` loses them."""

    def __init__(self, folder: Path, login: tuple[str, str] | None = None) -> None:
        super().__init__(folder)
        self.port = free_port()
        settings = {
            "listener": f"{self.port} 127.0.0.1",
            "allow_anonymous": "false" if login else "true",
            "persistence": "true",
            "persistence_location": f"{folder}/",
            # By default, Mosquitto drops messages above 1,000 for a disconnected session.
            "max_queued_messages": "0",
            "max_inflight_messages": "1000",
            # Started as root, Mosquitto would change to another user that cannot write to the directory.
            "user": "root" if os.geteuid() == 0 else "mosquitto",
        }
        if login:
            settings["password_file"] = str(folder / "passwords")
            command = ["mosquitto_passwd", "-c", "-b", settings["password_file"], *login]
            subprocess.run(command, check=True, capture_output=True, timeout=30)
        (folder / "mosquitto.conf").write_text("".join(f"{name} {value}\n" for name, value in settings.items()))

    def command(self) -> list[str]:
        return [_mosquitto() or "", "-c", str(self.folder / "mosquitto.conf")]

    def is_ready(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


@pytest.fixture
def mosquitto(tmp_path: Path) -> Iterator[Mosquitto]:
    """Yield a running MQTT broker."""
    need_mosquitto()
    server = Mosquitto(tmp_path / "mosquitto")
    server.start()
    yield server
    server.kill()


@pytest.fixture
def alertmanager(tmp_path: Path) -> Iterator[Alertmanager]:
    """Yield a running Alertmanager."""
    need_alertmanager()
    server = Alertmanager(tmp_path / "alertmanager")
    server.start()
    yield server
    server.kill()


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """Yield a running Kafka broker, shared by all tests. Each test uses its own topics."""
    need_kafka()
    server = Kafka(tmp_path_factory.mktemp("kafka"))
    server.start()
    yield server
    server.kill()


def need_alertmanager() -> None:
    if _alertmanager() is None:
        pytest.skip("needs Alertmanager: install the Debian package prometheus-alertmanager")


def need_mosquitto() -> None:
    pytest.importorskip("paho.mqtt", reason="needs paho-mqtt: install tocsin[mqtt]")
    if _mosquitto() is None:
        pytest.skip("needs Mosquitto: install the Debian package mosquitto")


def need_kafka() -> None:
    """Skip the test without Java, confluent-kafka or the jars of Kafka. Maven downloads the jars once."""
    pytest.importorskip("confluent_kafka", reason="needs confluent-kafka: install tocsin[kafka]")
    if _java() is None:
        pytest.skip("needs Java 17 or newer: `make java` finds or installs it")
    _download(KAFKA_HOME, _KAFKA_POM, "the jars of Kafka")


def connector_jars() -> str:
    """Return the jars of Spark's Kafka connector, for `spark.jars`; skip the test if they cannot be downloaded."""
    _download(CONNECTOR_HOME, _CONNECTOR_POM, "the jars of Spark's Kafka connector")
    prefixes = ("spark-sql-kafka", "spark-token-provider", "kafka-clients", "commons-pool2")
    return ",".join(
        str(jar) for jar in sorted((CONNECTOR_HOME / "libs").glob("*.jar")) if jar.name.startswith(prefixes)
    )


def _download(home: Path, pom: str, component: str) -> None:
    """Download jars with Maven into the cache; skip the test if this fails."""
    if (home / "libs").is_dir():
        return
    maven = shutil.which("mvn")
    if maven is None:
        pytest.skip(f"needs {component}, and Maven to download them: install the Debian package maven")
    work = home.with_name(f"{home.name}.{os.getpid()}")
    work.mkdir(parents=True)
    try:
        (work / "pom.xml").write_text(pom)
        goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory=libs"]
        done = subprocess.run([maven, "-q", "-B", *goal], cwd=work, capture_output=True, check=False, timeout=250)
        if done.returncode:
            pytest.skip(f"needs {component}; Maven could not download them")
        # Another test run may have created the directory meanwhile.
        if not home.exists():
            work.rename(home)
    except subprocess.TimeoutExpired:
        pytest.skip(f"needs {component}; the download with Maven timed out")
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _alertmanager() -> str | None:
    return shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")


def _mosquitto() -> str | None:
    return shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin")


def _java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=str(Path(home) / "bin") if home else None)
