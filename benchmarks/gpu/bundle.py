"""Packs what a GPU machine without a package registry needs into one file.

    python benchmarks/gpu/bundle.py --libpython /usr/lib/x86_64-linux-gnu/libpython3.12.so.1.0

Run it where the project is installed (``pip install -e '.[local]'``) and pip works. It packs the
versions installed here, as wheels for the other machine's Python. How the bundle is made,
carried and used: benchmarks/gpu/README.md.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import lzma
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
MIB = 1 << 20
#: Largest size that can be carried to the machine in one go, less a margin for file names.
LARGEST_MIB = 62.0
#: The parts of the project that the other machine runs; the rest of the repository is left out.
PROJECT = ("tuner", "benchmarks/gpu")
#: Only what is in these packages is used, not what they require.
FILES_ONLY = ("nvidia-pytriton",)
#: Images with PyTorch have these; `run.py` checks it. ``--also`` packs one anyway.
ALREADY_THERE = ("numpy", "scipy", "pandas", "matplotlib", "pillow", "packaging")
NOT_NEEDED = {
    "onnxruntime": "only the example model tiny-bert imports it",
    "cuda-python": "CUDA shared memory for Python clients; perf_analyzer has its own",
    "aiohttp": "asynchronous HTTP clients",
    "numba": "Model Analyzer's own look at the GPUs",
    "gevent": "Model Analyzer's HTTP clients",
    "geventhttpclient": "HTTP clients in Python; perf_analyzer speaks HTTP itself",
    "pdfkit": "Model Analyzer's PDF reports",
    "httplib2": "Model Analyzer's downloads",
    "cryptography": "Model Analyzer's downloads",
    "distro": "Model Analyzer's docker images",
}
#: Parts of packages that nothing here reads.
DROPPED = (
    "bin/*",  # perf_analyzer is taken out before
    "pytriton/[!_t]*",
    "pytriton/triton.py",
    "pytriton/__main__.py",
    "nvidia_pytriton.libs/libpython3*",  # of the stub for another Python
    "plotly/labextension/*",
    "plotly/package_data/datasets/*",
    "*.map",
    "*.pyi",
    "*/tests/*",
    "*/__pycache__/*",
)
_STUBS = "pytriton/tritonserver/python_backend_stubs"


class BundleError(Exception):
    """The bundle cannot be made; the message says why and what to do."""


@dataclass(frozen=True)
class Contents:
    """What goes in.

    Attributes:
        pins: Requirements for pip, one exact version each.
        already_there: Packages the machine must have, with the versions seen here.
        left_out: Packages nothing on the machine imports, with the reason.
    """

    pins: tuple[str, ...]
    already_there: dict[str, str]
    left_out: dict[str, str]


def contents(python: str, also: Sequence[str]) -> Contents:
    """The installed project's requirements on the other machine, with the versions found here."""
    environment = {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "platform_machine": "x86_64",
        "os_name": "posix",
    }
    pins: dict[str, str] = {}
    there: dict[str, str] = {}
    left_out: dict[str, str] = {}
    todo = [Requirement("triton-tune[local,gpu]")]
    seen: set[str] = set()
    while todo:
        requirement = todo.pop()
        name = canonicalize_name(requirement.name)
        if str(requirement) in seen:
            continue
        seen.add(str(requirement))
        if name in NOT_NEEDED and name not in also:
            left_out[name] = NOT_NEEDED[name]
            continue
        if name in ALREADY_THERE and name not in also:
            there[name] = importlib.metadata.version(name)
            continue
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:  # an extra that is not installed here
            pins[name] = f"{requirement.name}{requirement.specifier}"
            continue
        if name != "triton-tune":
            pins[name] = f"{name}=={distribution.version}"
        if name not in FILES_ONLY:
            todo += _required_by(distribution, requirement.extras, environment)
    return Contents(tuple(sorted(pins.values())), there, left_out)


def _required_by(
    distribution: importlib.metadata.Distribution, extras: set[str], environment: dict[str, str]
) -> Iterator[Requirement]:
    for requirement in map(Requirement, distribution.requires or ()):
        marker = requirement.marker
        if marker is None or any(
            marker.evaluate({**environment, "extra": extra}) for extra in ("", *extras)
        ):
            requirement.marker = None
            yield requirement


def install(pins: Sequence[str], python: str, site: Path) -> None:
    """Unpacks the wheels for the other Python into ``site``, as pip installs them there."""
    # pip takes a platform's name as it is: an older one must be named too.
    platforms = [f"manylinux_2_{minor}_x86_64" for minor in range(35, 4, -1)]
    platforms += ["manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64"]
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile"]
    command += ["--target", str(site), "--only-binary=:all:", "--implementation=cp"]
    command += [f"--python-version={python}", *(f"--platform={name}" for name in platforms)]
    done = subprocess.run([*command, *pins], check=False)
    if done.returncode != 0:
        raise BundleError(f"pip ended with {done.returncode}; see its output above")


