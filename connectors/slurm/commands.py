"""Slurm by its own commands: `scontrol`, `squeue` and `sinfo` of a host that is configured as a client.

Each call is a list of arguments, never a line for a shell, and has a deadline. Names are checked before they become arguments:
`scontrol` reads `key=value` words, and a comma or a bracket in a name would mean several nodes.
"""

from __future__ import annotations

import asyncio
import os
import re
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from connectors.base import LeaseHeld
from connectors.http import Ambiguous, Rejected
from connectors.slurm.api import LONG_PAST, JobUpdate, Missing
from streams.model.errors import Temporary
from streams.model.slurm import Record, number

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}", re.ASCII)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]+")

_MISSING = ("Invalid job id specified", "Invalid node name specified")
_AWAY = (
    "Unable to contact slurm controller",
    "Connection refused",
    "Connection timed out",
    "Name or service not known",
    "Unable to establish controller machine",
    "backup controller in standby",
    "Configuration source",
    "Munge encode failed",
)
"""The controller was certainly not reached, or has refused to act for now."""
_UNSURE = (
    "Socket timed out",
    "Zero Bytes were transmitted",
    "Unexpected message",
    "Transport endpoint",
    "Communication",
)
_NO_JSON = ("unrecognized option '--json'", "invalid option -- 'j'")


