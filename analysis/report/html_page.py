"""One HTML page, in itself complete, of all tables and figures with the verdicts."""

import base64
import re
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from analysis.cells import Results
from analysis.report import report_blocks, study_tables, verdict_tables
from analysis.report.formats import Grid
from analysis.verdicts.claims import judge, overall
from experiments.schema.study import Scale

STYLE = """
:root { --ink: #1d2429; --soft: #5d6b75; --line: #dde3e7; --back: #fff; --side: #f5f7f8; --mark: #0b6e99; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e9ec; --soft: #9dabb5; --line: #343d44; --back: #171b1e; --side: #1e2327; --mark: #63b8de; }
  figure { background: #fff; border-radius: 4px; padding: .5rem }
}
* { box-sizing: border-box }
body { margin: 0; font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--back); display: flex }
nav { position: sticky; top: 0; height: 100vh; width: 15.5rem; flex: none; overflow-y: auto; padding: 1rem;
  background: var(--side); border-right: 1px solid var(--line); font-size: 13px }
nav b { display: block; margin-top: .8rem } nav a { display: block; padding: .1rem 0; text-decoration: none }
a { color: var(--mark) } main { flex: 1; min-width: 0; padding: 1rem 2rem 4rem; max-width: 74rem }
section { border-top: 1px solid var(--line); padding-top: .5rem; margin-top: 2.5rem; scroll-margin-top: 1rem }
h1 { font-size: 1.7rem } h2 { font-size: 1.25rem; margin-bottom: 0 } .soft, caption { color: var(--soft) }
.wide { overflow-x: auto; margin: .8rem 0 } table { border-collapse: collapse; font-size: 13px }
caption { text-align: left; font-weight: 600; padding-bottom: .3rem }
th, td { padding: .25rem .6rem; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top }
th { border-bottom: 2px solid var(--line); white-space: nowrap } td.number { text-align: right; white-space: nowrap;
  font-variant-numeric: tabular-nums } figure { margin: 1rem 0 } img { max-width: 100%; height: auto }
details { color: var(--soft); font-size: 13px } summary { cursor: pointer }
@media (max-width: 50rem) {
  body { display: block } nav { position: static; width: auto; height: auto } main { padding: 1rem }
}
@media print { nav { display: none } }
"""


def page(scale: Scale, found: Sequence[Results], figures: Path) -> str:
    """All of a scale's studies; a figure is taken from its PNG, where there is one."""
    claims = f"<section id='claims'><h2>Claims</h2>{_table(report_blocks.claims_grid(found))}</section>"
    body = [f"<h1>Four papers against SimCSE, scale {escape(scale.name)}</h1>"]
    body += [
        f"<p>{_text(scale.title)}. {_text(scale.notes)}</p><p class='soft'>{_text(study_tables.LEGEND)}</p>",
        claims,
    ]
    body += [_section(results, figures) for results in found]
    head = "<meta charset='utf-8'><meta name='viewport' content='width=device-width'>"
    title = f"<title>Sentence embeddings, scale {escape(scale.name)}</title>"
    main = "\n".join(body)
    return (
        f"<!doctype html><html lang='en'><head>{head}{title}<style>{STYLE}</style></head>"
        f"<body><nav>{_contents(found)}</nav><main>{main}</main></body></html>\n"
    )


def _contents(found: Sequence[Results]) -> str:
    papers: dict[str, list[str]] = {}
    for results in found:
        study = results.study
        paper = study.source.partition(",")[0]
        label = study.source.partition(", ")[2] if not study.source.startswith("this project") else study.name
        papers.setdefault(paper, []).append(f"<a href='#{study.name}'>{_text(label)}</a>")
    groups = (f"<b>{_text(paper)}</b>{''.join(links)}" for paper, links in papers.items())
    return "<a href='#claims'>Claims</a>" + "".join(groups)


def _section(results: Results, figures: Path) -> str:
    study, judged = results.study, judge(results)
    parts = [f"<h2>{_text(study.source)}</h2><p>{_text(study.question)} <span class='soft'>{study.name}</span></p>"]
    parts += [_image(path, study.question) for path in _files(figures, study.name)]
    parts += map(_table, study_tables.grids(results))
    if judged:
        claims = [(one.claim, _text(one.text), _text(verdict_tables.outcome(one))) for one in overall(judged)]
        items = "".join(f"<li><b>{claim}</b> {text}: {verdict}</li>" for claim, text, verdict in claims)
        parts += [f"<ul>{items}</ul>", _table(verdict_tables.verdict_grid(judged))]
        parts.append(f"<p class='soft'>{_text(verdict_tables.how_judged(judged))}</p>")
    notes = "".join(f"<li>{_text(note)}</li>" for note in study_tables.notes(results))
    parts.append(f"<details><summary>How it was measured</summary><ul>{notes}</ul></details>")
    return f"<section id='{study.name}'>{''.join(parts)}</section>"


def _files(figures: Path, name: str) -> Iterable[Path]:
    return (path for path in (figures / f"{name}.png", figures / f"{name}-curves.png") if path.is_file())


def _image(path: Path, alt: str) -> str:
    content = base64.b64encode(path.read_bytes()).decode()
    return f"<figure><img alt='{escape(alt, quote=True)}' src='data:image/png;base64,{content}'></figure>"


def _table(grid: Grid) -> str:
    caption = f"<caption>{_text(grid.title)}</caption>" if grid.title else ""
    head = "".join(f"<th>{_text(cell)}</th>" for cell in grid.header)
    kinds = [" class='number'" if number else "" for number in grid.numeric]
    rows = ("".join(f"<td{kind}>{_text(c)}</td>" for kind, c in zip(kinds, row, strict=True)) for row in grid.rows)
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return f"<div class='wide'><table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def _text(text: str) -> str:
    """Escaped, with Markdown's stars for strong words."""
    return re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", escape(text))
