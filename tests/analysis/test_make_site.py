"""The site has every page, table and figure; its links lead somewhere; it needs no network, and works in a browser."""

import re
import shutil
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from analysis import make_site
from tests.support.browser import Browser

ROOT = Path(__file__).parents[2]
TABLES = sorted(path for path in (ROOT / "analysis/tables").glob("small*/*.md"))
FIGURES = sorted((ROOT / "analysis/figures").glob("small*/*.png"))
SEARCH = "[...document.querySelectorAll('body > div')].find(each => each.shadowRoot).shadowRoot"
needs_browser = pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium")
pytestmark = pytest.mark.slow


class Page(HTMLParser):
    """Links, ids, loaded files, and rows of tables."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.ids: set[str] = set()
        self.rows = 0
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.ids |= {given.get("id") or "", given.get("name") or ""}
        self.rows += tag == "tr"
        if tag == "a":
            self.links.append(given.get("href") or "")
        elif tag == "link" and given.get("rel") != "canonical":
            self.loaded.append(given.get("href") or "")
        else:
            self.loaded += [value for key, value in attrs if key in ("src", "srcset", "poster") and value]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    (out / "index.html").write_text('<meta content="zensical">')  # an earlier site, which is replaced
    (out / "old.html").touch()
    make_site.build(out)  # strict: a link to a page that does not exist would fail
    return out


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path) for path in site.rglob("*.html") if path.name != "404.html"}


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


def test_every_link_picture_and_script_is_a_file_of_the_site(pages: dict[Path, Page]) -> None:
    missing = []
    for path, page in pages.items():
        for link in [*page.links, *page.loaded]:
            parts = urlsplit(link)
            if not parts.scheme:
                target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
                known = {"", *pages[target].ids} if target in pages else {parts.fragment}
                if not target.is_file() or unquote(parts.fragment) not in known:
                    missing.append(f"{path.name}: {link}")
    assert missing == []


def test_nothing_is_loaded_from_the_network(site: Path, pages: dict[Path, Page]) -> None:
    assert [link for page in pages.values() for link in page.loaded if urlsplit(link).scheme not in ("", "data")] == []
    styles = "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.css"))
    assert re.findall(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//", styles) == []


def test_each_page_is_there_and_each_table_has_its_rows(site: Path, pages: dict[Path, Page]) -> None:
    for path in [
        *ROOT.glob("docs/*.md"),
        *ROOT.glob("experiments/*.md"),
        *(ROOT / n for n in ("REPORT.md", "APPENDIX.md")),
    ]:
        assert (site / path.relative_to(ROOT)).with_suffix(".html") in pages
    assert len(TABLES) > 90
    for table in TABLES:
        lines = [line for line in table.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
        rules = [line for line in lines if set(line) <= set("| :-")]
        page = pages[(site / table.relative_to(ROOT)).with_suffix(".html")]
        assert page.rows == len(lines) - len(rules), table.name


def test_each_figure_is_shown_on_the_page_of_its_table(site: Path, pages: dict[Path, Page]) -> None:
    shown = {(path.parent / link).resolve() for path, page in pages.items() for link in [*page.loaded, *page.links]}
    assert len(FIGURES) > 25
    assert {site / figure.relative_to(ROOT) for figure in FIGURES} <= shown
    page = pages[site / "analysis/tables/small/rankcse-table4.html"]
    assert "../../figures/small/rankcse-table4-curves.png" in page.loaded


def test_an_earlier_site_is_replaced(site: Path, pages: dict[Path, Page]) -> None:
    assert not (site / "old.html").exists()
    assert pages[site / "index.html"].links


def test_a_link_to_a_missing_page_is_an_error_that_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make_site, "ROOT", tmp_path / "checkout")
    for name in make_site.ASSETS:
        (tmp_path / "checkout/analysis/site").mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / "analysis/site" / name, tmp_path / "checkout/analysis/site" / name)
    (tmp_path / "checkout/README.md").write_text("# Title\n\nSee [there](docs/gone.md).\n")
    with pytest.raises(ValueError, match=r"README.md:3:\d+(.|\n)*docs/gone.md"):
        make_site.build(tmp_path / "site")
    assert not (tmp_path / "site").exists()


def test_a_folder_with_other_files_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("kept")
    with pytest.raises(ValueError, match=r"--out .*new or empty folder"):
        make_site.build(tmp_path)
    assert (tmp_path / "mine.txt").read_text() == "kept"


@needs_browser
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1280, 390])
def test_pages_fit_the_window_in_the_systems_colours(site: Path, browser: Browser, width: int, dark: bool) -> None:
    for name in (
        "index",
        "REPORT",
        "docs/methods",
        "analysis/tables/small/rankcse-table2",
        "analysis/figures/small/index",
    ):
        browser.open(site / f"{name}.html", width=width, dark=dark)
        assert browser.evaluate("innerWidth") == width
        assert browser.evaluate("document.scrollingElement.scrollWidth") <= width, name
        red, *_ = map(int, re.findall(r"\d+", browser.evaluate("getComputedStyle(document.body).backgroundColor")))
        assert (red < 60) == dark, name


@needs_browser
def test_a_table_sorts_by_the_column_that_is_clicked_and_filters_by_words(site: Path, browser: Browser) -> None:
    browser.open(site / "analysis/tables/small/rankcse-table4.html")
    column = "[...document.querySelectorAll('table')[0].tBodies[0].rows].map(row => row.cells[{}].textContent.trim())"
    published, names = column.format(2), column.format(0)
    before = browser.evaluate(published)
    numbers = sorted(float(cell) for cell in before if cell != "–")
    assert len(numbers) == len(before) - 1
    click = "document.querySelectorAll('table')[0].tHead.rows[0].cells[2].click()"
    browser.evaluate(click)
    assert browser.evaluate(published) == [*(f"{number:.2f}" for number in numbers), "–"]
    browser.evaluate(click)
    assert browser.evaluate(published) == [*(f"{number:.2f}" for number in reversed(numbers)), "–"]
    browser.evaluate(
        "{const f = document.querySelector('.filter'); f.value = 'listMLE'; f.dispatchEvent(new Event('input'))}"
    )
    visible = browser.evaluate(names.replace(".map(", ".filter(row => row.checkVisibility()).map("))
    assert len(visible) == 4
    assert all("listMLE" in name for name in visible)


@needs_browser
@pytest.mark.parametrize("width", [1280, 390])
def test_search_finds_a_method_without_a_server(site: Path, browser: Browser, width: int) -> None:
    browser.open(site / "docs/data.html", width=width)
    browser.evaluate("document.querySelector('.md-search__button').click()")
    assert browser.wait_for(f"{SEARCH}.querySelector('input') !== null")
    browser.evaluate(
        f"{{const field = {SEARCH}.querySelector('input'); field.value = 'MoCoSE'; "
        "field.dispatchEvent(new Event('input', {bubbles: true}))}"
    )
    matches = "filter(each => each.textContent.includes('MoCoSE')).map(each => each.href)"
    links = f"[...{SEARCH}.querySelectorAll('a')].{matches}"
    found = browser.wait_for(f"{links}.length && {links}")
    assert found
    assert all(Path(urlsplit(link).path).is_relative_to(site) for link in found)
