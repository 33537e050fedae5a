"""Forms for clusters are valid for Ray, and agree with the project's commands and files."""

import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import tyro
import yaml

from experiments.studies.catalogue import choose_studies
from experiments.sweep import Options
from tests.cluster.cluster import write_commands

ROOT = Path(__file__).parents[2]
CLUSTERS = ROOT / "experiments" / "clusters"
LAUNCHED = (ROOT / "sweep.yaml", CLUSTERS / "aws.sketch.yaml", CLUSTERS / "gcp.sketch.yaml")


def loaded(path: Path) -> dict[str, Any]:
    return yaml.safe_load(path.read_text())


def taken_by_ray(form: dict[str, Any]) -> dict[str, Any]:
    """The form as `ray up` completes and checks it."""
    from ray.autoscaler._private.util import prepare_config, validate_config  # takes seconds

    taken = prepare_config(form)
    validate_config(taken)
    return taken


def test_forms_that_no_cloud_has_run_say_so() -> None:
    """In their names, their first lines and the documentation; Slurm's form has run."""
    sketches = {path.name for path in CLUSTERS.iterdir() if ".sketch." in path.name}
    assert sketches == {path.name for path in CLUSTERS.glob("*.yaml")}
    assert all((CLUSTERS / name).read_text().startswith("# A sketch: ") for name in sketches)
    page = (ROOT / "docs" / "cluster.md").read_text()
    assert set(re.findall(r"\w+\.sketch\.yaml", page)) == sketches


@pytest.mark.parametrize("path", LAUNCHED, ids=lambda path: path.name)
def test_ray_takes_the_form(path: Path) -> None:
    form = loaded(path)
    taken = taken_by_ray(form)
    assert taken["head_node_type"] in taken["available_node_types"]
    assert taken["head_setup_commands"] == [*form["setup_commands"], *form["head_setup_commands"]]


@pytest.mark.parametrize("path", LAUNCHED, ids=lambda path: path.name)
def test_a_word_that_ray_does_not_know_is_refused(path: Path) -> None:
    with pytest.raises(Exception, match="'command' was unexpected"):
        taken_by_ray(loaded(path) | {"command": "experiments/sweep.py"})


@pytest.mark.parametrize("path", LAUNCHED, ids=lambda path: path.name)
def test_launched_clusters_have_the_same_checkout_and_secrets_and_listen_only_inside(path: Path) -> None:
    form, own = loaded(path), loaded(LAUNCHED[0])
    for name in ("file_mounts", "rsync_exclude", "head_setup_commands", "worker_start_ray_commands"):
        assert form[name] == own[name]
    assert form["head_start_ray_commands"][-1] == own["head_start_ray_commands"][-1]
    assert "0.0.0.0" not in path.read_text()
    for script in re.findall(r"~/cse/(\S+\.(?:py|sh))", path.read_text()):
        assert (ROOT / script).is_file()


@pytest.mark.parametrize("path", LAUNCHED, ids=lambda path: path.name)
def test_settings_are_names_that_the_sweep_reads(path: Path) -> None:
    command = next(line for line in loaded(path)["setup_commands"] if "environment.sh" in line)
    names = {word.split("=")[0] for word in shlex.split(command)[2:]}
    code = "".join(
        part.read_text() for package in ("experiments", "cse_core") for part in (ROOT / package).rglob("*.py")
    )
    assert names
    assert all(f'"{name}"' in code for name in names)


@pytest.mark.parametrize("path", LAUNCHED[1:], ids=lambda path: path.name)
def test_runs_find_their_gpus_in_a_cloud(path: Path) -> None:
    types = loaded(path)["available_node_types"]
    assert types["head"]["resources"] == {"CPU": 0}
    assert types["worker"]["resources"]["GPU"] >= 1  # Ray asks at most one of the clouds for it
    assert types["worker"]["resources"]["CPU"] >= 1


