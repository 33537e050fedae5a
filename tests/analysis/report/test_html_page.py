"""The page of everything: what stands in it is what stands in the tables, and it needs no other file."""

import base64
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from analysis.cells import join
from analysis.report import html_page, study_tables
from analysis.stats.contrast_tests import ContrastEstimate
from analysis.verdicts.claims import claims
from analysis.verdicts.method_gains import GROUPS, MethodGain

PICTURE = bytes(range(256))  # not looked at


class Read(HTMLParser):
    """Cells of all tables, ids, links and pictures; every tag that is opened is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.cells: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.pictures: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.ids += [given["id"]] if "id" in given else []
        self.links += [given["href"]] if tag == "a" else []
        self.pictures += [given["src"]] if tag == "img" else []
        self.cells += [""] if tag == "td" else []
        self.open += [tag] if tag not in ("meta", "img", "input") else []

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "td" in self.open:
            self.cells[-1] += data


@pytest.fixture
def read(study, lines, tmp_path):
    (tmp_path / "toy.png").write_bytes(PICTURE)
    odd = replace(study, name="odd", question="Is a < b & c?", source="this project")
    text = html_page.page(study.scale, [join(study, lines), join(odd, lines)], tmp_path)
    found = Read()
    found.feed(text)
    return text, found


def test_the_page_has_every_cell_of_every_table(study, lines, read):
    _, found = read
    assert not found.open
    for grid in study_tables.grids(join(study, lines)):
        for row in grid.rows:
            assert all(cell in found.cells for cell in row)


def test_links_lead_to_sections_and_words_are_escaped(read):
    text, found = read
    assert {link.removeprefix("#") for link in found.links} == {"claims", "toy", "odd"} <= set(found.ids)
    assert "Is a &lt; b &amp; c?" in text
    assert "<td>not tested</td>" in text
    assert re.search(r"<b>[a-z ]+</b> \(\d+ of \d+ comparisons", text)
    assert "**" not in text
    assert "&lt;b&gt;" not in text


def test_the_forest_plot_has_a_line_a_gain_with_its_text() -> None:
    gains = [
        MethodGain(
            group="exploratory", method="A", study="s", estimate=ContrastEstimate(3.0, 0.5, 4, 3), published=-9.67
        ),
        MethodGain(group="baselines", method="B", study="s", estimate=None, published=None),
    ]
    first, a, second, b = html_page.forest_lines(gains)
    assert (first.name, second.name) == (GROUPS["exploratory"], GROUPS["baselines"])
    assert first.heading
    assert second.heading
    assert a.mean == html_page.position(3.0) == html_page.MIDDLE + html_page.HALF / 2
    assert a.printed == html_page.MIDDLE - html_page.HALF  # at the edge
    assert a.certain
    assert a.text == "A: +3.00 [+1.61, +4.39], 3 seeds; published -9.67"
    assert b.text == "B: not recorded; not published"
    assert (b.mean, b.low, b.high, b.printed) == (None,) * 4


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium")
def test_a_browser_counts_the_claims_and_makes_their_table_sortable(study, lines, tmp_path) -> None:
    page = tmp_path / "page.html"
    page.write_text(html_page.page(study.scale, [join(study, lines)], tmp_path))
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", page.as_uri()]
    text = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True).stdout
    assert f"{len(claims())} of {len(claims())}" in text
    assert "<th><button>claim</button></th>" in text
    assert '<option value="RankCSE">RankCSE</option>' in text


def test_pictures_are_in_the_page_and_nothing_is_fetched(read):
    text, found = read
    assert found.pictures == ["data:image/png;base64," + base64.b64encode(PICTURE).decode()]
    assert not re.findall(r"(?:src|href)=.http", text)
