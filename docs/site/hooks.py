"""Pages of the site that are not in docs/: those at the root, the reference of the API, and code that pages link to.

Links are written for a reader of the repository. Here they become links of the site: `../README.md#x` leads to the home
page, and a link to a file of code to a page that shows it.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File, Files

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent.parent
ELSEWHERE = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "examples/README.md": "examples.md",
}  # file of the repository → page of the site
API = {
    "data": (
        "Data",
        "Judged sets: how they are read, made, cut by query and indexed.",
        ("Judged", "Candidates", "QueryTable", "Shards", "read_judged", "read_letor", "read_folds", "from_arrays",
         "from_frame", "open_shards", "read_collection", "collection_of", "build_index", "judged_candidates", "split",
         "make_folds", "Fold", "make_judged"),
    ),
    "learners": (
        "Learners",
        "A learner fits one scoring function to a judged set. Local rankers are made of them.",
        ("RankSVM", "LambdaMART"),
    ),
    "rankers": (
        "Rankers",
        "One model for all queries, or one per query, class or cluster; `recommended` makes the one to try first.",
        ("recommended", "Single", "KnnOnline", "KnnOffline1", "KnnOffline2", "QueryClasses", "Naive", "SelectRanker",
         "Transform", "ATVT", "SER", "SSER", "Blend", "WeightsByQuery", "TextView", "AdaptedVectors"),
    ),
    "evaluation": (
        "Evaluation",
        "Measures per query, paired tests, the best of a grid.",
        ("evaluate", "compare", "learning_curves", "tune"),
    ),
    "explanations": ("Explanations", "What a ranker does, and why.", ("explain", "why", "feature_importance")),
    "storage": (
        "Storage and exports",
        "A fitted ranker as a folder, and as what a search engine runs.",
        ("save", "load", "export_model", "Router", "HybridRouter"),
    ),
    "others": (
        "scikit-learn and clusters",
        "An estimator of scikit-learn around any ranker, `querywise.sklearn.Ranker`; a cluster as the workers.",
        ("querywise.sklearn.Ranker", "Cluster"),
    ),
    "errors": (
        "Errors",
        "What is refused is refused with one of these. The message says where, what was found and what to do.",
        ("QuerywiseError", "DataError", "ModelFileError", "NotFittedError", "SolverError", "ClusterError"),
    ),
}  # fmt: skip
WITHOUT_METHODS = {"Cluster"}  # what they have is called by the library
BOOST = {
    "index.md": 1.5,
    "http.md": 2.0,
    "cli.md": 2.0,
    "measures.md": 2.0,
    "data.md": 3.0,
    "python.md": 2.0,
    "glossary.md": 0.7,
    "architecture.md": 0.5,
    "reproduction": 0.3,
    "benchmarks.md": 0.3,
    "changelog.md": 0.2,
    "code/": 0.2,
}  # how much a page counts in a search, where it is not 1: what defines a word comes before what uses it
_LINK = re.compile(r"(\]\()([^)\s#:]+)((?:#[^)\s]*)?\))")
_LANGUAGES = {".py": "python", ".out": "text"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add every page and picture that is not in docs/."""
    for path, page in ELSEWHERE.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / path)))
    for name in API:
        files.append(File.generated(config, f"api/{name}.md", content=api_page(name)))
    for path in sorted(_linked_elsewhere(files)):
        page = _on_site(path)
        if page.endswith(".md"):
            files.append(File.generated(config, page, content=_code_page(path)))
        else:
            files.append(File.generated(config, page, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links of the repository into links of the site, and say how much the page counts in a search."""
    place = page.file.src_uri
    boost = next((value for begin, value in BOOST.items() if place.startswith(begin)), None)
    if boost is not None:
        page.meta.setdefault("search", {"boost": boost})
    if place.startswith(("api/", "code/")):
        return markdown
    return _LINK.sub(lambda link: link[1] + _rewritten(link[2], place) + link[3], markdown)


def api_page(name: str) -> str:
    """One page of the reference: a heading and every name of the group, by its docstrings."""
    title, introduction, names = API[name]
    parts = [f"# {title}", introduction]
    for each in names:
        short = each.rpartition(".")[2]
        hidden = "\n      members: false" if each in WITHOUT_METHODS else ""
        parts.append(f"::: {_home(each)}\n    options:\n      heading: {short}\n      toc_label: {short}{hidden}")
    return "\n\n".join(parts) + "\n"


def _home(name: str) -> str:
    """Where a public name is defined, in full."""
    from querywise import _HOMES

    return name if "." in name else f"{_HOMES[name]}.{name}"


def _in_repository(page: str) -> str:
    """The file of the repository that a page of the site is made of."""
    return next((path for path, there in ELSEWHERE.items() if there == page), f"docs/{page}")


def _on_site(path: str) -> str:
    """The page or file of the site that shows a file of the repository."""
    if path in ELSEWHERE:
        return ELSEWHERE[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return f"code/{path}.md" if Path(path).suffix in _LANGUAGES else f"code/{path}"


def _target(link: str, page: str) -> str:
    """The file of the repository that a link on a page leads to."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(_in_repository(page)), link))


def _rewritten(link: str, page: str) -> str:
    return posixpath.relpath(_on_site(_target(link, page)), posixpath.dirname(page) or ".")


def _linked_elsewhere(files: Files) -> set[str]:
    """Files of the repository that pages link to and that the site does not have otherwise."""
    written = [file for file in files.documentation_pages() if not file.src_uri.startswith("api/")]
    links = {_target(link[2], file.src_uri) for file in written for link in _LINK.finditer(file.content_string)}
    return {
        path for path in links if not path.startswith("docs/") and path not in ELSEWHERE and (ROOT / path).is_file()
    }


def _code_page(path: str) -> str:
    text = (ROOT / path).read_text().rstrip("\n")
    return f"# {path}\n\n````{_LANGUAGES[Path(path).suffix]}\n{text}\n````\n"
