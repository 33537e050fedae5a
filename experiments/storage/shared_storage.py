"""Share run folders among the machines of a cluster, in a folder at any URL that fsspec supports.

    URL/<key>/1, 2, ...                pointer files: each names a folder with a version of the run; the last is current
    URL/<key>/<attempt>-<number>/      such a folder: checkpoints, history, result, arrays
    URL/<key>/state-<step>-<selection rules>-<attempt>/    the state from which an unfinished run resumes
    .../complete                       in each of these folders, written last: its files with size and SHA-256
    URL/<key>/<number>.damaged         this version is damaged, and why: the one before it counts, or none
    URL/pins/...                       the content of each corpus and backbone that is declared by name only
    URL/prepared                       marks the shared folder, which may not be mounted on every machine

Two attempts never write the same file, except pointer files, which belong to the first attempt that creates them. So a
worker that was cut off and still runs can do no harm: late uploads are ignored.

A version holds scores together with the files of training. A separate folder for scores would not make versions
unnecessary: a run is retrained for more selection rules, or because a file is damaged.

Why not Ray Tune's storage (`storage_path`, Ray 2.60.0, measured in November 2026)? A worker presumed lost wrote into
the checkpoint of its retry, which had finished, and Tune returned the mixture as the result. Tune resumed from a
checkpoint cut to 10 of 200,000 bytes without an error. `Tuner.restore` takes one list of trials, a sweep any studies.
"""

import hashlib
import json
import logging
import math
import re
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path

from cse_core.data.pins import enforce_pins, read_pins
from cse_core.training.checkpoint import MANIFEST, parse_manifest
from cse_core.training.run_state import HISTORY, STATE, History, check_finished, check_manifest, resumable_step
from experiments.storage.credentials import redact_credentials
from experiments.storage.shared_files import AHEAD, COMPLETE, FETCHED, PREPARED, DamagedError, SharedFiles, os_errors

NAMED = re.compile(r"[0-9a-f]{12}-\d+")
STATE_FOLDER = re.compile(r".*/state-(?P<step>\d+)-(?P<rules>[\w+]+)-(?P<attempt>[0-9a-f]{12})")
DAMAGED, PINNED, TRIES = ".damaged", "pins", 3
logger = logging.getLogger(__name__)


