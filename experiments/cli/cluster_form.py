"""Read a cluster's description, and show its machines and what they still need to start; this needs no cluster.

The description is a cluster file of Ray (sweep.yaml), a RayJob of KubeRay or a Slurm script.
"""

import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import yaml

from experiments.cli.console import console
from experiments.cli.options import flag

EXAMPLES = ("192.0.2.", "your-", "ami-00000000000000000", "registry.example.org")  # values that a user must replace
SKETCH = ".sketch."  # in the name of a file that is untested: no such cluster has run it


@dataclass(frozen=True)
class Machines:
    """Machines of one role: their number or addresses, and how many GPUs and cores each has.

    `gpus` and `cores` are None where the description leaves them to be detected.
    """

    role: str
    where: str
    most: int = 1
    gpus: float | None = None
    cores: float | None = None

    def slots(self, gpus_per_run: float, *, on_gpus: bool) -> int | None:
        """Return how many runs fit at a time, each with a core and, on GPUs, its share of one; None if not known."""
        cores = math.inf if self.cores is None else self.cores
        if not on_gpus:
            return None if self.cores is None else self.most * int(self.cores)
        if self.gpus is None:
            return None
        # A GPU's leftover that is smaller than a share stays unused.
        shares = self.gpus * int(1 / gpus_per_run) if gpus_per_run <= 1 else self.gpus // gpus_per_run
        return self.most * int(min(shares, cores))


@dataclass(frozen=True)
class ClusterForm:
    """What a description starts: machines by role, the commands that a user types, what these commands still need."""

    path: Path
    kind: str
    machines: tuple[Machines, ...]
    user_commands: tuple[str, ...]
    not_ready: tuple[str, ...] = ()
    device: str = ""

    def runs_at_once(self, gpus_per_run: float) -> int:
        """Return how many runs fit on the machines at a time; 0 if that is unknown until they have joined."""
        slots = [each.slots(gpus_per_run, on_gpus=self.device != "cpu") for each in self.machines]
        return 0 if any(count is None for count in slots) else sum(filter(None, slots))


def read_form(path: Path, words: Sequence[str]) -> ClusterForm:
    """Read the description of a cluster, for a sweep with these words after `sweep.py`."""
    if not path.is_file():
        raise FileNotFoundError(f"--cluster {path}: no such file; expected sweep.yaml or one of experiments/clusters/")
    text = path.read_text()
    if path.suffix == ".sh" and "#SBATCH" in text:
        return _slurm(path, text, words)
    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"--cluster {path}: not YAML ({error})") from error
    if isinstance(content, dict) and content.get("kind") == "RayJob":
        return _kubernetes(path, content, words)
    if isinstance(content, dict) and "provider" in content:
        return _ray(path, content, words)
    raise ValueError(f"--cluster {path}: expected Ray's cluster file, a RayJob of KubeRay or a Slurm script")


def sweep_words(options: Any) -> list[str]:
    """Return the command line of a sweep's options, without those that only request a dry run."""
    words = list(options.studies)
    for field in fields(options):
        value = getattr(options, field.name)
        if field.name not in ("studies", "study", "dry_run", "cluster") and value != field.default:
            option = flag(field.name)
            values = value if isinstance(value, tuple) else (value,)
            words += [option] if value is True else [option, *map(str, values)]
    return words


def print_form(form: ClusterForm, pending: int, at_once: int) -> None:
    """Print what the user types, the machines, and what is not ready yet."""
    sketch = ": a sketch, which no such cluster has run" if SKETCH in form.path.name else ""
    console.print(f"cluster {form.path}, {form.kind}{sketch}", highlight=False)
    for number, command in enumerate(form.user_commands, 1):
        console.print(f"  {number}. you type: {command}", highlight=False)
    for each in form.machines:
        console.print(f"  {each.role}: {each.where}{_size(each)}", highlight=False)
    many = f"at most {at_once} at a time" if at_once else "as many at a time as the machines have GPUs or cores"
    console.print(f"  runs: {pending} to do, {many}", highlight=False)
    for problem in form.not_ready:
        console.print(f"  not ready: {problem}", style="yellow", highlight=False)


def _size(machines: Machines) -> str:
    parts = [(machines.gpus, "GPUs"), (machines.cores, "cores")]
    sizes = [f"{count:g} {name}" for count, name in parts if count is not None]
    return f", {' and '.join(sizes)} each" if sizes else ""


