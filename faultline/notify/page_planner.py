"""Pages: who is woken for what, grouped.

Incidents of one cluster that need a person for the same cause within a window are one page; the most severe comes first, and
one that is worse than a page's first, or comes after somebody has acknowledged it, gets a page of its own. A page ends when
its incidents have ended, or when none of them needs a person any more. If one does again, that is another page.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from faultline.chat.thread_plan import Slot, Urgency, weight
from faultline.notify.notice_documents import is_final, is_unconfirmed
from faultline.notify.notice_texts import Told, console_link, page_message, page_params
from faultline.notify.paging import paging
from faultline.notify.planner import Looked, SinkPlanner, Wanted, earliest
from faultline.notify.situations import Standing
from streams.model.incident import Incident
from streams.model.thread import ROOT, Thread

MAX_MEMBERS = 5_000
"""Incidents of one page; a document stays well below the size that a store takes."""
CLOCKS_DIFFER = timedelta(minutes=5)


class PagePlanner(SinkPlanner):
    """The pages of one sink."""

    def look(self, name: str, now: datetime) -> Looked:
        """The pages of an incident that are not final, and when it is to wake somebody."""
        open_ones = tuple(one.incident for one in self._index.of(name) if not is_final(one))
        incident = self._sources.incidents.get(name)
        if incident is None or incident.state.is_over or not self._passes(incident):
            return Looked(open_ones)
        attention = self._sources.attention(name)
        if attention.is_silent(now):
            return Looked(open_ones, again_at=attention.silent_until)
        standing = self._sources.standing(incident)
        due = self._due((incident, standing))
        if due is None or open_ones or self._is_covered(name, standing):
            return Looked(open_ones)
        return Looked(open_ones, due_at=due)

    def start(self, due: Sequence[str], now: datetime) -> tuple[list[Thread], datetime | None]:
        """Pages for incidents that are due, the most severe first; each joins the page that it belongs to."""
        found = [
            (incident, self._sources.standing(incident))
            for name in due
            if (incident := self._sources.incidents.get(name)) is not None
        ]
        found.sort(key=lambda one: (weight(one[0]), one[1].since, one[0].id))
        changed: dict[str, Thread] = {}
        since = now - timedelta(seconds=self._settings.group_window_s)
        open_ones = {
            cluster: self._index.created_since(cluster, since)
            for cluster in {incident.cluster for incident, _ in found}
        }
        for incident, standing in found:
            pages = open_ones[incident.cluster]
            page = next((p for p in pages if self._may_join(p, incident, standing)), None)
            if page is not None:
                joined = replace(page, members=(*page.members, incident.id))
                pages[pages.index(page)] = joined
            else:
                key = self._index.next_key(incident.id)
                # The page's cause stands where a thread names its channel.
                joined = Thread(
                    key,
                    incident.cluster,
                    standing.situation.value,
                    now,
                    now,
                    revision=0,
                    members=(incident.id,),
                )
                pages.append(joined)
            changed[joined.incident] = joined
        return list(changed.values()), None

    def wanted(self, document: Thread, now: datetime) -> Wanted:
        """The page as it should be."""
        told = self._told(document)
        ended = is_final(document)
        if not told or told[0][0].id != document.members[0] or (ended and not is_unconfirmed(document)):
            return Wanted()
        live = [one for one in told if not one[1].situation.is_settled]
        post = document.post(ROOT)
        due = [(one, at) for one in live if (at := self._due(one)) is not None]
        if post is None or not post.may_stand:
            # It was not sent in time, and what is asked for now may be young: nobody is woken before that has lasted.
            needing, later = [one for one, at in due if at <= now], [at for _, at in due if at > now]
        else:
            needing, later = [one for one, _ in due], []
        attentions = [self._sources.attention(incident.id) for incident, _ in live]
        taken = any(attention.taken_by or attention.is_silent(now) for attention in attentions)
        state = "acknowledged" if taken else "triggered" if needing else "resolved"
        if ended:
            state = "resolved"  # what comes up again is another page
        shown = needing or live or told
        number = document.incident.split("/")[2:]
        lead = told[0][0]
        key = "-".join([lead.id, str(lead.incarnation), *number])
        why = paging().row(shown[0][0], shown[0][1].situation).why
        slot = Slot(
            ROOT,
            page_message(shown, state),
            state,
            Urgency.APPROVAL,
            params=page_params(shown, state, key, why, self._links(shown[0][0].id)),
            actions=("page", "update_page"),
            checked=False,
            moot=state != "triggered",
            # Somebody who is awake has to hear of more and of something else, not of less or of each detail.
            shows=f"{state} {len(document.members)} {shown[0][1].situation}"
            if state == "triggered"
            else state,
        )
        again = earliest(*later, *(one.silent_until for one in attentions if one.is_silent(now)))
        return Wanted((slot,), weight(shown[0][0]), again)

    def _links(self, incident: str) -> list[tuple[str, str]]:
        links = (
            (console_link(self._console_url, incident), "Faultline console"),
            (self._sources.thread_link(self._slack_url, incident), "Thread in Slack"),
        )
        return [(url, text) for url, text in links if url]

    def _due(self, told: Told) -> datetime | None:
        incident, standing = told
        return paging().due(incident, standing, shadow=self._settings.page_shadow)

    def _is_covered(self, name: str, standing: Standing) -> bool:
        """Whether somebody was already paged for this stretch, whatever became of the page."""
        return any(
            page.created_at >= standing.since
            or (page.channel == standing.situation and page.created_at + CLOCKS_DIFFER >= standing.since)
            for page in self._index.of(name)
        )

    def _may_join(self, page: Thread, incident: Incident, standing: Standing) -> bool:
        post = page.post(ROOT)
        lead = self._sources.incidents.get(page.members[0])
        if lead is not None and lead.state.is_over and (post is None or not post.stands):
            return False  # it will never be sent for its own sake
        return (
            page.channel == standing.situation
            and not is_final(page)
            and (post is None or post.mark in ("", "triggered"))
            and len(page.members) < MAX_MEMBERS
            and lead is not None
            and lead.severity.rank >= incident.severity.rank
            and not self._sources.attention(lead.id).taken_by
        )
