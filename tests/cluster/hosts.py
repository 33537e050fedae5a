"""Hosts on one machine: each is a network, mount and process namespace with an SSH server. Needs root and iproute2.

Each has its own home (at HOME) and /tmp/ray; Python and everything else is this machine's.
"""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

NEEDED = ("ip", "sshd", "ssh", "rsync", "curl", "unshare")
BRIDGE = "cse-bridge"
NETWORK = "10.77.0"
HOME = "/mnt"  # a folder that every machine has and none needs


def lacking() -> str:
    """Return why two hosts can't be made here; empty if they can."""
    if os.geteuid() != 0:
        return "two hosts need root"
    absent = [name for name in NEEDED if not shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")]
    return f"two hosts need {', '.join(absent)}" if absent else ""


@dataclass(frozen=True)
class Host:
    """A host: its address, the path of its home on this machine, and the key to log in with."""

    name: str
    address: str
    home: Path
    key: Path

    @property
    def ssh(self) -> list[str]:
        """The start of a command that runs another command on the host."""
        options = ("-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR")
        return ["ssh", "-i", str(self.key), *options, f"root@{self.address}"]

    @property
    def cable(self) -> str:
        return _cable(self.name)

    @contextmanager
    def unplugged(self) -> Generator[None]:
        """Cut the host's link; its processes keep running."""
        call("ip", "link", "set", self.cable, "down")
        try:
            yield
        finally:
            call("ip", "link", "set", self.cable, "up")

    def signal(self, word: str, kind: int) -> list[int]:
        """Signal every process of the host whose command contains this word; return their ids."""
        found = []
        for number in call("ip", "netns", "pids", self.cable).split():
            with suppress(FileNotFoundError, ProcessLookupError):  # it has ended in the meantime
                if word in Path(f"/proc/{number}/cmdline").read_bytes().decode():
                    os.kill(int(number), kind)
                    found.append(int(number))
        return found

    def ports(self) -> list[int]:
        """Return the ports on which something listens for other machines."""
        listening = [line.split()[3] for line in call("ip", "netns", "exec", self.cable, "ss", "-ltnH").splitlines()]
        return [int(at.rpartition(":")[2]) for at in listening if "127.0.0.1" not in at and "[::1]" not in at]


def _cable(name: str) -> str:
    return f"cse-{name}"


def call(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stdout}{done.stderr}")
    return done.stdout


@contextmanager
def hosts(folder: Path, *names: str) -> Generator[list[Host]]:
    """Create the hosts, and remove them in the end. Other checkouts use the same names, so they wait for the lock."""
    with FileLock(Path(tempfile.gettempdir()) / "cse-hosts.lock"):
        yield from _hosts(folder, *names)


def _hosts(folder: Path, *names: str) -> Generator[list[Host]]:
    key = folder / "key"
    cables = [_cable(name) for name in names]
    for left in [*(f"netns delete {cable}" for cable in cables), *(f"link delete {one}" for one in [*cables, BRIDGE])]:
        subprocess.run(["ip", *left.split()], capture_output=True, check=False)  # left by a test that was killed
    call("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key))
    with ExitStack() as stack:
        call("ip", "link", "add", BRIDGE, "type", "bridge")
        stack.callback(call, "ip", "link", "delete", BRIDGE)
        call("ip", "address", "add", f"{NETWORK}.254/24", "dev", BRIDGE)
        call("ip", "link", "set", BRIDGE, "up")
        yield [stack.enter_context(_host(folder, name, f"{NETWORK}.{i}", key)) for i, name in enumerate(names, 1)]


@contextmanager
def _host(folder: Path, name: str, address: str, key: Path) -> Generator[Host]:
    home = folder / name / "home"
    (folder / name / "ray").mkdir(parents=True)
    home.mkdir()
    Path("/tmp/ray").mkdir(exist_ok=True)
    passwd = folder / name / "passwd"
    lines = Path("/etc/passwd").read_text().splitlines()
    passwd.write_text("".join(f"{line.replace(':/root:', f':{HOME}:')}\n" for line in lines))
    host = Host(name, address, home, key)
    with ExitStack() as stack:
        call("ip", "netns", "add", host.cable)
        stack.callback(call, "ip", "netns", "delete", host.cable)
        call("ip", "link", "add", host.cable, "type", "veth", "peer", "name", "eth0", "netns", host.cable)
        call("ip", "link", "set", host.cable, "master", BRIDGE, "up")
        for words in (
            f"address add {address}/24 dev eth0",
            "link set eth0 up",
            "link set lo up",
            f"route add default via {NETWORK}.254",  # it leads nowhere, but Ray finds its own address by it
        ):
            call("ip", "-n", host.cable, *words.split())
        process = _sshd(host, folder / name)
        stack.callback(process.wait)
        stack.callback(process.kill)  # the namespace's first process: all others end with it
        yield host


def _sshd(host: Host, folder: Path) -> subprocess.Popen[bytes]:
    Path("/run/sshd").mkdir(exist_ok=True)
    options = {
        "ListenAddress": host.address,
        "HostKey": host.key,
        "AuthorizedKeysFile": f"{host.key}.pub",
        "StrictModes": "no",
        "UsePAM": "no",
        "PidFile": "none",
        "PermitRootLogin": "prohibit-password",
        "MaxStartups": "100",
    }
    given = " ".join(f"-o {name}={value}" for name, value in options.items())
    mounts = {"passwd": "/etc/passwd", "ray": "/tmp/ray", "home": HOME}
    own = " && ".join(f"mount --bind {folder}/{name} {place}" for name, place in mounts.items())
    inside = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child", "bash", "-c"]
    with (folder / "sshd.log").open("wb") as log:
        process = subprocess.Popen(
            ["ip", "netns", "exec", host.cable, *inside, f"{own} && exec /usr/sbin/sshd -D -e {given}"], stderr=log
        )
    deadline = time.monotonic() + 20
    while subprocess.run([*host.ssh, "true"], capture_output=True, check=False).returncode:
        if time.monotonic() > deadline:
            process.kill()
            raise RuntimeError(f"no SSH at {host.address}: {(folder / 'sshd.log').read_text()}")
        time.sleep(0.2)
    return process
