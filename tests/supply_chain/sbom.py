"""`make sbom`: the SBOM of the image's Python packages (CycloneDX 1.6) and docs/licences.md, both from the lock."""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.supply_chain.packages import LOCK, REVIEWED, ROOT, Package, locked

PAGE = ROOT / "docs/licences.md"
_HEAD = """# Licences

The licences of the image's Python packages, by `requirements-image.lock` and their own metadata; written by `make sbom`.
The packages of the base image are not among them: scan the image for those. A note says why what is not plainly
permissive, or not declared, may be in it.

| package | version | licence | note |
|---|---|---|---|
"""


def component(package: Package) -> dict[str, Any]:
    """A component of the document. A package has many files, so their digests are distribution references."""
    return {
        "type": "library",
        "bom-ref": package.purl,
        "name": package.name,
        "version": package.version,
        "purl": package.purl,
        "licenses": [{"license": {"name": package.licence}}],
        "externalReferences": [
            {
                "type": "distribution",
                "url": package.purl,
                "hashes": [{"alg": "SHA-256", "content": digest} for digest in package.digests],
            }
        ],
        "properties": [{"name": "faultline:marker", "value": package.marker}] if package.marker else [],
    }


def document(packages: Sequence[Package], version: str) -> dict[str, Any]:
    """The SBOM. It has no time and no serial number, so that the same lock gives the same bytes."""
    root = f"pkg:pypi/faultline@{version}"
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application", "bom-ref": root, "name": "faultline", "version": version, "purl": root,
            },
        },
        "components": [component(package) for package in packages],
    }  # fmt: skip


def page(packages: Sequence[Package]) -> str:
    """docs/licences.md."""
    rows = (
        f"| {one.name} | {one.version} | {one.licence} | {REVIEWED.get(one.name, ('', ''))[1]} |\n"
        for one in packages
    )
    return _HEAD + "".join(rows)


def main(arguments: Sequence[str]) -> None:
    """Writes the SBOM to the named file (`sbom.cdx.json`), and the page."""
    packages = locked(LOCK.read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    target = Path(arguments[0] if arguments else "sbom.cdx.json")
    target.write_text(json.dumps(document(packages, project["version"]), indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(packages), encoding="utf-8")
    print(f"{target}: {len(packages)} packages")


if __name__ == "__main__":
    main(sys.argv[1:])
