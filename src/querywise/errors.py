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

_LONGEST = 2_000  # characters of a message


class QuerywiseError(Exception):
    """The root of every error this package raises on purpose.

    Args:
        message: what is said: where, what was found, what was expected, what to do.
        arguments: the arguments of functions it is about. A message writes them as Python does, `name='value'`; a
            program that asks for them in another way, as the command line does, can put its own words there.

    >>> from querywise import DataError, QuerywiseError
    >>> error = DataError("top=0: expected a number from 1 up.", arguments=("top",))
    >>> isinstance(error, QuerywiseError), error.arguments
    (True, ('top',))
    """

    def __init__(self, message: str = "", *, arguments: tuple[str, ...] = ()) -> None:
        super().__init__(_one_line(message))
        self.arguments = arguments


def _one_line(message: str) -> str:
    """A message of one printable line: it may quote any text of a file, which may hold anything, of any length."""
    if len(message) > _LONGEST:
        message = f"{message[: _LONGEST // 2]} … {message[-_LONGEST // 2 :]}"
    if message.isprintable():
        return message
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in message)


class DataError(QuerywiseError, ValueError):
    """The input cannot mean what the caller thinks it means. Also a ValueError.

    Args:
        message, arguments: as QuerywiseError has them.

    >>> from querywise import DataError, from_arrays
    >>> try:
    ...     from_arrays([[1.0], [2.0]], [1], qid=["a", "a"])
    ... except DataError as error:
    ...     print(error)
    X has 2 rows but y has 1 labels.
    """


class NotFittedError(QuerywiseError, RuntimeError):
    """A prediction was asked of something that has not been fitted. Also a RuntimeError.

    Args:
        subject: what was asked; its class is named.

    >>> from querywise import NotFittedError, RankSVM, make_judged
    >>> try:
    ...     RankSVM().predict(make_judged(2, 3, 2))
    ... except NotFittedError as error:
    ...     print(error)
    This RankSVM has not been fitted yet; call RankSVM.fit(data) first.
    """

    def __init__(self, subject: object) -> None:  # of any class: its name is all that is said
        name = type(subject).__name__
        super().__init__(f"This {name} has not been fitted yet; call {name}.fit(data) first.")


class SolverError(QuerywiseError, RuntimeError):
    """An optimisation did not reach the accuracy it promises. Also a RuntimeError.

    Args:
        message, arguments: as QuerywiseError has them.

    It is rare: features of very different sizes, or settings near the ends of their ranges. Scale the features, or
    choose other settings.

    >>> from querywise import QuerywiseError, SolverError
    >>> issubclass(SolverError, QuerywiseError)
    True
    """


class ModelFileError(QuerywiseError, ValueError):
    """A model folder is damaged, foreign, or from a newer version. Also a ValueError.

    Args:
        message, arguments: as QuerywiseError has them.

    >>> from querywise import ModelFileError, load
    >>> try:
    ...     load("no-such-model")
    ... except ModelFileError as error:
    ...     print(error)
    no-such-model: not a model folder: there is no such folder. `querywise fit` and save(ranker, folder) make one.
    """


class ClusterError(QuerywiseError, RuntimeError):
    """A cluster cannot be reached, or could not do its work. Also a RuntimeError.

    Args:
        message, arguments: as QuerywiseError has them.

    >>> from querywise import ClusterError, QuerywiseError
    >>> issubclass(ClusterError, QuerywiseError)
    True
    """


class Hint(UserWarning):
    """Something that works, but could work better; the command line prints it as one line."""


class EdgeHint(Hint):
    """A parameter was chosen at the edge of the values tried, so that a better one may lie beyond."""
