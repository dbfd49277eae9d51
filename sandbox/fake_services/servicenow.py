"""A stand-in for ServiceNow's Table API and Attachment API: incidents and change requests, as an instance is shipped.

    GET, POST /api/now/table/{table}              GET, PATCH /api/now/table/{table}/{sys_id}
    GET /api/now/attachment                       POST /api/now/attachment/file
    DELETE /api/now/attachment/{sys_id}

Its traps are there: a term of `sysparm_query` about an unknown column is ignored (so everything matches), a second POST with a
known `correlation_id` makes a second record, text beyond a column's length is cut without a word, resolving needs `close_code`
and `close_notes`, closed and cancelled records are read-only, and a token without the right to write gets 403. Searches lag by
`lag_s`.
"""

from __future__ import annotations

import time
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from aiohttp import web

from sandbox.fake_services.server import Standin

_LENGTHS = {"short_description": 160, "description": 4000, "correlation_id": 100, "correlation_display": 100}
_COLUMNS = {*_LENGTHS, "state", "number", "sys_id", "close_code", "close_notes", "assignment_group"} | {
    "sys_created_on", "resolved_at", "closed_at", "urgency", "impact", "category", "cmdb_ci", "work_notes",
}  # fmt: skip
_NEW = {"incident": "1", "change_request": "-5"}
_RESOLVED = {"incident": {"6"}, "change_request": {"3"}}
_FINAL = {"incident": {"7", "8"}, "change_request": {"3", "4"}}
_NUMBERS = {"incident": "INC", "change_request": "CHG"}


@dataclass(slots=True)
class StandinAttachment:
    """One attachment. The same name may be there any number of times."""

    sys_id: str
    name: str
    content: bytes
    by: str = "faultline"
    at: str = ""


@dataclass(slots=True)
class StandinRecord:
    """One record; `notes` are its work notes, oldest first."""

    table: str
    fields: dict[str, str]
    notes: list[str] = field(default_factory=list)
    attachments: list[StandinAttachment] = field(default_factory=list)
    searchable_at: float = 0.0

    @property
    def state(self) -> str:
        """The value of its `state`."""
        return self.fields["state"]


