"""Dialogs (modals) and what was typed into them: the reason of a decision, and a note for an incident's timeline. Pure.

What a dialog is about travels in its `private_metadata`: Slack hands it back only to this app, over the same signed way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from streams.model.conversation import Verb
from streams.model.errors import BadInput
from streams.model.incident import Incident
from streams.model.message import plain

REASON, NOTE = "faultline.reason", "faultline.note"
"""Callback ids. `faultline.note` is the shortcut's as well."""

MAX_TYPED = 2000
"""Characters of a note, as the responder keeps them."""

MAX_REASON = 300
MAX_OPTIONS = 100
_TEXT, _INCIDENT = "text", "incident"

View = dict[str, Any]


def reason(verb: Verb, title: str, kept: Mapping[str, str]) -> View:
    """Asks for the reason of a rejection, or confirms that an incident is resolved. An empty reason counts: "no" must be easy."""
    if verb is Verb.RESOLVE:
        name, text = "Resolve", "The run ends, jobs it suspended are resumed, cordoned nodes stay cordoned."
    else:
        name, text = (
            "Reject",
            "The run ends and suspended jobs are resumed. The incident is left for manual handling.",
        )
    blocks = [
        _plain_section(f"{title}\n{text}", 600),
        _input(_TEXT, "Reason, shown on the timeline", MAX_REASON, optional=True),
    ]
    return _modal(REASON, name, blocks, kept, submit=name)


def note(incidents: Sequence[Incident], text: str, kept: Mapping[str, str]) -> View:
    """Asks which open incident a message belongs to."""
    if not incidents:
        return _modal(NOTE, "Add to timeline", [_plain_section("No incident is open.", 100)], kept)
    options = [
        {"text": _plain_text(f"{one.id[4:12]} {one.title}", 75), "value": f"{one.cluster}/{one.id}"[:150]}
        for one in incidents[:MAX_OPTIONS]
    ]
    blocks = [
        {
            "type": "input",
            "block_id": _INCIDENT,
            "label": _plain_text("Incident", 100),
            "element": {"type": "static_select", "action_id": _INCIDENT, "options": options},
        },
        _input(_TEXT, "Note", MAX_TYPED, initial=plain(text, MAX_TYPED)),
    ]
    return _modal(NOTE, "Add to timeline", blocks, kept, submit="Add")


def shown(blocks: Sequence[Mapping[str, Any]], title: str) -> View:
    """A dialog that only shows something."""
    return {
        "type": "modal",
        "title": _plain_text(title, 24),
        "close": _plain_text("Close", 24),
        "blocks": [*blocks],
    }


def kept_in(view: Mapping[str, Any]) -> Mapping[str, str]:
    """What the dialog is about. Raises BadInput."""
    try:
        kept = orjson.loads(str(view.get("private_metadata", "")))
    except orjson.JSONDecodeError as error:
        raise BadInput("the dialog's metadata is no JSON") from error
    if not isinstance(kept, dict) or not all(isinstance(text, str) for text in kept.values()):
        raise BadInput("the dialog's metadata is no object of texts")
    return kept


def typed_in(view: Mapping[str, Any]) -> str:
    """The text that was typed; empty when none was."""
    return plain(str(_element(view, _TEXT).get("value") or ""), MAX_TYPED).strip()


def chosen_in(view: Mapping[str, Any]) -> tuple[str, str]:
    """Cluster and id of the incident that was chosen. Raises BadInput."""
    option = _element(view, _INCIDENT).get("selected_option")
    cluster, slash, incident = str(option.get("value", "") if isinstance(option, Mapping) else "").rpartition(
        "/"
    )
    if not (cluster and slash and incident):
        raise BadInput("no incident was chosen in the dialog")
    return cluster, incident


def _element(view: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found: Any = view
    for key in ("state", "values", name, name):
        found = found.get(key) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _modal(
    callback: str, title: str, blocks: Sequence[Mapping[str, Any]], kept: Mapping[str, str], submit: str = ""
) -> View:
    view = {
        **shown(blocks, title),
        "callback_id": callback,
        "private_metadata": orjson.dumps(dict(kept)).decode(),
    }
    if submit:
        view |= {"submit": _plain_text(submit, 24), "close": _plain_text("Cancel", 24)}
    return view


def _input(name: str, label: str, most: int, *, optional: bool = False, initial: str = "") -> dict[str, Any]:
    element = {"type": "plain_text_input", "action_id": name, "multiline": True, "max_length": most}
    if initial:
        element["initial_value"] = initial
    return {
        "type": "input", "block_id": name, "optional": optional, "label": _plain_text(label, 100), "element": element,
    }  # fmt: skip


def _plain_section(text: str, most: int) -> dict[str, Any]:
    return {"type": "section", "text": _plain_text(text, most)}


def _plain_text(text: str, most: int) -> dict[str, Any]:
    return {"type": "plain_text", "text": plain(text, most) or "–", "emoji": False}
