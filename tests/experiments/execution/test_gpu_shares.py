"""An estimate advises the share of a GPU that did most work in the measurements."""

from pathlib import Path

from experiments.execution.gpu_shares import best_shares, describe_shares, read_shares

SHARES = """model,runs,speedup,gib,machine
6 layers of 256,1,1,0.9,A card
6 layers of 256,4,3.4,0.9,A card
6 layers of 256,2,1.9,0.9,A card
6 layers of 256,8,3.5,0.9,A card
6 layers of 256,16,5.0,0.9,A card
12 layers of 768,1,1,4.5,A card
12 layers of 768,2,1.02,4.5,A card
"""


def test_more_runs_are_advised_as_long_as_they_do_more(tmp_path: Path) -> None:
    (tmp_path / "shares.csv").write_text(SHARES)
    rows = read_shares(tmp_path / "shares.csv")
    assert best_shares(rows) == {
        ("A card", "6 layers of 256"): (16, 5.0, 0.9),
        ("A card", "12 layers of 768"): (1, 1.0, 4.5),
    }
    line = describe_shares(rows)[0]
    assert "16 runs of 6 layers of 256 at once do 5.0 times the work of one, 0.9 GiB each" in line
    assert line.endswith("--gpus-per-run 0.0625")


def test_without_measurements_the_advice_says_so(tmp_path: Path) -> None:
    (line,) = describe_shares(read_shares(tmp_path / "shares.csv"))
    assert "not measured yet" in line
