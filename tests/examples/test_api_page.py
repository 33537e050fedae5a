"""The code of docs/api.md, run as it stands there."""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "api.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
MTEB = [block for block in BLOCKS if "import mteb" in block]


def run(blocks: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    monkeypatch.chdir(folder)
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "docs/api.md", "exec"), names)
    return names


def test_the_page_compares_in_five_lines_and_uses_mteb_once() -> None:
    assert len([line for line in BLOCKS[0].splitlines() if line]) <= 5
    assert len(MTEB) == 1


@pytest.mark.slow
def test_the_page_runs(tmp_path: Path, real_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = run([block for block in BLOCKS if block not in MTEB], tmp_path, monkeypatch)
    assert {"stsb", "trec"} == set(names["scores"])  # ty: ignore[invalid-argument-type]


@pytest.mark.slow
@pytest.mark.skipif(find_spec("mteb") is None, reason='MTEB is not installed: pip install -e ".[mteb]"')
@pytest.mark.filterwarnings("ignore::DeprecationWarning:mteb", "ignore::FutureWarning:mteb", "ignore:The task 'STSB")
def test_mteb_scores_an_exported_folder_as_we_do(
    tmp_path: Path, real_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a set from disk. Both take Spearman's rho of float32 vectors' cosines, so only rounding may differ."""
    from cse_core import Encoder, evaluate, export

    monkeypatch.chdir(tmp_path)
    encoder = Encoder.from_pretrained("wiki-tiny", pooling="mean")
    scores = evaluate(encoder, "stsb")
    export(encoder, "my-encoder", scores=scores)
    names: dict[str, object] = {"scores": scores}
    exec(compile("from sentence_transformers import SentenceTransformer\n" + MTEB[0], "docs/api.md", "exec"), names)
    assert names["by_mteb"] == pytest.approx(scores["stsb"]["spearman.all"], abs=1e-6)