def test_the_environment_reaches_every_shell_and_a_later_one_replaces_it(tmp_path: Path) -> None:
    script = CLUSTERS / "environment.sh"
    (tmp_path / ".bashrc").write_text("export MINE=1\n")
    here = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    for value in ("old", "new $HOME 'x'"):
        subprocess.run(["bash", str(script), f"CSE_SHARED={value}", "CSE_DATA=/a b"], env=here, check=True)
    shown = subprocess.run(
        ["bash", "-c", ". ~/.bashrc; echo $MINE $RAY_AUTH_MODE $CSE_RAY; echo $CSE_SHARED; echo $CSE_DATA; echo $PATH"],
        env=here,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert shown[:3] == ["1 token auto", "new $HOME 'x'", "/a b"]
    assert shown[3].startswith(f"{tmp_path}/cse-venv/bin:")
    assert (tmp_path / ".bashrc").read_text().count("cse-environment") == 1
    assert (tmp_path / ".cse-environment").stat().st_mode & 0o077 == 0


def test_slurms_form_starts_ray_on_all_nodes_and_ends_as_the_sweep_does(tmp_path: Path) -> None:
    """With Slurm, Ray and Python replaced, on one node: what each is given, and what is left of the job's folders."""
    left = set(ROOT.glob(".sweep-*"))
    bodies = {
        "scontrol": "printf '%s\\n' 10.0.0.1 10.0.0.2",
        "srun": 'echo "srun $1"; shift; exec "$@"',
        "ray": 'while [ "$1" != -- ]; do words+="$1 "; shift; done; echo "$words"; stat -c %a "$CSE_STORE"\n'
        'echo "$RAY_AUTH_MODE $CSE_RAY $CSE_SHARED"; echo "token $RAY_AUTH_TOKEN"; shift; "$@"; exit 0',
        "python": "printf '<%s>' \"$@\"; exit 3",
    }
    given = {"SLURM_JOB_ID": "4242", "SLURM_JOB_NODELIST": "both", "SLURM_JOB_NUM_NODES": "2", "CSE_VENV": ""}
    given |= {"SLURM_CPUS_PER_TASK": "4", "SLURM_GPUS_ON_NODE": "1", "CSE_SCRATCH": str(tmp_path)}
    given |= {"PATH": f"{write_commands(tmp_path / 'bin', bodies)}:{os.environ['PATH']}", "CSE_SHARED": "file:///all"}
    called = ["bash", str(CLUSTERS / "slurm.sh"), "quickstart", "--rows", "a b"]
    done = subprocess.run(called, cwd=ROOT, env=os.environ | given, capture_output=True, text=True)
    assert done.returncode == 3, done.stderr
    srun, ray, mode, about, token, python = done.stdout.splitlines()
    assert srun == "srun --cpus-per-task=4"
    assert ray.split() == [
        *("symmetric-run", "--address", "10.0.0.1:6379"),
        *("--min-nodes", "2", "--num-cpus", "4", "--num-gpus", "1"),
    ]
    assert (mode, about) == ("700", "token auto file:///all")
    assert re.fullmatch("token [0-9a-f]{64}", token)
    assert python == "<experiments/sweep.py><quickstart><--rows><a b>"
    assert [path.name for path in tmp_path.iterdir()] == ["bin"]
    assert set(ROOT.glob(".sweep-*")) == left


def test_kubernetes_form_runs_a_sweep_of_this_project() -> None:
    spec = loaded(CLUSTERS / "kuberay.sketch.yaml")["spec"]
    python, script, *words = shlex.split(spec["entrypoint"])
    assert (python, script) == ("python", "/cse/experiments/sweep.py")
    options = tyro.cli(Options, args=words)
    assert choose_studies(list(options.studies), options.scale)
    cluster = spec["rayClusterSpec"]
    assert cluster["authOptions"] == {"mode": "token"}
    templates = [cluster["headGroupSpec"]["template"], *(group["template"] for group in cluster["workerGroupSpecs"])]
    for template in templates:
        (container,) = template["spec"]["containers"]
        volumes = {volume["name"] for volume in template["spec"]["volumes"]}
        assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
        assert str(options.mlruns) in {mount["mountPath"] for mount in container["volumeMounts"]}
        assert {one["name"] for one in container["env"]} == {"CSE_RAY", "CSE_DEVICE", "CSE_SHARED"}
    import ray

    assert cluster["rayVersion"] == ray.__version__
