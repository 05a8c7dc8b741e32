"""Measuring in turns.

On a machine that others use, absolute times of two runs differ by two or three times, and the ratio
of two subjects that were measured one after the other is hardly better. So the benches are scripts
that let the subjects take turns, round by round, and report medians and their ratios of one run.
(pytest-benchmark measures one subject at a time.)
"""

from __future__ import annotations

import gc
import random
import statistics
import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")


def in_turns(
    subjects: Mapping[str, Callable[[T], object]], setup: Callable[[], T], rounds: int
) -> dict[str, float]:
    """Median seconds of each subject, each round on what `setup` returns anew.

    The order changes from round to round: who comes after a subject that walked the whole graph
    finds cold caches.

    The garbage collector is off meanwhile: one full collection over a graph of a million nodes
    takes seconds and falls on whoever allocates next.
    """
    times: dict[str, list[float]] = {name: [] for name in subjects}
    turns, shuffle = list(subjects.items()), random.Random(0).shuffle
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            shuffle(turns)
            for name, run in turns:
                argument = setup()
                start = time.perf_counter()
                run(argument)
                times[name].append(time.perf_counter() - start)
    finally:
        gc.enable()
    return {name: statistics.median(taken) for name, taken in times.items()}
