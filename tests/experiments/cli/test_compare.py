"""`compare.py` resumes a killed comparison in which a method fails, and refuses wrong options."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from unittest.mock import patch

import pandas as pd
import pytest
import tyro

from cse_core.methods import METHODS
from cse_core.models.encoder import Encoder
from experiments.compare import Options, in_turn, main, runs_left, seconds_left
from experiments.compare import comparison_of as described
from experiments.comparison import run_comparison
from experiments.comparison.comparison import PUBLISHED, STAGES, Entrant, Scores
from experiments.comparison.tuned import tuned
from experiments.results import csv_record
from experiments.storage.shared_files import SharedFiles
from experiments.studies import own_study
from tests.support import forked, without_ray
from tests.support.comparisons import comparison_of
from tests.support.polling import until
from tests.support.sweeps import add_empty_database

ROOT = Path(__file__).parents[3]
METHOD = """
from dataclasses import dataclass

from cse_core.methods.simcse import SimCSE


@dataclass(frozen=True, kw_only=True)
class {name}(SimCSE):
    name = "{name}".lower()
    version = 1

    def loss(self, encode, batch, modules, targets):
        {body}
"""
SAME_LOSS = "return super().loss(encode, batch, modules, targets)"
SHORT = ("--scale", "quickstart", "--corpus-lines", "256", "--workers", "1")
SHORT += ("--trials", "1", "--searches", "1", "--finals", "1")


def command(mlruns: Path, *words: str) -> list[str]:
    add_empty_database(mlruns)
    script = without_ray.SCRIPT + "from experiments.compare import command; command()"
    return [sys.executable, "-c", script, *words, "--mlruns", str(mlruns)]


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "200"}


def compare(mlruns: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return forked.run(command(mlruns, *words), env=environment())


def own_method(folder: Path, name: str, body: str) -> str:
    path = folder / f"{name.lower()}_method.py"
    path.write_text(METHOD.format(name=name, body=body))
    return f"{path}:{name}"


def test_workers_get_the_file_of_a_users_method_and_the_folders_of_its_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []

    def run(comparison: object, *how: object) -> tuple[dict[str, str], bool]:
        started.append(how)
        return {}, False

    monkeypatch.setattr(run_comparison, "run_comparison", run)
    mine = own_method(tmp_path, "Mine", SAME_LOSS)
    folders = ("--mlruns", f"{tmp_path}/mlruns", "--store", f"{tmp_path}/store", "--shared", f"file://{tmp_path}/all")
    with patch.dict(METHODS), patch.object(own_study, "_LOADED", []):
        main(tyro.cli(Options, args=("simcse", mine, *SHORT, *folders)))
    execution, cluster = started[0][:2]
    assert [Path(name).name for name in cluster.modules] == ["mine_method.py"]
    assert execution.store == tmp_path / "store/comparisons/simcse-mine"  # a sweep records what is in the store itself
    SharedFiles(execution.shared).require_prepared()


def without_costs(report: str) -> str:
    """A report without its tables' last columns, core-hours and keys."""
    return re.sub(r"\| ([\d.]+|[0-9a-f]{12}) \|$", "|", report, flags=re.MULTILINE)


