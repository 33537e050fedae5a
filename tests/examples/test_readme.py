"""README's numbers that no block fills: its lines of Python, the methods, the price of knowing, the citation."""

import contextlib
import io
import json
import re
from pathlib import Path

import pandas as pd
import pytest
import yaml

from cse_core.methods import METHODS
from experiments.execution.plan import jobs_of
from experiments.execution.schedule_estimate import expected_seconds
from experiments.results import csv_record
from experiments.studies.catalogue import single

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def test_the_lines_of_python_print_what_is_shown() -> None:
    code, shown = re.findall(r"```python\n(from cse_core import Encoder.*?)```\n\n```\n(.*?)```", README, re.DOTALL)[0]
    assert len(list(filter(None, code.splitlines()))) <= 5
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(code, "README.md", "exec"), {})
    assert [float(word) for word in said.getvalue().split()] == pytest.approx(
        list(map(float, shown.split())), abs=0.011
    )


def test_the_other_methods_are_counted() -> None:
    (others,) = re.findall(r"SimCSE and (\d+) more methods", README)
    assert int(others) == len(METHODS) - 5


@pytest.mark.slow
def test_knowing_costs_what_is_said() -> None:
    words = " ".join(README.split())
    about = (
        r"(\d+) runs test the four claims on BERT-base .* We \[estimate\]\(docs/cluster.md\) (\d+) hours of an A100, "
    )
    said = re.search(about + r"(\d+) dollars if an hour costs (\d+)", words)
    assert said
    runs, hours, cost, price = map(int, said.groups())
    jobs = jobs_of([single("headline", "paper")])
    seconds = expected_seconds(jobs.values(), pd.DataFrame(columns=csv_record.RESULTS)).values()
    assert len(jobs) == runs
    assert round(sum(each or 0.0 for each in seconds) / 3600) == hours
    assert hours * price == cost
    report = " ".join((ROOT / "REPORT.md").read_text().split())
    assert f"take {runs} runs, an [estimated](docs/cluster.md) {hours} GPU-hours" in report


def test_the_exported_key_is_that_of_the_run_named() -> None:
    (key,) = re.findall(r"export.py (\w{12}) my_encoder", README)
    trials = pd.read_csv(ROOT / "mlruns" / "searches.csv").set_index("keys")
    assert trials["search"][key].startswith("tuned esimcse search ")
    assert json.loads(trials["trial"][key])["seed"] > 800  # seeds of the finals


def test_the_citation_is_that_of_the_file() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    bibtex = dict(re.findall(r"^  (\w+) = \{+(.*?)\}+,$", README, re.MULTILINE))
    assert bibtex["title"] == cited["title"]
    assert bibtex["author"] == cited["authors"][0]["name"]
    assert bibtex["version"] == cited["version"]
    assert bibtex["year"] == str(cited["date-released"].year)
