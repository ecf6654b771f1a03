"""The board, the alert rules and the runbook name only what there is."""
import json
import re
import shutil
import subprocess

import pytest
import requests
import yaml

from conftest import ROOT

CONFIGS = ROOT / "configs"
METRIC = re.compile(r"\b(?:pagoda|process)_[a-z0-9_]+")


def listed():
    """The metrics of METRICS.md; a name that begins with _ ends the one before it."""
    text = (ROOT / "server" / "METRICS.md").read_text()
    names = set()
    for row in text.splitlines():
        cell = row.split("|")[1] if row.startswith("| `") else ""
        last = ""
        for name in re.findall(r"`([a-z0-9_]+)(?:\{[^}]*\})?`", cell):
            if name.startswith("_"):
                name = last[:last.rindex("_", 0, -1)] + name
            names.add(name)
            last = name
    return names


def known(name):
    for end in ("_bucket", "_sum", "_count"):
        if name.removesuffix(end) in listed():
            return True
    return name in listed() or name.startswith("process_")


def expressions():
    board = json.loads((CONFIGS / "grafana" / "pagoda.json").read_text())
    for panel in board["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]
    for rule in rules():
        yield rule["alert"], rule["expr"]


def rules():
    groups = yaml.safe_load((CONFIGS / "alerts.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def test_every_metric_is_listed():
    for where, expression in expressions():
        names = METRIC.findall(expression)
        assert names or "up{" in expression, where
        for name in names:
            assert known(name), f"{where}: {name}"


def test_labels_are_matched_between_vectors():
    """A number has no labels: Prometheus refuses that, and with it the whole file of rules."""
    for where, expression in expressions():
        assert not re.search(r"\d\s*[-+*/%^<>=!]+\s*(on|ignoring)\b", expression), where


@pytest.mark.skipif(not shutil.which("promtool"), reason="Prometheus' own checker is not here")
def test_prometheus_reads_rules_and_board(tmp_path):
    records = [{"record": f"board:expression_{i}",
                "expr": expression.replace("$__rate_interval", "5m").replace("$instance", ".*")}
               for i, (_, expression) in enumerate(expressions())]
    board = tmp_path / "board.yml"
    board.write_text(yaml.safe_dump({"groups": [{"name": "board", "rules": records}]}))
    for file in (CONFIGS / "alerts.yml", board):
        checked = subprocess.run(["promtool", "check", "rules", str(file)], capture_output=True,
                                 text=True)
        assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.skipif(not shutil.which("promtool"), reason="Prometheus' own checker is not here")
@pytest.mark.parametrize("n_running, is_alert", [(3, True), (0, False)])
def test_a_stuck_step_is_an_alert_until_it_ends(tmp_path, n_running, is_alert):
    """The watchdog counts it once, at the third minute; after that only no step comes."""
    values = {"watchdog_stuck_steps_total": "0x12 1x228", "steps_total": "0+100x8 800x232",
              "requests_running": f"3x40 {n_running}x200", "requests_waiting": "0x240"}
    labels = {"instance": "a", "job": "pagoda"}
    rule = next(rule for rule in rules() if rule["alert"] == "PagodaStuckStep")
    alert = {"exp_labels": {**labels, **rule["labels"]},
             "exp_annotations": {name: text.replace("{{ $labels.instance }}", "a")
                                 for name, text in rule["annotations"].items()}}
    test = {"interval": "15s",
            "input_series": [{"series": f'pagoda_{name}{{instance="a",job="pagoda"}}', "values": v}
                             for name, v in values.items()],
            "alert_rule_test": [{"eval_time": f"{minute}m", "alertname": rule["alert"],
                                 "exp_alerts": [alert] if is_alert else []}
                                for minute in range(20, 60)]}
    file = tmp_path / "test.yml"
    file.write_text(yaml.safe_dump({"rule_files": [str(CONFIGS / "alerts.yml")],
                                    "evaluation_interval": "15s", "tests": [test]}))
    checked = subprocess.run(["promtool", "test", "rules", str(file)], capture_output=True,
                             text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_runbook_names_real_metrics():
    for name in METRIC.findall((CONFIGS / "RUNBOOK.md").read_text()):
        assert known(name), name


def test_panels_have_ids_of_their_own():
    board = json.loads((CONFIGS / "grafana" / "pagoda.json").read_text())
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids))
    assert board["schemaVersion"] >= 39


def test_every_rule_leads_to_a_row_of_the_runbook():
    runbook = (CONFIGS / "RUNBOOK.md").read_text()
    for rule in rules():
        file, anchor = rule["annotations"]["runbook"].split("#")
        assert file == "RUNBOOK.md" and f'id="{anchor}"' in runbook, rule["alert"]
        assert rule["annotations"]["summary"]


@pytest.mark.parametrize("flags", [(), ("--kv-host-size", "64MiB", "--kv-ssd-path", "kv",
                                        "--cost-per-hour", "2", "--trace-out", "trace.jsonl",
                                        "--admin-port", "0")])
def test_every_metric_of_a_server_is_listed(start, tmp_path, flags):
    flags = [str(tmp_path / flag) if flag in ("kv", "trace.jsonl") else flag for flag in flags]
    server = start(*flags)
    server.complete(prompt="Once upon a time", max_tokens=2, user="somebody")
    text = requests.get(server.url + "/metrics", timeout=10).text
    names = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE ")}
    missing = sorted(name for name in names if not known(name))
    assert not missing, missing
    if flags:  # nor is there a row of what no server has
        stale = {name for name in listed() if name.startswith("pagoda_")} - names
        assert not stale, sorted(stale)


def test_tiers_yaml_serves(start, tmp_path):
    """As it is, but for what must not collide."""
    server = start("--config", str(CONFIGS / "tiers.yaml"), "--admin-port", "0",
                   "--kv-ssd-path", str(tmp_path / "kv"))
    assert "operators are heard" in server.log()
    assert server.metric('pagoda_kv_tier_capacity_bytes{tier="ssd"}') == 8 << 30
