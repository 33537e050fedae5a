"""Forms for clusters on separate hosts: `ray up` and `ray submit` as in the README, a link that is cut, Slurm.

Needs root, Debian's iproute2, openssh-server, rsync and curl, the extra "cluster", and minutes, most of them spent
waiting. Tests are skipped where these are missing; with CSE_HOSTS_REQUIRED, tests on two hosts fail instead.
CSE_QUICKSTART is the mlruns folder of a quickstart on one machine of this kind, to compare with; without it, one is run
here.
"""

import itertools
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path

import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

from experiments.results import csv_record
from experiments.storage.shared_storage import Shared
from experiments.studies.catalogue import choose_studies
from tests.cluster.cluster import ROOT, Cluster, write_commands
from tests.cluster.hosts import HOME, Host, hosts, lacking
from tests.support.polling import until
from tests.support.shared_folders import content

pytestmark = pytest.mark.slow
(QUICKSTART,) = choose_studies(["quickstart"], "small")
TWO = ("SimCSE",)  # a run for each host
ROWS = (*TWO, "RankCSE-listNet")  # also runs that need these
TWO_KEYS, ROWS_KEYS = (
    {run.key for row in QUICKSTART.rows if row.label in rows for run in row.runs()} for rows in (TWO, ROWS)
)
RUNS = "ray::ImplicitFunc"  # processes in which Ray Tune executes runs
COMPARED = [*csv_record.CELL, "score", "pairs", "step"]
# By how much a correlation, or a dev score in a curve, may differ between two machines. Correlations of equal pair
# scores are the same to the bit everywhere; the pair scores come from torch, whose kernels depend on the processor.
ACROSS_MACHINES = 1e-12