class ServiceNowStandin(Standin):
    """An instance with the tables `incident` and `change_request`. `clock` is in seconds."""

    def __init__(
        self,
        *,
        user: str = "faultline",
        token: str = "standin-token",
        lag_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        super().__init__()
        self.user, self.token, self.lag_s = user, token, lag_s
        self.records: list[StandinRecord] = []
        self.may_write = True
        self.not_queried: set[str] = set()
        """Columns that this instance does not have in queries, as after a rename."""
        self._clock, self._now = clock, now
        route = self.app.router.add_route
        route("GET", "/api/now/table/{table}", self._asked(self._query))
        route("POST", "/api/now/table/{table}", self._asked(self._create))
        route("GET", "/api/now/table/{table}/{sys_id}", self._asked(self._show))
        route("PATCH", "/api/now/table/{table}/{sys_id}", self._asked(self._update))
        route("GET", "/api/now/attachment", self._asked(self._attachments))
        route("POST", "/api/now/attachment/file", self._asked(self._attach))
        route("DELETE", "/api/now/attachment/{sys_id}", self._asked(self._detach))

    def _asked(self, handler: Any) -> Any:
        async def answer(request: web.Request) -> web.Response:
            basic = "Basic " + b64encode(f"{self.user}:{self.token}".encode()).decode()
            if request.headers.get("Authorization") not in (basic, f"Bearer {self.token}"):
                return _refused(401, "User Not Authenticated", "Required to provide Auth information")
            if request.match_info.get("table", "incident") not in _NEW:
                return _refused(400, "Invalid table " + request.match_info["table"], "")
            if request.method != "GET" and not self.may_write:
                return _refused(
                    403, "Operation Failed", "ACL Exception Insert Failed due to security constraints"
                )
            return await handler(request)  # type: ignore[no-any-return]

        return answer

    async def _query(self, request: web.Request) -> web.Response:
        table, now = request.match_info["table"], self._clock()
        found = [r for r in self.records if r.table == table and r.searchable_at <= now]
        for term in request.query.get("sysparm_query", "").split("^"):
            if term.startswith("ORDERBYDESC"):
                found.sort(key=lambda r: r.fields["sys_created_on"], reverse=True)
            elif term and not term.startswith("ORDERBY"):
                found = [record for record in found if _matches(record, term, self.not_queried)]
        limit = int(request.query.get("sysparm_limit", 10_000))
        return web.json_response({"result": [_shown(record, request.query) for record in found[:limit]]})

    async def _create(self, request: web.Request) -> web.Response:
        table, body = request.match_info["table"], await request.json()
        number = len(self.records) + 1
        record = StandinRecord(
            table,
            {
                "state": _NEW[table],
                **_cut(body),
                "sys_id": f"{number:032x}",
                "number": f"{_NUMBERS[table]}{number:07d}",
                "sys_created_on": _moment(self._now()),
            },
            searchable_at=self._clock() + self.lag_s,
        )
        self.records.append(record)
        return web.json_response({"result": _shown(record, request.query)}, status=201)

    async def _show(self, request: web.Request) -> web.Response:
        if (record := self._record(request)) is None:
            return _refused(
                404, "No Record found", "Record doesn't exist or ACL restricts the record retrieval"
            )
        return web.json_response({"result": _shown(record, request.query)})

    async def _update(self, request: web.Request) -> web.Response:
        if (record := self._record(request)) is None:
            return _refused(
                404, "No Record found", "Record doesn't exist or ACL restricts the record retrieval"
            )
        body = await request.json()
        final = record.state in _FINAL[record.table]
        if final and set(body) & {"state", "short_description", "description"}:
            return _refused(403, "Operation Failed", "The record is closed and cannot be changed")
        state = body.get("state")
        if state in _RESOLVED[record.table] and not (body.get("close_code") and body.get("close_notes")):
            return _refused(
                403,
                "Operation Failed",
                "Data Policy Exception: The following fields are mandatory: Close code, Close notes",
            )
        if note := body.pop("work_notes", ""):
            record.notes.append(note)
        record.fields |= _cut(body)
        if state in _RESOLVED[record.table]:
            record.fields["resolved_at"] = _moment(self._now())
        return web.json_response({"result": _shown(record, request.query)})

    async def _attachments(self, request: web.Request) -> web.Response:
        terms = dict(term.split("=", 1) for term in request.query["sysparm_query"].split("^"))
        rows = [
            _attachment(record, one)
            for record in self.records
            if (record.table, record.fields["sys_id"]) == (terms["table_name"], terms["table_sys_id"])
            for one in record.attachments
        ]
        return web.json_response({"result": rows})

    async def _attach(self, request: web.Request) -> web.Response:
        about = request.query
        record = next((r for r in self.records if r.fields["sys_id"] == about.get("table_sys_id")), None)
        if record is None or record.table != about.get("table_name"):
            return _refused(400, "Invalid table_sys_id", "")
        made = StandinAttachment(
            uuid4().hex, about["file_name"], await request.read(), at=_moment(self._now())
        )
        record.attachments.append(made)
        return web.json_response({"result": _attachment(record, made)}, status=201)

    async def _detach(self, request: web.Request) -> web.Response:
        for record in self.records:
            for one in record.attachments:
                if one.sys_id == request.match_info["sys_id"]:
                    record.attachments.remove(one)
                    return web.Response(status=204)
        return _refused(404, "No Record found", "Record doesn't exist or ACL restricts the record retrieval")

    def _record(self, request: web.Request) -> StandinRecord | None:
        key = (request.match_info["table"], request.match_info["sys_id"])
        return next((r for r in self.records if (r.table, r.fields["sys_id"]) == key), None)


def _attachment(record: StandinRecord, one: StandinAttachment) -> dict[str, str]:
    return {
        "sys_id": one.sys_id,
        "file_name": one.name,
        "table_sys_id": record.fields["sys_id"],
        "size_bytes": str(len(one.content)),
        "sys_created_on": one.at,
        "sys_created_by": one.by,
    }


def _matches(record: StandinRecord, term: str, unknown: set[str]) -> bool:
    for operator in ("STARTSWITH", "="):
        column, found, value = term.partition(operator)
        if found and column in _COLUMNS - unknown:
            has = record.fields.get(column, "")
            return has.startswith(value) if operator == "STARTSWITH" else has.casefold() == value.casefold()
    return True  # a column that there is not: the term is ignored


def _shown(record: StandinRecord, query: Mapping[str, str]) -> dict[str, str]:
    stamp = record.fields["sys_created_on"]
    notes = "".join(f"{stamp} - Faultline (Work notes)\n{note}\n\n" for note in reversed(record.notes))
    shown_notes = notes if query.get("sysparm_display_value") == "true" else ""
    row = {**dict.fromkeys(_COLUMNS, ""), **record.fields, "work_notes": shown_notes}
    wanted = query.get("sysparm_fields")
    return {name: row[name] for name in wanted.split(",") if name in row} if wanted else row


def _cut(fields: Mapping[str, Any]) -> dict[str, str]:
    known = {name: str(value) for name, value in fields.items() if name in _COLUMNS}
    return {name: value[: _LENGTHS.get(name, 4000)] for name, value in known.items()}


def _moment(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def _refused(status: int, message: str, detail: str) -> web.Response:
    return web.json_response(
        {"error": {"message": message, "detail": detail}, "status": "failure"}, status=status
    )
