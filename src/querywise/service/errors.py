"""Errors that a request is answered with."""

from __future__ import annotations

from querywise.errors import DataError


class ApiError(Exception):
    """A request that is refused: the HTTP status, a code for programs, a message for people, a place in the request."""

    def __init__(self, status: int, code: str, message: str, where: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.where = where


class RequestDataError(DataError):
    """Data in a request that the model cannot rank, and its place in the request."""

    def __init__(self, message: str, where: str) -> None:
        super().__init__(message)
        self.where = where