class Commands:
    """A `SlurmApi` on the commands. `folder` is where they lie, else the PATH; `config` is Slurm's own configuration file."""

    def __init__(
        self, folder: Path | None = None, config: Path | None = None, timeout_s: float = 10.0
    ) -> None:
        self._folder = folder
        self._config = config
        self._timeout_s = timeout_s
        self._shows_json: bool | None = None
        """Whether `scontrol` writes JSON: since 23.02, when `sinfo` began to write groups of nodes in place of nodes."""

    @property
    def can_requeue(self) -> bool:
        """Always."""
        return True

    async def nodes(self) -> list[Record]:
        """By `scontrol show nodes`, or by `sinfo` before 23.02."""
        if self._shows_json is not False:
            try:
                found = await self._read("scontrol", "show", "nodes", "--json")
            except Rejected as error:
                if not any(said in str(error) for said in _NO_JSON):
                    raise
                self._shows_json = False
            else:
                self._shows_json = True
                return _records(found, "nodes")
        return _records(await self._read("sinfo", "--all", "--Node", "--json"), "nodes")

    async def node(self, name: str) -> Record:
        """By `scontrol show node NAME`; read among all before 23.02, whose tools that write JSON cannot be asked for one, and
        where it is not found, for releases differ in how they say that."""
        if self._shows_json is not False and _NAME.fullmatch(name):
            try:
                found = await self._read("scontrol", "show", "node", name, "--json")
            except Rejected:
                pass  # no JSON, or no such node: reading all tells which
            else:
                self._shows_json = True
                for record in _records(found, "nodes"):
                    if record.get("name") == name:
                        return record
        for record in await self.nodes():
            if record.get("name") == name:
                return record
        raise Missing(f"Slurm knows no node {name}")

    async def jobs(self) -> list[Record]:
        """By `squeue`, jobs of every state and partition."""
        return _records(await self._read("squeue", "--all", "--states=all", "--json"), "jobs")

    async def job(self, number_: int) -> Record:
        """By `squeue`, which before 23.02 writes the others, too."""
        answer = await self._read("squeue", "--all", "--states=all", f"--jobs={number_}", "--json")
        for record in _records(answer, "jobs"):
            if number(record.get("job_id")) == number_:
                return record
        raise Missing(f"Slurm knows no job {number_}")

    async def drain(self, node: str, reason: str, comment: str, lease: LeaseHeld) -> None:
        """`scontrol update NodeName=… State=DRAIN Reason=… Comment=…`."""
        words = ("State=DRAIN", f"Reason={_plain(reason)}", f"Comment={_plain(comment)}")
        await self._change(lease, "update", f"NodeName={_name(node)}", *words)

    async def resume(self, node: str, comment: str, lease: LeaseHeld) -> None:
        """`scontrol update NodeName=… State=RESUME Comment=…`."""
        await self._change(
            lease, "update", f"NodeName={_name(node)}", "State=RESUME", f"Comment={_plain(comment)}"
        )

    async def requeue_hold(self, job: int, lease: LeaseHeld) -> None:
        """`scontrol requeuehold`."""
        await self._change(lease, "requeuehold", str(job))

    async def hold(self, job: int, lease: LeaseHeld) -> None:
        """`scontrol hold`."""
        await self._change(lease, "hold", str(job))

    async def release(self, job: int, lease: LeaseHeld) -> None:
        """`scontrol release`."""
        await self._change(lease, "release", str(job))

    async def update_job(self, job: int, update: JobUpdate, lease: LeaseHeld) -> None:
        """`scontrol update JobId=…`."""
        words = []
        if update.admin_comment is not None:
            words.append(f"AdminComment={_plain(update.admin_comment)}")
        if update.excluded is not None:
            words.append(f"ExcNodeList={','.join(map(_name, update.excluded))}")
        if update.start_now:
            words.append(f"StartTime={LONG_PAST:%Y-%m-%dT%H:%M:%S}")
        await self._change(lease, "update", f"JobId={job}", *words)

    async def close(self) -> None:
        """Nothing is kept open."""

    async def _read(self, program: str, *words: str) -> Mapping[str, Any]:
        try:
            code, out, said = await self._run(program, words)
        except TimeoutError as error:
            raise Temporary(f"{program}: no answer within {self._timeout_s:g} s") from error
        if code:
            raise _read_error(_what(program, words, said), said)
        try:
            found = orjson.loads(out)
        except orjson.JSONDecodeError as error:
            raise Temporary(f"{program}: the answer is no JSON: {out[:80]!r}") from error
        if not isinstance(found, dict):
            raise Temporary(f"{program}: the answer is not a JSON object")
        return found

    async def _change(self, lease: LeaseHeld, *words: str) -> None:
        lease.check()
        try:
            code, _, said = await self._run("scontrol", words)
        except TimeoutError as error:
            raise Ambiguous(f"scontrol {words[0]}: no answer within {self._timeout_s:g} s") from error
        if not code:
            return
        what = _what("scontrol", words, said)
        if any(part in said for part in _UNSURE):
            raise Ambiguous(what)
        raise _read_error(what, said)

    async def _run(self, program: str, words: Sequence[str]) -> tuple[int, bytes, str]:
        """The exit code, standard output, and what was said on standard error.

        Raises:
            TimeoutError: it has not ended within the deadline; it was killed.
            Temporary: it could not be started.
        """
        path = str(self._folder / program) if self._folder else program
        own = {"SLURM_CONF": str(self._config)} if self._config else {}
        # Formats and filters that a login shell sets for people would change what is read here.
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("SQUEUE_", "SINFO_", "SCONTROL_"))}
        try:
            process = await asyncio.create_subprocess_exec(
                path, *words, stdin=DEVNULL, stdout=PIPE, stderr=PIPE, env={**clean, **own}
            )
        except OSError as error:
            raise Temporary(f"{path} cannot be run: {error.strerror}") from error
        try:
            async with asyncio.timeout(self._timeout_s):
                out, said = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert process.returncode is not None
        return process.returncode, out, said.decode(errors="replace")


def _read_error(what: str, said: str) -> Rejected | Temporary:
    """What a failed call means that has certainly changed nothing."""
    if any(part in said for part in _MISSING):
        return Missing(what)
    if any(part in said for part in (*_AWAY, *_UNSURE)):
        return Temporary(what)
    return Rejected(what, status=400, body={})


def _what(program: str, words: Sequence[str], said: str) -> str:
    return f"{program} {words[0]}: {' '.join(said.split())[:300] or 'failed without a word'}"


def _records(answer: Mapping[str, Any], key: str) -> list[Record]:
    found = answer.get(key)
    if not isinstance(found, list):
        raise Temporary(f"Slurm's answer has no {key}")
    return [record for record in found if isinstance(record, Mapping)]


def _name(node: str) -> str:
    """The name of one node, safe as a part of an argument.

    Raises:
        Rejected: it is none.
    """
    if not _NAME.fullmatch(node):
        raise Rejected(f"{node[:80]!r} is no name of a node of Slurm", status=400, body={})
    return node


def _plain(text: str) -> str:
    """A text on one line."""
    return _CONTROL.sub(" ", text)
