"""Flags that sweep.py had end with 2 and name the command that does the same now."""

import shlex

import pytest
import tyro

from experiments import audit, estimate, search
from experiments.cli.old_flags import refuse_old_flags

OPTIONS = {"audit.py": audit.Options, "estimate.py": estimate.EstimateOptions, "search.py": search.Options}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("--search rankcse --scale small", "search.py rankcse --scale small"),
        ("simcse --trials=5 --search --minutes 10", "search.py simcse --trials=5 --minutes 10"),
        ("--search all --dry-run", "search.py all --list"),
        ("--audit 5 --study rankcse-table4", "audit.py --count 5 --study rankcse-table4"),
        (
            "rankcse-table4 plan --audit=5 --audit-seed 0 --audit-report a.json --data 'my data'",
            "audit.py --count 5 --seed 0 --report a.json --study rankcse-table4 --study plan --data 'my data'",
        ),
        (
            "--data d --rerun c4bb688a65d9 0123456789ab --store s",
            "audit.py c4bb688a65d9 0123456789ab --data d --store s",
        ),
        (
            "all --scale paper --plan --by-study --gpus 1 8 64 --price 2",
            "estimate.py all --scale paper --gpus 1 8 64 --price 2",
        ),
    ],
)
def test_an_old_flag_names_its_new_command(old: str, new: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        refuse_old_flags(shlex.split(old))
    assert stop.value.code == 2
    assert capsys.readouterr().err.endswith(f": python experiments/{new}\n")
    script, *words = shlex.split(new)
    tyro.cli(OPTIONS[script], args=words)  # takes them


def test_a_sweeps_own_flags_are_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    refuse_old_flags(["rankcse-table4", "--gpus-per-run", "0.5", "--dry-run", "--seeds", "3"])
    assert capsys.readouterr().err == ""
