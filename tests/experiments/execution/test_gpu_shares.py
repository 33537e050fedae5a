"""An estimate advises the share of a GPU that did most work, and lengthens runs that share one as measured."""

from pathlib import Path

import pytest
import tyro

from experiments.estimate import EstimateOptions, main
from experiments.execution import gpu_shares
from experiments.execution.gpu_shares import best_share, describe_shares, read_shares, slowdown
from tests.benchmarks import measure

SHARES = """model,runs,speedup,gib,card_gib,busy,machine
2 layers of 128,1,1,0.9,80,0.2,A card
2 layers of 128,4,3.2,0.9,80,0.2,A card
2 layers of 128,2,1.9,0.9,80,0.2,A card
2 layers of 128,8,3.3,0.9,80,0.2,A card
2 layers of 128,16,5.0,0.9,80,0.2,A card
12 layers of 768,1,1,4.5,80,0.9,A card
12 layers of 768,2,1.02,4.5,80,0.9,A card
2 layers of 128,1,1,0.9,8,0.4,A small card
2 layers of 128,4,2.0,0.9,8,0.4,A small card
2 layers of 128,16,4.0,0.9,8,0.4,A small card
"""


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "shares.csv").write_text(SHARES)
    monkeypatch.setattr(gpu_shares, "MEASURED", tmp_path / "shares.csv")
    return tmp_path / "shares.csv"


def test_more_runs_are_advised_as_long_as_they_do_more_and_fit(measured: Path) -> None:
    best = {name: best_share(shares).runs for name, shares in read_shares(measured).items()}
    assert best == {
        ("A card", "2 layers of 128"): 16,
        ("A card", "12 layers of 768"): 1,
        ("A small card", "2 layers of 128"): 4,  # 16 runs need 14.4 GiB
    }
    assert describe_shares(read_shares())[0] == (
        "On A card, 16 runs of 2 layers of 128 at once do 5.0 times the work of one, with 14.4 of 80 GiB "
        "(one by itself keeps the GPU busy 20% of the time): --gpus-per-run 0.0625"
    )


def test_a_run_takes_as_much_longer_as_was_measured(measured: Path) -> None:
    shares = read_shares(measured)
    assert slowdown(shares, "2 layers of 128", 1) == 1
    assert slowdown(shares, "2 layers of 128", 4) == 2  # on the small card; 4 / 3.2 on the other
    assert slowdown(shares, "2 layers of 128", 10) == pytest.approx(3)
    assert slowdown(shares, "12 layers of 768", 2) == pytest.approx(2 / 1.02)
    assert slowdown(shares, "12 layers of 768", 4) is None
    assert slowdown(shares, "6 layers of 256", 2) is None


def test_a_second_card_keeps_the_first_ones_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CSE_BENCH", str(tmp_path))
    for machine, most in (("A card", 16), ("Another card", 4)):
        about = {"device": machine}
        monkeypatch.setattr(measure, "environment", lambda *_, about=about: about)
        for runs in (1, 2, 4, 8, 16)[: most.bit_length()]:
            measure.share_of_card("a model", runs, runs**0.5, 1.0, 80.0, 0.5, "cuda")
    shares = read_shares(tmp_path / "shares.csv")
    assert {machine: [share.runs for share in found] for (machine, _), found in shares.items()} == {
        "A card": [1, 2, 4, 8, 16],
        "Another card": [1, 2, 4],
    }
    assert slowdown(shares, "a model", 2) == pytest.approx(2**0.5, rel=1e-5)
    only_many = {name: found[2:] for name, found in shares.items()}
    assert slowdown(only_many, "a model", 2) is None


def test_without_measurements_the_advice_says_so(tmp_path: Path) -> None:
    (line,) = describe_shares(read_shares(tmp_path / "shares.csv"))
    assert "not measured yet" in line


@pytest.mark.parametrize(
    ("share", "line", "said"),
    [
        # Two runs of SimCSE, then four that they teach, an hour each by itself and two with three others.
        ("0.25", "4.0 h │ 4.0 h │ 75 % │ 4.0", "4 at a time, slowed as measured"),
        ("0.05", "2.0 h │ 2.0 h │ 15 % │ 2.0", "20 at a time; 6 runs assumed as fast as with a whole GPU"),
    ],
)
def test_an_estimate_lengthens_runs_that_share_a_gpu(
    share: str, line: str, said: str, measured: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["quickstart", "--mlruns", str(tmp_path / "record"), "--seconds-per-run", "3600", "--gpus-per-run", share]
    assert main(tyro.cli(EstimateOptions, args=words)) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.count(line) == 2  # in both orders
    assert said in shown
    assert "--gpus-per-run 0.0625" in shown
    assert "On A small card, 4 runs of 2 layers of 128 at once do 2.0 times the work" in shown
