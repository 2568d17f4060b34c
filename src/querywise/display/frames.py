"""Columns as a data frame of the library that is installed: pandas, else polars, else Arrow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, TypeAlias

from querywise.errors import DataError
from querywise.runtime.arrays import Bools, Floats, Ints

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

Frame: TypeAlias = "pandas.DataFrame | polars.DataFrame | pyarrow.Table"
Column: TypeAlias = Sequence[str | int | float | bool | None] | Floats | Ints | Bools

LIBRARIES = {"pandas": "DataFrame", "polars": "DataFrame", "pyarrow": "table"}  # the first that is installed is used


def as_frame(columns: Mapping[str, Column]) -> Frame:
    """The columns as a data frame, in their order."""
    for library, make in LIBRARIES.items():
        try:
            module = import_module(library)
        except ImportError:
            continue
        made: Frame = getattr(module, make)(dict(columns))
        return made
    raise DataError(f"A data frame needs one of {', '.join(LIBRARIES)}; none is installed: pip install pandas")
