"""What requests carry, and what of it does not fit, is said before they are sent."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tuner.bench.job import Job, Request, prepare
from tuner.bench.tools import LARGE_BYTES, request_notes
from tuner.errors import SpecError


def job(tmp_path: Path, dims: str, inputs: str) -> Job:
    model = tmp_path / "repository" / "m"
    (model / "1").mkdir(parents=True)
    (model / "config.pbtxt").write_text(
        'name: "m" backend: "python" max_batch_size: 8\n'
        f'input {{ name: "x" data_type: TYPE_FP32 dims: {dims} }}\n'
        'output { name: "y" data_type: TYPE_FP32 dims: [ 1 ] }\n'
    )
    spec = tmp_path / "spec.yaml"
    spec.write_text(
        "model: m\nrepository: repository\nslo: [p99_latency <= 40ms]\n"
        f"workload: {{inputs: {inputs}}}\n"
        "space: {instance_group.count: {int: [1, 4]}}\n"
    )
    return prepare(Request(spec=spec))


def test_a_request_of_8_mib_is_not_sent_without_a_word(tmp_path: Path) -> None:
    large = job(tmp_path, "[ -1, -1, -1 ]", "{kind: random, shapes: {x: [128, 128, 128]}}")
    (note,) = request_notes(large, LARGE_BYTES)
    assert note.startswith("a request carries 8 MiB: x FP32[128, 128, 128]")
    assert "workload.inputs.shapes" in note


@pytest.mark.parametrize("dims", ["[ 4 ]", "[ 2, 2 ]"])
def test_a_plan_tells_the_size_and_a_run_only_a_large_one(tmp_path: Path, dims: str) -> None:
    small = job(tmp_path, dims, "{kind: random}")
    (note,) = request_notes(small)
    assert note.startswith("a request carries 16 B")
    assert [*request_notes(small, LARGE_BYTES)] == []


@pytest.mark.parametrize(
    ("count", "said"), [(1 << 18, False), ((1 << 18) + 1, True), (1 << 19, True)]
)
def test_more_than_a_mebibyte_is_large(count: int, said: bool, tmp_path: Path) -> None:
    large = request_notes(job(tmp_path, f"[ {count} ]", "{kind: random}"), LARGE_BYTES)
    assert bool([*large]) is said


def recorded(
    tmp_path: Path,
    inputs: str,
    *entries: Any,
    more: str = "",
    batch: int = 1,
    repeat: str = "none",
    backend: str = "python",
) -> Job:
    """A job with a file of requests; ``inputs`` and ``more`` are of its model's config."""
    model = tmp_path / "repository" / "m"
    (model / "1").mkdir(parents=True, exist_ok=True)
    (model / "config.pbtxt").write_text(
        f'backend: "{backend}" max_batch_size: 8 {inputs}\n'
        f'output {{ name: "y" data_type: TYPE_FP32 dims: [ 1 ] }} {more}\n'
    )
    (tmp_path / "requests.json").write_text(json.dumps({"data": entries}))
    spec = tmp_path / "spec.yaml"
    spec.write_text(
        "model: m\nrepository: repository\nslo: [p99_latency <= 40ms]\n"
        f"workload: {{batch_size: {batch}, inputs: {{kind: file, file: requests.json, "
        f"repeat: {{kind: {repeat}}}}}}}\n"
        "space: {instance_group.count: {int: [1, 4]}}\n"
    )
    return prepare(Request(spec=spec))


CHARGE = 'input { name: "charge" data_type: TYPE_INT32 dims: [ 1 ] }'
TEXT = 'input { name: "text" data_type: TYPE_STRING dims: [ -1 ] }'
SMALL = 'input { name: "x" data_type: TYPE_INT8 dims: [ 2 ] optional: true }'


def test_all_entries_that_do_not_fit_are_told_at_once_before_anything_starts(
    tmp_path: Path,
) -> None:
    entries = [{"charge": [2]}, {"charge": [3, 4]}, {"charges": [1]}, {"charge": ["x"]}]
    with pytest.raises(SpecError) as told:
        recorded(tmp_path, CHARGE, *entries)
    assert told.value.exit_code == 2
    near = "no input of the model (did you mean charge?)"
    assert str(told.value).replace(f"{tmp_path}/", "").splitlines() == [
        "requests.json: entry 2: charge: 2 values, where [1] is expected",
        f"requests.json: entry 3: charges is {near}; it has no charge",
        'requests.json: entry 4: charge: "x" is no INT32',
    ]


