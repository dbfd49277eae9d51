"""Where the BMC of a node is, and how to log in there: by the settings, read anew for each call, so that a rotation counts."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from connectors.http import is_loopback
from connectors.kubernetes.annotations import annotations_of
from connectors.kubernetes.client import Object
from streams.config.power_settings import RedfishSettings
from streams.model.errors import Permanent


def address_of(node: Object, settings: RedfishSettings) -> str:
    """The base URL of the node's BMC.

    Raises:
        Permanent: nobody says where it is, or it is no address that may be used.
    """
    name = str(node["metadata"]["name"])
    if settings.annotation is not None:
        found = annotations_of(node).get(settings.annotation, "")
        whence = f"the annotation {settings.annotation} of {name}"
    elif settings.addresses_file is not None:
        found, whence = _listed(settings.addresses_file).get(name, ""), str(settings.addresses_file)
    else:
        found, whence = settings.address.replace("{node}", name), "node_work.redfish.address"
    if not found:
        raise Permanent(f"{whence} has no address of the BMC of {name}")
    url = found if "://" in found else f"https://{found}"
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        host, parts = "", urlsplit("")
    # Without TLS the password would be read by whoever stands between, but for this machine itself.
    if not host or "@" in url or parts.scheme not in ("https", *(("http",) if is_loopback(host) else ())):
        raise Permanent(f"{whence} is no https address of a BMC")
    if settings.annotation is not None and not any(fnmatchcase(host, one) for one in settings.hosts):
        raise Permanent(f"{whence} names {host}, which node_work.redfish.hosts does not allow")
    return url


def login_of(node: str, settings: RedfishSettings) -> tuple[str, str]:
    """User and password for a node's BMC.

    Raises:
        Permanent: a file is missing or empty.
    """
    user, password = (
        _secret(Path(file.replace("{node}", node))) for file in (settings.user_file, settings.password_file)
    )
    return user, password


def _secret(path: Path) -> str:
    try:
        found = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Permanent(f"cannot read {path}: {type(error).__name__}") from error
    if not found:
        raise Permanent(f"{path} is empty")
    return found


def _listed(path: Path) -> Mapping[str, str]:
    try:
        found = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise Permanent(f"cannot read {path}: {type(error).__name__}") from error
    return {str(k): str(v) for k, v in found.items()} if isinstance(found, dict) else {}
