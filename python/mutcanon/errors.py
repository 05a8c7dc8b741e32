"""The exceptions that mutcanon raises on purpose.

A copy that stays is none of them: it is a normal outcome and stands in the report. Each has a
stable `code` that scripts may rely on, and leaves its argument as it was.
"""

from __future__ import annotations

__all__ = [
    "InternalError",
    "InvalidProgramError",
    "MutcanonError",
    "UnsupportedError",
    "VersionError",
]


class MutcanonError(Exception):
    """Base of all errors. The message begins with the thing that is wrong.

    Attributes:
        code: A stable name of the kind of error.
    """

    def __init__(self, message: str, *, code: str) -> None:
        super().__init__(message)
        self.code = code

    def __str__(self) -> str:
        return f"{super().__str__()} [{self.code}]"


class InvalidProgramError(MutcanonError):
    """The program contradicts itself, so nothing can be concluded from it."""


class UnsupportedError(MutcanonError):
    """The input is sound, but it is not what mutcanon works on."""


class VersionError(MutcanonError):
    """A private name of torch or executorch is not where the tested versions have it."""


class InternalError(MutcanonError):
    """Our own mistake: a result was rejected. The input is untouched; please report the message."""
