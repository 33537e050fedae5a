"""Build a static site of the project's pages, tables and figures, which works without a network.

python analysis/make_site.py [--out FOLDER]
"""

if __name__ == "__main__":
    from cse_core.entry_point import run_script

    run_script("analysis.make_site")

import os
import re
import shutil
import subprocess
import sys
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import tyro
import yaml

from experiments.cli.command import run_command
from experiments.studies import catalogue

ROOT = Path(__file__).parents[1]
FOLDER_LINK = re.compile(r"\]\(([\w./-]+)\)")  # a candidate: a relative link without an anchor
ASSETS = ("site.css", "tables.js", "iframe-worker.js")  # in analysis/site
REMOTE_WORKER = "https://unpkg.com/iframe-worker/shim"  # the generator's pages load it for their search
COPIED = """
*.md LICENSE CITATION.cff docs/* examples/* experiments/*.md experiments/published/*.md cse_core/assets/*.md
analysis/tables/*/*.* analysis/figures/*/*.*
"""
PLANS = [f"experiments/{name}.md" for name in ("PLAN", "PLAN_LOG", "PLAN2", "CLAIMS", "published/README")]
WIDE = "---\nhide: [toc]\n---\n"  # room for columns
THIS_PROJECT = "this project"  # the source of studies that are not from a paper
PALETTE = [  # the reader's system decides, until the reader does
    {"media": media, "scheme": scheme, "toggle": {"icon": icon, "name": name}}
    for media, scheme, icon, name in (
        ("(prefers-color-scheme)", "default", "lucide/sun-moon", "Use light colours"),
        ("(prefers-color-scheme: light)", "default", "lucide/sun", "Use dark colours"),
        ("(prefers-color-scheme: dark)", "slate", "lucide/moon", "Use the system's colours"),
    )
]
COLOURS = re.compile(r"\x1b\[[\d;]*m")  # escape codes of a terminal


