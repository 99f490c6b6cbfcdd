"""Several calls at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any


def together(works: Sequence[Callable[[], Any]]) -> list[Any]:
    """Run works at the same time; their results in order."""
    answers, start = [None] * len(works), threading.Barrier(len(works))

    def one(number: int) -> None:
        start.wait()
        answers[number] = works[number]()

    threads = [threading.Thread(target=one, args=(number,)) for number in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers
