"""Requests that are turned away, and why."""

from __future__ import annotations


class Refused(Exception):  # noqa: N818 - it is what happens to a request, not a fault
    """A request that is not answered: its HTTP status, a code for programs, a message for people."""

    def __init__(self, status: int, code: str, message: str, where: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.where = where
