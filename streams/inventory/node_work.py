"""Who works on a node, by the marks on its Node object (`node_work.yaml`) and a site's own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from pydantic import model_validator

from streams.config.yaml_tables import Strict, load_table
from streams.model.facts import NodeWork, WorkEnds
from streams.model.kube_objects import KubeObject, annotations_of, items, labels_of, time

_FILE = Path(__file__).with_name("node_work.yaml")
_NO = re.compile(r"(?i)false|0|no|none|done|completed?")
_ENDS: tuple[WorkEnds, ...] = ("held", "back", "gone")
"""Of several marks the one counts that explains an absence for longest."""


class Mark(Strict):
    """One row of the table: a mark is a label, an annotation, a taint or a condition."""

    label: str | None = None
    annotation: str | None = None
    taint: str | None = None
    condition: str | None = None
    values: re.Pattern[str] | None = None
    by: str
    ends: WorkEnds

    @model_validator(mode="after")
    def _one_place(self) -> Mark:
        if sum(key is not None for key in (self.label, self.annotation, self.taint, self.condition)) != 1:
            raise ValueError("a mark is one of label, annotation, taint, condition")
        return self

    def is_set(self, value: str) -> bool:
        """Whether this value says that work is going on."""
        return not _NO.fullmatch(value) if self.values is None else self.values.fullmatch(value) is not None


class _Marks(Strict):
    marks: tuple[Mark, ...]


@cache
def node_marks() -> tuple[Mark, ...]:
    """The marks that ship.

    Raises:
        ConfigError: when the file is damaged.
    """
    return load_table(_FILE, _Marks).marks


def node_work(node: KubeObject, own: Iterable[str] = ()) -> NodeWork | None:
    """Who works on the node; None when nobody says so.

    `own` are a site's marks, `key` or `key=value` of a label, an annotation or a taint: whoever sets one takes it off.
    """
    found = [*_by_table(node), *_by_site(node, own)]
    return min(found, key=lambda work: (_ENDS.index(work.ends), work.by, work.mark), default=None)


def _by_table(node: KubeObject) -> Iterator[NodeWork]:
    labels, annotations = labels_of(node), annotations_of(node)
    taints = {str(t.get("key")): t for t in items(node, "spec", "taints")}
    conditions = {str(c.get("type")): c for c in items(node, "status", "conditions")}
    for mark in node_marks():
        if mark.taint in taints:
            taint = taints[mark.taint]
            if mark.is_set(str(taint.get("value") or "set")):
                yield NodeWork(mark.by, mark.taint, mark.ends, time(taint, "timeAdded"))
        elif mark.condition in conditions:
            told = conditions[mark.condition]
            says = " ".join(str(told.get(part) or "") for part in ("status", "reason", "message"))
            if mark.is_set(says):
                yield NodeWork(mark.by, mark.condition, mark.ends, time(told, "lastTransitionTime"))
        else:
            key = mark.label or mark.annotation or ""
            value = (labels if mark.label else annotations).get(key)
            if value is not None and mark.is_set(str(value)):
                yield NodeWork(mark.by, key, mark.ends)


def _by_site(node: KubeObject, own: Iterable[str]) -> Iterator[NodeWork]:
    written = {**annotations_of(node), **labels_of(node)}
    written |= {str(t.get("key")): t.get("value") or "" for t in items(node, "spec", "taints")}
    for mark in own:
        key, equals, wanted = mark.partition("=")
        if key in written and (
            str(written[key]) == wanted if equals else not _NO.fullmatch(str(written[key]))
        ):
            yield NodeWork("a mark of this site", key, "held")
