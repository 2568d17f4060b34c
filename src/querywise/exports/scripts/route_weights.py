"""The request to the engine for a query, with its weights: python router.py 'how can I' [vector.json [runs.json]]

vector.json: the query's vector, a list of numbers. runs.json: the runs' scores, by run and document.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from querywise import DataError, QuerywiseError, Router


def read(path: str) -> Any:
    """Read a JSON file."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path}: this cannot be read as JSON ({error}).") from None


def main() -> int:
    """Print the request."""
    if not 1 < len(sys.argv) < 5:
        sys.stderr.write(str(__doc__))
        return 1
    try:
        vector, runs = ([read(each) for each in sys.argv[2:]] + [None, None])[:2]
        request = Router(Path(__file__).resolve().parent).request(sys.argv[1], vector=vector, runs=runs)
    except QuerywiseError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write(json.dumps(request, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
