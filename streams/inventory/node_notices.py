"""What clouds announce on Node objects, and for when (`node_notices.yaml`)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path

from pydantic import model_validator

from streams.config.yaml_tables import Strict, load_table
from streams.ingest import timestamps
from streams.model.kube_objects import KubeObject, annotations_of, items, labels_of
from streams.model.node_notice import NodeNotice, NoticeKind

_FILE = Path(__file__).with_name("node_notices.yaml")
_DATE = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
    r"|(?:[A-Z][a-z]{2}, )?\d{1,2} [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d(?: ?(?:GMT|UTC|Z|[+-]\d{4}))?"
)
_AHEAD = timedelta(days=400)
"""A time further ahead than this is a placeholder, or in another unit."""
_OVER = timedelta(hours=12)
"""A mark whose time is past for longer than this was left behind: the node is still there."""
_SHOWN = 80
"""How much of a time that cannot be read is kept."""


class NoticeMark(Strict):
    """One row of the table: a mark is a label, an annotation, a taint or a condition."""

    label: str | None = None
    annotation: str | None = None
    taint: str | None = None
    condition: str | None = None
    values: re.Pattern[str] | None = None
    beside: str | None = None
    subtype: NoticeKind
    time: bool = False
    within_s: int | None = None
    by: str

    @model_validator(mode="after")
    def _one_place(self) -> NoticeMark:
        if sum(key is not None for key in (self.label, self.annotation, self.taint, self.condition)) != 1:
            raise ValueError("a mark is one of label, annotation, taint, condition")
        if self.time and self.within_s is not None:
            raise ValueError("a mark either names its time or has within_s")
        return self


class _Marks(Strict):
    notices: tuple[NoticeMark, ...]


@cache
def notice_marks() -> tuple[NoticeMark, ...]:
    """The marks that ship.

    Raises:
        ConfigError: when the file is damaged.
    """
    return load_table(_FILE, _Marks).notices


def node_notice(node: KubeObject, at: datetime) -> NodeNotice | None:
    """The notice on the node that is due first; None when there is none. `at` is when the object was read.

    A mark without a readable time is a notice without a deadline: what is announced is still true, and whoever wrote it is told.
    """
    found: dict[str, NodeNotice] = {}
    for mark, key, value in _set_marks(node):
        due = due_in(value) if mark.time else None
        if due is not None and due - at > _AHEAD:
            due = None
        if due is not None and at - due > _OVER:
            continue
        # The value of a label or annotation is the time itself; a condition may say nothing of it.
        unread = (
            (value[:_SHOWN] or "nothing") if mark.time and due is None and mark.condition is None else None
        )
        # Of one mark the first row counts that fits: it says more than those below it.
        found.setdefault(key, NodeNotice(mark.by, key, mark.subtype, due, mark.within_s, unread))
    return min(found.values(), key=lambda one: _urgency(one, at), default=None)


def _urgency(one: NodeNotice, at: datetime) -> tuple[bool, datetime, str]:
    brief = one.subtype in ("freeze", "migration")
    due = one.not_before or (at + timedelta(seconds=one.within_s) if one.within_s is not None else None)
    return brief, due or datetime.max.replace(tzinfo=at.tzinfo), one.mark


def _set_marks(node: KubeObject) -> Iterator[tuple[NoticeMark, str, str]]:
    labels, annotations = labels_of(node), annotations_of(node)
    taints = {str(t.get("key")): str(t.get("value") or "set") for t in items(node, "spec", "taints")}
    conditions = {
        str(c.get("type")): " ".join(str(c.get(part) or "") for part in ("status", "reason", "message"))
        for c in items(node, "status", "conditions")
    }
    for mark in notice_marks():
        beside, _, wanted = (mark.beside or "").partition("=")
        if beside and str(labels.get(beside)) != wanted:
            continue
        written, key = next(
            (written, key)
            for written, key in (
                (labels, mark.label),
                (annotations, mark.annotation),
                (taints, mark.taint),
                (conditions, mark.condition),
            )
            if key is not None
        )
        value = written.get(key)
        if value is not None and (mark.values is None or mark.values.fullmatch(str(value))):
            yield mark, key, str(value)


def due_in(value: str) -> datetime | None:
    """The time in the value of a mark: seconds since 1970 (a label holds no colon), or the first date in it, in UTC."""
    if (whole := timestamps.any_form(value.strip())) is not None:
        return whole
    found = _DATE.search(value)
    return timestamps.any_form(found[0]) if found is not None else None