@pytest.fixture(scope="module")
def methods(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """SimCSE, SimCSE by another name, and a method that fails."""
    folder = tmp_path_factory.mktemp("methods")
    own = own_method(folder, "Own", SAME_LOSS)
    return "simcse", own, own_method(folder, "Broken", "raise RuntimeError('no loss today')"), "--name", "three"


@pytest.fixture(scope="module")
def resumed(methods: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, set[str], str]:
    """The record of a comparison that was killed and resumed, its runs when it was killed, and what it printed last."""
    killed = tmp_path_factory.mktemp("killed")
    process = forked.Forked(command(killed, *methods, *SHORT), env=environment(), start_new_session=True)
    try:
        until(lambda: len(csv_record.read_runs("quickstart", killed)) or process.poll() is not None)
        assert process.poll() is None
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    before = set(csv_record.read_runs("quickstart", killed)["key"])
    done = compare(killed, *methods, *SHORT)
    assert done.returncode == 1, done.stdout + done.stderr  # a method failed
    return killed, before, done.stdout


@pytest.mark.slow
def test_a_comparison_that_was_killed_resumes_and_a_method_that_fails_stops_no_other(
    resumed: tuple[Path, set[str], str],
) -> None:
    killed, before, said = resumed
    assert before
    assert before < set(csv_record.read_runs("quickstart", killed)["key"])
    report = (killed / "comparison.md").read_text()
    assert re.search(r"^\| simcse .*\| baseline \|", report, re.MULTILINE)
    # Own is SimCSE: with the same seeds its published settings give the same scores.
    published = re.findall(r"^\| (\w+) \| published setting (\|.*)$", without_costs(report), re.MULTILINE)
    assert [name for name, _ in published][:2] == ["simcse", "own"]
    assert published[0][1] == published[1][1]
    assert "RuntimeError: no loss today" in said
    row = next(line for line in report.splitlines() if line.startswith("| broken "))
    assert "failed: no trial ended with a dev score" in row
    checkpoints = {path.parent.parent.name for path in killed.glob("store/*/synthetic_dev/model.safetensors")}
    searches = csv_record.read_searches("quickstart", killed)
    scored = searches[searches["score"].notna()]
    finals = set(scored.loc[scored["trial"].str.contains(r'"seed": 8\d\d'), "keys"])
    assert checkpoints == finals, "trials' weights are deleted, those of finals stay"
    assert len(finals) == 2 * (1 + 1)


@pytest.mark.slow
def test_trials_that_a_killed_command_did_not_record_are_added_without_training(
    resumed: tuple[Path, set[str], str], methods: tuple[str, ...], tmp_path: Path
) -> None:
    again = tmp_path / "again"
    shutil.copytree(resumed[0], again)
    before = csv_record.read_searches("quickstart", again), csv_record.read_runs("quickstart", again)
    results = {path: path.stat().st_mtime_ns for path in again.glob("store/*/result.json")}
    for path in csv_record.folder_for("quickstart", again).glob("*.csv"):
        path.unlink()
    compare(again, *methods, *SHORT)
    after = csv_record.read_searches("quickstart", again), csv_record.read_runs("quickstart", again)
    for new, old, column in zip(after, before, ("keys", "key"), strict=True):
        assert set(new[column]) == set(old[column])
    assert {path: path.stat().st_mtime_ns for path in again.glob("store/*/result.json")} == results


@pytest.mark.slow
@pytest.mark.nightly
def test_a_comparison_that_was_killed_gives_the_report_of_one_that_was_not(
    resumed: tuple[Path, set[str], str], methods: tuple[str, ...], tmp_path: Path
) -> None:
    compare(tmp_path, *methods, *SHORT)
    reports = [(folder / "comparison.md").read_text() for folder in (tmp_path, resumed[0])]
    assert without_costs(reports[0]) == without_costs(reports[1])


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), "expected the names of methods"),
        (("tuned", "simcse", "tuned"), "unknown method 'tuned'"),
        (("simcse",), "two or more different methods"),
        (("simcse", "rankse"), "did you mean rankcse"),
        (("simcse", "nowhere.py:Own"), "nowhere.py: no such file"),
        (("simcse", "rankcse", "--trials", "0"), "--trials"),
        (("simcse", "rankcse", "--margin", "0"), "--margin"),
        (("simcse", "rankcse", "--share-seconds", "3"), "--share-seconds: expected --shared"),
        (("simcse", "rankcse", "--sampler", "grid"), "sampler must be one of random, tpe"),
        (("simcse", "rankcse", "--dev", "last"), "selects by dev scores"),
        (("simcse", "rankcse", "--scale", "quickstart", "--evaluate", "synthetic_dev"), "--evaluate synthetic_dev"),
        (("tuned", "--trials", "3"), "expected no --trials"),
        (("tuned", "rankcse"), "have the settings that win simcse's searches, which have not ended: run simcse too"),
        (("simcse", "rankcse", "--columns", "a"), "requires --corpus"),
        (("simcse", "rankcse", "--pair-columns", "a", "b", "c"), "--pair-columns a b c: requires a file in --dev"),
    ],
)
def test_what_is_refused_before_anything_starts(tmp_path: Path, words: Sequence[str], expected: str) -> None:
    mlruns = tmp_path / "mlruns"
    with pytest.raises((ValueError, FileNotFoundError), match=expected):
        main(tyro.cli(Options, args=[*words, "--mlruns", str(mlruns)]))
    assert not (mlruns / "store").exists()


