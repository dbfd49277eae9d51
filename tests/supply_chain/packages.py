"""What the image's lock holds: every Python package with its digests and the licence that its metadata declares."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.metadata import PackageMetadata, PackageNotFoundError, metadata
from pathlib import Path

ROOT = Path(__file__).parents[2]
LOCK = ROOT / "requirements-image.lock"
UNKNOWN = "unknown"
_PIN = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;]+)(?: ; (?P<marker>.*?))? \\$")
_DIGEST = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_SPELLINGS = {
    "apache 2": "Apache-2.0",
    "apache 2.0": "Apache-2.0",
    "apache license, version 2.0": "Apache-2.0",
    "mit license": "MIT",
    "3-clause bsd license": "BSD-3-Clause",
}
_CLASSIFIERS = {
    "MIT License": "MIT",
    "BSD License": "BSD (which one the metadata does not say)",
    "Apache Software License": "Apache-2.0",
}
REVIEWED = {
    "cel-python": ("Apache-2.0", "its metadata names none; the LICENSE file in its wheel is Apache 2.0"),
    "certifi": ("MPL-2.0", "weak copyleft, of its files alone; used as published"),
    "colorama": ("BSD-3-Clause", "for Windows alone, so never in the image"),
    "orjson": ("MPL-2.0 AND (Apache-2.0 OR MIT)", "weak copyleft, of its files alone; used as published"),
    "venusian": ("BSD-derived (Repoze)", "permissive; not on SPDX's list under this name"),
}
"""Packages that declare no licence or one that is not plainly permissive: which it is, and why it may be in the image."""
PERMISSIVE = frozenset(
    ["MIT", "MIT-0", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "PSF-2.0"]
) | {_CLASSIFIERS["BSD License"]}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Package:
    """A pinned package. `digests` are the sha256 of every file the lock accepts, `licence` is SPDX where it can be."""

    name: str
    version: str
    marker: str
    digests: tuple[str, ...]
    licence: str

    @property
    def purl(self) -> str:
        """Its package URL (purl-spec, type `pypi`)."""
        return f"pkg:pypi/{self.name.lower().replace('_', '-')}@{self.version.replace('+', '%2B')}"

    @property
    def accepted(self) -> bool:
        """Whether its licence is permissive throughout, or the one that was reviewed."""
        names = re.split(r"\s+(?:AND|OR)\s+", self.licence.replace("(", "").replace(")", ""))
        permissive = self.licence in PERMISSIVE or all(name in PERMISSIVE for name in names)
        return permissive or self.licence == REVIEWED.get(self.name, (None,))[0]


def declared(about: PackageMetadata) -> str:
    """The licence that a package's metadata declares: the expression, else the field, else the classifiers."""
    fields = about.json
    expression = str(fields.get("license_expression") or "")
    field = str(fields.get("license") or "").strip()
    if expression:
        return expression
    if field and "\n" not in field and len(field) <= 60:
        return _SPELLINGS.get(field.lower(), field)
    kinds = [str(line).rpartition(" :: ")[2] for line in fields.get("classifier") or [] if "License" in line]
    named = sorted(
        {"PSF-2.0" if "Python Software" in kind else _CLASSIFIERS.get(kind, kind) for kind in kinds}
    )
    return " OR ".join(named) or UNKNOWN


def licence_of(name: str) -> str:
    """The licence of a package: what was reviewed, else what its installed metadata declares."""
    if name in REVIEWED:
        return REVIEWED[name][0]
    try:
        return declared(metadata(name))
    except PackageNotFoundError:
        return UNKNOWN


def locked(text: str) -> tuple[Package, ...]:
    """The packages of a lock as `uv pip compile --generate-hashes` writes it, in its order."""
    found: list[Package] = []
    for entry in re.split(r"\n(?=[A-Za-z0-9])", text):
        pin = _PIN.match(entry.partition("\n")[0])
        if pin:
            digests = tuple(sorted(_DIGEST.findall(entry)))
            name = pin["name"]
            found.append(Package(name, pin["version"], pin["marker"] or "", digests, licence_of(name)))
    return tuple(found)
