"""Facts of the machine."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from tuner.machine.cpus import Cores
from tuner.machine.host import Gpu, Host, parse_gpus, read_host, thread_variables
from tuner.machine.process import leave_out_the_middle
from tuner.spec.fields import cpu_numbers

HOST = Host(
    cpu="Xeon",
    cores=8,
    memory_bytes=1 << 34,
    kernel="6.1",
    load_1m=0.1,
    governor=None,
    gpus=(Gpu(0, "NVIDIA A10", "GPU-1", 24 << 30, "550.1"),),
)


def test_gpus_are_read_from_nvidia_smi() -> None:
    lines = [
        "0, NVIDIA H200, GPU-1, 143771, 565.57.01",
        "1, NVIDIA GB10, GPU-2, [N/A], 580.1",
        "No devices were found",
    ]
    assert list(parse_gpus(lines)) == [
        Gpu(0, "NVIDIA H200", "GPU-1", 143771 << 20, "565.57.01"),
        Gpu(1, "NVIDIA GB10", "GPU-2", None, "580.1"),
    ]


def test_the_fingerprint_is_of_what_measurements_depend_on() -> None:
    same = HOST.fingerprint("2.51.0")
    assert len(same) == 16
    busier = dataclasses.replace(HOST, load_1m=5.0, memory_bytes=1, kernel="6.2")
    assert busier.fingerprint("2.51.0") == same
    other_driver = (dataclasses.replace(HOST.gpus[0], driver="560.2"),)
    for other in (
        dataclasses.replace(HOST, cpu="EPYC"),
        dataclasses.replace(HOST, cores=4),
        dataclasses.replace(HOST, gpus=()),
        dataclasses.replace(HOST, gpus=other_driver),
        dataclasses.replace(HOST, threads={"OMP_NUM_THREADS": "1"}),
    ):
        assert other.fingerprint("2.51.0") != same
    assert HOST.fingerprint("2.52.0") != same
    assert HOST.fingerprint("2.51.0", Cores((0, 1), (2,))) != same


def test_this_machine_has_facts_that_can_be_stored() -> None:
    host = read_host({})
    assert host.cores >= 1
    assert host.memory_bytes > 1 << 20
    assert host.cpu
    assert json.loads(json.dumps(host.to_json()))["cores"] == host.cores


def test_variables_that_set_threads_are_facts_of_the_machine() -> None:
    """A server that a batch system started is another machine for PyTorch."""
    threads = {
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "2",
        "POLARS_MAX_THREADS": "2",
        "OPENCV_FOR_THREADS_NUM": "1",
        "RAYON_NUM_THREADS": "1",
        "TF_NUM_INTRAOP_THREADS": "1",
        "LOKY_MAX_CPU_COUNT": "1",
        "KMP_BLOCKTIME": "0",
        "OMP_WAIT_POLICY": "passive",
    }
    others = {"PATH": "/bin", "HOME": "/", "MKL": "x", "NUM_THREADS_OF_MINE": "3"}
    assert thread_variables({**threads, **others}) == threads


def test_of_a_long_log_the_beginning_and_the_end_are_kept(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    for content, kept in ((b"a" * 9, b"a" * 9), (b"begin" + b"x" * 90 + b"-end.", None)):
        log.write_bytes(content)
        leave_out_the_middle(log, 10)
        assert log.read_bytes() == (kept or b"begin\n[90 bytes are left out here]\n-end.")
    leave_out_the_middle(tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()


def test_log_that_is_a_link_is_not_cut(tmp_path: Path) -> None:
    theirs, log = tmp_path / "theirs", tmp_path / "server.log"
    theirs.write_bytes(b"x" * 100)
    log.symlink_to(theirs)
    leave_out_the_middle(log, 10)
    assert theirs.read_bytes() == b"x" * 100


@pytest.mark.parametrize(
    ("written", "read"),
    [("all", "all"), (None, None), (3, [3]), ("0-2, 8", [0, 1, 2, 8]), ([1, 0], [0, 1])],
)
def test_cpus_are_written_as_linux_writes_them(written: object, read: object) -> None:
    assert cpu_numbers(written) == read


@pytest.mark.parametrize("written", ["x", "", "3-", "5-3", [], True, "0-99999999999"])
def test_malformed_set_of_cpus_is_refused(written: object) -> None:
    with pytest.raises(ValueError, match="CPU"):
        cpu_numbers(written)