def _ray(path: Path, content: Mapping[str, Any], words: Sequence[str]) -> ClusterForm:
    provider = content["provider"]
    local = provider["type"] == "local"
    workers = provider.get("worker_ips", [])
    of_your_own = [
        Machines("head", provider.get("head_ip", "")),
        Machines("workers", ", ".join(workers) or "none", len(workers)),
    ]
    keys = filter(None, [content.get("auth", {}).get("ssh_private_key")])
    return ClusterForm(
        path,
        "machines of your own" if local else f"Ray's provider {provider['type']}",
        tuple(of_your_own if local else _cloud(content)),
        (f"ray up {path}", shlex.join(["ray", "submit", str(path), "experiments/sweep.py", *words])),
        (*_examples(content), *_missing([*content.get("file_mounts", {}).values(), *keys])),
        next(iter(re.findall(r"CSE_DEVICE=(\w+)", " ".join(content.get("setup_commands", [])))), ""),
    )


def _cloud(content: Mapping[str, Any]) -> Iterator[Machines]:
    for name, kind in content["available_node_types"].items():
        head, config, resources = name == content["head_node_type"], kind["node_config"], kind.get("resources", {})
        most = 1 if head else min(kind.get("max_workers", content["max_workers"]), content["max_workers"])
        machine = config.get("InstanceType") or config.get("machineType") or "a machine"
        where = machine if head else f"{kind.get('min_workers', 0)} to {most} of {machine}, as runs wait for them"
        yield Machines(name, where, most, resources.get("GPU", 0), resources.get("CPU"))


def _kubernetes(path: Path, content: Mapping[str, Any], words: Sequence[str]) -> ClusterForm:
    spec = content["spec"]
    cluster = spec["rayClusterSpec"]
    machines = []
    for name, group in (
        ("head", cluster["headGroupSpec"]),
        *((g["groupName"], g) for g in cluster["workerGroupSpecs"]),
    ):
        (container,) = group["template"]["spec"]["containers"]
        head, limits, most = name == "head", container["resources"]["limits"], group.get("maxReplicas", 1)
        where = container["image"] if head else f"{group['minReplicas']} to {most} of {container['image']}"
        gpus = 0 if head else float(limits.get("nvidia.com/gpu", 0))
        cores = 0 if group["rayStartParams"].get("num-cpus") == "0" else float(limits["cpu"])
        machines.append(Machines(name, where, most, gpus, cores))
    command = f"kubectl replace --force -f {path}"
    not_ready = _examples(content)
    if not set(words) <= set(shlex.split(spec["entrypoint"])):
        not_ready.append(f"entrypoint: runs `{spec['entrypoint']}`; put {shlex.join(words)} there")
    return ClusterForm(path, "KubeRay", tuple(machines), (command,), not_ready=tuple(not_ready), device="cuda")


def _slurm(path: Path, text: str, words: Sequence[str]) -> ClusterForm:
    given = dict(re.findall(r"^#SBATCH --([\w-]+)=(\S+)", text, re.MULTILINE))
    nodes, gpus, cores = (int(given.get(name, 1)) for name in ("nodes", "gpus-per-node", "cpus-per-task"))
    where = f"{nodes} nodes of Slurm's choice for {given.get('time', 'its default time')}"
    machines = Machines("nodes", where, nodes, gpus, cores)
    return ClusterForm(path, "Slurm", (machines,), (shlex.join(["sbatch", str(path), *words]),))


def _examples(content: Any) -> list[str]:
    """Return a line for each value of a description that is still one of the EXAMPLES."""
    lines: dict[str, None] = {}

    def visit(value: Any, name: str) -> None:
        if isinstance(value, dict):
            for key, item in value.items():
                visit(item, str(key))
        elif isinstance(value, list):
            for item in value:
                visit(item, name)
        elif isinstance(value, str) and (example := next((word for word in EXAMPLES if word in value), None)):
            shown = next((word for word in value.split() if example in word), value)
            lines[f"{name}: {shown} is an example; put your own there"] = None

    visit(content, "")
    return list(lines)


def _missing(paths: Sequence[str]) -> list[str]:
    return [f"{path}: no such file on this machine" for path in paths if not Path(path).expanduser().exists()]
