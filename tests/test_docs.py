"""What the pages show exists: commands, their options, files that they name, links."""

import re
from pathlib import Path

import pytest

from cse_core.methods import METHODS
from cse_core.run import Run
from experiments.studies.catalogue import STUDIES, choose_studies

EFFECTS = ("baselines", "robustness")  # studies with exploratory gains
ROOT = Path(__file__).parents[1]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "REPORT.md", "APPENDIX.md", "experiments/PLAN.md")),
    *sorted((ROOT / "docs").glob("*.md")),
]
COMMANDS = [
    (page, command)
    for page in PAGES
    for command in re.findall(r"(?<=python )(?:~/cse/)?(?:experiments|analysis)/\w+\.py[^`\n|&']*", page.read_text())
]
SETTINGS = {name for kind in (Run, *METHODS.values()) for name in kind.__annotations__}
SETTINGS.add("backward_weight")  # of README's method


def test_pages_and_commands_are_found() -> None:
    assert len(PAGES) > 6
    assert len(COMMANDS) > 12


@pytest.mark.parametrize(("page", "command"), COMMANDS, ids=lambda value: getattr(value, "name", value))
def test_commands_exist_with_their_options(page: Path, command: str) -> None:
    script, *words = command.removeprefix("~/cse/").split()
    source = (ROOT / script).read_text()
    shared = re.findall(r"from experiments\.cli\.(\w+_options) import", source)
    source += "".join((ROOT / "experiments/cli" / f"{name}.py").read_text() for name in shared)
    options = [word.removeprefix("--").replace("-", "_") for word in words if word.startswith("--")]
    unknown = [name for name in options if not re.search(rf"\b{name}: ", source) and name not in SETTINGS]
    assert unknown == []
    named = [word for word in words if re.fullmatch(r"(rankcse|rankencoder|whitenedcse|compcse)-\w+", word)]
    assert set(named) <= set(STUDIES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files_and_tests_that_are_there(page: Path) -> None:
    text = page.read_text()
    links = [link.partition("#")[0] for link in re.findall(r"(?<!\")\]\(([^)]+)\)", text) if "://" not in link]
    assert [link for link in links if link and not (page.parent / link).exists()] == []
    tests = {path.name for path in (ROOT / "tests").rglob("*.py")}
    assert set(re.findall(r"`(test_\w+\.py)`", text)) <= tests


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_line_of_a_paragraph_begins_with_a_comment(page: Path) -> None:
    """CommonMark would end the paragraph there and show the line as it is, with its asterisks and brackets."""
    assert re.findall(r"^ *<!-- value .*", page.read_text(), re.MULTILINE) == []


def test_the_tree_names_every_folder_of_the_packages() -> None:
    tree = (ROOT / "README.md").read_text().partition("## Where things are")[2].partition("\n## ")[0]
    for package in ("cse_core", "experiments", "analysis"):
        folders = [path.name for path in (ROOT / package).iterdir() if path.is_dir() and path.name != "__pycache__"]
        assert [name for name in folders if f"{name}/" not in tree] == []


def test_the_page_of_methods_has_a_line_for_each_and_names_effects_that_are_declared() -> None:
    text = (ROOT / "docs" / "methods.md").read_text()
    assert set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)) == set(METHODS)
    subjects = {name: {c.name for c in choose_studies([name], "small")[0].contrasts} for name in EFFECTS}
    named = re.findall(r"\[(\w+)\]\(\.\./analysis/tables/small/\w+\.md\): (.+?)(?: \(.*\))? \|$", text, re.MULTILINE)
    assert len(named) == text.count("analysis/tables/small/")
    assert [(study, effect) for study, effect in named if effect not in subjects[study]] == []
    flags = set(re.findall(r"`--([\w-]+)(?: \w+)?`", text.partition("## Released code")[2]))
    assert {flag.replace("-", "_") for flag in flags} <= SETTINGS