def build(out: Path) -> None:
    """Write the site to a folder, which is new, empty, or an earlier site."""
    if find_spec("zensical") is None:
        raise ValueError('The site needs zensical, which is not installed: pip install -c constraints.txt -e ".[site]"')
    if out.is_dir() and any(out.iterdir()) and not _is_site(out):
        raise ValueError(f"--out {out}: expected a new or empty folder or an earlier site, found other files")
    with TemporaryDirectory() as made:
        work = Path(made)
        pages = work / "pages"
        copy_pages(pages)
        config = work / "mkdocs.yml"
        config.write_text(yaml.safe_dump(configuration(pages), sort_keys=False), encoding="utf-8")
        command = [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", str(config)]
        done = subprocess.run(command, cwd=work, capture_output=True, text=True)
        if done.returncode:
            report = COLOURS.sub("", done.stdout + done.stderr).partition("Traceback")[0]
            raise ValueError(f"zensical found errors in the pages of the site:\n{report}")
        for page in (work / "site").rglob("*.html"):
            worker = os.path.relpath(work / "site/iframe-worker.js", page.parent)
            page.write_text(page.read_text(encoding="utf-8").replace(REMOTE_WORKER, worker), encoding="utf-8")
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(work / "site", out)


def copy_pages(pages: Path) -> None:
    """Copy what the site shows to a folder, at the same relative paths; figures are added to the pages of tables."""
    for path in (path for pattern in COPIED.split() for path in ROOT.glob(pattern) if path.is_file()):
        copy = pages / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    for name in ASSETS:
        shutil.copyfile(ROOT / "analysis/site" / name, pages / name)
    for page in pages.glob("analysis/tables/*/*.md"):
        page.write_text(_with_figures(page), encoding="utf-8")
    for folder in pages.glob("analysis/figures/*"):
        (folder / "index.md").write_text(_all_figures(folder), encoding="utf-8")
    for page in sorted(pages.rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        page.write_text(FOLDER_LINK.sub(partial(_link_to_index, page), text), encoding="utf-8")


def _link_to_index(page: Path, link: re.Match[str]) -> str:
    """Return a Markdown link; one to a folder leads to its index.md, a list of its files that is made if missing."""
    folder = page.parent / link[1]
    if not folder.is_dir():
        return link[0]
    if not (folder / "index.md").exists():
        files = sorted(folder.glob("*.md")) or sorted(path for path in folder.iterdir() if path.is_file())
        lines = [f"- [{path.name}]({path.name})" for path in files]
        (folder / "index.md").write_text("\n".join([f"# Files of {folder.name}", "", *lines, ""]), encoding="utf-8")
    return f"]({link[1].rstrip('/')}/index.md)"


def configuration(pages: Path) -> dict[str, Any]:
    """Return the settings of the site generator."""
    return {
        "site_name": "Do four sentence-embedding papers hold up?",
        "docs_dir": pages.name,
        "site_dir": "site",
        "use_directory_urls": False,
        "nav": _contents(pages),
        "plugins": ["search", "offline"],
        "theme": {
            "font": False,
            "palette": PALETTE,
            "features": ["navigation.tabs", "navigation.indexes", "navigation.top", "search.highlight"],
        },
        "extra_css": ["site.css"],
        "extra_javascript": ["tables.js"],
        "extra": {"generator": False},
    }


def _contents(pages: Path) -> list[Any]:
    """Return the pages in the order of the navigation; tables are grouped by paper."""
    docs = sorted(str(path.relative_to(pages)) for path in pages.glob("docs/*.md"))
    scales = sorted(path.name for path in pages.glob("analysis/tables/*"))
    tables = [{f"Scale {scale}": _tables(pages, scale)} for scale in scales]
    figures = [
        {f"Scale {path.parent.name}": str(path.relative_to(pages))}
        for path in pages.glob("analysis/figures/*/index.md")
    ]
    return [
        {"Home": "README.md"},
        {"Report": ["REPORT.md", "APPENDIX.md"]},
        {"Plans": PLANS},
        {"Tables": tables},
        {"Figures": figures},
        {"Guides": docs},
        {"Project": ["CONTRIBUTING.md", "CHANGELOG.md", "cse_core/assets/README.md"]},
    ]


def _tables(pages: Path, scale: str) -> list[Any]:
    """Return the pages of a scale's tables by paper, in the order of the studies."""
    sources = {study.name: study.source for study in catalogue.choose_studies(catalogue.names_at(scale), scale)}
    names = [page.stem for page in sorted(pages.glob(f"analysis/tables/{scale}/*.md")) if page.stem != "index"]
    papers: dict[str, list[Any]] = {}
    for name in sorted(names, key=lambda name: [*sources, *names].index(name)):
        paper, _, label = sources.get(name, THIS_PROJECT).partition(", ")
        title = name if paper == THIS_PROJECT else label
        papers.setdefault(paper, []).append({title: f"analysis/tables/{scale}/{name}.md"})
    index = f"analysis/tables/{scale}/index.md"
    return [index] * (pages / index).exists() + [{paper: entries} for paper, entries in papers.items()]


def _with_figures(page: Path) -> str:
    """Return a page of tables with its figures after the title, and links to its other files at the end."""
    title, _, text = page.read_text(encoding="utf-8").partition("\n")
    figures = page.parents[2] / "figures" / page.parent.name
    names = [name for name in (page.stem, f"{page.stem}-curves") if (figures / f"{name}.png").exists()]
    shown = "".join(f"\n![{name}](../../figures/{page.parent.name}/{name}.png)\n" for name in names)
    files = [f"[{end}]({page.stem}.{end})" for end in ("csv", "tex") if page.with_suffix(f".{end}").exists()]
    return f"{WIDE}{title}\n{shown}{text}\n" + f"As files: {', '.join(files)}\n" * bool(files)


def _all_figures(folder: Path) -> str:
    """Return a page with all figures of a scale."""
    parts = [f"# Figures, scale {folder.name}"]
    for figure in sorted(folder.glob("*.png")):
        name = figure.stem
        table = folder.parents[1] / "tables" / folder.name / f"{name.removesuffix('-curves')}.md"
        links = [f"[SVG]({name}.svg)"] * figure.with_suffix(".svg").exists()
        links += [f"[table](../../tables/{folder.name}/{table.name})"] * table.exists()
        parts.append(f"## {name}\n\n![{name}]({figure.name})\n\n{', '.join(links)}")
    return "\n\n".join(parts) + "\n"


def _is_site(folder: Path) -> bool:
    page = folder / "index.html"
    return page.is_file() and 'content="zensical' in page.read_text(encoding="utf-8")


def main(*, out: Annotated[Path, tyro.conf.arg(metavar="FOLDER")] = ROOT / "site") -> int:
    """Build a site of the pages, tables and figures in this checkout.

    Args:
        out: folder of the site; an earlier site there is replaced.
    """
    build(out)
    print(f"site: {out / 'index.html'}")
    return 0


def command() -> None:
    """Run the command line."""
    run_command(lambda: tyro.cli(main))
