"""ServiceNow's Table API and Attachment API as tickets need them.

`correlation_id` holds the incident's mark and `correlation_display` those of place and effect: both are columns of 100 characters
that every task has. Three traps: a term of a query about a column that does not exist is ignored, and the answer is then the
whole table; a POST with a known `correlation_id` makes a second record; and `[code]` in a note is HTML.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from connectors.base import LeaseHeld
from connectors.http import Ambiguous, Rejected, Upload, change, http_client, read
from connectors.tickets.inert import journal, no_formula
from connectors.tickets.markup import plain_text
from connectors.tickets.ticket_api import (
    PLACE,
    Attached,
    Comment,
    Draft,
    Marks,
    Phase,
    Ticket,
    TicketFile,
    marks_in,
    too_long,
)
from streams.config.ticket_settings import ServiceNowSettings
from streams.model.errors import ConfigError, Permanent, Temporary
from streams.model.message import Message, plain

MAX_SHORT_DESCRIPTION = 160
MAX_DESCRIPTION = 3900
"""Characters; the column takes 4,000 as shipped."""
MAX_NOTE = 16_000

MAX_CORRELATION = 100
CLOSED = "Closed by Faultline."
"""The close notes of a closing that says nothing."""

_BLANK = " \t\r\n\u00a0\u200b\u200c\u200d\u2060\ufeff"
_FIELDS = (
    "sys_id,number,state,correlation_id,correlation_display,description,sys_created_on,resolved_at,closed_at"
)
_SYS_ID = re.compile(r"[0-9a-f]{32}")


class _Table:
    """The states of one table as shipped, where the settings do not say otherwise."""

    def __init__(self, new: str, close: str, withdraw: str, reopen: str, *, done: set[str], final: set[str]):
        self.new, self.close, self.withdraw, self.reopen = new, close, withdraw, reopen
        self.done, self.final = done, final


_TABLES = {
    # Closed (7) and cancelled (8) incidents are read-only.
    "incident": _Table("1", "6", "8", "2", done={"6", "7", "8"}, final={"7", "8"}),
    # A change goes back from no final state.
    "change_request": _Table("-5", "3", "4", "-1", done={"3", "4"}, final={"3", "4"}),
}


class ServiceNowApi:
    """A `TicketApi`: records of one table. Comments are work notes, which nobody can take back."""

    folds_comments = False

    def __init__(self, settings: ServiceNowSettings) -> None:
        if not settings.base_url:
            raise ConfigError("tickets.servicenow.base_url: not set, and tickets.system is servicenow")
        self.search_lag_s = settings.search_lag_s
        self._settings = settings
        self._states = _TABLES[settings.table]
        self._base_url = settings.base_url.rstrip("/")
        token = settings.token.get_secret_value() if settings.token else ""
        self._http = http_client(
            self._base_url,
            timeout_s=settings.timeout_s,
            auth=(settings.user, token) if settings.user else None,
            headers={} if settings.user else {"Authorization": f"Bearer {token}"},
        )

    async def close(self) -> None:
        """Close connections."""
        await self._http.aclose()

    def misfit(self, marks: Marks) -> str:
        """Both columns are cut without a word at 100 characters."""
        limits = [(marks.incident, MAX_CORRELATION), (_display(marks), MAX_CORRELATION)]
        return too_long(limits, "a correlation column of ServiceNow")

    async def search(self, mark: str, *, known: Sequence[str] = ()) -> list[Ticket]:
        """Records with the mark of an incident, or of a place (the latest first)."""
        if mark.startswith(PLACE):
            query = f"correlation_displaySTARTSWITH{mark}^ORDERBYDESCsys_created_on"
        else:
            query = f"correlation_id={mark}^ORDERBYsys_created_on"
        # A query that was ignored must not make anybody's records ours.
        return [ticket for ticket in await self._query(query, 50) if mark in ticket.marks]

    async def read(self, name: str) -> Ticket | None:
        """One record by its sys_id or number."""
        if _SYS_ID.fullmatch(name) is None:
            found = await self._query(f"number={name}", 2)
            return next((ticket for ticket in found if ticket.key == name), None)
        try:
            answer = await read(self._http, "GET", self._path(name), params={"sysparm_fields": _FIELDS})
        except Rejected as error:
            if error.status == 404:
                return None
            raise
        return self._ticket(_result(answer))

    async def create(self, draft: Draft, lease: LeaseHeld) -> Ticket:
        """Make a record."""
        marks = draft.marks
        fields = {
            **draft.fields,
            "short_description": plain(draft.title, MAX_SHORT_DESCRIPTION),
            "description": plain_text(draft.message, MAX_DESCRIPTION, footer=marks.incident),
            "correlation_id": marks.incident,
            "correlation_display": _display(marks),
        }
        try:
            answer = await change(
                self._http,
                "POST",
                self._path(),
                lease=lease,
                json=fields,
                params={"sysparm_fields": _FIELDS},
            )
        except Rejected as error:
            raise Permanent(f"ServiceNow refuses the record: {_complaint(error)}") from error
        row = answer.get("result")
        if not isinstance(row, dict) or "sys_id" not in row:
            raise Ambiguous("ServiceNow accepted the record but returned no sys_id")
        return self._ticket(row)

    async def comments(self, ticket: Ticket) -> list[Comment]:
        """All work notes, as one text: the journal's own table can be read by administrators only."""
        params = {"sysparm_fields": "work_notes", "sysparm_display_value": "true"}
        row = _result(await read(self._http, "GET", self._path(ticket.id), params=params))
        return [Comment("work_notes", "", str(row.get("work_notes") or ""))]

    async def comment(self, ticket: Ticket, message: Message, token: str, lease: LeaseHeld) -> None:
        """Add a work note."""
        note = plain_text(message, MAX_NOTE, footer=token)
        await self._patch(ticket, {"work_notes": note}, lease, "the work note")

    async def drop_comment(self, ticket: Ticket, comment: Comment, lease: LeaseHeld) -> None:
        """Notes stay."""
        raise Permanent("ServiceNow's work notes cannot be taken back")

    async def finish(self, ticket: Ticket, why: str, lease: LeaseHeld, *, withdrawn: bool = False) -> None:
        """Resolve or cancel it, with what instances ask for: a close code and notes."""
        wanted = self._settings
        state = (
            wanted.withdraw_state or self._states.withdraw
            if withdrawn
            else wanted.close_state or self._states.close
        )
        fields = {
            "state": state,
            "close_code": wanted.close_code,
            # Mandatory: without a word in them the record is not closed.
            "close_notes": no_formula(journal(plain(why, 1000)).strip(_BLANK) or CLOSED),
        }
        await self._patch(ticket, fields, lease, f"state {state}")

    async def reopen(self, ticket: Ticket, lease: LeaseHeld) -> None:
        """Put it back in progress."""
        state = self._settings.reopen_state or self._states.reopen
        await self._patch(ticket, {"state": state}, lease, f"state {state}")

    async def claim(self, ticket: Ticket, marks: Marks, lease: LeaseHeld) -> None:
        """Make it this incident's. The description still says whose it was."""
        fields = {
            "correlation_id": marks.incident,
            "correlation_display": _display(marks),
        }
        await self._patch(ticket, fields, lease, "the correlation id")

    async def forget(self, ticket: Ticket, marks: Marks, lease: LeaseHeld) -> None:
        """Clear the columns it is found by."""
        fields = {"correlation_id": "", "correlation_display": ""}
        await self._patch(ticket, fields, lease, "the correlation id")

    def takes(self, file: TicketFile) -> bool:
        """ServiceNow takes any file that `glide.attachment.extensions` allows."""
        return True

    async def attached(self, ticket: Ticket) -> list[Attached]:
        """The attachments. Their ids say nothing of their age, so those of one second are in the order of their ids."""
        query = f"table_name={self._settings.table}^table_sys_id={ticket.id}"
        params = {
            "sysparm_query": query,
            "sysparm_fields": "sys_id,file_name,table_sys_id,sys_created_on,sys_created_by",
            "sysparm_limit": 100,
        }
        answer = await read(self._http, "GET", "api/now/attachment", params=params)
        rows = [row for row in answer.get("result") or [] if row.get("table_sys_id") == ticket.id]
        rows.sort(key=lambda row: (str(row.get("sys_created_on", "")), str(row.get("sys_id", ""))))
        return [
            Attached(*(str(row.get(name, "")) for name in ("sys_id", "file_name", "sys_created_by")))
            for row in rows
        ]

    async def attach(self, ticket: Ticket, file: TicketFile, lease: LeaseHeld) -> str:
        """Upload an attachment."""
        params = {
            "table_name": self._settings.table,
            "table_sys_id": ticket.id,
            "file_name": file.name,
        }
        body = Upload(file.name, file.media_type, file.content)
        try:
            answer = await change(
                self._http, "POST", "api/now/attachment/file", lease=lease, params=params, upload=body
            )
        except Rejected as error:
            raise Permanent(f"ServiceNow refuses {file.name} on {ticket.key}: {_complaint(error)}") from error
        made = answer.get("result")
        return str(made.get("sys_id", "")) if isinstance(made, dict) else ""

    async def detach(self, ticket: Ticket, attached: Attached, lease: LeaseHeld) -> None:
        """Delete an attachment."""
        try:
            await change(self._http, "DELETE", f"api/now/attachment/{attached.id}", lease=lease)
        except Rejected as error:
            if error.status != 404:
                what = f"the deletion of {attached.name} on {ticket.key}"
                raise Permanent(f"ServiceNow refuses {what}: {_complaint(error)}") from error

    async def _query(self, query: str, limit: int) -> list[Ticket]:
        params = {"sysparm_query": query, "sysparm_fields": _FIELDS, "sysparm_limit": limit}
        answer = await read(self._http, "GET", self._path(), params=params)
        rows = answer.get("result")
        if not isinstance(rows, list):
            raise Temporary("ServiceNow answered a query without a list")
        return [self._ticket(row) for row in rows]

    async def _patch(self, ticket: Ticket, fields: Mapping[str, str], lease: LeaseHeld, what: str) -> None:
        params = {"sysparm_fields": "sys_id,state"}
        try:
            answer = await change(
                self._http, "PATCH", self._path(ticket.id), lease=lease, json=dict(fields), params=params
            )
        except Rejected as error:
            raise Permanent(f"ServiceNow refuses {what} on {ticket.key}: {_complaint(error)}") from error
        row = answer.get("result") or {}
        # A business rule that aborts the update answers 200 with the record as it was.
        if "state" in fields and isinstance(row, dict) and row.get("state") not in (None, fields["state"]):
            raise Permanent(
                f"ServiceNow left {ticket.key} in state {row.get('state')}: a rule refused {what}"
            )

    def _path(self, sys_id: str = "") -> str:
        return f"api/now/table/{self._settings.table}" + (f"/{sys_id}" if sys_id else "")

    def _ticket(self, row: Mapping[str, Any]) -> Ticket:
        try:
            sys_id, number, state = str(row["sys_id"]), str(row["number"]), str(row["state"])
        except KeyError as error:
            raise Temporary(f"ServiceNow described a record without {error}") from error
        incident = str(row.get("correlation_id") or "")
        marks = marks_in(str(row.get("correlation_display") or "")) | marks_in(incident)
        opened_for = marks_in(str(row.get("description") or "").rstrip().rpartition("\n")[2])
        if incident and opened_for and incident not in opened_for:
            marks |= {Marks("", incident).again}
        return Ticket(
            id=sys_id,
            key=number,
            url=f"{self._base_url}/{self._settings.table}.do?sys_id={sys_id}",
            born=f"{row.get('sys_created_on', '')} {number}",
            marks=marks,
            status=f"in state {state}",
            phase=self._phase(state),
            closed_at=_moment(row.get("resolved_at") or row.get("closed_at")),
            can_reopen=state not in self._states.final,
        )

    def _phase(self, state: str) -> Phase:
        done = self._states.done | {self._settings.close_state, self._settings.withdraw_state}
        if state in done:
            return Phase.DONE
        return Phase.NEW if state == self._states.new else Phase.IN_PROGRESS


def _display(marks: Marks) -> str:
    return f"{marks.place} {marks.key}".strip()


def _result(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    row = answer.get("result")
    if not isinstance(row, dict):
        raise Temporary("ServiceNow answered without a record")
    return row


def _moment(value: object) -> datetime | None:
    """ServiceNow's `2026-11-25 22:53:17`, which is UTC."""
    try:
        return datetime.strptime(str(value), "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
    except ValueError:
        return None


def _complaint(error: Rejected) -> str:
    inner = error.body.get("error")
    if isinstance(inner, dict):
        told = ": ".join(str(inner[name]) for name in ("message", "detail") if inner.get(name))
        return plain(told or str(error), 500)
    return plain(str(error), 500)
