"""The SBOM tells all of the lock, and nothing comes into the image under a licence that was not reviewed."""

from __future__ import annotations

import re

import pytest

from tests.supply_chain.packages import LOCK, REVIEWED, UNKNOWN, Package, locked
from tests.supply_chain.sbom import PAGE, document, page

TEXT = LOCK.read_text(encoding="utf-8")
PACKAGES = locked(TEXT)


def test_every_pin_of_the_lock_is_a_component_with_all_its_digests() -> None:
    components = document(PACKAGES, "1")["components"]
    assert len(components) == len(re.findall(r"(?m)^\S+==", TEXT))
    digests = [one["content"] for part in components for one in part["externalReferences"][0]["hashes"]]
    assert sorted(digests) == sorted(re.findall(r"sha256:(\w+)", TEXT))
    assert all(part["externalReferences"][0]["hashes"] for part in components)


def test_the_document_has_what_the_cyclonedx_schema_requires() -> None:
    made = document(PACKAGES, "1")
    assert (made["bomFormat"], made["specVersion"]) == ("CycloneDX", "1.6")
    references = [part["bom-ref"] for part in made["components"]]
    assert len(set(references)) == len(references)
    for part in made["components"]:
        assert part["type"] == "library"
        assert part["name"]
        assert re.fullmatch(r"pkg:pypi/[a-z0-9.-]+@[\w.%-]+", part["purl"])


def test_every_licence_is_permissive_or_reviewed() -> None:
    assert [one for one in PACKAGES if not one.accepted] == []
    assert set(REVIEWED) <= {one.name for one in PACKAGES}


@pytest.mark.parametrize("licence", [UNKNOWN, "GPL-3.0-only", "MIT AND AGPL-3.0-or-later", "MPL-2.0"])
def test_a_licence_that_was_not_reviewed_is_refused(licence: str) -> None:
    assert not Package("new", "1", "", (), licence).accepted


def test_a_reviewed_package_that_changes_its_licence_is_refused() -> None:
    assert not Package("orjson", "1", "", (), "GPL-3.0-only").accepted


def test_the_page_is_what_the_lock_gives() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(PACKAGES)
