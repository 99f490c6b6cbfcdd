"""docs/operations.md and the example for Prometheus know every figure, and no other."""

import re
from pathlib import Path

import pytest
import yaml

from jobs.figures import FIGURES, Kind

pytestmark = pytest.mark.architecture

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/operations.md").read_text()
DEPLOY = ROOT / "infra/deploy/prometheus"
SAMPLES = {
    name
    for figure in FIGURES
    for name in (
        [f"{figure.name}_{part}" for part in ("bucket", "sum", "count")]
        if figure.kind is Kind.HISTOGRAM
        else [figure.name]
    )
}


def lines() -> dict[str, str]:
    """The page's lines of figures, by name."""
    return dict(re.findall(r"^\| `(nightmill_\w+)` \| (.+) \|$", PAGE, re.MULTILINE))


def test_each_figure_has_a_line_and_each_line_a_figure():
    assert sorted(lines()) == sorted(figure.name for figure in FIGURES)


def test_each_line_says_what_to_do():
    short = [name for name, text in lines().items() if name != "nightmill_build_info" and text.count(" | ") != 1]
    assert short == []


def named_in(text: str) -> set[str]:
    return set(re.findall(r"\bnightmill_[a-z_]+", text))


def test_questions_and_alerts_ask_for_samples_that_there_are():
    alerts = yaml.safe_load((DEPLOY / "alerts.yml").read_text())
    asked = " ".join(rule["expr"] for group in alerts["groups"] for rule in group["rules"])
    asked += PAGE[PAGE.index("## Useful questions") :]
    assert named_in(asked) - SAMPLES == set()


def test_every_alert_is_told_in_a_sentence():
    alerts = yaml.safe_load((DEPLOY / "alerts.yml").read_text())
    assert [r["alert"] for g in alerts["groups"] for r in g["rules"] if not r["annotations"]["summary"]] == []


def test_prometheus_finds_the_alerts_and_the_targets_of_the_example():
    config = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())
    (scrape,) = config["scrape_configs"]
    (found,) = scrape["file_sd_configs"]
    assert [(DEPLOY / rules).exists() for rules in config["rule_files"]] == [True]
    assert [(DEPLOY / files).parent.resolve() for files in found["files"]] == [ROOT / ".nightmill/metrics"]
