"""The command `python -m reproduction`: its options, and which reproduction they run."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import querywise.cli.options as options
from querywise.cli.comparing import FoldsData
from querywise.cli.inputs import feature_from, one_embedder, retrieval_from
from querywise.cli.options import guarded_command
from querywise.errors import DataError
from querywise.runtime.progress import shown
from querywise.runtime.values import is_whole

if TYPE_CHECKING:
    from querywise.data.folds import Folds
    from querywise.retrieval.adapting import Adaptation

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")

_DRAWN = ("geng2008", "lin2011", "zha2006", "hoi2008", "vectors", "curves", "msrd")  # with figures
_OF_VECTORS = ["hybrid", "vectors", "peers", "curves", "msrd"]  # reproduced from words and vectors
_LARGEST_COLUMN = 1_000_000  # that may be named


@app.command()
@guarded_command
def reproduce(
    what: Annotated[
        str,
        typer.Argument(
            help="geng2008: k nearest neighbours; lin2011: local models from clusters; zha2006: aTVT; hoi2008: "
            "ensembles; from-text: a text collection, several views; blend: the method blend, part by part; peers: the "
            "blend beside LightGBM, XGBoost and CatBoost; curves: five methods by training queries; hybrid: a text "
            "collection by words and vectors; vectors: query vectors that learn, beside those that do not; msrd: "
            "documents with fields, of which those that were judged are ranked."
        ),
    ],
    data: FoldsData,
    out: Annotated[Path, typer.Option(help="Folder for tables, figures and numbers.")],
    reference: options.Reference = None,
    rankers: Annotated[
        str | None,
        typer.Option(
            help="hoi2008: the columns that are the paper's rankers, counted from 1, as in 1-10,16. By default those "
            "of OHSUMED where there are 45 columns, else all."
        ),
    ] = None,
    also: Annotated[
        list[str] | None,
        typer.Option(
            metavar="<path>",
            help="peers, curves: a further set for one table of all, and after a colon the folder of its vectors, as "
            "in cranfield:vectors/cranfield. May be given several times. Each set is kept in a folder of its own in "
            "--out, and one that is there already is not made again.",
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Of a paper: the first fold and thin grids, to see every table in minutes.")
    ] = False,
    queries: options.Queries = None,
    vectors: options.VectorFolder = None,
    embed: options.EmbedderName = None,
    candidates: options.CandidatesFrom = "found",
    quiet: options.Quiet = False,
) -> None:
    """Reproduce a paper's tables and figures on your data."""
    from querywise.display.words import printable
    from querywise.evaluation.tuning import without_hints
    from reproduction import blend, curves, fromtext, geng2008, hoi2008, hybrid, lin2011, msrd, peers, zha2006
    from reproduction import vectors as adapted

    feature = None if reference is None else feature_from(reference)
    papers: dict[str, Callable[..., Path]] = {
        "geng2008": partial(geng2008.reproduce, reference=feature),
        "lin2011": partial(lin2011.reproduce, reference=feature),
        "zha2006": zha2006.reproduce,
        "hoi2008": partial(hoi2008.reproduce, rankers=None if rankers is None else _columns_from(rankers)),
    }
    others = {"blend": blend, "peers": peers, "curves": curves, "hybrid": hybrid, "vectors": adapted, "msrd": msrd}
    known = papers | {"from-text": fromtext.reproduce} | {name: each.reproduce for name, each in others.items()}
    several = {"peers": peers.every, "curves": curves.every}
    _require_known(what, known)
    quickly = [name for name, each in papers.items() if "quick" in inspect.signature(each).parameters]
    for option, given, lacking, allowed in (
        ("--quick", quick, f"there is no quick run of {what}", quickly),
        ("--rankers", rankers is not None, f"{what} takes no rankers", ["hoi2008"]),
        ("--also", also, f"there is no table of several sets of {what}", [*several]),
        ("--vectors" if vectors else "--embed", vectors or embed, f"{what} takes no vectors", _OF_VECTORS),
        ("--candidates", candidates != "found", f"{what} ranks what is found", ["vectors"]),
    ):
        if given and what not in allowed:
            raise DataError(f"{option}: {lacking}. Leave {option} out, or name {' or '.join(allowed)}.")

    read = partial(_folds, data, queries)
    inputs: dict[str, Callable[[], tuple[object, ...]]] = {
        "vectors": partial(_adapting, data, queries, vectors, embed, candidates),
        "msrd": lambda: (read(candidates="judged"), read(vectors, embed, candidates="judged") if by_vectors else None),
    }
    first, by_vectors = partial(read, vectors, embed), bool(vectors or embed)
    with shown(quiet=quiet), without_hints():
        if also:
            written = several[what]({_name_of(data, vectors or embed): first, **_further(also)}, out)
        else:
            parts = inputs[what]() if what in inputs else (first(),)
            written = known[what](*parts, out, **({"quick": True} if quick else {}))
    if not quiet:
        sys.stdout.write(printable(written.read_text()))


def _require_known(what: str, known: Collection[str]) -> None:
    """Raise DataError for an unknown paper, or for figures without Matplotlib: now, and not after hours."""
    from querywise.display.tables import MATPLOTLIB

    if what not in known:
        raise DataError(f"Unknown paper {what!r}. Known: {', '.join(known)}.")
    if what in _DRAWN:
        MATPLOTLIB.load(f"python -m reproduction {what}")


def _columns_from(text: str) -> list[int]:
    """Parse columns like `1-10,16`, counted from 1, to columns counted from 0."""
    found: list[int] = []
    for part in text.split(","):
        first, joined, last = part.strip().partition("-")
        last = last if joined else first
        if not (is_whole(first) and is_whole(last) and 1 <= int(first) <= int(last) <= _LARGEST_COLUMN):
            raise DataError(
                f"--rankers {text}: found {part.strip()!r}, expected columns from 1 up, like 1-10,16,20-25."
            )
        found += range(int(first) - 1, int(last))
    return found


def _folds(
    data: Path,
    queries: Path | None,
    vectors: list[Path] | None = None,
    embed: list[str] | None = None,
    *,
    candidates: str = "found",
) -> Folds:
    """Return the folds of a set, by words or with vectors."""
    from querywise.retrieval.reading import folds_of

    return folds_of(data, queries, retrieval=one_embedder(retrieval_from(vectors, embed, candidates=candidates)))


def _adapting(
    data: Path, queries: Path | None, vectors: list[Path] | None, embed: list[str] | None, candidates: str
) -> tuple[Folds, Adaptation | None]:
    """Return the folds of a collection with plain vectors, and how these learn."""
    from querywise.retrieval.reading import folds_from_text

    how = one_embedder(retrieval_from(vectors, embed, adapt="auto", candidates=candidates))
    return folds_from_text(data, how, queries)


def _further(given: list[str]) -> dict[str, Callable[[], Folds]]:
    """Return sets by name, each with its vectors after a colon or without."""
    from querywise.retrieval.reading import folds_of
    from querywise.retrieval.stdlib import NAME

    sets: dict[str, Callable[[], Folds]] = {}
    for each in given:
        path, _, folder = each.partition(":")
        for place in filter(None, (path, folder)):  # now, and not after hours with the sets before it
            if place != NAME and not Path(place).exists():
                raise DataError(f"--also {each}: {place}: there is no such file or folder.")
        how = retrieval_from([Path(folder)] if folder else None, None)
        sets[_name_of(Path(path), folder)] = partial(folds_of, Path(path), None, retrieval=how)
    return sets


def _name_of(data: Path, vectors: object) -> str:
    return data.name + (" with vectors" if vectors else "")
