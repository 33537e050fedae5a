"""Search spaces: which settings a method is tuned in, and how a draw becomes a run."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from cse_core.methods import METHODS
from cse_core.methods.rankencoder import RankEncoder
from cse_core.methods.simcse import SimCSE
from cse_core.run import Run
from cse_core.space import SCORING_WEIGHT, LogUniform, OfWidth, Times, space_of, with_settings
from experiments.schema.recipes import RUNS
from experiments.schema.rows import BASE
from experiments.schema.scales import SCALES

SMALL = SCALES["small"]
SHARED = {
    "learning_rate": LogUniform(3e-5, 1e-3),  # a tenth to ten thirds of the scale's 3e-4
    "dropout": (0.1, 0.2, 0.3, 0.4),
    "epochs": (1, 2),
    "temperature": LogUniform(0.005, 0.1),
}


def run_of(name: str) -> Run:
    run = RUNS[name](SMALL, BASE)
    assert run
    return run


def close(space: Mapping[str, Any]) -> Mapping[str, Any]:
    """A space with the ends of its ranges rounded."""
    return {
        k: LogUniform(float(f"{v.low:.6g}"), float(f"{v.high:.6g}")) if isinstance(v, LogUniform) else v
        for k, v in space.items()
    }


def test_simcse_is_tuned_in_the_shared_settings_alone() -> None:
    assert close(space_of(run_of("simcse"), 128)) == SHARED


def test_a_space_has_the_shared_settings_and_the_methods_own_at_the_encoders_width() -> None:
    space = space_of(run_of("whitenedcse"), 128)
    assert close(space) == {**SHARED, "groups": (16, 32, 64), "positives": (2, 3, 4), "views": ("dropout",)}
    assert space_of(run_of("compcse"), 128)["dims"] == (32, 43, 64, 128)
    assert space_of(run_of("compcse"), 768)["dims"] == (192, 256, 384, 768)


def test_a_setting_is_drawn_only_if_the_method_has_it_and_does_not_fix_it() -> None:
    assert space_of(run_of("ct"), 128).keys() == {"learning_rate", "epochs", "negatives"}


def test_epochs_are_not_drawn_where_the_steps_are_fixed() -> None:
    assert "epochs" not in space_of(replace(run_of("simcse"), max_steps=100), 128)


def test_a_space_that_names_no_setting_is_refused() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Mistaken(SimCSE):
        name = "mistaken"
        space = {"temprature": (0.1,)}

    with pytest.raises(ValueError, match=r"mistaken.*'temprature'"):
        space_of(replace(run_of("simcse"), method=Mistaken()), 128)


@dataclass(frozen=True, kw_only=True)
class Own(SimCSE):
    name = "own"
    count: int = 4
    share: float = 0.0
    kind: str = "hard"
    dropout: float = 0.5  # of the head


@pytest.mark.parametrize(
    ("space", "wish"),
    [
        ({"dropout": (0.25, 0.5)}, "'dropout', which is a setting of it and of a run; expected another name"),
        ({"kind": ("hard")}, r"'kind', with 'hard'; expected a tuple of choices"),
        ({"share": 0.5}, r"'share', with 0.5; expected a tuple of choices"),
        ({"count": LogUniform(2, 64)}, "'count', a whole number, with a range; expected a tuple of choices"),
        ({"count": Times(0.5, 2)}, "'count', a whole number, with a range; expected a tuple of choices"),
        ({"share": Times(0.5, 2)}, "'share', with multiples of 0.0; expected choices"),
        ({"scoring_weight": Times(1, 2)}, "'scoring_weight', with multiples of None; expected choices"),
    ],
)
def test_a_space_whose_values_can_not_be_meant_is_refused(
    space: Mapping[str, Any], wish: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Own, "space", space, raising=False)
    with pytest.raises(ValueError, match=f"method own: its space names {wish}"):
        space_of(replace(run_of("simcse"), method=Own()), 128)


def test_a_shared_setting_is_the_runs_also_if_the_method_has_one_of_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    space = space_of(replace(run_of("simcse"), method=Own()), 128)
    drawn = with_settings(replace(run_of("simcse"), method=Own()), {"dropout": space["dropout"][0]})  # ty: ignore[not-subscriptable]
    assert (drawn.dropout, getattr(drawn.method, "dropout")) == (0.1, 0.5)  # noqa: B009 - not in the Protocol
    monkeypatch.setattr(Own, "space", {"dropout": ()}, raising=False)
    assert "dropout" not in space_of(replace(run_of("simcse"), method=Own()), 128)


def test_settings_reach_the_run_its_method_and_the_method_inside() -> None:
    run = run_of("rankencoder")
    drawn = with_settings(run, {"dropout": 0.4, "rank_weight": 2.0, "temperature": 0.02, SCORING_WEIGHT: 0.1})
    assert isinstance(drawn.method, RankEncoder)
    assert isinstance(drawn.method.inner, SimCSE)
    assert (drawn.dropout, drawn.method.rank_weight, drawn.method.inner.temperature) == (0.4, 2.0, 0.02)
    assert with_settings(run, {}) == run


@pytest.mark.parametrize("name", METHODS)
def test_both_ends_of_each_setting_make_a_run(name: str) -> None:
    run = run_of(name)
    for setting, values in space_of(run, 128).items():
        ends = (values.low, values.high) if isinstance(values, LogUniform) else values
        made = [with_settings(run, {setting: value}) for value in ends]
        if setting not in (SCORING_WEIGHT, "views"):  # views: one value, which need not be the published one
            assert len({each.key for each in made}) == len(ends), setting


@pytest.mark.parametrize("ends", [(0.0, 1.0), (2.0, 1.0), (1.0, 1.0)])
def test_a_range_on_a_logarithmic_scale_needs_two_different_positive_ends(ends: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="0 < low < high"):
        LogUniform(*ends)


def test_shares_of_a_width_that_round_alike_count_once() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Narrow(SimCSE):
        name = "narrow"
        size: int = 1
        space = {"size": OfWidth((0.1, 0.12, 0.5))}

    assert space_of(replace(run_of("simcse"), method=Narrow()), 8)["size"] == (1, 4)
