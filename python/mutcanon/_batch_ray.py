"""The engine of many machines: the same units of work as tasks of a Ray cluster that exists.

Files must be where every worker can reach them: at URLs, or on a file system that all of them
mount. Ray starts a task again whose worker died; that is safe, as a file is replaced as a whole or
not at all.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from mutcanon import _store
from mutcanon._batch import Outcome, Settings, Unit, run_unit
from mutcanon.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from threading import Event

#: How often a unit is tried whose worker died, for example for want of memory.
_RETRIES = 3
#: Seconds after which we look whether to stop.
_PATIENCE = 0.5


def run_on_ray(
    units: Sequence[Unit], settings: Settings, stop: Event, *, address: str
) -> Iterator[Outcome]:
    """Carries out units on the cluster at `address`; "auto" finds the one of this machine."""
    try:
        import ray
    except ModuleNotFoundError as error:
        raise UnsupportedError(
            "--engine ray: Ray is not installed; install it with: pip install 'mutcanon[ray]'",
            code="needs_ray",
        ) from error
    on_termination = signal.getsignal(signal.SIGTERM)
    try:
        _require_answer(address)
        ray.init(address=address, log_to_driver=False, logging_level="error")
    except (OSError, ValueError, RuntimeError) as error:
        raise UnsupportedError(
            f"--address {address}: no Ray cluster there: {error}", code="no_cluster"
        ) from error
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, on_termination)  # Ray's own would leave at once
    try:
        yield from _run(ray, units, settings, stop)
    finally:
        ray.shutdown()


def _require_answer(address: str) -> None:
    """Raises an OSError where nobody answers; Ray itself would go on trying for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()


def _run(ray: Any, units: Sequence[Unit], settings: Settings, stop: Event) -> Iterator[Outcome]:
    task = ray.remote(num_cpus=1, max_retries=_RETRIES)(run_unit)
    rest = iter(units)
    pending: dict[Any, Unit] = {}
    while True:
        # As in threads: enough that no worker waits. The cluster may grow on the way.
        width = 2 * max(1, int(ray.cluster_resources().get("CPU", 1)))
        for unit in islice(rest, 0 if stop.is_set() else max(0, width - len(pending))):
            pending[task.remote(_absolute(unit), settings)] = unit
        if not pending:
            return
        done, _ = ray.wait(list(pending), num_returns=1, timeout=_PATIENCE)
        for reference in done:
            yield _outcome(ray, reference, pending.pop(reference))


def _outcome(ray: Any, reference: Any, unit: Unit) -> Outcome:
    try:
        outcome: Outcome = ray.get(reference)
    except ray.exceptions.RayError as error:
        reason = str(error).strip().splitlines()[-1:]
        message = ": ".join([unit.source, "no worker could do it", type(error).__name__, *reason])
        return Outcome(unit.name, unit.source, None, "failed", code="worker_lost", message=message)
    # Under the names that it has here.
    target = None if outcome.target is None else unit.target
    return replace(outcome, source=unit.source, target=target)


def _absolute(unit: Unit) -> Unit:
    """The unit with paths that mean the same in a worker's directory."""

    def absolute(path: str) -> str:
        return path if _store.is_url(path) else os.path.abspath(path)

    target = None if unit.target is None else absolute(unit.target)
    return replace(unit, source=absolute(unit.source), target=target)
