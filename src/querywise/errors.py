"""All errors that querywise raises deliberately.

    QuerywiseError
    ├── DataError          the input or an argument is invalid
    ├── NotFittedError     an object was used before it was fitted
    ├── SolverError        an optimization did not reach the required accuracy
    ├── ModelFileError     a model folder is damaged, not querywise's, or from a newer version
    └── ClusterError       a cluster cannot be reached, or failed

A message says where the problem is, what was found, what was expected, and what to do.
"""

from __future__ import annotations

_LONGEST = 2_000  # characters of a message


class QuerywiseError(Exception):
    """Base class of all errors that querywise raises deliberately.

    Args:
        message: where the problem is, what was found, what was expected, and what to do.
        arguments: the function arguments that the message is about. It writes them as Python does, `name='value'`; a
            program with other names for them, such as the command line, can substitute its own.

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
    """The input or an argument is invalid. Also a ValueError.

    Args:
        message, arguments: as in QuerywiseError.

    >>> from querywise import DataError, from_arrays
    >>> try:
    ...     from_arrays([[1.0], [2.0]], [1], qid=["a", "a"])
    ... except DataError as error:
    ...     print(error)
    X has 2 rows but y has 1 labels.
    """


class NotFittedError(QuerywiseError, RuntimeError):
    """An object was used before it was fitted. Also a RuntimeError.

    Args:
        subject: the unfitted object, whose class the message names.

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
    """An optimization did not reach the required accuracy. Also a RuntimeError.

    Args:
        message, arguments: as in QuerywiseError.

    This is rare; causes are features of very different sizes, or settings near the ends of their ranges. Scale the
    features, or choose other settings.

    >>> from querywise import QuerywiseError, SolverError
    >>> issubclass(SolverError, QuerywiseError)
    True
    """


class ModelFileError(QuerywiseError, ValueError):
    """A model folder is damaged, not querywise's, or from a newer version. Also a ValueError.

    Args:
        message, arguments: as in QuerywiseError.

    >>> from querywise import ModelFileError, load
    >>> try:
    ...     load("no-such-model")
    ... except ModelFileError as error:
    ...     print(error)
    no-such-model: not a model folder: there is no such folder. `querywise fit` and save(ranker, folder) make one.
    """


class ClusterError(QuerywiseError, RuntimeError):
    """A cluster cannot be reached, or failed. Also a RuntimeError.

    Args:
        message, arguments: as in QuerywiseError.

    >>> from querywise import ClusterError, QuerywiseError
    >>> issubclass(ClusterError, QuerywiseError)
    True
    """


class Hint(UserWarning):
    """A warning about something that works but could work better; the command line prints it as one line."""


class EdgeHint(Hint):
    """A warning that a parameter was chosen at the edge of the values tried, so a better value may lie beyond."""
