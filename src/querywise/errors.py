"""Every error querywise raises on purpose.

    QuerywiseError
    ├── DataError          the input cannot mean what the caller thinks it means
    ├── NotFittedError     a prediction was asked of something that has not been fitted
    ├── SolverError        an optimisation did not reach the accuracy it promises
    ├── ModelFileError     a model folder is damaged, foreign, or from a newer version
    └── ClusterError       a cluster cannot be reached, or could not do its work

A message says where, what was found, what was expected, and what to do.
"""

from __future__ import annotations


class QuerywiseError(Exception):
    """The root of every error this package raises on purpose.

    arguments: the arguments of functions it is about. A message writes them as Python does, `name='value'`; a program
    that asks for them in another way, as the command line does, can put its own words there.
    """

    def __init__(self, message: str = "", *, arguments: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.arguments = arguments


class DataError(QuerywiseError, ValueError):
    """The input cannot mean what the caller thinks it means."""


class NotFittedError(QuerywiseError, RuntimeError):
    """A prediction was asked of something that has not been fitted."""

    def __init__(self, subject: object) -> None:  # of any class: its name is all that is said
        name = type(subject).__name__
        super().__init__(f"This {name} has not been fitted yet; call {name}.fit(data) first.")


class SolverError(QuerywiseError, RuntimeError):
    """An optimisation did not reach the accuracy it promises."""


class ModelFileError(QuerywiseError, ValueError):
    """A model folder is damaged, foreign, or from a newer version."""


class ClusterError(QuerywiseError, RuntimeError):
    """A cluster cannot be reached, or could not do its work."""


class Hint(UserWarning):
    """Something that works, but could work better; the command line prints it as one line."""