def test_methods_that_need_the_baseline_come_after_it() -> None:
    comparison = comparison_of("simcse", "rankcse", "compcse")
    simcse, rankcse, compcse = comparison.entrants
    assert in_turn(comparison, (rankcse, compcse, simcse), by_method=False) == [[compcse, simcse], [rankcse]]
    assert in_turn(comparison, (rankcse, compcse, simcse), by_method=True) == [[simcse], [rankcse], [compcse]]
    assert in_turn(comparison, (simcse, compcse), by_method=False) == [[simcse, compcse]]


def test_on_an_encoder_and_a_short_corpus_of_ones_own_the_base_is_the_baseline(tmp_path: Path) -> None:
    """It has the encoder's pooling, and ranks all sentences that there are, in training and when pairs are scored."""
    Encoder.from_pretrained("wiki-tiny", pooling="mean").save_pretrained(tmp_path / "mine")
    (tmp_path / "my.txt").write_text("".join(f"Sentence {i} is about {i % 7} rivers.\n" for i in range(300)))
    words = ("simcse", "rankencoder", "--backbone", str(tmp_path / "mine"), "--corpus", str(tmp_path / "my.txt"))
    comparison = described(tyro.cli(Options, args=words))
    simcse, rankencoder = comparison.entrants
    assert comparison.needs_baseline(rankencoder)
    assert {run.pooling for run in (simcse.start, rankencoder.start, *rankencoder.start.nested())} == {"mean"}
    published = comparison.finals(rankencoder, PUBLISHED, Scores({}))[0]
    assert getattr(published.run.method, "corpus_size") == getattr(published.scorer, "size") == 300  # noqa: B009


def test_an_encoder_by_a_relative_path_is_found_from_the_workers_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Encoder.from_pretrained("wiki-tiny").save_pretrained(tmp_path / "my/encoder")
    monkeypatch.chdir(tmp_path)
    by_place = [
        described(tyro.cli(Options, args=("simcse", "compcse", "--backbone", name))).entrants[0].start
        for name in ("my/encoder", str(tmp_path / "my/encoder"))
    ]
    assert by_place[0] == by_place[1]


def pairs(path: Path, first: int) -> Path:
    path.write_text("".join(f"River {i} is long.\tRiver {i + 1} is not.\t{i % 5}\n" for i in range(first, first + 40)))
    return path


def test_a_dev_set_of_ones_own_also_chooses_the_checkpoints_of_teachers_and_bases(tmp_path: Path) -> None:
    dev, test = (str(pairs(tmp_path / name, first)) for name, first in (("dev.tsv", 0), ("test.tsv", 100)))
    Encoder.from_pretrained("wiki-tiny").save_pretrained(tmp_path / "mine")
    words = ("simcse", "rankcse", "rankencoder", "dclr", "--dev", dev, "--evaluate", test)
    own_encoder = described(tyro.cli(Options, args=(*words, "--backbone", str(tmp_path / "mine"))))
    comparison = described(tyro.cli(Options, args=words))
    assert comparison.dev == own_encoder.dev
    assert comparison.dev.startswith("own_dev_")
    for each in comparison.entrants[1:]:
        rules = each.start.required_checkpoints()
        assert {rule for of_run in rules.values() for rule in of_run} == {comparison.dev}
        jobs = comparison.jobs(comparison.finals(each, PUBLISHED, Scores({})), final=False).values()
        assert {task for job in jobs for scoring in job.scorings for task in scoring.tasks} == {comparison.dev}


