"""The images of the testbed, made here: no registry of images is asked.

The base is Debian's own Python under the name that the Dockerfile asks for; Kafka's is that base with Java and the jars of the
testbed's broker, under the name that the compose file asks for. The project's image is built by its own Dockerfile.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.testbed import parts
from tests.testbed.engine import Engine

ROOT = Path(__file__).parents[2]
PYTHON = "docker.io/library/python:3.11-slim"
KAFKA = "docker.io/apache/kafka:4.1.1"
FAULTLINE = "localhost/faultline:0.1.0"
SANDBOX = "localhost/faultline-sandbox:0.1.0"
"""The same with the stand-ins for Slack and Jira: what the compose file's profile `standins` runs."""
SUITE = "bookworm"
"""The Debian whose Python is 3.11."""

_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
_IN_THE_BASE = ("python3", "python3-venv", "python3-pip", "ca-certificates")
_JAVA = "openjdk-17-jre-headless"
_FROM = "dev.faultline.testbed.from"
"""A label: the checksum of what an image was made of."""
_IN_THE_CONTEXT = ("faultline", "streams", "runbooks", "connectors", "sandbox")

Runner = Callable[[list[str], str], None]
"""Runs one command of a build, with a few words on what it does."""


def make_base_images(run: Runner) -> None:
    """Make Python's and Kafka's, in the engine's own storage."""
    engine = Engine()
    engine.configure()
    work = engine.folder / "work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    system = work / "system"
    # The machine's own source of packages; where that is stands in no file of the project.
    run(
        [
            "debootstrap",
            "--variant=minbase",
            f"--keyring={_KEYRING}",
            f"--include={','.join(_IN_THE_BASE)}",
            SUITE,
            str(system),
            _source(),
        ],
        "collecting Debian's packages",
    )
    for name in ("python", "python3"):
        (system / "usr/local/bin" / name).symlink_to("/usr/bin/python3")
    archive = work / "system.tar"
    run(["tar", "--directory", str(system), "--create", "--file", str(archive), "."], "packing")
    environment = ["env", *(f"{name}={value}" for name, value in engine.settings.items())]
    run(
        [*environment, "podman", "import", "--change", "CMD=python3", str(archive), PYTHON],
        "importing the base",
    )
    context = work / "kafka"
    shutil.copytree(parts.RECIPES / "images" / "kafka", context)
    shutil.copytree(parts.part("kafka").folder / "libs", context / "libs")
    shutil.copy(parts.RECIPES / "kafka" / "log4j2.properties", context)
    (context / "debs" / "partial").mkdir(parents=True)
    # The machine's apt fetches what that system lacks: the image needs no source of packages.
    run(
        [
            "apt-get",
            "-o",
            f"Dir::State::status={system}/var/lib/dpkg/status",
            "-o",
            f"Dir::Cache::archives={context}/debs",
            "-o",
            "APT::Sandbox::User=root",
            "--yes",
            "--no-install-recommends",
            "--download-only",
            "install",
            _JAVA,
        ],
        "fetching Java",
    )
    run([*environment, *_build(KAFKA), str(context)], "building Kafka's image")
    shutil.rmtree(work)


def build_project(engine: Engine) -> None:
    """Build the project's images by its Dockerfile, unless those that are there were built from the same files.

    Raises:
        EngineFailed: with what the build said.
    """
    checksum = _checksum(ROOT)
    pip = engine.folder / "pip.conf"
    certificates = _pip_settings(pip)
    volumes = [f"--volume={pip}:/etc/pip.conf:ro"]
    volumes += [f"--volume={file}:{file}:ro" for file in certificates]
    for image, target in ((FAULTLINE, ()), (SANDBOX, ("--target=sandbox",))):
        if engine.has_image(image, _FROM, checksum):
            continue
        before = engine.podman("image", "ls", "--quiet", "--no-trunc", image).split()
        options = (*target, "--layers", f"--label={_FROM}={checksum}", *volumes)
        engine.run(*_build(image), *options, str(ROOT))
        # The layers that both have stay: they are what the next build need not do again.
        if before and before != engine.podman("image", "ls", "--quiet", "--no-trunc", image).split():
            engine.podman("image", "rm", "--force", *before)


def _build(name: str) -> list[str]:
    return ["buildah", "build", "--isolation=chroot", "--pull-never", f"--tag={name}"]


def _source() -> str:
    """Where this machine's apt has Debian from.

    Raises:
        LookupError: when no source of it is set up.
    """
    asked = [
        "apt-get",
        "indextargets",
        "--format",
        "$(RELEASE) $(COMPONENT) $(REPO_URI)",
        "Identifier: Packages",
    ]
    for line in subprocess.run(asked, check=True, capture_output=True, text=True).stdout.splitlines():
        release, component, address = line.split(maxsplit=2)
        if (release, component) == (SUITE, "main"):
            return address
    raise LookupError(f"apt knows no source of {SUITE} main ('apt-get update' may be due)")


def _checksum(context: Path) -> str:
    """Over every file that the Dockerfile copies, and the Dockerfile."""
    total = hashlib.sha256()
    for file in _context_files(context):
        total.update(str(file.relative_to(context)).encode() + b"\0" + file.read_bytes())
    return total.hexdigest()


def _context_files(context: Path) -> Iterator[Path]:
    for name in ("Dockerfile", ".dockerignore", "requirements-build.lock", "requirements-image.lock"):
        yield context / name
    yield from (context / "pyproject.toml", context / "README.md")
    for folder in _IN_THE_CONTEXT:
        for file in sorted((context / folder).rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                yield file


def _pip_settings(target: Path) -> list[Path]:
    """Write for pip in the build what pip here is told of where packages are, and return the certificates it then needs."""
    wanted = ("index-url", "extra-index-url", "trusted-host", "cert", "default-timeout")
    listing = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], check=True, capture_output=True, text=True
    ).stdout
    told: dict[str, str] = {}
    for line in listing.splitlines():  # what the environment says comes last and counts
        name, _, value = line.partition("=")
        if name.rpartition(".")[2] in wanted:
            told[name.rpartition(".")[2]] = value.strip("'\"")
    if bundle := os.environ.get("SSL_CERT_FILE"):
        told.setdefault("cert", bundle)
    target.write_text("".join(["[global]\n", *(f"{name} = {value}\n" for name, value in told.items())]))
    target.chmod(0o600)
    return [Path(told["cert"])] if "cert" in told else []
