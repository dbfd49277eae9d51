"""Where the BMC of a node is, and how to log in there: by the settings, read anew for each call, so that a rotation counts."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import partial
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
    url, host = _url(found)
    if not host:
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


def file_faults(settings: RedfishSettings) -> Iterator[str]:
    """A line for each file named in the settings that is of no use, with what to do. Nothing of what they hold is in it.

    Of a name with `{node}` in it only the folder can be looked at.
    """
    if not settings.is_set:
        return
    for key, file in (("user_file", settings.user_file), ("password_file", settings.password_file)):
        folder = Path(file.partition("{node}")[0] + "x").parent
        if "{node}" not in file:
            yield from _fault(
                key, "mount a file with nothing but the login in it", partial(_secret, Path(file))
            )
        elif not folder.is_dir():
            yield f"node_work.redfish.{key}: {folder} is not a directory: mount one with a file for each node"
    if settings.addresses_file is not None:
        wanted = "write a line `NODE: https://ADDRESS` for each node"
        yield from _fault("addresses_file", wanted, partial(_check_addresses, settings.addresses_file))
    if settings.ca_file is not None:
        wanted = "mount the authorities' certificates as PEM"
        yield from _fault("ca_file", wanted, partial(authorities, settings.ca_file))


def authorities(ca_file: Path | None) -> ssl.SSLContext:
    """TLS that trusts the certificates in a file, or the system's without one.

    Raises:
        Permanent: the file cannot be read, or holds no certificate.
    """
    try:
        tls = ssl.create_default_context(cafile=ca_file)
    except OSError as error:  # an SSLError is one too
        why = "no certificates in PEM" if isinstance(error, ssl.SSLError) else type(error).__name__
        raise Permanent(f"cannot read {ca_file}: {why}") from error
    return tls


def _fault(key: str, wanted: str, read: Callable[[], object]) -> Iterator[str]:
    try:
        read()
    except Permanent as error:
        yield f"node_work.redfish.{key}: {error}: {wanted}"


def _check_addresses(path: Path) -> None:
    listed = _listed(path)
    if not listed:
        raise Permanent(f"{path} has no addresses")
    if wrong := sorted(node for node, address in listed.items() if not _url(address)[1]):
        more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        raise Permanent(f"{path} has no https address for {', '.join(wrong[:3])}{more}")


def _url(address: str) -> tuple[str, str]:
    """The base URL at an address, and its host, empty where it is none that may be used."""
    url = address if "://" in address else f"https://{address}"
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        return url, ""
    # Without TLS the password would be read by whoever stands between, but for this machine itself.
    allowed = parts.scheme in ("https", *(("http",) if is_loopback(host) else ()))
    return url, host if allowed and "@" not in url else ""


def _secret(path: Path) -> str:
    try:
        found = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Permanent(f"cannot read {path}: {type(error).__name__}") from error
    if not found:
        raise Permanent(f"{path} is empty")
    if len(found.splitlines()) > 1:
        raise Permanent(f"{path} has more than one line")
    return found


def _listed(path: Path) -> Mapping[str, str]:
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise Permanent(f"cannot read {path}: {type(error).__name__}") from error
    if not isinstance(found, dict | None):
        raise Permanent(f"{path} is no mapping of node names to addresses")
    return {str(node): str(address) for node, address in (found or {}).items()}
