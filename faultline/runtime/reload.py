"""Notices that settings, runbooks or catalog have changed, and loads them without a restart: all of them, or nothing.

A look is a digest over the files, every few seconds: the kernel's notices are unreliable on the links that a mounted ConfigMap
swaps. A set has to lie still for two looks before it is tried. A program of its own then checks it whole (`faultline config
check`: values, files, contradictions, tables), because this one holds the tables of the old set; and the digest must be the same
afterwards. What is refused is logged once, counted, and not tried again until the files change; while it lies there, a gauge says
that it is not in force.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NoReturn

import structlog

from faultline.runtime.checked_copy import hand_on, without_copy, write_copy
from faultline.runtime.config_set import ConfigSet, read_files, read_set
from faultline.runtime.reloadable import change_for
from faultline.runtime.settings import Settings, is_empty, load, settings_file
from streams.model.errors import ConfigError, FaultlineError
from streams.telemetry import metrics as shown
from streams.telemetry.registry import Metrics

log = structlog.get_logger(__name__)

CHECK_S = 180.0
"""How long the check may take: three seconds of one core, and half a minute was measured on a machine with ten times its load."""

STAGGER_S = 10.0
"""Replicas see a change at the same time, and must not all leave their group at once."""

SHOWN = 5
"""Faults of a refused set that are logged; `faultline config check` prints all."""

Outcome = Literal["loaded", "refused", "needs_restart"]
Adopt = Callable[[Settings, ConfigSet], Awaitable[Callable[[], None]]]
"""Reads what a set is decided by, and returns what puts that in force. Raises ConfigError."""


@dataclass(slots=True)
class LiveConfig:
    """What the work of a process and its reloader share: the version at the start (None without any file), and who takes over
    what is loaded later."""

    version: str | None = None
    adopt: Adopt | None = None


def starting_set(path: Path | None) -> tuple[Settings, ConfigSet]:
    """The settings, and a set that is at least as old: files that changed in between are noticed at the first look.

    Raises:
        ConfigError: when the settings are not valid, or a file cannot be read.
    """
    found = read_set(path, load(path))
    return load(path), found


class BeginAnew(FaultlineError):
    """The process has to begin again in place, with a copy of what was checked: `run` replaces the program by itself."""

    def __init__(self, version: str, copy: Path) -> None:
        super().__init__(f"configuration {version}")
        self.copy = copy


class Reloader:
    """Watches the files of one process.

    Args:
        process: Its name.
        path: The settings file as it was given; None for that of the environment.
        settings: What it works with.
        live: Who takes a new set over at once; only asked for changes that are `live`.
        now: The set that `settings` was loaded from.
    """

    def __init__(
        self,
        process: str,
        path: Path | None,
        settings: Settings,
        *,
        now: ConfigSet,
        live: LiveConfig,
    ) -> None:
        self._process, self._path, self._live = process, path, live
        self.settings = settings
        self.now = now
        """The set in force."""
        self._seen: ConfigSet | str = now
        """What lay there at the last look: a set, or why it could not be read."""
        self._judged: ConfigSet | str | None = None
        """What was tried last and is not in force; None once what lies there is in force."""

    async def watch(self, metrics: Metrics) -> NoReturn:
        """Look every `reload_s` seconds, until cancelled, and count what becomes of each set.

        Raises:
            BeginAnew: a new set is valid, and this process takes it over by beginning anew.
        """
        while True:
            metrics.replace(shown.CONFIG_INFO, {(self.now.version,): 1.0})
            metrics.set(shown.CONFIG_PENDING, float(self._judged is not None))
            await asyncio.sleep(self.settings.reload_s)
            if (outcome := await self.look()) is not None:
                metrics.add(shown.CONFIG_RELOADS, 1.0, outcome)

    async def look(self) -> Outcome | None:
        """Look once, and load a set that is new, lies still and is valid. Returns what became of a set that was tried."""
        found: ConfigSet | str
        try:
            found = await asyncio.to_thread(read_set, self._path, self.settings)
        except ConfigError as error:
            found = str(error)  # perhaps they are being replaced
        still, self._seen = found == self._seen, found
        if not still or found == self._judged:
            return None
        if isinstance(found, str):
            self._judged = found
            self._refuse("", [found])
            return "refused"
        if found == self.now:
            if self._judged is not None:
                self._judged = None  # what was refused is told again when it comes again
                log.info("the files of the configuration are those in force again", in_force=self.now.version)
            return None
        if found.revision and found.revision == self.now.revision and found.digest != self.now.digest:
            self._judged = found
            log.warning(
                "files of the configuration changed, REVISION did not: nothing is loaded until it does",
                revision=found.revision, in_force=self.now.version,
            )  # fmt: skip
            return None
        return await self._try(found)

    async def _try(self, found: ConfigSet) -> Outcome | None:
        faults = await asyncio.to_thread(self._emptied, found) or await self._faults()
        try:
            settings = await asyncio.to_thread(load, self._path) if not faults else self.settings
            places = settings.responder.runbook_dirs, settings.slack.owners_file
            moved = places != (self.settings.responder.runbook_dirs, self.settings.slack.owners_file)
            again = await asyncio.to_thread(read_set, self._path, settings)
        except ConfigError as error:
            log.debug("files of the configuration changed while they were read", reason=str(error))
            return None
        if not moved and again != found:
            return None  # it is written still: the next looks see when it lies still
        self._judged = found
        if faults:
            self._refuse(again.version, faults)
            return "refused"
        change = change_for(self._process, (self.settings, self.now), (settings, again))
        if change.how == "restart":
            log.error(
                "configuration NOT loaded: it changes settings that need a restart, and is not applied in part",
                needs_restart=list(change.keys), version=again.version, in_force=self.now.version,
                remedy=f"kubectl -n faultline rollout restart deploy/{self._process}",
            )  # fmt: skip
            return "needs_restart"
        if change.how == "live" and self._live.adopt is not None:
            put_in_force, faults = await self._read_live(self._live.adopt, settings, again)
            if not await self._lies_still(settings, again):
                self._judged = None
                return None  # what was read is nothing that anybody has checked; the next looks see what it is by now
            if faults:
                self._refuse(again.version, faults)
                return "refused"
            put_in_force()
        if change.how == "anew":
            await asyncio.sleep(random.uniform(0, min(STAGGER_S, self.settings.reload_s)))
            try:
                files = await asyncio.to_thread(read_files, self._path, settings)
            except ConfigError as error:
                log.debug("files of the configuration changed before a new start", reason=str(error))
                files = None
            if files is None or files.found != again:
                self._judged = None
                return None  # the next looks see what it is by now
            try:
                copy = await asyncio.to_thread(write_copy, files, settings)
            except ConfigError as error:
                self._refuse(again.version, [str(error)])
                return "refused"
            log.info(
                "configuration loaded: beginning anew in place", version=again.version, keys=list(change.keys)
            )
            raise BeginAnew(again.version, copy)
        log.info(
            "configuration loaded",
            version=again.version,
            before=self.now.version,
            keys=list(change.keys),
            how=change.how,
        )
        self.settings, self.now, self._seen, self._judged = settings, again, again, None
        return "loaded"

    async def _read_live(
        self, adopt: Adopt, settings: Settings, found: ConfigSet
    ) -> tuple[Callable[[], None], list[str]]:
        """What puts a set in force, and the faults for which it cannot be."""
        try:
            return await adopt(settings, found), []
        except ConfigError as error:
            return lambda: None, str(error).splitlines()

    async def _lies_still(self, settings: Settings, found: ConfigSet) -> bool:
        """Whether it is this set that lies there."""
        try:
            return await asyncio.to_thread(read_set, self._path, settings) == found
        except ConfigError as error:
            log.debug("files of the configuration changed while they were taken over", reason=str(error))
            return False

    def _emptied(self, found: ConfigSet) -> list[str]:
        """An empty file is valid, and all of it defaults: the switches that were set by it would be off, and nobody said so."""
        named = settings_file(self._path)
        if named is None or found.settings == self.now.settings or not is_empty(named):
            return []
        return [
            f"{named} is empty: every setting would fall to its default. `{{}}` in it says that this is meant"
        ]

    def _refuse(self, version: str, faults: list[str]) -> None:
        log.error(
            "configuration NOT loaded: it is not valid as a whole, and what was loaded before stays in force",
            faults=faults[:SHOWN], more=max(0, len(faults) - SHOWN), version=version, in_force=self.now.version,
            remedy="faultline config check",
        )  # fmt: skip

    async def _faults(self) -> list[str]:
        """What `faultline config check` says of the files, in a program of its own; empty where all is valid."""
        given = ["--config", str(self._path)] if self._path is not None else []
        command = [
            sys.executable, "-m", "faultline", *given, "config", "check", "--process", self._process, "-o", "json",
        ]  # fmt: skip
        checking = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=without_copy()
        )
        try:
            async with asyncio.timeout(CHECK_S):
                told, said = await checking.communicate()
        except TimeoutError:
            return [f"the check took longer than {CHECK_S:g} s"]
        finally:
            if checking.returncode is None:
                checking.kill()
                await checking.wait()
        if checking.returncode == 0:
            return []
        lines = [json.loads(line) for line in told.decode(errors="replace").splitlines() if line[:1] == "{"]
        found = [f"{one['where']}: {one['what']}" for one in lines if one.get("record") == "fault"]
        return found or [said.decode(errors="replace").strip()[-500:] or f"exit code {checking.returncode}"]


def begin_anew(copy: Path) -> NoReturn:
    """Replace this program by itself, with the arguments and the environment that it was started with, and with the copy."""
    hand_on(copy)
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