class Shared(SharedFiles):
    """A shared folder at a URL. Unreachable storage raises OSError."""

    def prepare(self) -> None:
        """Prepare the shared folder; refuse storage without atomic create-if-absent."""
        place = f"{self.root}/probe-{self.attempt}"
        try:
            with os_errors(self.url):
                self.files.makedirs(self.root, exist_ok=True)
                refuses = self._claim(place, self.attempt) and not self._claim(place, "another")
                self._remove([place])
                self.files.pipe_file(f"{self.root}/{PREPARED}", b"Run folders of sweeps.\n")
        except (OSError, ValueError) as error:
            raise OSError(f"{redact_credentials(self.url)}: can't be shared ({redact_credentials(error)})") from error
        if not refuses:
            raise OSError(f"{redact_credentials(self.url)}: can't be shared: a file that exists can be created again")

    def holds(self, key: str, rules: Collection[str]) -> bool:
        """Return whether a run's last version is whole, with the checkpoints of these rules that its history names."""
        with os_errors(self.url):
            numbers = self._numbers(key)
            if not numbers:
                return False
            place = f"{self.root}/{key}/{numbers[0]}"
            try:
                place = self._whole_folder(key, numbers[0])
                history = History.of(json.loads(self.files.cat_file(f"{place}/{HISTORY}")))
                if not set(rules) <= set(history.kept):
                    return False
                for rule in rules:
                    name = f"{place}/{rule}/{MANIFEST}"
                    check_manifest(parse_manifest(self.files.cat_file(name).decode(), name), key, rule, history)
            except (FileNotFoundError, ValueError) as error:
                logger.warning("%s: no finished run of %s (%s)", redact_credentials(place), ", ".join(rules), error)
                return False
            return True

    def fetch(self, key: str, store: Path, *, weights: bool = True, rules: Collection[str] = ()) -> int:
        """Download a run's folder into the store if it is not up to date; return the number of its last version, or 0.

        If the run is unfinished, download its furthest state for these selection rules. Without `weights`, download
        only the files that the record needs.
        """
        with os_errors(self.url):
            for _ in range(TRIES - 1):
                with suppress(FileNotFoundError):  # another attempt removed the state: try again
                    return self._fetch(key, store, weights, rules)
            return self._fetch(key, store, weights, rules)

    def _fetch(self, key: str, store: Path, weights: bool, rules: Collection[str]) -> int:
        last, folder = max(self._numbers(key, damaged=True), default=0), store / key
        here = folder / FETCHED
        for number in self._numbers(key):
            current = here.is_file() and here.read_text() == str(number)
            try:
                if current:
                    self._whole_folder(key, number)
                    return last
                self._download(self._folder(key, number), folder, weights=weights)
            except (FileNotFoundError, DamagedError) as error:
                self._set_aside(key, number, error)
                if current:
                    break  # the local folder is complete, and is uploaded again
            else:
                if weights:
                    for left in (STATE, AHEAD):  # left by an attempt that another one overtook
                        (folder / left).unlink(missing_ok=True)
                    here.write_text(str(number))
                return last
        here.unlink(missing_ok=True)
        for state in self._further_states(key, folder, rules):
            try:
                self._download(state, folder, weights=True)
                logger.warning("run %s resumes from %s", key, state)
                break
            except DamagedError as error:
                logger.warning("%s: damaged (%s); deleted", redact_credentials(state), redact_credentials(error))
                self._remove([state])
        return last

    def _set_aside(self, key: str, number: int, error: Exception) -> None:
        """Mark a version as damaged, so that no machine fetches it again; its files stay."""
        self.require_prepared()  # if the folder is no longer mounted, this raises an error that is retried
        reason, place = redact_credentials(error), f"{self.root}/{key}/{number}"
        self.files.pipe_file(f"{place}{DAMAGED}", f"{reason}\n".encode())
        logger.warning(
            "%s: damaged (%s); set aside, what no earlier version has is done again", redact_credentials(place), reason
        )

    def publish(self, folder: Path, after: int) -> bool:
        """Upload a folder as the run's next version, unless another attempt did so since `fetch` returned `after`."""
        place = f"{self.root}/{folder.name}"
        check_finished(folder)
        self.require_prepared()
        name, number = f"{self.attempt}-{after + 1}", f"{place}/{after + 1}"
        with os_errors(self.url):
            if not self.files.exists(number):  # otherwise it is claimed, by this attempt if this call is a retry
                self._upload(folder, f"{place}/{name}")
            won = self._claim(number, name)
        with suppress(OSError), os_errors(self.url):  # leftovers take space and are ignored
            self._remove([*self._states(folder.name), *([] if won else [f"{place}/{name}"])])
        return won

    def drop_states(self, keys: Iterable[str]) -> None:
        """Delete saved states of abandoned runs."""
        with os_errors(self.url):
            self._remove([state for key in keys for state in self._states(key)])

    def share_state(self, folder: Path, rules: Collection[str]) -> None:
        """Upload the state from which a run with these rules can resume; delete earlier ones of this attempt."""
        step = resumable_step(folder, rules)
        if not 0 <= step < math.inf:  # no readable state, or a finished run that is retrained for more rules
            return
        self.require_prepared()
        with os_errors(self.url):
            name = f"state-{step}-{_rules_slug(rules)}-{self.attempt}"
            state = f"{self.root}/{folder.name}/{name}"
            if not self.files.exists(f"{state}/{COMPLETE}"):  # otherwise the run saved no new state
                self._upload(folder, state)
            uploaded = [path for path in self._states(folder.name) if path.endswith(self.attempt)]
            self._remove([path for path in uploaded if not path.endswith(name)])

    def exchange_pins(self, store: Path) -> None:
        """Refuse corpora and backbones whose content is not that of the first machine to use them (data/pins.py)."""
        place = f"{self.root}/{PINNED}"
        self.require_prepared()
        with os_errors(self.url):
            self.files.makedirs(place, exist_ok=True)
            for pin in read_pins(store).items():  # an existing name keeps its content
                self._claim(f"{place}/{hashlib.sha256(pin[0].encode()).hexdigest()}", json.dumps(pin))
            files = [path for path in self._entries(PINNED) if not path.endswith(".part")]
            enforce_pins(
                store, dict(json.loads(self.files.cat_file(path)) for path in files), redact_credentials(self.url)
            )

    def _numbers(self, key: str, *, damaged: bool = False) -> list[int]:
        """Return the numbers of a run's versions, the last one first; with `damaged`, also those set aside."""
        names = {path.rpartition("/")[2] for path in self._entries(key)}
        numbers = [int(name) for name in names if name.isdigit() and (damaged or f"{name}{DAMAGED}" not in names)]
        return sorted(numbers, reverse=True)

    def _folder(self, key: str, last: int) -> str:
        name = self._read(f"{self.root}/{key}/{last}").decode(errors="replace")
        if not NAMED.fullmatch(name):
            raise DamagedError(f"{self.root}/{key}/{last}: expected the name of an attempt's folder, got {name!r}")
        return f"{self.root}/{key}/{name}"

    def _whole_folder(self, key: str, number: int) -> str:
        """Return a version's folder; raise DamagedError if one of its files is missing or cut."""
        place = self._folder(key, number)
        sizes = {path: about["size"] for path, about in self.files.find(place, detail=True).items()}
        for name, file in self._files_of(place).items():
            if sizes.get(f"{place}/{name}") != file["bytes"]:
                raise DamagedError(f"{place}/{name}: missing or cut")
        return place

    def _further_states(self, key: str, folder: Path, rules: Collection[str]) -> list[str]:
        """Return the complete states for these rules that are further than this machine's, the furthest first."""
        found = [named for path in self._states(key) if (named := STATE_FOLDER.fullmatch(path))]
        steps = {named[0]: int(named["step"]) for named in found if named["rules"] == _rules_slug(rules)}
        own = resumable_step(folder, rules) if steps else 0
        further = [path for path, step in steps.items() if step > own and self.files.exists(f"{path}/{COMPLETE}")]
        return sorted(further, key=steps.__getitem__, reverse=True)

    def _states(self, key: str) -> list[str]:
        return [path for path in self._entries(key) if path.rpartition("/")[2].startswith("state-")]


def _rules_slug(rules: Collection[str]) -> str:
    return "+".join(sorted(set(rules)))