def dropped(name: str, python: str) -> bool:
    """Whether a file of ``site`` is left out."""
    if name.startswith(_STUBS):
        return not name.startswith(f"{_STUBS}/{python}/")
    return any(fnmatch(name, pattern) for pattern in DROPPED)


def project_files() -> list[str]:
    """The files of the project to be packed: tracked ones, and those not yet added to git."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others"]
    command += ["--exclude-standard", "--", *PROJECT]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return sorted({name for name in listed.split("\0") if name and (ROOT / name).is_file()})


def write(bundle: Path, members: Sequence[tuple[str, Path]]) -> None:
    """Writes the tar file; similar files are next to each other, which makes it smaller."""
    filters = [
        {"id": lzma.FILTER_X86},
        {"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": 1 << 26},
    ]
    bundle.parent.mkdir(parents=True, exist_ok=True)
    with (
        lzma.open(bundle, "wb", format=lzma.FORMAT_XZ, filters=filters) as compressed,
        tarfile.open(fileobj=compressed, mode="w|", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, path in sorted(members, key=lambda m: (m[1].suffix, m[0])):
            archive.add(path, name, recursive=False, filter=_anonymous)


def _anonymous(info: tarfile.TarInfo) -> tarfile.TarInfo:
    """Removes this machine's users and dates."""
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    info.mtime = 0
    return info


def check_size(size_bytes: int, largest_mib: float, members: Sequence[tuple[str, Path]]) -> None:
    """Refuses a bundle that cannot be carried.

    Raises:
        BundleError: It is larger than ``largest_mib``; names the largest parts.
    """
    if size_bytes <= largest_mib * MIB:
        return
    parts: dict[str, int] = {}
    for name, path in members:
        part = "/".join(name.split("/")[:2])
        parts[part] = parts.get(part, 0) + path.stat().st_size
    largest = sorted(parts, key=lambda part: parts[part], reverse=True)[:8]
    listed = ", ".join(f"{part} {parts[part] / MIB:.0f} MiB" for part in largest)
    raise BundleError(
        f"the bundle has {size_bytes / MIB:.1f} MiB and may have {largest_mib:g}; the largest "
        f"parts before compression: {listed}. Leave one out (NOT_NEEDED, DROPPED in bundle.py)"
    )


def stripped(libpython: Path, directory: Path) -> Path:
    """A copy without debugging symbols, where ``strip`` is installed."""
    copy = directory / libpython.name
    shutil.copy(libpython, copy)
    if strip := shutil.which("strip"):
        subprocess.run([strip, "--strip-unneeded", str(copy)], check=True)
    return copy


def make(given: argparse.Namespace, say: Callable[[str], None]) -> None:
    inside = contents(given.python, given.also)
    with tempfile.TemporaryDirectory(prefix="gpu-bundle-") as temporary:
        site = Path(temporary) / "site"
        install(inside.pins, given.python, site)
        files = [p.relative_to(site).as_posix() for p in site.rglob("*") if p.is_file()]
        members = [(f"site/{n}", site / n) for n in files if not dropped(n, given.python)]
        members.append(("bin/perf_analyzer", site / "bin" / "perf_analyzer"))
        members += [(f"project/{name}", ROOT / name) for name in project_files()]
        if given.libpython is not None:
            copy = stripped(given.libpython, Path(temporary))
            members.append((f"lib/{copy.name}", copy))
        facts = Path(temporary) / "bundle.json"
        facts.write_text(json.dumps({"python": given.python, **vars(inside)}, indent=1))
        members.append(("bundle.json", facts))
        write(given.output, members)
        size = given.output.stat().st_size
        say(f"{given.output}: {size / MIB:.1f} MiB, {len(members)} files, Python {given.python}")
        say(f"must be there: {', '.join(sorted(inside.already_there))}, torch, transformers")
        for name, reason in sorted(inside.left_out.items()):
            say(f"left out: {name} ({reason})")
        check_size(size, given.largest_mib, members)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--output", type=Path, default=ROOT / "dist" / "gpu-bundle.tar.xz")
    parser.add_argument("--python", default="3.12", help="of the GPU machine")
    parser.add_argument(
        "--libpython",
        type=Path,
        metavar="FILE",
        help="e.g. libpython3.12.so.1.0; used where the GPU machine's Python has none",
    )
    parser.add_argument("--also", nargs="*", default=[], metavar="NAME", help="pack these too")
    parser.add_argument("--largest-mib", type=float, default=LARGEST_MIB)
    try:
        make(parser.parse_args(), print)
    except BundleError as error:
        print(f"no bundle: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
