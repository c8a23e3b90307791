"""Real servers for tests: each listens on loopback, in a folder of its own, and is ended by its process id.

A test that finds a part missing is skipped and says which.
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

ROOT = Path(__file__).resolve().parent.parent
KAFKA_VERSION = "4.1.0"
KAFKA_HOME = ROOT / ".cache" / f"kafka-{KAFKA_VERSION}"
CONNECTOR_VERSION = "4.2.0"
CONNECTOR_HOME = ROOT / ".cache" / f"spark-kafka-{CONNECTOR_VERSION}"
START_S = 300.0
# A JVM of a test lives for a few minutes: what its optimising compiler makes in the background never pays, and took a
# third of the processor time of tests on Spark.
SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>tocsin</groupId><artifactId>for-tests</artifactId><version>1</version>
<dependencies>{}</dependencies></project>
"""
_PART = "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>{}</dependency>"
_WITHOUT = "<exclusions><exclusion><groupId>{}</groupId><artifactId>{}</artifactId></exclusion></exclusions>"
_TOKENS = "spark-token-provider-kafka-0-10_2.13"
_KAFKA_POM = _POM.format(_PART.format("org.apache.kafka", "kafka_2.13", KAFKA_VERSION, ""))
# Some registries have that one part of the connector in version 4.0.0 alone; it does not matter here.
_CONNECTOR_POM = _POM.format(
    _PART.format(
        "org.apache.spark",
        "spark-sql-kafka-0-10_2.13",
        CONNECTOR_VERSION,
        _WITHOUT.format("org.apache.spark", _TOKENS),
    )
    + _PART.format("org.apache.spark", _TOKENS, "4.0.0", _WITHOUT.format("*", "*"))
)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Process:
    """A server that can be killed and started again on the same ports and folder."""

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
        until = time.monotonic() + START_S
        while not self.is_ready():
            if self._process.poll() is not None or time.monotonic() > until:
                tail = (self.folder / "server.log").read_text("utf-8", "replace")[-2000:]
                self.kill()
                pytest.fail(f"{type(self).__name__} must start within {START_S:g} s; its log ends with\n{tail}")
            time.sleep(0.05)

    def kill(self) -> None:
        """End at once, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        """End in good order."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()
            self._process = None


class Alertmanager(Process):
    """Debian's `prometheus-alertmanager`, which notifies `hook` if one is given."""

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
        """The alerts that it holds to be firing."""
        with urllib.request.urlopen(f"{self.url}/api/v2/alerts?active=true", timeout=10) as answer:
            return list(json.load(answer))


class Kafka(Process):
    """A broker in KRaft mode, one node."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.port, self.controller_port = free_port(), free_port()
        self.servers = f"127.0.0.1:{self.port}"
        self._settings = folder / "server.properties"
        self._settings.write_text("\n".join(f"{name}={value}" for name, value in self._properties().items()))
        # One in 64 names would start with a dash, and be taken for an option.
        name = "A" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22]
        tool = ["kafka.tools.StorageTool", "format", "-t", name, "-c", str(self._settings)]
        subprocess.run([*self._java(), *tool], check=True, capture_output=True, cwd=folder)

    def command(self) -> list[str]:
        return [*self._java(), "kafka.Kafka", str(self._settings)]

    def is_ready(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def _java(self) -> list[str]:
        return [_java() or "", *SHORT_LIVED, "-Xmx512m", "-cp", str(KAFKA_HOME / "libs" / "*")]

    def _properties(self) -> dict[str, str]:
        here, controller = f"PLAINTEXT://127.0.0.1:{self.port}", f"127.0.0.1:{self.controller_port}"
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{controller}",
            "listeners": f"{here},CONTROLLER://{controller}",
            "advertised.listeners": here,
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": str(self.folder / "data"),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
        }


class Mosquitto(Process):
    """A broker of MQTT that keeps what it has for its sessions when it is stopped in good order."""

    def __init__(self, folder: Path, login: tuple[str, str] | None = None) -> None:
        super().__init__(folder)
        self.port = free_port()
        settings = {
            "listener": f"{self.port} 127.0.0.1",
            "allow_anonymous": "false" if login else "true",
            "persistence": "true",
            "persistence_location": f"{folder}/",
            # By default it drops what a session that is away has beyond 1,000 messages.
            "max_queued_messages": "0",
            "max_inflight_messages": "1000",
            # It gives up root otherwise, and then may not write to its folder.
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
    """A broker of MQTT that runs."""
    need_mosquitto()
    server = Mosquitto(tmp_path / "mosquitto")
    server.start()
    yield server
    server.kill()


@pytest.fixture
def alertmanager(tmp_path: Path) -> Iterator[Alertmanager]:
    """An Alertmanager that runs."""
    need_alertmanager()
    server = Alertmanager(tmp_path / "alertmanager")
    server.start()
    yield server
    server.kill()


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """A Kafka broker that runs; tests take topics of their own."""
    need_kafka()
    server = Kafka(tmp_path_factory.mktemp("kafka"))
    server.start()
    yield server
    server.kill()


def need_alertmanager() -> None:
    if _alertmanager() is None:
        pytest.skip("needs Alertmanager: install prometheus-alertmanager of Debian")


def need_mosquitto() -> None:
    pytest.importorskip("paho.mqtt", reason="needs paho-mqtt: install tocsin[mqtt]")
    if _mosquitto() is None:
        pytest.skip("needs Mosquitto: install mosquitto of Debian")


def need_kafka() -> None:
    """Skip without Java, confluent-kafka, or the broker's jars, which Maven fetches once."""
    pytest.importorskip("confluent_kafka", reason="needs confluent-kafka: install tocsin[kafka]")
    if _java() is None:
        pytest.skip("needs Java 17 or newer: `make java` finds or installs it")
    _fetch(KAFKA_HOME, _KAFKA_POM, "the jars of Kafka")


def connector_jars() -> str:
    """The jars of Spark's Kafka connector that Spark itself lacks, for `spark.jars`; skip where they cannot be had."""
    _fetch(CONNECTOR_HOME, _CONNECTOR_POM, "the jars of Spark's Kafka connector")
    wanted = ("spark-sql-kafka", "spark-token-provider", "kafka-clients", "commons-pool2")
    return ",".join(str(jar) for jar in sorted((CONNECTOR_HOME / "libs").glob("*.jar")) if jar.name.startswith(wanted))


def _fetch(home: Path, pom: str, what: str) -> None:
    """Let Maven fetch jars, once for all runs."""
    if (home / "libs").is_dir():
        return
    maven = shutil.which("mvn")
    if maven is None:
        pytest.skip(f"needs {what}, and Maven to fetch them: install maven of Debian")
    work = home.with_name(f"{home.name}.{os.getpid()}")
    work.mkdir(parents=True)
    try:
        (work / "pom.xml").write_text(pom)
        goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory=libs"]
        done = subprocess.run([maven, "-q", "-B", *goal], cwd=work, capture_output=True, check=False, timeout=250)
        if done.returncode:
            pytest.skip(f"needs {what}; Maven could not fetch them")
        # Another run may have been faster.
        if not home.exists():
            work.rename(home)
    except subprocess.TimeoutExpired:
        pytest.skip(f"needs {what}; Maven took too long to fetch them")
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _alertmanager() -> str | None:
    return shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")


def _mosquitto() -> str | None:
    return shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin")


def _java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=str(Path(home) / "bin") if home else None)
