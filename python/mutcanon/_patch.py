"""Replacing a function of somebody else, for those who ask and for as long as they ask.

ExecuTorch has no hook at the places where mutation goes wrong, so the function there is swapped for
a dispatcher. The dispatcher runs our replacement in the contexts (threads, tasks) that asked for it
and the stock function in all others; the first holder puts it in place and the last one takes it
out. A function that is not the one we know is never touched: somebody else may have replaced it, or
it does something new.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from mutcanon.errors import VersionError

__all__ = ["Patch", "Site"]

_lock = threading.RLock()


@dataclass(frozen=True)
class Site:
    """An attribute that may be replaced.

    Attributes:
        owner: The module or class that has it.
        attribute: Its name.
        is_known: Whether a value of it is the function that we know.
    """

    owner: Any
    attribute: str
    is_known: Callable[[Any], bool]

    @property
    def name(self) -> str:
        """The full name, for messages."""
        owner = self.owner
        module = getattr(owner, "__module__", None)
        return ".".join(p for p in (module, owner.__name__, self.attribute) if p)


class Patch:
    """One replacement at one site.

    `replacement` is called with the stock function and the call's arguments. While it runs, calls
    from its own context reach the stock function, so it may use what it replaces.
    """

    def __init__(self, find: Callable[[], Site], replacement: Callable[..., Any]) -> None:
        self._find = find
        self._replacement = replacement
        self._here: ContextVar[bool] = ContextVar("here", default=False)
        self._inside: ContextVar[bool] = ContextVar("inside", default=False)
        self._everywhere = 0
        self._holders = 0
        self._site: Site | None = None
        self._stock: Any = None
        self._dispatcher: Any = None

    @contextmanager
    def here(self) -> Iterator[None]:
        """Replaces the function for calls from this context; nests."""
        self._hold()
        token = self._here.set(True)
        try:
            yield
        finally:
            self._here.reset(token)
            self._release()

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Calls the stock function from this context, whoever asked for the replacement."""
        token = self._inside.set(True)
        try:
            yield
        finally:
            self._inside.reset(token)

    def enable(self) -> None:
        """Replaces the function for all contexts, until `disable` was called as often."""
        self._hold()
        with _lock:
            self._everywhere += 1

    def disable(self) -> None:
        """Takes one `enable` back."""
        with _lock:
            self._everywhere -= 1
        self._release()

    def _hold(self) -> None:
        with _lock:
            if self._holders == 0:
                self._install()
            self._holders += 1

    def _release(self) -> None:
        with _lock:
            self._holders -= 1
            site = self._site
            if self._holders or site is None:
                return
            # Where somebody patched on top of us the dispatcher must stay; it only forwards now.
            if getattr(site.owner, site.attribute, None) is self._dispatcher:
                setattr(site.owner, site.attribute, self._stock)
            self._site = None

    def _install(self) -> None:
        site = self._find()
        stock = getattr(site.owner, site.attribute, None)
        if stock is None or not site.is_known(stock):
            what = "is gone" if stock is None else f"is {stock!r}, not the stock function"
            raise VersionError(
                f"{site.name} {what}: undo other patches of it, or call the functions of "
                "mutcanon on the program itself",
                code="unknown_function",
            )

        @functools.wraps(stock)
        def dispatcher(*args: Any, **kwargs: Any) -> Any:
            if self._inside.get() or not (self._everywhere or self._here.get()):
                return stock(*args, **kwargs)
            token = self._inside.set(True)
            try:
                return self._replacement(stock, *args, **kwargs)
            finally:
                self._inside.reset(token)

        self._site, self._stock, self._dispatcher = site, stock, dispatcher
        setattr(site.owner, site.attribute, dispatcher)