@pytest.fixture(scope="module")
def single_host(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The mlruns folder of a quickstart on one machine."""
    if "CSE_QUICKSTART" in os.environ:
        return Path(os.environ["CSE_QUICKSTART"])
    mlruns = tmp_path_factory.mktemp("single_host")
    given = [sys.executable, "experiments/sweep.py", "quickstart", "--mlruns", str(mlruns)]
    subprocess.run(given, cwd=ROOT, check=True, timeout=600)
    return mlruns


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Generator[tuple[Cluster, Host, Host, Path]]:
    """Two hosts after `ray up`, and a folder that both can use."""
    reason = lacking()
    if reason and os.environ.get("CSE_HOSTS_REQUIRED"):
        pytest.fail(reason)
    if reason:
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("cluster")
    (folder / "shared").mkdir()
    with hosts(folder, "head", "worker") as (head, worker):
        cluster = Cluster(head, [worker], folder / "shared")
        up = cluster.ray("up --yes --no-config-cache")
        if up.returncode:  # another test replaced a file while the checkout was copied
            up = cluster.ray("up --yes --no-config-cache")
        assert up.returncode == 0, up.stdout + up.stderr
        until(lambda: worker.signal("raylet", 0))  # a raylet exists; asking Ray takes seconds
        until(lambda: nodes(cluster) == 2)
        yield cluster, head, worker, folder / "shared"


def nodes(cluster: Cluster) -> int:
    shown = cluster.ray("exec", "ray status").stdout
    active = shown.partition("Active:")[2].partition("Pending:")[0]
    return sum(int(line.split()[0]) for line in active.splitlines() if line.strip()[:1].isdigit())


def recorded(mlruns: Path, keys: set[str] | None = None) -> pd.DataFrame:
    """The scores of these runs, or of all runs."""
    frame = csv_record.read_results("quickstart", mlruns)[COMPARED]
    return of_runs(frame.sort_values(csv_record.CELL), keys)


def of_runs(frame: pd.DataFrame, keys: set[str] | None) -> pd.DataFrame:
    return (frame if keys is None else frame[frame["key"].isin(keys)]).reset_index(drop=True)


def of_the_same_tasks(found: pd.DataFrame, expected: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Leave out runs that were scored on other tasks, such as a teacher without its student.

    Sentences of all tasks are embedded together, so other tasks change the last digits.
    """
    tasks = [frame.groupby("key")["task"].agg(frozenset) for frame in (found, expected)]
    assert set(tasks[0].index) == set(tasks[1].index)
    same = {str(key) for key, each in tasks[0].items() if each == tasks[1][str(key)]}
    assert same
    return of_runs(found, same), of_runs(expected, same)


def assert_same(found: pd.DataFrame, expected: pd.DataFrame) -> None:
    """Compare numbers within the tolerance between machines, everything else exactly."""
    pd.testing.assert_frame_equal(found, expected, rtol=0, atol=ACROSS_MACHINES)


def weights(store: Path) -> dict[str, dict[str, torch.Tensor]]:
    """Every checkpoint of the runs in a store, by run and rule."""
    return {
        path.parent.relative_to(store).as_posix(): load_file(path) for path in store.glob("*/[!.]*/model.safetensors")
    }


def held(worker: Host, shared: Path) -> str:
    """Stop the worker at a run that it has trained but not scored, and return the run's key; empty if there is none.

    The run has then reported everything to the driver except its end, and can end late when it continues.
    """

    def trained(folder: Path) -> bool:
        return not (folder / "result.json").exists() and not (shared / folder.name / "1").exists()

    for folder in (path.parent for path in worker.home.glob("cse/mlruns/store/*/history.json")):
        if trained(folder):
            worker.signal(RUNS, signal.SIGSTOP)
            if trained(folder):
                return folder.name
            worker.signal(RUNS, signal.SIGCONT)
    return ""


def assert_nothing_late_counts(worker: Host, place: Path) -> None:
    """Let the worker, still cut off, end a run that another host has published: it must notice that."""
    own = worker.home / "cse/mlruns/store" / place.name
    before, touched = content(place), place.stat().st_mtime_ns
    assert not (own / "result.json").exists()
    assert list(own.glob("*/model.safetensors"))
    assert worker.signal(RUNS, signal.SIGCONT)
    until(lambda: (own / "result.json").exists() and not list(own.glob("*/model.safetensors")))
    assert place.stat().st_mtime_ns > touched  # it tried to publish its own folder
    assert content(place) == before
    results = [(own / "result.json").read_bytes(), before[f"{before['1'].decode()}/result.json"]]
    ours, theirs = (json.loads(text) | {"scoring_seconds": 0} for text in results)
    assert ours == theirs


@pytest.mark.parametrize("keys", [TWO_KEYS, pytest.param(None, marks=pytest.mark.nightly)], ids=["part", "whole"])
def test_a_sweep_on_two_hosts_of_which_one_is_cut_off_is_that_of_one_machine(
    running: tuple[Cluster, Host, Host, Path], single_host: Path, tmp_path: Path, keys: set[str] | None
) -> None:
    """The other host resumes from its last state; it survives, and ends late. In "whole", MLflow stops for a minute."""
    cluster, head, worker, shared = running
    rows = ("--rows", *TWO) if keys else ()
    begun = cluster.begin("submit", "experiments/sweep.py", "quickstart", *rows, "--share-seconds", "2")
    with begun as submitted, ExitStack() as stack:
        stack.callback(submitted.kill)
        stack.callback(worker.signal, RUNS, signal.SIGCONT)
        key = until(lambda: held(worker, shared))
        assert list(shared.glob(f"{key}/state-*/complete"))  # the other host resumes from it
        with worker.unplugged():
            if not keys:
                mlflow_away_for_a_minute(cluster, head)
                assert submitted.poll() is None
            said, _ = submitted.communicate(timeout=900)
            assert_nothing_late_counts(worker, shared / key)
    assert submitted.returncode == 0, said[-5000:]
    logs = [path.read_text() for path in head.home.parent.glob("ray/session_2*/logs/worker-*.err")]
    assert any(f"run {key} resumes from" in log for log in logs)
    found = head.home / "cse" / "mlruns"
    assert_same(*of_the_same_tasks(recorded(found), recorded(single_host, keys)))
    curves = [csv_record.read_curves("quickstart", mlruns) for mlruns in (found, single_host)]
    assert_same(curves[0], of_runs(curves[1], keys))
    trained = weights(single_host / "store")
    trained = {name: parts for name, parts in trained.items() if not keys or name.partition("/")[0] in keys}
    for run in {name.partition("/")[0] for name in trained}:
        assert Shared(shared.as_uri()).fetch(run, tmp_path) == 1
    published = weights(tmp_path)
    assert published.keys() == trained.keys()
    for name, expected in trained.items():
        assert all(torch.equal(expected[part], published[name][part]) for part in expected), name
    if keys:
        return
    again = cluster.ray("submit", "experiments/sweep.py")  # the quickstart is the default
    assert again.returncode == 0
    assert "no study named: quickstart" in again.stdout
    assert "7 runs, 7 done, 0 to do" in again.stdout
    assert (head.home / "cse/analysis/tables/quickstart/quickstart.md").is_file()


def mlflow_away_for_a_minute(cluster: Cluster, head: Host) -> None:
    for word in ("mlflow", "multiprocessing.spawn"):  # the server and its workers
        assert head.signal(word, signal.SIGKILL)
    time.sleep(60)
    started = cluster.ray("exec", "bash ~/cse/experiments/clusters/mlflow_server.sh")
    assert "MLflow's server is at" in started.stdout


@pytest.mark.nightly
def test_a_comparison_on_two_hosts_is_that_of_one_machine(
    running: tuple[Cluster, Host, Host, Path], tmp_path: Path
) -> None:
    cluster, head, worker, _ = running
    budget = ["--trials", "2", "--searches", "1", "--finals", "2"]
    words = ["experiments/compare.py", "simcse", "rankcse", "--scale", "quickstart", *budget]
    done = cluster.ray("submit", *words)
    assert done.returncode == 0, done.stdout[-5000:]
    found, alone = head.home / "cse/mlruns/comparisons/simcse-rankcse", tmp_path / "alone"
    subprocess.run([sys.executable, *words, "--mlruns", str(alone)], cwd=ROOT, check=True, timeout=900)
    assert_same(recorded(found), recorded(alone))
    assert_same(*(csv_record.read_curves("quickstart", mlruns) for mlruns in (found, alone)))
    assert_same(*(csv_record.read_searches("quickstart", mlruns) for mlruns in (found, alone)))
    trained = {path.parent.name for path in worker.home.glob("cse/**/store/**/history.json")}
    assert trained & set(recorded(found)["key"])  # the second host took part
    assert (found / "comparison.md").is_file()


def test_a_failing_script_fails_here(running: tuple[Cluster, Host, Host, Path]) -> None:
    assert running[0].ray("submit", "experiments/sweep.py", "no-such-study").returncode != 0


@pytest.mark.nightly
def test_a_job_outlives_the_connection(running: tuple[Cluster, Host, Host, Path]) -> None:
    cluster, *_ = running
    sent = cluster.ray("exec", "ray job submit --no-wait -- python ~/cse/experiments/sweep.py --list --scale paper")
    assert sent.returncode == 0, sent.stdout
    name = next(word.strip("'") for word in sent.stdout.split() if word.strip("'").startswith("raysubmit_"))
    until(lambda: "succeeded" in cluster.ray("exec", f"ray job status {name}").stdout.lower())
    assert "rankcse-table2" in cluster.ray("exec", f"ray job logs {name}").stdout


def test_nothing_listens_beyond_the_cluster_without_a_secret(
    running: tuple[Cluster, Host, Host, Path], tmp_path: Path
) -> None:
    cluster, head, *_ = running
    local = cluster.ray("exec", "curl -s -o /dev/null -w %{http_code} http://127.0.0.1:5000/api/2.0/mlflow/runs/search")
    assert "401" in local.stdout
    for port in (5000, 8265):  # MLflow, Ray's dashboard
        tried = ["curl", "-s", "-m", "5", f"http://{head.address}:{port}/"]
        assert subprocess.run(tried, capture_output=True, check=False).returncode == 7  # refused
    for port, path in itertools.product(head.ports(), ("", "api/job_agent/jobs/", "api/jobs/")):
        tried = ["curl", "-s", "-m", "5", "-w", "%{http_code}", f"http://{head.address}:{port}/{path}"]
        said = subprocess.run(tried, capture_output=True, text=True, check=False).stdout
        assert not said.endswith("200") or said.startswith("# HELP "), f"{port}: {said}"  # metrics of Ray's load
    joined = subprocess.run(
        [str(Path(sys.executable).with_name("ray")), "status", "--address", f"{head.address}:6379"],
        env={k: v for k, v in cluster.environment.items() if "TOKEN" not in k} | {"HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert joined.returncode != 0
    assert "token" in (joined.stdout + joined.stderr).lower()
    assert cluster.secret not in joined.stdout + joined.stderr


@pytest.mark.nightly
def test_slurms_form_runs_a_sweep_on_two_nodes_with_a_store_each(
    running: tuple[Cluster, Host, Host, Path], single_host: Path, tmp_path: Path
) -> None:
    """Slurm is not installed: scripts do what its two commands do for a job of two nodes."""
    cluster, *nodes, _ = running
    assert cluster.ray("down --yes").returncode == 0
    for node in nodes:  # also what is left where the link was cut and the raylet is gone
        subprocess.run([*node.ssh, "~/cse-venv/bin/ray stop --force"], capture_output=True, check=True)
    far = "\n".join(f'{shlex.join(node.ssh)} ". {tmp_path}/job; cd {ROOT}; exec $words" &' for node in nodes)
    bodies = {
        "scontrol": "printf '%s\\n' " + " ".join(node.address for node in nodes),
        "srun": f"shift; export -p > {tmp_path}/job\nwords=$(printf '%q ' \"$@\")\n{far}\nwait",
    }
    tools = write_commands(tmp_path / "bin", bodies)
    given = {"SLURM_JOB_ID": "4242", "SLURM_JOB_NODELIST": "both", "SLURM_JOB_NUM_NODES": "2"}
    given |= {"SLURM_CPUS_PER_TASK": "1", "CSE_VENV": "", "RAY_gcs_rpc_server_reconnect_timeout_s": "5"}
    given |= {"RAY_worker_niceness": "0"}
    given |= {"PATH": f"{tools}:{Path(sys.executable).parent}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    given |= {"CSE_SHARED": (tmp_path / "shared").as_uri(), "CSE_SCRATCH": HOME, "CSE_CACHE": f"{HOME}/cache"}
    given |= {"MLFLOW_TRACKING_URI": ""}  # the head's server has these runs already
    sweep = f"bash experiments/clusters/slurm.sh quickstart --rows {' '.join(ROWS)} --mlruns {tmp_path}/mlruns"
    settings = shlex.join(f"{name}={value}" for name, value in given.items())
    asked = [*nodes[0].ssh, f"cd {ROOT} && env {settings} {sweep}"]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(ROWS_KEYS) == 4
    assert_same(recorded(tmp_path / "mlruns"), recorded(single_host, ROWS_KEYS))
    assert "4 runs, 0 done, 4 to do" in done.stdout
    assert "cluster: 2 cores, 0 GPUs" in done.stdout
    assert not (tmp_path / "mlruns" / "store").exists()
    left = {path.name for node in nodes for path in node.home.iterdir()}
    assert not {name for name in left if name.startswith("cse-4242") or name == "ray"}  # on each node's own disk


@pytest.mark.nightly
@pytest.mark.skipif(bool(lacking()), reason=lacking() or "none")
def test_slurms_form_on_one_node_fails_as_the_sweep_does(tmp_path: Path) -> None:
    """Slurm is not installed: scripts do what its two commands do for a job of one node.

    It runs on a separate host, as Ray does not start next to another Ray.
    """
    before = set(ROOT.glob(".sweep-*"))
    tools = write_commands(
        tmp_path / "bin", {"srun": 'shift; exec "$@"', "scontrol": "echo 127.0.0.1; sleep 1; echo x"}
    )
    (tmp_path / "ray").mkdir()
    Path("/tmp/ray").mkdir(exist_ok=True)
    given = {"SLURM_JOB_NODELIST": "x", "SLURM_JOB_ID": "4242", "SLURM_JOB_NUM_NODES": "1", "SLURM_CPUS_PER_TASK": "2"}
    path = f"{tools}:{Path(sys.executable).parent}:{os.environ['PATH']}:/usr/sbin:/sbin"
    words = shlex.join([str(ROOT / "experiments/clusters/slurm.sh"), "no-such", "--mlruns", str(tmp_path / "mlruns")])
    alone = ["unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child", "bash", "-c"]
    for _ in range(4):
        done = subprocess.run(
            [*alone, f"ip link set lo up && mount --bind {tmp_path}/ray /tmp/ray && bash {words}"],
            env=os.environ | given | {"CSE_VENV": "", "PATH": path},
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        if "timed out during startup" not in done.stdout + done.stderr:  # after 30 s, while other tests use the cores
            break
    assert done.returncode == 1, done.stdout + done.stderr
    assert "unknown study 'no-such'" in done.stdout + done.stderr
    assert set(ROOT.glob(".sweep-*")) == before
