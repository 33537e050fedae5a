"""The time of a plan on N GPUs agrees with schedules worked out by hand and with bounds that always hold."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import pandas as pd
import pytest
import tyro
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from cse_core.method import Batch, Encode, Loss
from cse_core.methods.rankencoder import RankEncoder
from cse_core.methods.simcse import SimCSE
from cse_core.methods.whitenedcse import WhitenedCSE
from cse_core.run import Pretrained
from experiments.estimate import EstimateOptions, main
from experiments.execution.job import Job
from experiments.execution.plan import Plan, jobs_of, make_plan, scored_cells, study_by_study
from experiments.execution.schedule_estimate import (
    chains,
    epochs_of_simcse,
    expected_seconds,
    forecast,
    gpu_hours,
    measured_seconds_of,
    seconds_for,
    simulate,
    start_order,
)
from experiments.results.csv_record import read_results
from experiments.schema.recipes import RUNS, first_lines, present
from experiments.schema.scales import SCALES
from experiments.schema.study import Study
from experiments.studies.catalogue import choose_studies
from tests.support.plans import BASE, TAUGHT, frame, row, study


def test_the_time_of_a_run_is_its_own_or_the_time_of_runs_like_it() -> None:
    first, second = jobs_of([study(row("a", BASE))]).values()
    assert seconds_for([first], frame()) is None
    assert seconds_for([], frame()) == 0
    assert seconds_for([first, second], frame(first)) == pytest.approx(20)
    slower = frame(second).assign(seconds=30.0)
    both = pd.concat([frame(first), slower])
    assert seconds_for([first, second], both) == pytest.approx(40)
    unknown = jobs_of([study(row("c", replace(BASE, method=WhitenedCSE())))])
    assert seconds_for([first, *unknown.values()], frame(first)) == pytest.approx(10 * (1 + len(unknown)))
    third = jobs_of([study(row("a", replace(BASE, learning_rate=1.0)))])
    assert measured_seconds_of(third.values(), both) == dict.fromkeys(third, 20)
    taught = jobs_of([study(row("b", TAUGHT))]).values()
    assert set(measured_seconds_of(taught, both).values()) == {10, None}  # its teacher was measured


def test_other_seeds_count_first_then_an_epoch_and_never_a_gpu() -> None:
    once, twice = (jobs_of([study(row("a", replace(BASE, epochs=epochs)))]) for epochs in (1, 2))
    new = list(jobs_of([study(row("a", replace(BASE, epochs=2)))]).values())[1]
    short, long = (frame(next(iter(jobs.values()))) for jobs in (once, twice))
    short = short.assign(settings="")
    assert measured_seconds_of([new], short) == {new.key: 20}  # two of its epochs
    long = long.assign(settings="epochs=2", seconds=17.0)
    assert measured_seconds_of([new], pd.concat([short, long])) == {new.key: 17}
    fast = long.assign(key="another", device="NVIDIA H100", seconds=1.0)
    assert measured_seconds_of([new], pd.concat([short, long, fast])) == {new.key: 17}
    assert measured_seconds_of([new], pd.concat([short, fast])) == {new.key: 20}
    assert measured_seconds_of([new], fast) == {new.key: None}
    assert measured_seconds_of([new], fast.assign(key=new.key)) == {new.key: None}


@pytest.mark.slow
def test_what_was_never_measured_is_estimated_from_the_published_epoch() -> None:
    jobs = jobs_of(choose_studies(["rankcse-table1"], "paper")).values()
    found = expected_seconds(jobs, read_results("paper"))
    hours = {job.name: (found[job.key] or 0) / 3600 for job in jobs}
    assert hours["SimCSE s42"] == pytest.approx(20 / 60)
    large = 24 * 1024**2 / (12 * 768**2)  # of the work that BERT-base takes
    embedding = (1 + large) / 6  # a forward pass of each teacher, where SimCSE has two of both directions
    assert hours["RankCSE-listNet s42"] == pytest.approx((4 + embedding) * 20 / 60, rel=1e-3)  # and heads


@pytest.mark.slow
def test_ct_takes_its_part_of_the_published_epoch_and_other_lines_their_part_of_a_measured_one() -> None:
    ct = present(RUNS["ct"](SCALES["paper"], "bert-base-uncased"))
    (seconds,) = expected_seconds([Job(ct, "paper", "")], read_results("paper")).values()
    assert seconds == pytest.approx(20 * 60 * 80_000 / 1_000_000 * epochs_of_simcse(ct))
    small = SCALES["small"]
    for name in ("whitenedcse", "simcse"):  # the estimate of a method that is measured, and from SimCSE's
        found = []
        for lines in (16_384, 1024):
            at = replace(small, corpus=first_lines(small.corpus, lines))
            run = replace(present(RUNS[name](at, "bert-base-uncased")), seed=12345, dropout=0.123)
            found += expected_seconds([Job(run, "small", "")], read_results("small")).values()
        assert found[1] == pytest.approx(found[0] / 16)


def test_what_was_never_measured_is_estimated_from_simcse_at_the_same_scale() -> None:
    new = replace(BASE, method=WhitenedCSE(views="dropout", groups=64), epochs=2)
    jobs = jobs_of([study(row("a", new))])
    simcse = jobs_of([study(row("b", BASE))]).values()
    twice = replace(next(iter(simcse)), encoder=replace(BASE, epochs=2, seed=9))
    slow = frame(twice).assign(settings="epochs=2", seconds=99.0)
    found = expected_seconds(jobs.values(), pd.concat([frame(*simcse), slow]))
    seconds = 10 * 2 * 3 / 2  # an epoch of SimCSE takes 10 s for two rows; this run has two epochs of three rows
    assert found == dict.fromkeys(jobs, pytest.approx(seconds, rel=1e-3))
    fast = frame(*simcse).assign(key="another", device="NVIDIA H100", seconds=1.0)
    assert expected_seconds(jobs.values(), pd.concat([frame(*simcse), fast])) == found
    elsewhere = frame(*simcse).assign(scale="other")
    assert expected_seconds(jobs.values(), elsewhere) == dict.fromkeys(jobs)


@dataclass(frozen=True, kw_only=True)
class Uncounted(SimCSE):
    name: ClassVar[str] = "uncounted"

    def loss(self, encode: Encode, batch: Batch, modules: nn.ModuleDict, targets: Mapping[str, Tensor]) -> Loss:
        raise TypeError("needs a batch of its own")


def test_a_step_that_can_not_be_counted_leaves_the_time_unknown(caplog: pytest.LogCaptureFixture) -> None:
    """A sweep orders its runs by their times: it must start all the same."""
    jobs = jobs_of([study(row("a", replace(BASE, method=Uncounted())))])
    simcse = jobs_of([study(row("b", BASE))]).values()
    found = expected_seconds([*jobs.values(), *simcse], frame(*simcse))
    assert found == dict.fromkeys(jobs) | {job.key: 10 for job in simcse}
    assert "method uncounted: its step can't be made on wiki-tiny: needs a batch of its own" in caplog.text


def planned(store: Path, *studies: Study) -> Plan:
    """A plan of studies of which nothing is recorded."""
    return make_plan(jobs_of(studies), scored_cells(frame()), store)


def test_runs_start_with_the_longest_chains_first(tmp_path: Path) -> None:
    taught, alone = row("taught", TAUGHT), row("alone", replace(BASE, learning_rate=0.1))
    work = planned(tmp_path, study(alone, taught))
    one, other = alone.keys().values()
    first, second = taught.keys().values()
    by_length = [BASE.key, second, first, other, one]  # with a student the first takes six
    assert start_order(work, {BASE.key: 1, one: 2, other: 3, first: 4, second: 5}) == by_length
    unknown_first = [other, one, BASE.key, first, second]
    assert start_order(work, {BASE.key: 1, one: 5, other: None, first: 4, second: 4}) == unknown_first


def test_a_plan_of_unknown_times_asks_for_them(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"time of 6 runs is unknown, the first is SimCSE s42: .* --seconds-per-run"):
        main(EstimateOptions(studies=("quickstart",), mlruns=tmp_path))


def test_work_is_counted_in_epochs_of_simcse() -> None:
    assert epochs_of_simcse(replace(BASE, epochs=3)) == 3
    assert epochs_of_simcse(replace(BASE, max_length=64)) == 2  # of the same sentences, half of them padding
    assert epochs_of_simcse(TAUGHT) == pytest.approx(1 + 1 / 6, rel=1e-3)  # losses and heads count little
    ranked = replace(BASE, method=RankEncoder(base=BASE, corpus_size=50))
    assert epochs_of_simcse(ranked) == pytest.approx(1 + (1 + 50 / 100) / 6, rel=1e-3)
    deep, unknown = (replace(TAUGHT, backbone=Pretrained(name)) for name in ("wiki-mini", "someone/theirs"))
    assert epochs_of_simcse(deep) == pytest.approx(1 + 1 / 2 / 6, rel=1e-3)  # the teacher has half the layers
    assert epochs_of_simcse(unknown) == pytest.approx(1 + 1 / 6, rel=1e-3)
    with pytest.raises(ValueError, match="no time is published for wiki-tiny; there are some for bert-base-uncased"):
        gpu_hours(BASE)


def test_schedules_worked_out_by_hand() -> None:
    seconds = {"a": 1.0, "b": 2.0, "c": 3.0, "d": 6.0}
    assert simulate(seconds, {}, 1, list(seconds)).makespan == 12
    assert simulate(seconds, {}, 2, list(seconds)).makespan == 8  # a, then c; at the same time b, then d
    assert simulate(seconds, {}, 2, list("dcba")).makespan == 6  # d; at the same time c, b, a
    taught = simulate(seconds, {"c": ["b"]}, 2, list("dcba"))
    assert taught.makespan == 6  # d; at the same time b, c, a
    assert taught.utilisation == 1
    waits = simulate(seconds, {"d": ["c"]}, 3, list(seconds))
    assert (waits.makespan, waits.utilisation) == (9, pytest.approx(12 / 27))
    assert chains(seconds, {"d": ["c"], "c": ["a"]}) == {"a": 10, "b": 2, "c": 9, "d": 6}


def test_runs_that_need_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match="2 runs need each other"):
        simulate({"a": 1.0, "b": 1.0, "c": 1.0}, {"a": ["b"], "b": ["a"]}, 2, ["a", "b", "c"])
    with pytest.raises(ValueError, match="slots must be at least 1"):
        simulate({}, {}, 0, [])


@given(st.lists(st.tuples(st.floats(0.1, 10), st.sets(st.integers(0, 11))), min_size=1, max_size=12), st.integers(1, 5))
def test_no_schedule_is_shorter_than_its_bounds_or_longer_than_twice_them(
    runs: list[tuple[float, set[int]]], slots: int
) -> None:
    seconds = {str(i): length for i, (length, _) in enumerate(runs)}
    needs = {str(i): {str(j) for j in before if j < i} for i, (_, before) in enumerate(runs)}
    found = simulate(seconds, needs, slots, list(seconds))
    least = max(sum(seconds.values()) / slots, *chains(seconds, needs).values())
    assert found.makespan >= least - 1e-9
    assert found.makespan <= sum(seconds.values()) / slots + max(chains(seconds, needs).values()) + 1e-9  # Graham, 1969


@pytest.mark.parametrize(
    ("options", "line"),
    [
        # Two runs of SimCSE, then four that they teach, an hour each; four at a time on two GPUs.
        (("--gpus", "2", "--gpus-per-run", "0.5"), "2.0 h │ 2.0 h │ 75 % │ 4.0 │ 12"),
        (("--gpus", "2"), "3.0 h │ 3.0 h │ 100 % │ 6.0 │ 18"),
        # One at a time; the third GPU stands still.
        (("--gpus", "3", "--gpus-per-run", "2"), "6.0 h │ 6.0 h │ 100 % │ 18.0 │ 54"),
    ],
)
def test_the_plan_that_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], line: str
) -> None:
    words = ["quickstart", "--mlruns", str(tmp_path), "--price", "3", "--seconds-per-run", "3600", *options]
    assert main(tyro.cli(EstimateOptions, args=words)) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert said.count(line) == 2  # in both orders
    assert "longest chain: 2.0 h, SimCSE s" in said
    assert list(tmp_path.iterdir()) == []


def keys_by_level(work: Plan) -> list[list[str]]:
    return [[job.key for job in level] for level in work.levels]


def test_study_by_study_the_first_is_complete_early(tmp_path: Path) -> None:
    """Two students, their teacher and two runs of another study, one at a time."""
    taught, other = row("taught", TAUGHT), row("other", replace(BASE, learning_rate=1e-5))
    work = planned(tmp_path, study(taught), study(other, name="two"))
    students, others = list(taught.keys().values()), list(other.keys().values())
    assert keys_by_level(work) == [[BASE.key, *others], students]
    found = forecast(work, {job.key: 1.0 if job.key in others else 2.0 for job in work.pending}, 1)
    assert {name: (way.makespan, found.first[name]) for name, way in found.ways.items()} == {
        "default": (8, 6),  # the teacher and its students are the longest chain
        "--by-study": (8, 6),
    }
    by_study = study_by_study(work)
    assert keys_by_level(by_study) == [[BASE.key], students, others]
    assert replace(by_study, levels=work.levels, by_study=False) == work
    long_others = {job.key: 9.0 if job.key in others else 2.0 for job in work.pending}
    assert start_order(work, long_others)[:2] == others
    assert start_order(by_study, long_others)[:3] == [BASE.key, *students]


def test_studies_are_completed_in_the_order_in_which_they_are_named(tmp_path: Path) -> None:
    """Here the third study shares a run with the first."""
    shared, second, third = (
        row(name, replace(BASE, learning_rate=rate)) for name, rate in (("a", 0.1), ("b", 0.2), ("c", 0.3))
    )
    work = planned(tmp_path, study(shared), study(second, name="two"), study(shared, third, name="three"))
    found = study_by_study(work)
    assert keys_by_level(found) == [list(each.keys().values()) for each in (shared, second, third)]
    assert {job.key for job in found.pending} == {job.key for job in work.pending}
