"""Slurm by slurmrestd, from API version v0.0.40 on (Slurm 23.11).

Up to v0.0.44 slurmrestd can drain, hold, release, exclude and mark, but has no request that puts a running job back into the
queue: that takes Slurm's commands beside it, or is refused. Each request bears a JSON Web Token from a file, which is read again
when it has changed. Source: slurmrestd's OpenAPI, `update_node_msg` and `job_desc_msg` of v0.0.40 to v0.0.44.

slurmrestd answers with status 500 for whatever the controller refuses, and says in `errors` what it was: then it was not done.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import orjson

from connectors.base import LeaseHeld
from connectors.http import Rejected, change, http_client, read
from connectors.slurm.api import LONG_PAST, JobUpdate, Missing, SlurmApi
from streams.job_kinds.slurm_job import NO_REQUEUE
from streams.model.errors import Temporary
from streams.model.slurm import Record, number

OLDEST, NEWEST = 40, 44
"""Versions whose requests are known: `v0.0.40` to `v0.0.44`."""
_PATH = re.compile(r"^/slurm/v0\.0\.(\d{2,3})/", re.ASCII)
_MISSING = ("Invalid job id", "Invalid node name", "Unable to query node", "Node not found")
_AWAY = ("Unable to contact slurm controller", "Protocol authentication error", "Connection refused")
"""The controller was not reached, or did not know the caller: nothing was done, and it may be later."""
_UNSURE = ("Socket timed out", "Zero Bytes", "Unexpected message", "Communication")


class Rest:
    """A `SlurmApi` on slurmrestd. `requeues` does what it has no request for."""

    def __init__(
        self,
        url: str,
        *,
        user: str,
        token_file: Path,
        version: str | None = None,
        timeout_s: float = 10.0,
        requeues: SlurmApi | None = None,
    ) -> None:
        self._client = http_client(url, timeout_s=timeout_s, headers={"X-SLURM-USER-NAME": user})
        self._client.event_hooks = {"request": [self._sign], "response": [_explain]}
        self._token_file = token_file
        self._token: tuple[int, str] | None = None
        self._version = version
        self._requeues = requeues

    @property
    def can_requeue(self) -> bool:
        """Only by the commands."""
        return self._requeues is not None

    async def nodes(self) -> list[Record]:
        """`GET nodes/`."""
        return _records(await self._read("nodes/"), "nodes")

    async def node(self, name: str) -> Record:
        """`GET node/NAME`."""
        for record in _records(await self._read(f"node/{quote(name, safe='')}"), "nodes"):
            if record.get("name") == name:
                return record
        raise Missing(f"Slurm knows no node {name}")

    async def jobs(self) -> list[Record]:
        """`GET jobs/`."""
        return _records(await self._read("jobs/"), "jobs")

    async def job(self, number_: int) -> Record:
        """`GET job/NUMBER`."""
        for record in _records(await self._read(f"job/{number_}"), "jobs"):
            if number(record.get("job_id")) == number_:
                return record
        raise Missing(f"Slurm knows no job {number_}")

    async def drain(self, node: str, reason: str, comment: str, lease: LeaseHeld) -> None:
        """`POST node/NAME` with state DRAIN."""
        body = {"state": ["DRAIN"], "reason": reason, "comment": comment}
        await self._change(f"node/{quote(node, safe='')}", body, lease)

    async def resume(self, node: str, comment: str, lease: LeaseHeld) -> None:
        """`POST node/NAME` with state RESUME."""
        await self._change(f"node/{quote(node, safe='')}", {"state": ["RESUME"], "comment": comment}, lease)

    async def requeue_hold(self, job: int, lease: LeaseHeld) -> None:
        """By the commands, where they are set as well."""
        if self._requeues is None:
            raise Rejected(NO_REQUEUE, status=501, body={})
        await self._requeues.requeue_hold(job, lease)

    async def hold(self, job: int, lease: LeaseHeld) -> None:
        """`POST job/NUMBER` with `hold`."""
        await self._change(f"job/{job}", {"hold": True}, lease)

    async def release(self, job: int, lease: LeaseHeld) -> None:
        """`POST job/NUMBER` with `hold` false."""
        await self._change(f"job/{job}", {"hold": False}, lease)

    async def update_job(self, job: int, update: JobUpdate, lease: LeaseHeld) -> None:
        """`POST job/NUMBER`."""
        body: dict[str, Any] = {}
        if update.admin_comment is not None:
            body["admin_comment"] = update.admin_comment
        if update.excluded is not None:
            body["excluded_nodes"] = list(update.excluded)
        if update.start_now:
            body["begin_time"] = {"set": True, "infinite": False, "number": int(LONG_PAST.timestamp())}
        await self._change(f"job/{job}", body, lease)

    async def close(self) -> None:
        """Close connections."""
        await self._client.aclose()
        if self._requeues is not None:
            await self._requeues.close()

    async def _read(self, what: str) -> Mapping[str, Any]:
        return await read(self._client, "GET", f"slurm/{await self._offered()}/{what}")

    async def _change(self, what: str, body: Mapping[str, Any], lease: LeaseHeld) -> None:
        version = await self._offered()
        answer = await change(self._client, "POST", f"slurm/{version}/{what}", lease=lease, json=body)
        if said := _errors(answer):
            raise _refusal(f"POST {what}", said) or Rejected(f"POST {what}: {said}", status=200, body={})

    async def _offered(self) -> str:
        """The version that is set, else the newest that the server offers and that is known here.

        Raises:
            Temporary: the server cannot be asked.
            Rejected: it offers none that is known.
        """
        if self._version is None:
            paths = (await read(self._client, "GET", "openapi")).get("paths")
            found = {int(match[1]) for path in paths or () if (match := _PATH.match(str(path)))}
            known = [one for one in found if OLDEST <= one <= NEWEST]
            if not known:
                offers = ", ".join(f"v0.0.{one}" for one in sorted(found)) or "none"
                wanted = f"v0.0.{OLDEST} to v0.0.{NEWEST}"
                raise Rejected(
                    f"slurmrestd offers the versions {offers}; known are {wanted}", status=404, body={}
                )
            self._version = f"v0.0.{max(known)}"
        return self._version

    async def _sign(self, request: httpx.Request) -> None:
        request.headers["X-SLURM-USER-TOKEN"] = self._read_token()

    def _read_token(self) -> str:
        """The token, read again where its file has changed: secrets are replaced while the process runs."""
        try:
            changed = self._token_file.stat().st_mtime_ns
            if self._token is None or self._token[0] != changed:
                self._token = (
                    changed,
                    self._token_file.read_text(encoding="utf-8").strip().removeprefix("SLURM_JWT="),
                )
        except (OSError, UnicodeDecodeError) as error:
            raise Temporary(f"slurm.token_file {self._token_file} cannot be read: {error}") from error
        return self._token[1]


async def _explain(response: httpx.Response) -> None:
    """Raise what an answer with `errors` means; everything else is left to its status."""
    if response.status_code < 400 or response.status_code == 429:
        return
    where = f"{response.request.method} {response.request.url.path}"
    if response.status_code == 401:
        raise Temporary(f"{where}: slurmrestd does not accept the token (slurm.user, slurm.token_file)")
    try:
        said = _errors(orjson.loads(await response.aread()))
    except orjson.JSONDecodeError:
        return
    if said and (error := _refusal(where, said)) is not None:
        raise error


def _refusal(where: str, said: str) -> Rejected | Temporary | None:
    """The error for what Slurm says of a request that it has certainly not carried out; None where that is not certain."""
    if any(part in said for part in _UNSURE):
        return None
    if any(part in said for part in _MISSING):
        return Missing(f"{where}: {said}")
    if any(part in said for part in _AWAY):
        return Temporary(f"{where}: {said}")
    return Rejected(f"{where}: {said}", status=400, body={})


def _errors(answer: object) -> str:
    """What an answer lists as errors, in words; empty where it lists none."""
    listed = answer.get("errors") if isinstance(answer, Mapping) else None
    words = []
    for error in listed if isinstance(listed, list) else []:
        if isinstance(error, Mapping):
            words.append(
                ": ".join(filter(None, (str(error.get("error") or ""), str(error.get("description") or ""))))
            )
    return "; ".join(words)[:300]


def _records(answer: Mapping[str, Any], key: str) -> list[Record]:
    found = answer.get(key)
    if not isinstance(found, list):
        raise Temporary(f"slurmrestd's answer has no {key}: {_errors(answer)}")
    return [record for record in found if isinstance(record, Mapping)]
