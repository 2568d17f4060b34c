"""Write the generated pages anew: references of commands, HTTP and methods, and the tables that commands have made."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parent / "cli.md"
HTTP = Path(__file__).parent / "http.md"
SETTINGS = Path(__file__).parent / "methods.md"
REPRODUCTION = Path(__file__).parent / "reproduction.md"
REPRODUCTIONS = (REPRODUCTION, *sorted((Path(__file__).parent / "reproduction").glob("*.md")))
CHOOSING = Path(__file__).parent / "choosing.md"
ENGINES = Path(__file__).parent / "engines"
FIGURES = Path(__file__).parent / "figures"
COMPARED = {"MQ2008": "MQ2008", "OHSUMED": "OHSUMED", "cranfield": "Cranfield", "vaswani": "Vaswani"}
CLAIMS = {
    "geng2008": ("MQ2008", "OHSUMED", "stdlib"),
    "lin2011": ("MQ2008", "OHSUMED"),
    "zha2006": ("MQ2008", "OHSUMED", "stdlib"),
    "hoi2008": ("OHSUMED",),
}  # paper → the data that its claims were tested on
HYBRID = {"cranfield": "Cranfield", "vaswani": "Vaswani", "stdlib": "the embedded collection"}
COMMANDS = (
    "demo", "features", "fields", "index", "search", "convert", "fit", "clicks", "adapt", "boosts", "rank", "evaluate",
    "compare", "judge", "agree", "next", "fuse", "explain", "serve", "gateway", "online", "promote", "log", "export",
    "reproduce", "methods", "doctor",
)  # fmt: skip


_LIMITS = {"minimum": "from", "maximum": "to", "maxLength": "up to length"}


def help_of(*words: str) -> str:
    """What `querywise … --help` prints, without colour, at a width that suits a page."""
    from querywise.cli import app

    return _help_of(app, "querywise", words)


def help_of_reproduction() -> str:
    """What `python -m reproduction --help` prints."""
    from reproduction.command import app

    return _help_of(app, "python -m reproduction")


def _help_of(app: Any, name: str, words: Sequence[str] = ()) -> str:
    import typer.testing

    surroundings = {"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"}
    shown = typer.testing.CliRunner().invoke(app, [*words, "--help"], prog_name=name, env=surroundings)
    assert shown.exit_code == 0, shown.output
    return "\n".join(line.rstrip() for line in shown.stdout.strip("\n").splitlines())


def command_line_page() -> str:
    """The whole page."""
    parts = ["# Command line", "Written by `make docs` from the commands themselves.", f"```\n{help_of()}\n```"]
    for command in COMMANDS:
        parts += [f"## querywise {command}", f"```\n{help_of(command)}\n```"]
    parts += [
        "## Reproduction",
        "In a clone of the repository; what it found is on [pages of its own](reproduction.md).",
    ]
    parts.append(f"```\n{help_of_reproduction()}\n```")
    return "\n\n".join(parts) + "\n"


def http_page() -> str:
    """Every path, and what it takes and gives, from the document the service itself hands out."""
    from querywise.service.routes import api_description

    said = api_description()
    parts = ["# HTTP", "Written by `make docs` from the service's own `/openapi.json`. " + said["info"]["description"]]
    for path, operations in said["paths"].items():
        for method, operation in operations.items():
            parts += [f"## {method.upper()} {path}", operation["description"]]
            parts += [_parameters(operation)] if operation.get("parameters") else []
            taken = operation.get("requestBody", {}).get("content", {}).get("application/json")
            parts += [f"Takes {_kind(taken['schema'])}."] if taken else []
            given = operation["responses"].get("200", {}).get("content", {}).get("application/json", {}).get("schema")
            parts += [f"Gives {_kind(given)}."] if given and "$ref" in given else []
    parts.append("## Bodies")
    for name, schema in said["components"]["schemas"].items():
        rows = [
            f"| `{each}` | {_kind(kind)} | {'yes' if each in schema.get('required', ()) else ''} |"
            for each, kind in schema["properties"].items()
        ]
        table = "\n".join(["| field | is | needed |", "|---|---|---|", *rows])
        parts += [f"### {name}", " ".join(schema.get("description", "").split()), table]
    return "\n\n".join(parts) + "\n"


def methods_page() -> str:
    """Every method: its class, what can be set, and what is tried on validation data."""
    from querywise.methods import METHODS

    parts = [
        "# Methods and their settings",
        "Written by `make docs` from the classes themselves; `querywise methods NAME` prints the same. On the command "
        "line a setting is given as `--set name=value`, in Python as `find_method(method).build(name=value)`, with "
        "`find_method` of `querywise.methods`. What is not set has its default, or, with validation data, the "
        "best of the values that are tried. [Which method when](choosing.md) says where to begin.",
        _methods_index(),
    ]
    for method in METHODS.values():
        module, _, kind = method.home.partition(":")
        parts += [f"## {method.name}", f"`{kind}` in `{module}`: {method.description}."]
        rows = [_setting(each) for each in method.settings.values()]
        parts.append("\n".join(["| setting | type | default | choices | what it is |", "|---|---|---|---|---|", *rows]))
        tried = {"": method.grid, **{f", with base={base}": grid for base, grid in method.grids.items()}}
        parts += [f"Tried on validation data{where}: {_grid(grid)}." for where, grid in tried.items() if grid]
    return "\n\n".join(parts) + "\n"


def _methods_index() -> str:
    """A row per method: its name, its class, and what it is."""
    from querywise.methods import METHODS

    named = [(each.name, each.home.partition(":")[2], each.description) for each in METHODS.values()]
    rows = [f"| [`{name}`](#{name}) | `{kind}` | {description} |" for name, kind, description in named]
    return "\n".join(["| name | class | what it is |", "|---|---|---|", *rows])


def _setting(setting: Any) -> str:
    from querywise.methods import typed

    choices = ", ".join(f"`{each}`" for each in setting.choices)
    told = setting.help.replace("|", "\\|")
    return f"| `{setting.name}` | {setting.type} | `{typed(setting.default)}` | {choices} | {told} |"


def _grid(grid: Any) -> str:
    from querywise.methods import typed

    return "; ".join(f"`{name}` {', '.join(map(typed, values))}" for name, values in grid.items())


def _parameters(operation: dict[str, Any]) -> str:
    rows = [
        f"| `{each['name']}` | {_kind(each['schema'])} | {each.get('description', '')} |"
        for each in operation["parameters"]
    ]
    return "\n".join(["| parameter | is | |", "|---|---|---|", *rows])


def _kind(schema: dict[str, Any]) -> str:
    """A schema in words."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[1]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(_kind(each) for each in schema["anyOf"])
    if "enum" in schema:
        return " or ".join(f"`{each}`" for each in schema["enum"])
    kind = schema.get("type", "anything")
    if isinstance(kind, list):
        return " or ".join(kind)
    if kind == "array":
        return f"array of {_kind(schema.get('items', {}))}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_kind(schema['additionalProperties'])}"
    limits = [f"{word} {schema[key]}" for key, word in _LIMITS.items() if key in schema]
    default = [f"by default {schema['default']}"] if schema.get("default") not in (None, "") else []
    return ", ".join([kind, *limits, *default])


