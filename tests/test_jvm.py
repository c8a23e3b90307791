"""JVM options: user options win, and the class archive of an earlier JVM is used only if it is complete."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tocsin import jvm

C1, SERIAL = jvm.BOUNDED


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """Return an environment with a Java, jars and a cache folder of its own."""
    for file in ("java/bin/java", "java/release", "spark/jars/a.jar"):
        path = tmp_path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("17", "ascii")
        path.chmod(0o755)
    homes = {"JAVA_HOME": str(tmp_path / "java"), "SPARK_HOME": str(tmp_path / "spark")}
    return {**homes, "XDG_CACHE_HOME": str(tmp_path / "cache")}


def name_of(environ: dict[str, str]) -> Path:
    name = jvm.archive_name(environ)
    assert name is not None
    return name


def only(options: list[str], *parts: str) -> list[str]:
    return [option for option in options if any(part in option for part in parts)]


def test_a_bounded_run_has_one_compiler_and_one_collector_and_a_continuous_run_the_defaults(
    environ: dict[str, str],
) -> None:
    assert jvm.jvm_options("-Da=b", is_bounded=True, environ=environ)[:2] == [C1, SERIAL]
    assert jvm.jvm_options("", is_bounded=False, environ=environ) == []


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("-XX:+UseG1GC -Da=b", [C1]),
        ("-XX:+UseParallelGC", [C1]),
        ("-XX:TieredStopAtLevel=3", [SERIAL]),
        ("-Xint -XX:+UseZGC", []),
        ("-XX:+UseStringDeduplication", [C1, SERIAL]),
    ],
)
@pytest.mark.parametrize("place", ["conf", "JDK_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS", "_JAVA_OPTIONS"])
def test_an_option_of_the_user_replaces_the_own_option(
    given: str, kept: list[str], place: str, environ: dict[str, str]
) -> None:
    conf = given if place == "conf" else ""
    options = jvm.jvm_options(conf, is_bounded=True, environ=environ | {place: given})
    assert only(options, C1, SERIAL) == kept


@pytest.mark.parametrize("given", ["-Xshare:off", "-XX:SharedArchiveFile=mine.jsa", "-XX:ArchiveClassesAtExit=x"])
def test_an_archive_option_of_the_user_turns_the_own_archive_off(given: str, environ: dict[str, str]) -> None:
    assert jvm.jvm_options(given, is_bounded=True, environ=environ) == [C1, SERIAL]


@pytest.mark.parametrize("folder", ["spark/conf", "settings"])
def test_collector_of_the_user_wins_when_it_is_a_spark_default(
    folder: str, environ: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / folder).mkdir()
    file = tmp_path / folder / "spark-defaults.conf"
    file.write_text("spark.driver.defaultJavaOptions  -XX:+UseG1GC\n", "utf-8")
    named = {"SPARK_CONF_DIR": str(tmp_path / folder)} if folder == "settings" else {}
    assert only(jvm.jvm_options("", is_bounded=True, environ=environ | named), C1, SERIAL) == [C1]


@pytest.mark.parametrize("given", ["-XX:VMOptionsFile=options", "-XX:Flags=flags", "-Da=b @options"])
def test_own_options_are_omitted_when_the_user_has_a_file_of_options(given: str, environ: dict[str, str]) -> None:
    assert jvm.jvm_options(given, is_bounded=True, environ=environ) == []


@pytest.mark.parametrize("given", [
    "-javaagent:a.jar",
    "-agentlib:jdwp=server=y",
    "-Xrunjdwp:server=y",
    "--patch-module java.base=a",
    "--limit-modules java.base",
    "--upgrade-module-path a",
    "-XX:-UseCompressedClassPointers",
    "-XX:ObjectAlignmentInBytes=16",
])  # fmt: skip
def test_archive_is_used_but_not_written_when_a_writing_jvm_rejects_an_option_of_the_user(
    given: str, environ: dict[str, str]
) -> None:
    assert jvm.jvm_options(given, is_bounded=True, environ=environ) == [C1, SERIAL]
    name = name_of(environ)
    name.with_name(f"{name.name}-3.jsa").write_bytes(b"abc")
    assert only(jvm.jvm_options(given, is_bounded=True, environ=environ), "SharedArchiveFile")


def test_an_archive_is_written_once_and_then_used_by_all_runs(environ: dict[str, str]) -> None:
    name = name_of(environ)
    assert name.parent == Path(environ["XDG_CACHE_HOME"]) / "tocsin"
    (write,) = only(jvm.jvm_options("", is_bounded=True, environ=environ), "Archive")
    option, _, new = write.partition("=")
    assert option == "-XX:ArchiveClassesAtExit"
    assert Path(new).parent == name.parent
    Path(new).write_bytes(bytes.fromhex("a8ab0bf0") + b"rest")
    for is_bounded in (True, False):
        options = jvm.jvm_options("", is_bounded=is_bounded, environ=environ)
        assert only(options, "Archive") == [f"-XX:SharedArchiveFile={name}-8.jsa"]
    assert [file.name for file in name.parent.iterdir()] == [f"{name.name}-8.jsa"]


def test_an_incomplete_archive_is_never_used_and_removed_later(environ: dict[str, str]) -> None:
    (write,) = only(jvm.jvm_options("", is_bounded=True, environ=environ), "Archive")
    new = Path(write.partition("=")[2])
    new.write_bytes(bytes(1000))
    assert only(jvm.jvm_options("", is_bounded=False, environ=environ), "Archive") == []
    assert new.exists()
    old = time.time() - 2 * 3_600
    os.utime(new, (old, old))
    assert only(jvm.jvm_options("", is_bounded=False, environ=environ), "Archive") == []
    assert not new.exists()


def test_another_java_or_other_jars_have_another_archive(environ: dict[str, str]) -> None:
    before = name_of(environ)
    (Path(environ["JAVA_HOME"]) / "release").write_text("21", "ascii")
    between = name_of(environ)
    (Path(environ["SPARK_HOME"]) / "jars" / "b.jar").write_text("", "ascii")
    assert len({before, between, name_of(environ)}) == 3


def test_an_archive_without_use_for_a_month_is_removed(environ: dict[str, str]) -> None:
    name = name_of(environ)
    name.parent.mkdir(parents=True)
    unused = name.with_name("spark-0000.jsa")
    unused.write_bytes(b"")
    os.utime(unused, (0, 0))
    assert only(jvm.jvm_options("", is_bounded=True, environ=environ), "AtExit")
    assert not unused.exists()


def test_a_run_without_a_usable_cache_folder_or_java_has_no_archive(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", "ascii")
    for missing in ({"XDG_CACHE_HOME": str(tmp_path / "file")}, {"JAVA_HOME": str(tmp_path)}):
        assert jvm.jvm_options("", is_bounded=True, environ=environ | missing) == [C1, SERIAL]


@pytest.mark.parametrize("damage", ["none", "garbage", "header", "middle", "half"])
def test_a_jvm_ignores_a_damaged_archive(damage: str, tmp_path: Path) -> None:
    java = shutil.which("java", path=os.path.join(os.environ.get("JAVA_HOME", ""), "bin")) or shutil.which("java")
    if java is None:
        pytest.skip("needs Java")
    real = Path(java).resolve()
    (tmp_path / "spark" / "jars").mkdir(parents=True)
    homes = {"JAVA_HOME": str(real.parent.parent), "SPARK_HOME": str(tmp_path / "spark")}
    environ = {"PATH": os.environ["PATH"], **homes, "XDG_CACHE_HOME": str(tmp_path / "cache")}

    def start() -> str:
        options = jvm.jvm_options("", is_bounded=True, environ=environ)
        done = subprocess.run([real, *options, "-version"], env=environ, capture_output=True, text=True, check=True)
        assert done.stdout == ""
        return " ".join(options)

    assert "AtExit" in start()
    assert "SharedArchiveFile" in start()
    path = jvm.find_archive(name_of(environ))
    assert path is not None
    data = bytearray(path.read_bytes())
    if damage == "garbage":
        data = bytearray(b"x" * 1000)
    elif damage == "header":
        data[64:256] = bytes(192)
    elif damage == "middle":
        data[len(data) // 2] ^= 0xFF
    elif damage == "half":
        del data[len(data) // 2 :]
    path.chmod(0o644)
    path.write_bytes(data)
    # A wrong size shows before the JVM starts, which then writes another archive.
    assert ("AtExit" if damage in ("garbage", "half") else "SharedArchiveFile") in start()
