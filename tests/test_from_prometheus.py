"""The page for those who come from Prometheus: its files are checked and tested."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tocsin.cli.main import main

PAGE = Path(__file__).resolve().parent.parent / "docs" / "from-prometheus.md"


def test_the_files_of_the_prometheus_page_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    theirs, rules, tests = re.findall(r"```yaml\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    (theirs_rule,), (ours_rule,) = (yaml.safe_load(text)["groups"][0]["rules"] for text in (theirs, rules))
    for name in ("alert", "for", "keep_firing_for", "labels"):
        assert theirs_rule[name] == ours_rule[name]
    (tmp_path / "cold-store.yaml").write_text(rules)
    (tmp_path / "cold-store-test.yaml").write_text(tests)
    assert main(["check", "--strict", str(tmp_path / "cold-store.yaml")]) == 0
    assert main(["test", str(tmp_path / "cold-store-test.yaml")]) == 0, capsys.readouterr()