def write_summary_of_methods() -> None:
    """What `compare` has written of every method on four collections, as numbers, and under one correction."""
    from querywise.evaluation.significance import holm

    found = {name: _table(FIGURES / f"methods-{name}" / "table.md") for name in COMPARED}
    for name, methods in found.items():
        told = (FIGURES / f"methods-{name}" / "table.md").read_text().rpartition("|")[2].strip()
        _write_json(FIGURES / f"methods-{name}" / "numbers.json", {"methods": methods, "told": told})
    rivals = [(name, method) for name, methods in found.items() for method in methods if method != "blend"]
    corrected = dict(zip(rivals, holm([found[name][method]["p (map)"] for name, method in rivals]), strict=True))
    rows = []
    for name, shown in COMPARED.items():
        cells = [f"{found[name]['blend']['map']:.4f}"]
        for method in ("lambdamart", "single"):
            cells += [f"{found[name][method]['map']:.4f}", f"{corrected[name, method]:.3f}"]
        better = sum(each["map"] > found[name]["blend"]["map"] for each in found[name].values())
        beaten = sum(p < 0.05 for (of, _), p in corrected.items() if of == name)
        rows.append(f"| {shown} | {' | '.join(cells)} | {better} | {beaten} of {len(found[name]) - 1} |")
    heads = ("MAP: blend", "lambdamart", "p", "single", "p", "methods with a higher MAP", "beaten with p < 0.05")
    lines = ["| |" + "".join(f" {each} |" for each in heads), "|---|" + "---:|" * len(heads), *rows]
    FIGURES.joinpath("methods").mkdir(exist_ok=True)
    (FIGURES / "methods" / "table.md").write_text("\n".join(lines) + "\n")
    tests = {f"{name}: {method}": p for (name, method), p in corrected.items()}
    _write_json(FIGURES / "methods" / "numbers.json", {"tests": len(tests), "p_holm": tests, "methods": found})


