"""`sweep.py --dry-run --cluster FILE` shows what would start where, as the cluster's file says."""

import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
import tyro
import yaml

from experiments.cli.cluster_form import ClusterForm, Machines, read_form, sweep_words
from experiments.sweep import Options, main

ROOT = Path(__file__).parents[3]
CLUSTERS = ROOT / "experiments" / "clusters"
WORDS = ["rankcse", "--scale", "paper", "--gpus-per-run", "0.5"]


def test_the_machines_of_the_file_are_shown() -> None:
    form = read_form(ROOT / "sweep.yaml", WORDS)
    assert [each.where for each in form.machines] == ["192.0.2.10", "192.0.2.11, 192.0.2.12"]
    assert form.user_commands[1] == f"ray submit {ROOT / 'sweep.yaml'} experiments/sweep.py " + shlex.join(WORDS)


@pytest.mark.parametrize(
    ("name", "machines", "at_once"),
    [
        ("aws.sketch.yaml", ["m7i.xlarge", "0 to 8 of g6e.xlarge, as runs wait for them"], 8 * 2),
        ("gcp.sketch.yaml", ["n2-standard-4", "0 to 8 of g2-standard-8, as runs wait for them"], 8 * 2),
        ("kuberay.sketch.yaml", ["registry.example.org/cse:1", "0 to 8 of registry.example.org/cse:1"], 8 * 2),
        ("slurm.sh", ["4 nodes of Slurm's choice for 24:00:00"], 4 * 4 * 2),
    ],
)
def test_machines_and_runs_at_a_time_are_those_of_the_file(name: str, machines: list[str], at_once: int) -> None:
    form = read_form(CLUSTERS / name, WORDS)
    assert [each.where for each in form.machines] == machines
    assert form.runs_at_once(0.5) == at_once
    assert form.runs_at_once(1.0) == at_once / 2


@pytest.mark.parametrize(
    ("gpus", "cores", "share", "expected"),
    [(1, 8, 0.4, 2), (4, 32, 0.4, 8), (4, 32, 2, 2), (1, 2, 0.1, 2), (0, 0, 1, 0), (None, 8, 1, 0), (2, None, 1, 2)],
)
def test_a_run_takes_a_core_and_its_share_of_one_gpu(
    gpus: float | None, cores: float | None, share: float, expected: int
) -> None:
    form = ClusterForm(Path("x"), "", (Machines("worker", "", 1, gpus, cores),), (), device="cuda")
    assert form.runs_at_once(share) == expected
    assert replace(form, device="cpu").runs_at_once(share) == (cores or 0)


def test_what_is_not_ready_is_named_until_it_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(ROOT)
    assert [line.partition(":")[0] for line in read_form(ROOT / "sweep.yaml", []).not_ready] == [
        *("head_ip", "worker_ips", "worker_ips"),
        *("~/.ray/auth_token", "~/.mlflow/credentials", "~/.ssh/id_ed25519"),
    ]
    for name in (".ray/auth_token", ".mlflow/credentials", ".ssh/id_ed25519"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("x")
    adapted = re.sub(r"192\.0\.2\.", "10.1.2.", (ROOT / "sweep.yaml").read_text())
    (tmp_path / "mine.yaml").write_text(adapted)
    assert read_form(tmp_path / "mine.yaml", []).not_ready == ()


def test_a_job_for_kubernetes_that_runs_another_command_is_named() -> None:
    command = yaml.safe_load((CLUSTERS / "kuberay.sketch.yaml").read_text())["spec"]["entrypoint"]
    words = shlex.split(command)[2:]
    assert not any("entrypoint" in line for line in read_form(CLUSTERS / "kuberay.sketch.yaml", words).not_ready)
    other = read_form(CLUSTERS / "kuberay.sketch.yaml", ["compcse"]).not_ready
    assert f"entrypoint: runs `{command}`; put compcse there" in other


@pytest.mark.parametrize(
    "words",
    [[], WORDS, ["all", "quickstart", "--workers", "3", "--compiled", "--shared", "s3://b/c d", "--data", "/nfs/data"]],
)
def test_the_submitted_words_give_the_same_options(words: list[str]) -> None:
    options = tyro.cli(Options, args=[*words, "--dry-run", "--cluster", "sweep.yaml"])
    assert tyro.cli(Options, args=sweep_words(options)) == replace(options, dry_run=False, cluster=None)


def test_the_dry_run_shows_runs_and_machines_and_starts_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    sketch = Path("experiments/clusters/aws.sketch.yaml")
    options = Options(studies=("rankcse-table4",), dry_run=True, cluster=sketch, mlruns=tmp_path / "mlruns")
    assert main(options) == 0
    printed = capsys.readouterr().out
    for line in (
        "34 runs, 0 done, 34 to do",
        f"cluster {sketch}, Ray's provider aws: a sketch, which no such cluster has run",
        f"2. you type: ray submit {sketch} experiments/sweep.py rankcse-table4",
        "runs: 34 to do, at most 8 at a time",
        "not ready: setup_commands: CSE_SHARED=s3://your-bucket/cse is an example; put your own there",
    ):
        assert line in printed
    assert list(tmp_path.iterdir()) == []


def test_a_sweep_without_a_study_says_that_it_runs_the_quickstart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(Options(dry_run=True, mlruns=tmp_path)) == 0
    assert capsys.readouterr().out.startswith("no study named: quickstart, ")
    assert main(Options(studies=("quickstart",), dry_run=True, mlruns=tmp_path)) == 0
    assert capsys.readouterr().out.startswith("7 runs, 0 done, 7 to do")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "no such file; expected sweep.yaml or one of experiments/clusters/"),
        ("a: [1", "not YAML"),
        ("a: 1", "expected Ray's cluster file, a RayJob of KubeRay or a Slurm script"),
    ],
)
def test_what_describes_no_cluster_is_refused(text: str | None, message: str, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "x.yaml").write_text(text)
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        read_form(tmp_path / "x.yaml", [])


def test_a_cluster_is_for_a_dry_run() -> None:
    with pytest.raises(ValueError, match=r"--cluster sweep.yaml: expected --dry-run"):
        main(Options(cluster=Path("sweep.yaml")))
