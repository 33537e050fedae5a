"""Options that can't be used are refused at once in one line that names them; a dry run says what a sweep would do."""

import inspect
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import pytest
import torch
import tyro

from cse_core.evaluation.suite import GROUPS
from cse_core.run import Pretrained
from experiments import audit, estimate, evaluate, search, sweep
from experiments.cli.command import run_command
from experiments.cli.options import check_device
from experiments.cli.run_options import options_for
from experiments.execution import sweep_report
from experiments.execution.plan import jobs_of, make_plan, scored_cells
from experiments.studies.catalogue import AT_SMALL, choose_studies
from tests.support.plans import BASE, TAUGHT, frame, row, study, weights

ROOT = Path(__file__).parents[3]
STUDIES = [  # of sweep.py and estimate.py
    ("--device tpu", "--device: expected cpu or cuda (Ray chooses among several GPUs), got 'tpu'"),
    ("--device cuda:7", "--device: expected cpu or cuda (Ray chooses among several GPUs), got 'cuda:7'"),
    ("--workers -1", "--workers: expected a number of at least 0, got -1"),
    ("--workers 100001", "--workers: expected a number of at most 100000, got 100001"),
    ("--share-seconds 3", "--share-seconds: expected --shared beside it"),
    ("--data /no/such", "data folder /no/such: no such folder; correct --data or CSE_DATA, or leave both unset"),
    ("--gpus-per-run 0", "--gpus-per-run: expected a number above 0, got 0"),
    ("--gpus-per-run 1.5", "--gpus-per-run: expected a share of one GPU or a whole number of them, got 1.5"),
    ("--gpus-per-run nan", "--gpus-per-run: expected a number above 0, got nan"),
    ("--share-seconds -3", "--share-seconds: expected a number of at least 0, got -3"),
    ("--share-seconds inf", "--share-seconds: expected a number of at least 0, got inf"),
    ("--seeds 0", "--seeds: expected a number of at least 1, got 0"),
    (
        f"--seeds {2**63}",
        f"--seeds: one number is how many seeds, expected at most 10,000, got {2**63}; write a single seed twice",
    ),
    (f"--seeds 1 {2**63}", f"--seeds: expected a number of at most {2**63 - 1}, got {2**63}"),
    ("--seeds 1 -2", "--seeds: expected a number of at least 0, got -2"),
    ("--max-steps 0", "--max-steps: expected a number of at least 1, got 0"),
    ("--corpus-lines 0", "--corpus-lines: expected a number of at least 1, got 0"),
]
REFUSED = [
    *((command, *each) for command in (sweep, estimate) for each in STUDIES),
    (sweep, "--corpus-lines 30", "--corpus-lines 30: expected at least 64, a batch of row SimCSE"),
    (estimate, "--gpus 0", "--gpus: expected a number of at least 1, got 0"),
    (estimate, "--gpus 4 2 --gpus-per-run 3", "--gpus-per-run 3: expected no more than --gpus 2"),
    (estimate, "--gpus 100001", "--gpus: expected a number of at most 100000, got 100001"),
    (estimate, "--workers 2", "--workers: an estimate has --gpus and --gpus-per-run in its place"),
    (sweep, "--list --by-study", "--list: expected no --by-study beside it"),
    (sweep, "--list --dry-run", "--list: expected no --dry-run beside it"),
    (estimate, "--price -1", "--price: expected a number of at least 0, got -1"),
    (estimate, "--seconds-per-run 0", "--seconds-per-run: expected a number above 0, got 0"),
    (
        estimate,
        "--max-steps 3",
        "--max-steps, --corpus-lines: the time of such runs is unknown; give --seconds-per-run",
    ),
    (search, "--workers -2", "--workers: expected a number of at least 0, got -2"),
    (search, "--trials 0", "--trials: expected a number of at least 1, got 0"),
    (search, "--minutes 0", "--minutes: expected a number above 0, got 0"),
    (audit, "--count 0", "--count: expected a number of at least 1, got 0"),
    (audit, "--device tpu", "--device: expected cpu or cuda (Ray chooses among several GPUs), got 'tpu'"),
    (audit, "--count 1 --seed -1", "--seed: expected a number of at least 0, got -1"),
]


