"""How `faultline replay` is asked to replay, and the replays it needs: one rule for settings, runbooks and versions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path

from faultline.cli.left_out import tell_left_out
from faultline.cli.progress import progress
from faultline.cli.since import since_of
from faultline.replay.against import Compared, Production, Revisions, compared
from faultline.replay.bar import no_bar
from faultline.replay.capture import Capture, read
from faultline.replay.decisions import ceilings
from faultline.replay.expected import Expected, changes, read_expected
from faultline.replay.explanations import Explanations
from faultline.replay.kafka_capture.surroundings import versions
from faultline.replay.manifest import MANIFEST, Versions, read_manifest
from faultline.replay.pipeline import Watcher
from faultline.replay.planned import actions_of
from faultline.replay.replay import From, Replayed, replay_capture
from faultline.replay.sources import opened
from faultline.replay.threads import RecordedThreads
from faultline.runtime.settings import Settings, load
from runbooks.language.loader import load as load_runbooks
from runbooks.language.schema import TICKETS, Runbook
from streams.correlate import Config
from streams.model.clock import moment
from streams.model.errors import BadInput
from streams.model.run import Mode


class ReplayOrder:
    """What is asked for: settings, what is decided from, and until when.

    The settings and runbooks that a capture holds count before the given ones, unless those `are_chosen`. With `changed_ok` a
    capture may be other than its manifest says.
    """

    def __init__(
        self,
        settings: Settings,
        decide_from: str | None,
        until: str | None,
        *,
        are_chosen: bool = False,
        changed_ok: bool = False,
    ) -> None:
        self._settings = settings
        self._are_chosen = are_chosen
        self._changed_ok = changed_ok
        self._source = From(decide_from) if decide_from else None
        self._versions: Versions | None = None
        self._until = until
        if until:
            since_of(until, datetime.now(UTC), "--until")  # a typo is told before anything is read

    @contextmanager
    def opened(self, source: str, begin: datetime | None, end: datetime | None) -> Iterator[Capture]:
        """The source, as a capture."""
        manifest = Path(source) / MANIFEST
        self._versions = read_manifest(manifest).versions if manifest.exists() else None
        bar = partial(progress, "taking records", unit="offsets")
        with opened(source, self._settings, begin, end, changed_ok=self._changed_ok, bar=bar) as capture:
            yield capture
            tell_left_out(capture)

    def check(self, capture: Capture) -> None:
        """Read all that a replay needs besides the records. Raises BadInput when something of it is invalid."""
        self._settings_of(capture)
        self._runbooks_of(capture)

    def replayed(
        self,
        capture: Capture,
        *,
        watcher: Watcher | None = None,
        threads: RecordedThreads | None = None,
        until: datetime | None = None,
        without: frozenset[str] = frozenset(),
    ) -> Replayed:
        """Replay it; `without` are actions that the installation had no connector for."""
        settings = self._settings_of(capture)
        return replay_capture(
            capture,
            responder=settings.responder,
            config=Config.of(settings.correlator),
            runbooks=self._runbooks_of(capture),
            actions=actions_of(settings) - without,
            threads=threads,
            source=self._source,
            until=self._until_of(capture) if self._until else until,
            watcher=watcher,
            # Whoever steps or paces a replay is told more than how far it is.
            bar=partial(progress, "replaying", unit="seconds") if watcher is None else no_bar,
        )

    def compared(self, capture: Capture) -> tuple[Compared, ...]:
        """Replay it, and compare with what production decided."""
        revisions, production = Revisions(), Production.of(capture)
        without = TICKETS if production.had_no_tickets else frozenset[str]()
        decided = self.replayed(capture, watcher=revisions, until=capture.meta.end, without=without)
        explanations = Explanations(
            production.runs,
            self._runbooks_of(capture),
            list(self._other_versions(capture)),
            decided.runs,
        )
        return compared(capture, production, decided, revisions, self._modes(capture), explanations)

    def results(self, directory: Path) -> Expected:
        """What a kept capture gives now."""
        capture = read(directory, changed_ok=self._changed_ok)
        runbooks = {book.id: str(book.revision) for book in self._runbooks_of(capture)}
        now = Versions(faultline=version("faultline"), runbooks=runbooks)
        found = Expected.of(self.replayed(capture), self._modes(capture), now)
        tell_left_out(capture)
        return found

    def differing(self, directory: Path, file: Path) -> list[str]:
        """How a kept capture's results differ from those in `file`, as text; empty when they are the same."""
        expected, found = read_expected(file), self.results(directory)
        lines = list(changes(expected, found))
        if not lines:
            return []
        return [
            f"{directory}: decided otherwise than in {file} (of faultline {expected.versions.faultline})",
            *(f"  {line}" for line in lines),
            f"  if that is meant: faultline replay {directory} --assert-same {file} --record",
        ]

    def _other_versions(self, capture: Capture) -> Iterator[str]:
        """What was not the same when production decided, as far as the capture tells."""
        there, here = self._versions, versions(self._settings.responder)
        if there is not None and there.faultline and there.faultline != here.faultline:
            yield f"production was faultline {there.faultline}, here is {here.faultline}"
        if there is not None and there.catalog and there.catalog != here.catalog:
            yield "production had another catalog of signals"
        if self._are_chosen and capture.settings is not None:
            own, given = load(capture.settings), self._settings
            sections = ("detector", "inventory", "correlator", "responder", "node_work")
            if differ := [name for name in sections if getattr(own, name) != getattr(given, name)]:
                yield f"production had other settings: {', '.join(differ)}"

    def _until_of(self, capture: Capture) -> datetime:
        """When the replay is to stop. Raises BadInput when the capture begins only then."""
        assert self._until is not None
        until = since_of(self._until, capture.meta.end, "--until")
        if until <= capture.meta.lead:
            held = f"{moment(capture.meta.lead)} to {moment(capture.meta.end)}"
            raise BadInput(f"--until {moment(until)} is before anything happens: the source holds {held}")
        return until

    def _settings_of(self, capture: Capture) -> Settings:
        if capture.settings is None or self._are_chosen:
            return self._settings
        return load(capture.settings)

    def _runbooks_of(self, capture: Capture) -> tuple[Runbook, ...]:
        if capture.runbooks is None or self._are_chosen:
            return load_runbooks(self._settings_of(capture).responder.runbook_dirs)
        return load_runbooks([capture.runbooks], shipped=False)

    def _modes(self, capture: Capture) -> Mapping[str, Mode]:
        return ceilings(self._runbooks_of(capture), self._settings_of(capture).responder)


def times_of(begin: str | None, end: str | None) -> tuple[datetime | None, datetime | None]:
    """Times as they are typed: RFC 3339, or `2h` ago."""
    now = datetime.now(UTC)
    return (since_of(begin, now) if begin else None, since_of(end, now) if end else None)
