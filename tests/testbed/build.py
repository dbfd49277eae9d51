"""Build the testbed: ``python -m tests.testbed.build [--if-toolchain] [PART …]``.

Kafka's jars come through Maven; etcd, the Kubernetes control plane, KWOK, the training operator, Helm and Telegraf
are compiled by Go; rsyslog and Prometheus are unpacked from Debian's packages. On Debian, as root, a container engine is
installed from its packages and two images are made of them. Each part is built once and again only when its recipe changes.
One part after the other, each with all cores that the memory carries.

What it costs on two cores, from nothing: about 17 minutes (Kafka 15 s, etcd 40 s, KWOK 1 min, training operator 1 min,
Kubernetes 4 min, Helm 2 min, Telegraf 3 min, the engine 40 s, images 4 min), 2 GB of memory at the API server's link, 570 MB of
builds and 1.2 GB of images in the user's cache, and about 5 GB of Go's own caches, which ``go clean -cache -modcache``
gives back.

A machine without Java, Maven, Go or apt cannot build, and one that allows no containers makes no images. With
``--if-toolchain`` that is said loudly and is no failure, except where ``CI`` is set: there, tests that do not run are a
failure.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.testbed import images
from tests.testbed.parts import KUBERNETES_VERSION, PARTS, Part, home

# Otherwise the API server calls itself v0.0.0, and clients choose features by that.
LINK_FLAGS = f"-s -w -X k8s.io/component-base/version.gitVersion={KUBERNETES_VERSION}"
GIB_PER_COMPILER = 2
PROGRESS_EVERY_S = 30


class BuildFailed(Exception):
    """A part's build ended with an error; the message carries the end of its log."""


def main(argv: Sequence[str] | None = None) -> int:
    """Build what is missing; return the exit code."""
    arguments = argparse.ArgumentParser(
        prog="python -m tests.testbed.build", description="Build the testbed once."
    )
    arguments.add_argument(
        "--if-toolchain",
        action="store_true",
        help="a missing Java, Maven, Go or apt is no failure (unless CI is set)",
    )
    arguments.add_argument("part", nargs="*", help=f"only these of: {', '.join(part.name for part in PARTS)}")
    options = arguments.parse_args(argv)
    wanted = [part for part in PARTS if part.name in options.part or not options.part]
    home().mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("testbed: the build was ended"))
    with alone():
        todo = [part for part in wanted if not part.built()]
        unbuildable = {part.name: lack for part in todo if (lack := part.lacking_tools())}
        for part in todo:
            if part.name not in unbuildable:
                try:
                    build(part)
                except BuildFailed as failure:
                    say(str(failure))
                    return 1
    if not unbuildable:
        say(f"{', '.join(part.name for part in wanted)} ready in {home()}")
        return 0
    say_what_will_not_run(unbuildable)
    return 1 if not options.if_toolchain or in_ci() else 0


def in_ci() -> bool:
    """Tell whether this is continuous integration, where a test that did not run is a failure."""
    return os.environ.get("CI", "").lower() in {"1", "true", "yes"}


def build(part: Part) -> None:
    """Build one part and leave its stamp."""
    started = time.monotonic()
    say(f"building {part.name} {part.version} …")
    if not part.images:  # the engine's storage is its own to tidy
        shutil.rmtree(part.folder, ignore_errors=True)  # what a build left that was cut off
    part.folder.mkdir(parents=True, exist_ok=True)
    if part.programs:
        build_with_go(part)
    elif part.packages:
        unpack_from_debian(part)
    elif part.installs:
        install_from_debian(part)
    elif part.images:
        images.make_base_images(lambda command, what: run(part, command, what, home()))
    else:
        build_with_maven(part)
    part.stamp.touch()
    say(f"built {part.name} {part.version} in {time.monotonic() - started:.0f} s")


def build_with_maven(part: Part) -> None:
    """Collect the jars of ``pom.xml`` and all they need in one folder, which then is the class path."""
    command = [
        "mvn",
        "-B",
        "-ntp",
        "dependency:copy-dependencies",
        "-DincludeScope=runtime",
        f"-DoutputDirectory={part.folder / 'libs'}",
    ]
    run(part, command, "collecting jars")


