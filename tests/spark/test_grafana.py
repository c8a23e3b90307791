"""The files for Prometheus and Grafana ask for metrics that exist, by labels that they have."""

from __future__ import annotations

import json
import re
import runpy
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tocsin.runtime.metrics import METRICS

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
GRAFANA = json.loads((EXAMPLES / "grafana.json").read_text())
RULES = yaml.safe_load((EXAMPLES / "prometheus-rules.yml").read_text())
# What Prometheus adds to every series, and what a histogram has besides.
ALWAYS = {"job", "instance", "le"}
LABELS = {metric.public_name: set(metric.labels) for metric in METRICS if metric.exported}


def known(name: str) -> str:
    """The metric of a series; those of a histogram have endings."""
    base = re.sub(r"_(bucket|sum|count)$", "", name)
    kinds = {metric.public_name: metric.kind for metric in METRICS}
    return base if kinds.get(base) == "histogram" and base != name else name


def asked() -> list[str]:
    panels = [target["expr"] for panel in GRAFANA["panels"] for target in panel["targets"]]
    variables = [one["query"] for one in GRAFANA["templating"]["list"] if one["type"] == "query"]
    return [*panels, *variables, *(rule["expr"] for group in RULES["groups"] for rule in group["rules"])]


def test_every_metric_that_is_asked_for_exists() -> None:
    names = {known(name) for text in asked() for name in re.findall(r"\btocsin_\w+", text)}
    assert names
    assert names <= set(LABELS)


def test_every_metric_of_a_run_is_drawn_but_those_that_only_name_or_count_batches() -> None:
    names = {known(name) for text in asked() for name in re.findall(r"\btocsin_\w+", text)}
    others = {"batches_total", "batch_rows", "newest_event_timestamp_seconds", "keys_expired_total"}
    assert set(LABELS) - names == {f"tocsin_{name}" for name in others}


def test_labels_are_those_of_the_metrics() -> None:
    for text in asked():
        mine = set().union(*(LABELS[known(name)] for name in re.findall(r"\btocsin_\w+", text))) | ALWAYS
        used = set(re.findall(r"[{,]\s*(\w+)\s*=~?", text))
        used |= {label.strip() for part in re.findall(r"by \(([^)]*)\)", text) for label in part.split(",")}
        assert used <= mine, text
    for panel in GRAFANA["panels"]:
        for target in panel["targets"]:
            mine = set().union(*(LABELS[known(name)] for name in re.findall(r"\btocsin_\w+", target["expr"]))) | ALWAYS
            assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= mine
    for rule in (rule for group in RULES["groups"] for rule in group["rules"]):
        mine = set().union(*(LABELS[known(name)] for name in re.findall(r"\btocsin_\w+", rule["expr"]))) | ALWAYS
        assert set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"])) <= mine


def test_the_file_is_the_one_that_the_table_makes_and_no_panel_covers_another() -> None:
    made = runpy.run_path(str(ROOT / "scripts" / "grafana.py"))["dashboard"]()
    assert made == GRAFANA
    taken: set[tuple[int, int]] = set()
    for panel in GRAFANA["panels"]:
        place = panel["gridPos"]
        mine = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not mine & taken
        assert max(x for x, _ in mine) < 24
        taken |= mine


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool (Debian: prometheus)")
def test_promtool_takes_both_files(tmp_path: Path) -> None:
    for name in ("prometheus.yml", "prometheus-rules.yml"):
        shutil.copy(EXAMPLES / name, tmp_path)
    for kind, name in (("config", "prometheus.yml"), ("rules", "prometheus-rules.yml")):
        done = subprocess.run(
            ["promtool", "check", kind, name], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
