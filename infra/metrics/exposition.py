"""Figures in Prometheus' text form, and the small HTTP server that gives them out."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from wsgiref.simple_server import WSGIServer

import structlog
from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from jobs.errors import NightmillError
from jobs.figures import FIGURES, Figure, Histogram, Kind, Sample, Source

log = structlog.get_logger()

PORTS = 200
"""So many ports are tried, from the first one on."""

_BY_NAME = {figure.name: figure for figure in FIGURES}


class Figures(Collector):
    """All samples of some sources, as Prometheus' client wants them. A source that fails is left out and logged."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = sources

    def collect(self) -> Iterator[Metric]:
        found: dict[str, dict[tuple[str, ...], float | Histogram]] = {}
        for sample in self._samples():
            values = found.setdefault(sample.name, {})
            there = values.get(sample.labels)
            values[sample.labels] = sample.value if there is None else _both(_BY_NAME[sample.name], there, sample.value)
        for figure in FIGURES:
            if figure.name in found:
                yield _family(figure, found[figure.name])

    def describe(self) -> Iterable[Metric]:
        """Nothing: the registry would else ask the sources when it is made."""
        return ()

    def _samples(self) -> Iterator[Sample]:
        yield Sample("nightmill_build_info", 1, (version("nightmill"),))
        for source in self._sources:
            try:
                yield from source()
            except NightmillError as error:
                log.warning("figures_missing", reason=error.sentence)
            except Exception as error:  # the HTTP edge: one broken figure must not hide the others
                log.error("figures_broken", error=repr(error), exc_info=error, silent=True)


def _both(figure: Figure, one: float | Histogram, other: float | Histogram) -> float | Histogram:
    if isinstance(one, Histogram) and isinstance(other, Histogram):
        return one.plus(other)
    assert not isinstance(one, Histogram)
    assert not isinstance(other, Histogram)
    return max(one, other) if figure.kind is Kind.PEAK else one + other


def _family(figure: Figure, values: Mapping[tuple[str, ...], float | Histogram]) -> Metric:
    if figure.kind is Kind.HISTOGRAM:
        histogram = HistogramMetricFamily(figure.name, figure.help, labels=figure.labels)
        for labels, value in sorted(values.items()):
            assert isinstance(value, Histogram)
            histogram.add_metric(labels, value.buckets(), value.total)
        return histogram
    kind = CounterMetricFamily if figure.kind is Kind.COUNTER else GaugeMetricFamily
    family = kind(figure.name, figure.help, labels=figure.labels)
    for labels, value in sorted(values.items()):
        assert not isinstance(value, Histogram)
        family.add_metric(labels, value)
    return family


def listen(first_port: int, bind: str, sources: Sequence[Source]) -> tuple[int, Callable[[], None]]:
    """Serve under `/metrics` on the first free port; the port, and what ends it. Raises OSError.

    The registry is this server's own: several may live in one process, and nothing is global.
    """
    registry = CollectorRegistry()
    registry.register(Figures(sources))
    ProcessCollector(registry=registry)
    server, thread = _first_free(first_port, bind, registry)

    def end() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return server.server_port, end


def _first_free(first_port: int, bind: str, registry: CollectorRegistry) -> tuple[WSGIServer, threading.Thread]:
    for port in range(first_port, min(first_port + PORTS, 1 << 16)):
        try:
            return start_http_server(port, bind, registry)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
    raise OSError(errno.EADDRINUSE, f"the next {PORTS} ports are all taken")
