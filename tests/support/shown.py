"""What a Nightmill shows of itself to Prometheus."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample


def shown(home: Path, name: str, **labels: str) -> float:
    """The sum of the samples with these labels, of all processes that are up in the data directory."""
    places = [
        target
        for file in (home / "metrics").glob("*.json")
        for one in json.loads(file.read_text())
        for target in one["targets"]
    ]
    assert places
    found = [sample for place in places for sample in _samples(place) if sample.name == name]
    return sum(sample.value for sample in found if labels.items() <= sample.labels.items())


def _samples(place: str) -> Iterator[Sample]:
    with urllib.request.urlopen(f"http://{place}/metrics", timeout=30) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    for family in families:
        yield from family.samples
