"""The notebook of examples/: it opens, does what docs/compare.md shows, and keeps the outputs of a run."""

import base64
import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PATH = ROOT / "examples" / "compare.ipynb"
NOTEBOOK: dict[str, Any] = json.loads(PATH.read_text())
CODE = [cell for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]
PAGE = (ROOT / "docs" / "compare.md").read_text()


def test_it_is_small_and_of_jupyters_format() -> None:
    assert PATH.stat().st_size < 200_000
    assert (NOTEBOOK["nbformat"], NOTEBOOK["metadata"]["kernelspec"]["language"]) == (4, "python")
    for cell in NOTEBOOK["cells"]:
        assert {"cell_type", "metadata", "source"} <= cell.keys()
        assert all(isinstance(line, str) for line in cell["source"])
    assert [cell["execution_count"] for cell in CODE] == [1, 2, 3]


def test_its_cells_are_the_pages_method_and_command() -> None:
    method, command, _ = ("".join(cell["source"]) for cell in CODE)
    assert (
        method.removeprefix("%%writefile my_method.py\n") + "\n"
        == re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0]
    )
    shown = re.findall(r"```\n(python .*?)\n```", PAGE.partition("## A small example")[2])[0]
    assert command == f"!{shown.replace('experiments/', '../experiments/')} --mlruns results"


def test_its_outputs_are_those_of_a_run() -> None:
    _, command, image = CODE
    (said,) = ("".join(output["text"]) for output in command["outputs"])
    assert re.findall(r"^\| (\S+) \| \d\d\.\d\d \|", said, re.MULTILINE) == ["simcse", "compcse", "both-ways"]
    assert "/tmp" not in said
    drawn = base64.b64decode(image["outputs"][0]["data"]["image/png"])
    assert drawn.startswith(b"\x89PNG")
