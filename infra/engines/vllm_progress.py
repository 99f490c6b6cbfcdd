"""How vLLM gets on, from the statistics of its steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vllm.v1.metrics.loggers import PrometheusStatLogger

from jobs.ports.engine import Occupancy


class Progress:
    """Counts tokens as the engine's steps report them, so that one long generation is progress too.

    stepped: is called after each step, in the loop that vLLM's outputs are read in, once they are at hand.
    """

    def __init__(self, stepped: Callable[[], None]) -> None:
        self.moved = 0
        self.occupancy = Occupancy(kv_use=0.0)
        self._stepped = stepped

    def record(self, scheduler_stats: Any, iteration_stats: Any) -> None:
        """One step. Prompt tokens are counted when a prompt is done: a chunk of a long one shows in the cache's use."""
        if iteration_stats is not None:
            self.moved += iteration_stats.num_prompt_tokens + iteration_stats.num_generation_tokens
        if scheduler_stats is not None:
            self.moved += scheduler_stats.kv_cache_usage != self.occupancy.kv_use
            self.occupancy = Occupancy(
                running=scheduler_stats.num_running_reqs,
                waiting=scheduler_stats.num_waiting_reqs,
                kv_use=scheduler_stats.kv_cache_usage,
            )
        self._stepped()


def stat_logger(progress: Progress) -> type[PrometheusStatLogger]:
    """What vLLM makes a logger from. It takes the place of vLLM's own for Prometheus, which would cost a tenth of the
    process's time for figures that nobody can read: this process serves none.
    """

    class Told(PrometheusStatLogger):  # type: ignore[misc]
        """One for all engine cores."""

        def __init__(self, vllm_config: Any, engine_indexes: Any = None) -> None:
            del vllm_config, engine_indexes  # its metrics are not made

        def record(self, scheduler_stats: Any, iteration_stats: Any, *_: Any, **__: Any) -> None:
            """One step."""
            progress.record(scheduler_stats, iteration_stats)

        def record_admission_rejection(self, reason: str) -> None:
            """Nothing to count it with."""

        def record_sleep_state(self, sleep: int = 0, level: int = 0) -> None:
            """Nothing to count it with."""

        def log_engine_initialized(self) -> None:
            """Nothing to say."""

    return Told
