"""How vLLM gets on, from the statistics of its steps."""

from __future__ import annotations

from typing import Any

from vllm.v1.metrics.loggers import StatLoggerBase

from jobs.ports.engine import Occupancy


class Progress(StatLoggerBase):  # type: ignore[misc]
    """Counts tokens as the engine's steps report them, so that one long generation is progress too."""

    def __init__(self) -> None:
        self.moved = 0
        self.occupancy = Occupancy(kv_use=0.0)

    def __call__(self, _vllm_config: Any, _engine_index: int = 0) -> Progress:
        """vLLM wants a factory; one counter serves all engine cores."""
        return self

    def record(self, scheduler_stats: Any, iteration_stats: Any, *_: Any, **__: Any) -> None:
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

    def log_engine_initialized(self) -> None:
        """Nothing to say."""