@pytest.mark.parametrize(
    ("inputs", "entry", "said"),
    [
        (CHARGE, {"charge": [1.5]}, "charge: 1.5 is no INT32"),
        (CHARGE, {"charge": [True]}, "charge: true is no INT32"),
        (CHARGE, {"charge": 5}, "charge: it is no list of INT32"),
        (CHARGE, {"charge": [1 << 31]}, "charge: 2147483648 is no INT32"),
        (CHARGE, {"charge": {"b64": "AAAA"}}, r"charge: 0.75 values, where \[1\] is expected"),
        (CHARGE, {"charge": {"shape": [1]}}, "charge: neither content nor b64"),
        (CHARGE, {"charge": {"content": [1], "shape": [1, 1]}}, r"shape \[1, 1\], where \[1\]"),
        (CHARGE, [{"charge": [1]}], "not one request"),
        (TEXT, {"text": ["a", "b"]}, r"text: it has no shape, and \[-1\] is open"),
        (TEXT, {"text": {"content": [1], "shape": [1]}}, "text: 1 is no BYTES"),
        (TEXT, {"text": {"b64": "BQAAAGFi", "shape": [1]}}, "text: .*5 bytes"),
        (SMALL, {"x": [1, 128]}, "x: 128 is no INT8"),
    ],
)
def test_an_entry_that_does_not_fit_says_how(
    tmp_path: Path, inputs: str, entry: Any, said: str
) -> None:
    with pytest.raises(SpecError, match=f"requests.json: entry 1: .*{said}") as told:
        recorded(tmp_path, inputs, entry)
    assert '{"content": [1, 2, 3], "shape": [3]}' in told.value.hint


@pytest.mark.parametrize(
    ("inputs", "entries"),
    [
        (CHARGE.replace("INT32", "FP32"), [{"charge": [1]}, {"charge": [[2]]}]),
        (CHARGE, [{"charge": {"b64": "AAAAAA=="}, "model": "m"}]),
        (CHARGE, [{"charge": {"content": {"b64": "AAAAAA=="}, "shape": [1]}}]),
        (CHARGE + SMALL, [{"charge": [1]}, {"charge": [1], "x": [1, 2]}]),
        (TEXT, [{"text": {"content": ["a", "bé"], "shape": [2]}}]),
        (CHARGE.replace("TYPE_INT32", "TYPE_BOOL"), [{"charge": [True]}]),
    ],
)
def test_all_forms_of_perf_analyzer_are_taken(
    tmp_path: Path, inputs: str, entries: list[Any]
) -> None:
    (figures,) = recorded(tmp_path, inputs, *entries).recorded.values()
    assert figures.count == len(entries)


