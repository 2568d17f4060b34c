"""Off-policy estimates on the Open Bandit Dataset, against what the other policy's own log says.

`python -m benchmarks.open_bandit ../shared/data/clicks/open-bandit`: from bts to random the target's chances are known,
1 / the number of items. From random to bts the shares of items at each position in the log of bts stand for its
chances, which is an approximation: they leave out what it knew of the user and the time. Each file has some fifty
clicks.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import math
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import stats

from querywise.online.off_policy import estimates, rates
from querywise.runtime.arrays import Floats, Ints


class Log(NamedTuple):
    """A policy's log."""

    item: Ints
    position: Ints
    click: Floats
    propensity: Floats


def main() -> None:
    """Print every estimate with its difference from the policy's own click rate."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("folder", type=Path)
    folder = options.parse_args().folder
    heads = "campaign", "from → to", "estimate", "clicks per 1,000 (95 %)", "the policy's own", "difference (error)"
    print(f"| {' | '.join(heads)} | z | clicks in effect |\n|---|---|---|---|---|---|---|---|")
    for campaign in ("men", "women"):
        logs = {policy: read(folder / f"{policy}-{campaign}.csv.gz") for policy in ("bts", "random")}
        for name, other in (("bts", "random"), ("random", "bts")):
            for line in compared(logs[name], logs[other], approximate=other == "bts"):
                print(f"| {campaign} | {name} → {other} | {line}")


def compared(log: Log, target: Log, *, approximate: bool) -> list[str]:
    """Each estimate of the target's click rate from the log, beside its own."""
    items = int(max(log.item.max(), target.item.max())) + 1
    if approximate:
        shares = np.zeros((target.position.max() + 1, items))
        np.add.at(shares, (target.position, target.item), 1.0)
        chances = (shares / np.maximum(shares.sum(axis=1, keepdims=True), 1))[log.position]
    else:
        chances = np.full((len(log.item), items), 1 / items)
    weights = chances[np.arange(len(log.item)), log.item] / log.propensity
    own, error = target.click.mean(), target.click.std(ddof=1) / math.sqrt(len(target.click))
    lines = []
    for each in estimates(log.click, weights, *rates(log.click, log.item, chances)):
        gap, both = each.value - own, math.hypot(each.error, error)
        p = 2 * stats.norm.sf(abs(gap) / both)
        lines.append(
            f"{each.name} | {1e3 * each.value:.2f} ({1e3 * each.low:.2f} to {1e3 * each.high:.2f}) | "
            f"{1e3 * own:.2f} ± {1e3 * error:.2f} | {1e3 * gap:+.2f} ({1e3 * both:.2f}) | "
            f"{gap / both:+.2f} (p {p:.2f}) | {each.clicks:.1f} of {int(log.click.sum())} |"
        )
    return lines


def read(path: Path) -> Log:
    """One file of the dataset."""
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        rows = [
            (int(each["item_id"]), int(each["position"]), float(each["click"]), float(each["propensity_score"]))
            for each in csv.DictReader(file)
        ]
    item, position, click, propensity = (np.array(each) for each in zip(*rows, strict=True))
    return Log(item, position, click, propensity)


if __name__ == "__main__":
    main()