def test_dev_pairs_that_are_scored_too_are_named_in_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run_comparison, "run_comparison", lambda *given: ({}, False))
    dev, test = (str(pairs(tmp_path / name, first)) for name, first in (("dev.tsv", 0), ("test.tsv", 25)))
    words = ("simcse", "compcse", *SHORT, "--dev", dev, "--evaluate", test, "--mlruns", str(tmp_path / "mlruns"))
    main(tyro.cli(Options, args=words))
    printed = _line(capsys)
    assert re.search(r"warning: own_dev_\w+ selects the checkpoint by pairs .* \(15 of 40 pairs\)", printed)
    assert re.search(r"warning: own_dev_\w+ selects among 1 dev score of about 4 steps", printed)
    other = str(pairs(tmp_path / "other.tsv", 50))
    with pytest.raises(ValueError, match=r"^comparison simcse-compcse: .* another dev set, own_dev_"):
        main(tyro.cli(Options, args=[other if word == dev else word for word in words]))


@pytest.mark.parametrize(
    ("reason", "status", "said"),
    [
        ("OSError: no network", 1, "stopped, as such a failure may stop every method"),
        ("KeyError: 'head'", 130, "interrupted: nothing that finished is lost"),
    ],
)
def test_a_failure_names_its_method_and_is_no_interrupt(
    reason: str, status: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    options = tyro.cli(Options, args=("simcse", "compcse", *SHORT, "--mlruns", str(tmp_path / "mlruns")))
    comparison = described(options)
    (trial,) = comparison.stage("trials", Scores({}), comparison.entrants[1:])
    monkeypatch.setattr(run_comparison, "run_comparison", lambda *given: ({trial.run.key: reason}, False))
    assert main(options) == status
    printed = _line(capsys)
    assert f"failed: compcse search 1 s401 ({trial.run.key}): {reason}" in printed
    assert said in printed


def test_on_a_machine_with_gpus_the_time_left_is_of_as_many_runs_as_fit_on_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    for words, count in (((), 2), (("--gpus-per-run", "0.5"), 4), (("--gpus-per-run", "0.5", "--workers", "3"), 3)):
        given = ("simcse", "compcse", *SHORT[:4], *words, "--dry-run", "--mlruns", str(tmp_path))
        assert main(tyro.cli(Options, args=given)) == 0
        assert f"time left with {count} at a time" in _line(capsys)


def _line(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().out.split())


def own_class(folder: Path, header: str, body: str) -> str:
    module, name = header.split()
    path = folder / f"{folder.name}_{len(list(folder.iterdir()))}.py"  # a module of a name that no other test has
    path.write_text(
        f"from dataclasses import dataclass\n\nfrom {module} import {name}\n\n\n"
        f"@dataclass(frozen=True, kw_only=True)\nclass Mine({name}):\n    name = 'mine'\n    version = 1\n    {body}\n"
    )
    return f"{path}:Mine"


@pytest.mark.parametrize(
    "header",
    [
        "cse_core.methods.whitenedcse WhitenedCSE",
        "cse_core.methods.baselines.ct CT",
        "cse_core.methods.baselines.isbert ISBERT",
        "cse_core.methods.baselines.mocose MoCoSE",
        "cse_core.methods.rankencoder RankEncoder",
        "cse_core.methods.simcse SimCSE",
    ],
)
def test_a_method_that_extends_another_is_compared_in_the_settings_of_that_one(tmp_path: Path, header: str) -> None:
    with patch.dict(METHODS), patch.object(own_study, "_LOADED", []):
        mine = own_class(tmp_path, header, "note: str = 'new'")
        parent = header.split()[1].lower()
        theirs, ours = (each.start for each in described(tyro.cli(Options, args=(parent, mine))).entrants)
    assert ours.method.name == "mine"
    fields_of = {f.name: getattr(ours.method, f.name) for f in fields(theirs.method)}  # ty: ignore[invalid-argument-type]
    assert theirs == replace(ours, method=type(theirs.method)(**fields_of))


def test_a_default_that_a_method_changes_is_kept_and_one_that_is_missing_refused(tmp_path: Path) -> None:
    header = "cse_core.methods.whitenedcse WhitenedCSE"
    with patch.dict(METHODS), patch.object(own_study, "_LOADED", []):
        mine = own_class(tmp_path, header, "groups: int = 4")
        start = described(tyro.cli(Options, args=("simcse", mine))).entrants[1].start
    assert getattr(start.method, "groups") == 4  # noqa: B009
    with patch.dict(METHODS), patch.object(own_study, "_LOADED", []):
        mine = own_class(tmp_path, header, "weight: float")
        with pytest.raises(ValueError, match=r"method mine: .*'weight'; expected a default for each setting"):
            described(tyro.cli(Options, args=("simcse", mine)))


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        (("--evaluate", "neighbours"), "stsb_neighbours"),
        (("--evaluate", "geometry"), "is no score of which more is better"),
        (("--dev", "{0}", "--evaluate", "{1}"), "these pairs choose the settings"),
        (("--name", "tuned"), "is a declared comparison"),
    ],
)
def test_what_can_not_decide_is_refused(tmp_path: Path, named: Sequence[str], expected: str) -> None:
    files = [str(pairs(tmp_path / name, 0)) for name in ("dev.tsv", "copy.tsv")]
    with pytest.raises(ValueError, match=expected):
        described(tyro.cli(Options, args=("simcse", "compcse", *(word.format(*files) for word in named))))