def test_of_many_wrong_entries_the_first_hundred_are_told(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as told:
        recorded(tmp_path, CHARGE, *[{}] * 130)
    assert str(told.value).splitlines()[-1] == "and 30 more"


def test_how_many_requests_a_file_has_and_how_large_they_are_is_told(tmp_path: Path) -> None:
    (note,) = request_notes(recorded(tmp_path, CHARGE, {"charge": [2]}))
    assert note == "requests.json: 1 request, 4 B"


def test_of_inputs_that_only_a_server_knows_the_number_of_requests_is_told(tmp_path: Path) -> None:
    model = tmp_path / "repository" / "m" / "1"
    model.mkdir(parents=True)
    (model / "model.onnx").touch()
    job = recorded(tmp_path, "", {"charge": [2]}, {"charge": [3]}, backend="onnxruntime")
    assert [*request_notes(job)] == ["requests.json: 2 requests"]


LENGTHS = [{"text": {"content": ["ab"] * n, "shape": [n]}} for n in (1, 3, 2, 3)]


@pytest.mark.parametrize(
    ("ragged", "more", "told"),
    [
        ("", "dynamic_batching { }", True),
        ("allow_ragged_batch: true", "dynamic_batching { }", False),
        ("", "", False),
    ],
)
def test_that_requests_of_different_shapes_never_share_a_batch_is_told(
    tmp_path: Path, ragged: str, more: str, told: bool
) -> None:
    inputs = TEXT.replace("dims", f"{ragged} dims")
    sizes, *shapes = request_notes(recorded(tmp_path, inputs, *LENGTHS, more=more))
    assert sizes == "requests.json: 4 requests, 6 B to 18 B each"
    assert bool(shapes) is told
    assert all(re.search("text has 3 different shapes .* never share a batch", s) for s in shapes)


@pytest.mark.parametrize(
    ("lengths", "repeat", "place"),
    [
        ((1, 1, 3, 3), "none", ""),
        ((1, 1, 3, 1), "none", "entry 3"),
        ((1, 1, 1, 1, 3), "none", "entry 5"),
        ((1, 1, 3, 3), "uniform", "entry 1"),
    ],
)
def test_inferences_of_different_shapes_in_one_request_are_refused_before_the_run(
    tmp_path: Path, lengths: tuple[int, ...], repeat: str, place: str
) -> None:
    entries = [{"text": {"content": ["ab"] * n, "shape": [n]}} for n in lengths]
    if not place:
        recorded(tmp_path, TEXT, *entries, batch=2, repeat=repeat)
        return
    with pytest.raises(SpecError, match=f"requests.json: {place}: .*their shapes differ"):
        recorded(tmp_path, TEXT, *entries, batch=2, repeat=repeat)


def test_a_request_of_several_inferences_says_what_figures_count(tmp_path: Path) -> None:
    unit, sizes = request_notes(recorded(tmp_path, CHARGE, *[{"charge": [2]}] * 3, batch=2))
    assert unit.startswith("a request carries 2 inferences, which goodput and throughput count")
    assert sizes == "requests.json: 3 inferences, 4 B"


def test_all_of_a_batch_and_every_tensor_count(tmp_path: Path) -> None:
    model = tmp_path / "repository" / "m"
    (model / "1").mkdir(parents=True)
    (model / "config.pbtxt").write_text(
        'name: "m" backend: "python" max_batch_size: 8\n'
        'input { name: "x" data_type: TYPE_FP32 dims: [ 4 ] }\n'
        'input { name: "text" data_type: TYPE_STRING dims: [ 2 ] }\n'
        'output { name: "y" data_type: TYPE_FP32 dims: [ 1 ] }\n'
    )
    spec = tmp_path / "spec.yaml"
    spec.write_text(
        "model: m\nrepository: repository\nslo: [p99_latency <= 40ms]\n"
        "workload: {batch_size: 3, inputs: {kind: random, string_length: 20}}\n"
        "space: {instance_group.count: {int: [1, 4]}}\n"
    )
    unit, note = request_notes(prepare(Request(spec=spec)))
    assert "carries 3 inferences, which goodput and throughput count" in unit
    assert note == f"a request carries {3 * (16 + 2 * (4 + 20))} B: x FP32[4], text BYTES[2]"


def test_all_open_inputs_are_told_at_once_before_anything_starts_with_shapes_that_fit(
    tmp_path: Path,
) -> None:
    dims = '[ -1, 3, -1 ] } input { name: "z" data_type: TYPE_STRING dims: [ -1 ]'
    with pytest.raises(SpecError, match=r"x \[-1, 3, -1\], z \[-1\]") as told:
        job(tmp_path, dims, "{kind: random}")
    assert "inputs.shapes: {x: [128, 3, 128], z: [128]}" in told.value.hint


TEXTS = "{kind: random, shapes: {x: [{dims: [64], share: 70%}, {dims: [%s], share: 30%}]}}"


def test_a_plan_tells_the_size_of_each_shape(tmp_path: Path) -> None:
    notes = [*request_notes(job(tmp_path, "[ -1 ]", TEXTS.replace("%s", "256")))]
    assert notes == [
        "70% of the requests carry 256 B: x FP32[64]",
        "30% of the requests carry 1 KiB: x FP32[256]",
    ]


def test_a_plan_tells_that_unlike_shapes_are_kept_apart(tmp_path: Path) -> None:
    model = tmp_path / "repository" / "m"
    spec = job(tmp_path, "[ -1 ]", TEXTS.replace("%s", "256")).loaded.path
    (model / "config.pbtxt").write_text(
        (model / "config.pbtxt").read_text() + "dynamic_batching { }"
    )
    apart = (
        "inputs: x has 2 different shapes and no allow_ragged_batch: requests of different shapes "
        "never share a batch"
    )
    assert [*request_notes(prepare(Request(spec=spec)))][-1] == apart
    ragged = (model / "config.pbtxt").read_text().replace("dims: [ -1 ]", "dims: [ -1 ] %s")
    (model / "config.pbtxt").write_text(ragged.replace("%s", "allow_ragged_batch: true"))
    assert apart not in request_notes(prepare(Request(spec=spec)))


@pytest.mark.parametrize(
    ("dims", "place", "told"),
    [
        ("[ 64 ]", "4:81", "x cannot be [256], m has [64]"),
        ("[ -1, 2 ]", "4:55", "x cannot be [64], m has [-1, 2]"),
    ],
)
def test_a_shape_that_the_config_does_not_allow_is_told_with_its_place(
    tmp_path: Path, dims: str, place: str, told: str
) -> None:
    with pytest.raises(SpecError) as error:
        job(tmp_path, dims, TEXTS.replace("%s", "256"))
    assert f"spec.yaml:{place}: {told}" in str(error.value)