def write_summary_of_claims() -> None:
    """Every claim of the four papers, what came out on each collection, and for each paper how many are reproduced."""
    places = {"MQ2008": "MQ2008", "OHSUMED": "OHSUMED", "stdlib": "the embedded collection"}
    heads = ["paper", "claim", "its p", *places.values()]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    content: dict[str, list[list[str]]] = {}
    FIGURES.joinpath("claims").mkdir(exist_ok=True)
    for paper, collections in CLAIMS.items():
        found = {
            name: json.loads((FIGURES / f"{paper}-{name}" / "numbers.json").read_text())["claims"]
            for name in collections
        }
        for claim, *others in zip(*found.values(), strict=True):
            assert {each["claim"] for each in others} <= {claim["claim"]}, f"{paper}: other claims on other data"
            outcomes = dict(zip(found, [claim, *others], strict=True))
            cells = [outcomes[name]["outcome"] if name in outcomes else "" for name in places]
            row = [paper, claim["claim"], claim["paper"], *cells]
            content.setdefault(paper, []).append(row)
            lines.append(f"| {' | '.join(row)} |")
        parts = [f"{_reproduced(claims)} on {places[name]}" for name, claims in found.items()]
        said = f"Of the paper's claims that can be tested, these are reproduced: {'; '.join(parts)}.\n"
        (FIGURES / "claims" / f"{paper}.md").write_text(said)
    (FIGURES / "claims" / "table.md").write_text("\n".join(lines) + "\n")
    _write_json(FIGURES / "claims" / "numbers.json", {"printed": content})


def _reproduced(claims: Sequence[dict[str, Any]]) -> str:
    """How many are reproduced, of those that could be tested: `1 of 5 (0 significantly; 1 other is reversed)`."""
    outcomes = [each["outcome"] for each in claims]
    tested = [each for each in outcomes if each.startswith(("reproduced", "not reproduced", "reversed"))]
    count = sum(each.startswith("reproduced") for each in tested)
    against = tested.count("reversed")
    others = f"; {against} other{' is' if against == 1 else 's are'} reversed" if against else ""
    return f"{count} of {len(tested)} ({tested.count('reproduced, significant')} significantly{others})"


def write_pooled_hybrid() -> None:
    """The queries of all collections that `python -m reproduction hybrid` has measured, tested together."""
    from reproduction.hybrid import pooled

    pooled({shown: FIGURES / f"hybrid-{name}" for name, shown in HYBRID.items()}, FIGURES / "hybrid")


def _table(path: Path) -> dict[str, dict[str, float]]:
    """A table of numbers, by the first cell of a row and the heading of a column."""
    lines = [line.strip().strip("|").split("|") for line in path.read_text().splitlines() if line.startswith("|")]
    heads, rows = [each.strip() for each in lines[0]], lines[2:]
    found = {}
    for row in rows:
        cells = dict(zip(heads[1:], (each.strip().removeprefix("< ") for each in row[1:]), strict=True))
        numbers = {name: cell for name, cell in cells.items() if re.fullmatch(r"[+-]?[\d.]+", cell)}
        found[row[0].strip()] = {name: float(cell) for name, cell in numbers.items()}
    return found


def _write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n")


def with_tables(page: str) -> str:
    """A page with the tables that commands have written, each between the two comments that name its file."""

    def table(found: re.Match[str]) -> str:
        opening = found[0].partition(" -->")[0]
        return f"{opening} -->\n\n{(REPRODUCTION.parent / found[1]).read_text().strip()}\n\n<!-- end -->"

    return re.sub(r"<!-- (?:docs/)?(figures/\S+\.md) -->.*?<!-- end -->", table, page, flags=re.DOTALL)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent))  # for `reproduction`, which is not installed
    PAGE.write_text(command_line_page())
    HTTP.write_text(http_page())
    SETTINGS.write_text(methods_page())
    write_summary_of_methods()
    write_summary_of_claims()
    write_pooled_hybrid()
    for page in (*REPRODUCTIONS, CHOOSING, *sorted(ENGINES.glob("*.md"))):
        page.write_text(with_tables(page.read_text()))