def test_a_dry_run_estimates_a_method_and_a_corpus_that_no_run_has(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = own_method(tmp_path, "Untimed", SAME_LOSS)
    hours = {}
    with patch.dict(METHODS), patch.object(own_study, "_LOADED", []):
        for lines in (16_384, 163_840):
            words = ("simcse", mine, "--corpus-lines", str(lines), "--dry-run", "--mlruns", str(tmp_path / "new"))
            main(tyro.cli(Options, args=words))
            said = capsys.readouterr().out
            assert "unknown" not in said
            hours[lines] = float(re.search(r"at a time: ([\d.]+) h", said)[1])  # ty: ignore[not-subscriptable]
    assert hours[163_840] == pytest.approx(10 * hours[16_384], rel=0.1)


@pytest.mark.slow
def test_a_dry_run_shows_spaces_runs_time_and_disk_and_writes_nothing(tmp_path: Path) -> None:
    done = compare(tmp_path / "mlruns", "simcse", "compcse", "--scale", "small", "--dry-run")
    assert done.returncode == 0, done.stderr
    for part in (
        "136 runs for each method",
        "dims 32 or 43 or 64 or 128",
        "time left with",
        "checkpoints of the finals",
    ):
        assert part in done.stdout
    assert not (tmp_path / "mlruns/store").exists()


@pytest.mark.slow
def test_what_has_ended_and_the_bases_that_are_trained_are_not_counted_as_left() -> None:
    comparison = tuned()
    simcse, _, rankencoder, *_ = comparison.entrants
    timed = csv_record.read_results("small")
    nothing = timed.iloc[:0]

    def left(entrant: Entrant, scores: Scores, trained: pd.DataFrame = nothing) -> float:
        found = seconds_left(comparison, entrant, runs_left(comparison, entrant, scores), scores, timed, trained)
        assert found
        return found

    trials = comparison.stage("trials", Scores({}), (simcse,))
    half = Scores(dict.fromkeys((trial.address for trial in trials[::2]), 60.0))
    assert (runs_left(comparison, simcse, Scores({})), runs_left(comparison, simcse, half)) == (136, 104)
    every = Scores({})
    for stage in STAGES:
        ended = comparison.stage(stage, every, (simcse,))
        every = Scores({**every.by_address, **{t.address: 60 + t.run.dropout for t in ended}})
    assert runs_left(comparison, simcse, every) == 0
    assert left(simcse, half) == pytest.approx(left(simcse, Scores({})) * 104 / 136)
    drawn = comparison.stage("trials", Scores({}), (rankencoder,))
    bases = {base.key for trial in drawn for base in trial.run.nested()}
    assert len(bases) == 2
    seconds = timed.drop_duplicates("key").set_index("key")["seconds"]
    with_bases = left(rankencoder, Scores({})) - left(rankencoder, Scores({}), timed[timed["key"].isin(bases)])
    assert with_bases == pytest.approx(sum(seconds[key] for key in bases), rel=0.3)
