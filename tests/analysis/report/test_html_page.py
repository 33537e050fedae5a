"""The page of everything: what stands in it is what stands in the tables, and it needs no other file."""

import base64
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from analysis.cells import join
from analysis.report import html_page, study_tables

PICTURE = bytes(range(256))  # nobody looks at it


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
        self.open += [tag] if tag not in ("meta", "img") else []

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
    assert "<b>not tested</b> (" in text
    assert "**" not in text
    assert "&lt;b&gt;" not in text


def test_pictures_are_in_the_page_and_nothing_is_fetched(read):
    text, found = read
    assert found.pictures == ["data:image/png;base64," + base64.b64encode(PICTURE).decode()]
    assert not re.findall(r"(?:src|href)=.http", text)