def call(command: Any, folder: Path, *words: str) -> None:
    """Call a command on the quickstart with a record in the folder."""
    first = next(iter(inspect.signature(command.main).parameters))
    kind = get_type_hints(command.main)[first]
    command.main(tyro.cli(kind, args=["quickstart", *words, "--mlruns", str(folder / "mlruns")]))


@pytest.mark.parametrize(("command", "options", "message"), REFUSED)
def test_values_are_refused_before_anything_starts(tmp_path: Path, command: Any, options: str, message: str) -> None:
    with pytest.raises((ValueError, FileNotFoundError)) as caught:
        call(command, tmp_path, *options.split())
    assert str(caught.value) == message
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", [sweep, search, estimate])
def test_an_empty_data_folder_is_refused_before_anything_starts(command: Any, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="it is empty; expected SentEval's folder"):
        call(command, tmp_path, "--data", str(tmp_path))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("kind", "words", "message"),
    [
        (options_for("simcse"), "--temperature hot", "--temperature: expected a number, got 'hot'"),
        (options_for("simcse"), "--epochs 1.5", "--epochs: expected a whole number, got '1.5'"),
        (sweep.Options, "--workers many", "--workers: expected a whole number, got 'many'"),
        (sweep.Options, "--max-steps None", "--max-steps: expected a whole number, got 'None'"),
        (sweep.Options, "--seeds 1 two", "--seeds: expected a whole number, got 'two'"),
        (sweep.Options, "--gpus-per-run half", "--gpus-per-run: expected a number, got 'half'"),
    ],
)
def test_a_word_that_is_no_number_is_refused_in_a_sentence(
    kind: type, words: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        run_command(lambda: print(tyro.cli(kind, args=words.split())))
    assert stop.value.code == 2
    assert f"Error parsing {message} " in capsys.readouterr().err


@pytest.mark.parametrize("words", [[], ["c4bb688a65d9", "--count", "1"], ["c4bb688a65d9", "--seed", "1"]])
def test_an_audit_is_of_named_runs_or_of_drawn_ones(words: list[str]) -> None:
    with pytest.raises(ValueError, match="expected keys of recorded runs, or --count N"):
        audit.main(tyro.cli(audit.Options, args=words))


def test_an_estimate_takes_the_words_of_a_sweep() -> None:
    of_sweep, of_estimate = (
        {field.name for field in fields(kind)} for kind in (sweep.Options, estimate.EstimateOptions)
    )
    assert of_sweep - {"list", "dry_run", "cluster", "by_study"} <= of_estimate


SWITCHES = {"leave_out_duplicates", "peer"}  # which mean True without a value
TAKE_VALUES = [
    (kind, field.name)
    for kind in (estimate.EstimateOptions, evaluate.Options, options_for("rankcse"), options_for("pcl"))
    for field in fields(kind)  # ty: ignore[invalid-argument-type]
    if get_origin(field.type) is Annotated and getattr(get_args(field.type)[1], "nargs", 1) == "*"
    if field.name not in SWITCHES
]


@pytest.mark.parametrize(("kind", "name"), TAKE_VALUES, ids=lambda value: getattr(value, "__name__", value))
def test_an_option_that_takes_values_refuses_none(kind: type, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    required = ["wiki-tiny"] if kind is evaluate.Options else []
    with pytest.raises(SystemExit) as stop:
        tyro.cli(kind, args=[*required, "--" + name.replace("_", "-")])
    assert stop.value.code == 2
    captured = capsys.readouterr()
    assert "expected at least one value, got none" in captured.out + captured.err


def test_an_empty_word_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        tyro.cli(sweep.Options, args=["--rows", "SimCSE", ""])  # it is part of every label
    assert "expected values that are not empty" in capsys.readouterr().err


@pytest.mark.parametrize("words", [[], ["True"], ["False"]])
def test_a_switch_is_true_without_a_value(words: list[str]) -> None:
    given = tyro.cli(options_for("simcse"), args=["--leave-out-duplicates", *words, "--seed", "3"])
    assert (given.leave_out_duplicates, given.seed) == (words != ["False"], 3)  # ty: ignore[missing-attribute]


def test_all_options_of_several_values_are_among_them() -> None:
    expected = {"rows", "backbones", "seeds", "gpus", "tasks", "evaluate", "teachers"}
    assert {name for _, name in TAKE_VALUES} == expected | {"augmentations", "columns", "pair_columns"}


def test_a_gpu_may_be_chosen_if_there_is_one_or_a_cluster_may_add_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="--device cuda: expected a GPU on this machine, found none"):
        check_device("cuda")
    check_device("cuda", "auto")  # a cluster's may join later
    check_device("cpu")
    check_device("")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    check_device("cuda")


def test_half_precision_on_a_cpu_is_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    half = replace(BASE, precision="fp16")
    sweep_report.warn_slow_precision([half, BASE, half, Pretrained("wiki-tiny")], "cpu")
    assert "warning: 2 of 4 runs train in fp16, which is slow on a CPU" in capsys.readouterr().out
    sweep_report.warn_slow_precision([half], "cuda")
    sweep_report.warn_slow_precision([BASE, replace(BASE, precision="bf16")], "cpu")
    assert capsys.readouterr().out == ""


def test_a_dry_run_names_each_job_and_what_is_left_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The teacher is recorded, but its weights are gone; one student is trained; one task of a third run is scored."""
    rows = [row("taught", TAUGHT), row("alone", replace(BASE, epochs=7)), row("half", replace(BASE, epochs=9))]
    jobs = jobs_of([study(*rows, columns=GROUPS["sts"]), study(rows[1], name="two"), study(rows[1], name="three")])
    alone, half = (replace(BASE, epochs=epochs) for epochs in (7, 9))
    weights(tmp_path, alone, "stsb_dev")
    whole = frame(jobs[BASE.key], jobs[half.key])
    record = whole[(whole["key"] == BASE.key) | (whole["task"] == "sts12")]
    sweep_report.print_plan(make_plan(jobs, scored_cells(record), tmp_path), record, 1, each=True)
    lines = {line.split()[0]: line.strip() for line in capsys.readouterr().out.splitlines()}
    said = {key: line.partition("  ")[2] for key, line in lines.items() if key in jobs}
    rest = " ".join(task for task in GROUPS["sts"] if task != "sts12")
    assert said[BASE.key] == "simcse wiki-tiny s42 (one): training, for its weights; stsb_dev, cosine: stsb_dev"
    assert said[TAUGHT.key] == "taught s42 (one): training; stsb_dev, cosine: sts"
    assert said[alone.key] == "alone s42 (one and 2 more): stsb_dev, cosine: sts"
    assert said[half.key] == f"half s42 (one): training; stsb_dev, cosine: {rest}"
    assert len(said) == len(make_plan(jobs, scored_cells(record), tmp_path).pending)


@pytest.mark.slow
def test_a_reader_that_closes_the_pipe_early_causes_no_error(tmp_path: Path) -> None:
    script = f"{sys.executable} experiments/sweep.py all --dry-run --mlruns {tmp_path} | head -1"
    done = subprocess.run(["bash", "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert " runs, 0 done, " in done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ValueError("x must be positive, got -1"), "error: x must be positive, got -1"),
        (FileNotFoundError("https://ann:secret@host/x: gone"), "error: https://***@host/x: gone"),
        (BrokenPipeError("of a server"), "error: of a server"),
        (KeyboardInterrupt(), 130),
    ],
)
def test_errors_that_a_user_can_correct_end_a_command_in_one_line(error: BaseException, status: str | int) -> None:
    def command() -> None:
        raise error

    with pytest.raises(SystemExit) as caught:
        run_command(command)
    assert caught.value.code == status


@pytest.mark.parametrize("error", [ZeroDivisionError, RuntimeError])  # PyTorch raises the latter on a full disk
def test_any_other_error_keeps_its_traceback(error: type[Exception]) -> None:
    def command() -> None:
        raise error("a bug")

    with pytest.raises(error, match="a bug"):
        run_command(command)


def test_a_command_ends_with_the_status_that_it_returns() -> None:
    with pytest.raises(SystemExit) as caught:
        run_command(lambda: 3)
    assert caught.value.code == 3


@pytest.mark.parametrize(
    ("scale", "names"), [("quickstart", ["quickstart"]), ("small", ["all", "pilots", "plan", *AT_SMALL])]
)
def test_without_names_a_list_has_all_studies_of_the_scale(scale: str, names: list[str]) -> None:
    assert sweep.study_names(sweep.Options(list=True, scale=scale)) == names
    assert choose_studies(names, scale)
