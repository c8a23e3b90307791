"""`tocsin examples` writes the example files, and overwrites nothing."""

from __future__ import annotations

import filecmp
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tocsin.cli.examples import find_examples
from tocsin.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"


def names_of(folder: Path) -> set[str]:
    return {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_examples_writes_all_files_and_prints_their_paths(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "new" / "examples"
    assert main(["examples", str(target)]) == 0
    assert names_of(target) == names_of(EXAMPLES)
    assert filecmp.cmpfiles(EXAMPLES, target, names_of(EXAMPLES), shallow=False)[1:] == ([], [])
    assert capsys.readouterr().out.split() == sorted(str(target / name) for name in names_of(EXAMPLES))


def test_written_rule_files_are_valid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["examples", str(tmp_path)]) == 0
    for name in ("factory.yaml", "cold-store.yaml", "ranges.yaml"):
        assert main(["check", str(tmp_path / name)]) == 0, name
    assert main(["test", str(tmp_path / "cold-store-test.yaml")]) == 0


def test_examples_writes_nothing_when_a_file_exists(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "limits.csv").write_text("mine")
    assert main(["examples", str(tmp_path)]) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["limits.csv"]
    assert (tmp_path / "limits.csv").read_text() == "mine"
    assert f"{tmp_path / 'limits.csv'} already exist" in capsys.readouterr().err


def test_examples_reports_the_path_when_the_directory_is_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert main(["examples", str(tmp_path / "file" / "below")]) == 1
    assert capsys.readouterr().err.startswith("tocsin examples: ")


@pytest.mark.parametrize("name", ["limits.csv", "requests"])
def test_examples_writes_no_file_when_a_broken_link_has_the_name_of_a_file_or_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    (tmp_path / name).symlink_to(tmp_path / "missing")
    assert main(["examples", str(tmp_path)]) == 1
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert str(tmp_path / name) in capsys.readouterr().err


def test_examples_reports_an_error_when_the_name_of_the_directory_is_too_long(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["examples", str(tmp_path / ("a" * 300))]) == 1
    assert capsys.readouterr().err.endswith("a: file name too long\n")


@pytest.mark.slow
def test_wheel_contains_the_files_of_examples(tmp_path: Path) -> None:
    uv = ROOT / ".cache" / "uv-venv" / "bin" / "uv"
    command = [str(uv) if uv.exists() else "uv", "build", "--wheel", "--quiet", "--out-dir", str(tmp_path), str(ROOT)]
    subprocess.run(command, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(tmp_path / "installed")
    installed = tmp_path / "installed" / "tocsin" / "examples"
    assert names_of(installed) == names_of(EXAMPLES)
    code = "from tocsin.cli.examples import find_examples; print(find_examples())"
    environ = os.environ | {"PYTHONPATH": str(tmp_path / "installed")}
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environ)
    assert found.stdout.strip() == str(installed)


def test_checkout_uses_its_own_examples() -> None:
    assert find_examples() == EXAMPLES