def build_with_go(part: Part) -> None:
    """Compile each program of the recipe, without C or paths of this machine, and copy what comes along."""
    (part.folder / "bin").mkdir()
    source = completed_copy(part) if part.completed else part.recipe
    for program, package in part.programs:
        out = part.folder / "bin" / program
        command = [
            "go",
            "build",
            "-trimpath",
            "-p",
            str(compilers()),
            "-ldflags",
            LINK_FLAGS,
            "-tags",
            ",".join(part.tags),
            "-o",
            str(out),
            package,
        ]
        run(part, command, program, source)
    for name, module, folder in part.copies:
        copy_module(part, module, folder, part.folder / name)
    if part.completed:
        shutil.rmtree(source)


def completed_copy(part: Part) -> Path:
    """Copy the module that is built, and make the empty files that its archive lacks."""
    assert part.completed is not None
    module, lacking = part.completed
    source = part.folder / "source"
    run(part, ["go", "mod", "download", module], "fetching the source")
    copy_module(part, module, "", source)
    for name in lacking:
        (source / name).parent.mkdir(parents=True)
        (source / name).touch()
    return source


def copy_module(part: Part, module: str, folder: str, target: Path) -> None:
    """Copy a folder of a module that the recipe pins."""
    command = ["go", "list", "-m", "-f", "{{.Dir}}", module]
    listing = subprocess.run(command, cwd=part.recipe, check=True, capture_output=True, text=True)
    # The module cache is read-only; a copy that kept its modes could not be written to or removed later.
    shutil.copytree(Path(listing.stdout.strip()) / folder, target, copy_function=shutil.copyfile)
    for place in (target, *(path for path in target.rglob("*") if path.is_dir())):
        place.chmod(0o755)


def unpack_from_debian(part: Part) -> None:
    """Fetch packages as this machine's sources have them, and unpack them beside each other without installing any."""
    folder = part.folder
    (folder / "fetched").mkdir()
    run(part, ["apt-get", "download", *part.packages], "fetching packages", folder / "fetched")
    for package in sorted((folder / "fetched").glob("*.deb")):
        run(part, ["dpkg-deb", "--extract", str(package), str(folder)], package.name)
    shutil.rmtree(folder / "fetched")


def install_from_debian(part: Part) -> None:
    """Install packages on this machine, with nothing that they only recommend; what is there stays as it is."""
    run(part, ["apt-get", "update"], "asking for packages", home())
    command = ["apt-get", "install", "--yes", "--no-install-recommends", "--no-upgrade", *part.installs]
    run(part, command, "installing packages", home())


def run(part: Part, command: list[str], what: str, folder: Path | None = None) -> None:
    """Run one build command with its output in a log, telling every half minute that it lives."""
    log = home() / "logs" / f"{part.name}.log"
    log.parent.mkdir(exist_ok=True)
    started = time.monotonic()
    with log.open("ab") as out:
        out.write(f"\n$ {' '.join(command)}\n".encode())
        out.flush()
        environment = os.environ | {"CGO_ENABLED": "0", "DEBIAN_FRONTEND": "noninteractive"}
        with subprocess.Popen(
            command, cwd=folder or part.recipe, stdout=out, stderr=out, env=environment
        ) as child:
            try:
                while (code := _ended(child)) is None:
                    say(f"  {part.name}: {what}, {time.monotonic() - started:.0f} s")
            except BaseException:
                child.terminate()
                raise
    if code != 0:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-20:])
        raise BuildFailed(f"{part.name}: {what} ended with exit code {code}; the end of {log}:\n{tail}")


def _ended(child: subprocess.Popen[bytes]) -> int | None:
    """Wait a while, and return the exit code if it has ended."""
    try:
        return child.wait(PROGRESS_EVERY_S)
    except subprocess.TimeoutExpired:
        return None


def compilers() -> int:
    """Return how many compilers may run at once: one a core, as long as each has its share of memory."""
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return max(1, min(os.cpu_count() or 1, int(memory_gib / GIB_PER_COMPILER)))


@contextmanager
def alone() -> Iterator[None]:
    """Let one build at a time use the folder; a second one waits and then finds everything done."""
    with (home() / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another build is at work here, waiting for it …")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def say_what_will_not_run(unbuildable: dict[str, list[str]]) -> None:
    """Say which tests cannot run on this machine and why, so that nobody takes silence for success."""
    markers = sorted({part.marker for part in PARTS if part.name in unbuildable})
    say("=" * 72)
    for part, lacks in unbuildable.items():
        say(f"{part} cannot be built: {'; '.join(lacks)}")
    for marker in markers:
        say(f"tests marked '{marker}' will NOT RUN")
    say("=" * 72)


def say(line: str) -> None:
    """Print a line of progress at once, also into a pipe."""
    print(f"testbed: {line}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
