from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tuner.errors import SpecError
from tuner.load.traffic import inputs
from tuner.load.traffic.encoding import TensorShape, content_bytes, random_contents, resolve
from tuner.load.traffic.inputs import DrawnInputs, sampled_length
from tuner.load.traffic.wire import Tensors
from tuner.modelconfig.message import parse
from tuner.spec.workload import FileInputs, RandomInputs

X = TensorShape("x", "FP32", (4,))
ONE = TensorShape("x", "INT32", (1,))


def random(**fields: Any) -> RandomInputs:
    return RandomInputs.model_validate({"kind": "random", **fields})


def numbers(inferences: Sequence[Tensors]) -> list[int]:
    return [int.from_bytes(content, "little") for content in contents(inferences)]


def contents(inferences: Sequence[Tensors]) -> list[bytes]:
    return [inference["x"].raw for inference in inferences]


def test_unique_inputs_are_different_and_used_in_turn(tmp_path: Path) -> None:
    file = DrawnInputs(random(unique=50), [X]).of_run(seed=1, count=9999)
    drawn = contents(file.inferences)
    assert len(drawn) == len(set(drawn)) == 50
    assert file.sampled_count is None
    assert file.warnings == ()


def test_inputs_that_never_come_back_are_new_in_every_measurement(tmp_path: Path) -> None:
    files = DrawnInputs(random(), [X])
    one, two = (
        contents(files.of_run(1, 3000).inferences),
        contents(files.of_run(2, 3000).inferences),
    )
    assert len(set(one)) == len(one) >= 3000
    assert not set(one) & set(two)
    again = DrawnInputs(random(), [X])
    assert contents(again.of_run(1, 3000).inferences) == one
    assert not set(contents(again.of_run(1, 3000).inferences)) & set(one)  # the same seed once more
    assert not files.remembered(seed=1)


@pytest.mark.parametrize("repeat", [{"kind": "uniform"}, {"kind": "zipf"}])
def test_inputs_that_come_back_are_the_same_in_every_measurement(
    tmp_path: Path, repeat: dict[str, Any]
) -> None:
    files = DrawnInputs(random(unique=50, repeat=repeat), [X])
    one, two = (
        contents(files.of_run(1, 2000).inferences),
        contents(files.of_run(2, 2000).inferences),
    )
    assert one != two
    assert set(one) == set(two)
    assert sorted(contents(files.remembered(seed=1))) == sorted(set(one))


@pytest.mark.parametrize("share", ["0%", "30%", "90%"])
def test_a_share_of_the_requests_are_duplicates(tmp_path: Path, share: str) -> None:
    spec = random(repeat={"kind": "duplicates", "share": share})
    files = DrawnInputs(spec, [X])
    file = files.of_run(seed=1, count=6000)
    drawn = contents(file.inferences)
    assert file.sampled_count == len(drawn)
    seen: set[str] = set()
    repeated = []
    for content in drawn:
        repeated.append(content in seen)
        seen.add(content)
    for part in np.array_split(repeated, 3):  # from the beginning, not only in the long run
        assert np.mean(part) == pytest.approx(float(spec.repeat.share), abs=0.04)
    assert not seen & set(contents(files.of_run(2, 6000).inferences))
    assert not files.remembered(seed=1)


def test_a_log_is_replayed_in_order_from_a_place_of_the_seed(tmp_path: Path) -> None:
    log = [3, 0, 0, 1, 3, 2, 0]
    (tmp_path / "log").write_text("".join(f"{n}\n" for n in log))
    spec = random(repeat={"kind": "log", "file": tmp_path / "log"})
    files = DrawnInputs(spec, [X])
    numbers = contents(files.first(4))
    starts = set()
    for seed in range(20):
        drawn = [numbers.index(c) for c in contents(files.of_run(seed, count=50).inferences)]
        assert len(drawn) >= 50
        start = next(s for s in range(7) if (log * 2)[s : s + 7] == drawn[:7])
        assert drawn == [log[(start + k) % 7] for k in range(len(drawn))]
        starts.add(start)
    assert len(starts) > 3
    assert [numbers.index(c) for c in contents(files.remembered(seed=1))] == [1, 3, 2, 0]


def test_a_log_may_ask_for_the_inputs_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("1\n1\n0\n")
    (tmp_path / "mine.json").write_text('{"data": [{"x": [10]}, {"x": [11]}]}')
    fields = {"kind": "file", "file": tmp_path / "mine.json"}
    spec = FileInputs.model_validate(
        {**fields, "repeat": {"kind": "log", "file": tmp_path / "log"}}
    )
    drawn = numbers(DrawnInputs(spec, [ONE]).of_run(1, 300).inferences)
    assert drawn.count(11) == pytest.approx(2 * drawn.count(10), abs=2)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", "empty"), ("1\nx\n", "log:2: not the number"), ("0\n-1\n", "log:2"), ("2\n", "input 2")],
)
def test_a_log_that_cannot_be_replayed(tmp_path: Path, text: str, expected: str) -> None:
    (tmp_path / "log").write_text(text)
    spec = random(unique=2, repeat={"kind": "log", "file": tmp_path / "log"})
    with pytest.raises(SpecError, match=expected):
        DrawnInputs(spec, [X]).of_run(1, 10)


def test_an_inference_holds_the_tensor_in_binary_form() -> None:
    (inference,) = DrawnInputs(random(unique=1), [X]).of_run(1, 10).inferences
    values = np.frombuffer(inference["x"].raw, dtype="f4")
    assert inference["x"].shape == (4,)
    assert values.shape == (4,)
    assert np.all((values >= 0) & (values < 1))


def test_without_a_cache_a_seed_has_one_order() -> None:
    spec = random(unique=5, repeat={"kind": "uniform"})
    files = DrawnInputs(spec, [X], cached=lambda: False)
    assert files.of_run(1, 10).inferences == files.of_run(1, 10).inferences


@pytest.mark.parametrize("kind", ["uniform", "zipf"])
def test_a_cache_sees_no_order_twice(tmp_path: Path, kind: str) -> None:
    """It may hold all that the same order asked for before, and would hit every time."""
    spec = random(unique=5000, repeat={"kind": kind})
    files, others = (DrawnInputs(spec, [X]) for _ in range(2))
    first, second = (contents(files.of_run(1, 100).inferences) for _ in range(2))
    assert first != second
    assert len(set(first) & set(second)) < 0.9 * len(set(first))
    # on another server the same two, in the same order
    assert [contents(others.of_run(1, 100).inferences) for _ in range(2)] == [first, second]


def test_zipf_repeats_are_sampled(tmp_path: Path) -> None:
    spec = random(unique=100, repeat={"kind": "zipf", "exponent": 1.0})
    file = DrawnInputs(spec, [X]).of_run(seed=3, count=8000)
    counts = sorted(Counter(contents(file.inferences)).values(), reverse=True)
    assert file.sampled_count == sum(counts) >= 8000
    harmonic = sum(1 / n for n in range(1, 101))
    assert counts[0] / sum(counts) == pytest.approx(1 / harmonic, rel=0.1)


@pytest.mark.parametrize("steps", [1, 2, 100, 511, 4096, 10_000])
def test_a_sampled_list_is_coprime_with_every_number_of_threads(steps: int) -> None:
    length = sampled_length(steps, at_most=1 << 20)
    assert all(math.gcd(length, threads) == 1 for threads in (1, 2, 3, 4))
    assert length > 0.95 * steps - 3


def test_a_sampled_list_is_never_above_its_limit() -> None:
    assert sampled_length(10_000, at_most=100) == 97
    assert sampled_length(10_000, at_most=0) == 1


def test_large_inputs_are_fewer_and_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "MAX_FILE_BYTES", 10_000)
    image = TensorShape("x", "FP32", (300,))
    file = DrawnInputs(random(unique=1000), [image]).of_run(1, 1000)
    assert 1 <= len(file.inferences) <= 7
    assert file.warnings


def test_too_few_different_values_say_so(tmp_path: Path) -> None:
    flag = TensorShape("x", "INT32", (1,))
    file = DrawnInputs(random(unique=50, int_range=(1, 10)), [flag]).of_run(1, 100)
    assert len(set(contents(file.inferences))) == 10
    (said,) = file.warnings
    assert (said.facts["used_count"], said.facts["wanted_count"]) == (10, 50)


@pytest.mark.parametrize(
    ("datatype", "given", "dtype"),
    [("FP32", [1, 2.5], "f4"), ("FP16", [1, 2.5], "f2"), ("FP64", [[1], [2.5]], "f8")],
)
def test_values_that_perf_analyzer_refuses_become_the_models(
    tmp_path: Path, datatype: str, given: Any, dtype: str
) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({"data": [{"x": given}, {"x": given}]}))
    spec = FileInputs.model_validate({"kind": "file", "file": str(path)})
    file = DrawnInputs(spec, [TensorShape("x", datatype, (2,))]).of_run(1, 10)
    assert file.sampled_count is None
    sent = [np.frombuffer(c, dtype) for c in contents(file.inferences)]
    assert [list(values) for values in sent] == [[1, 2.5]] * 2


def test_a_file_can_be_sampled(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text('{"data": [{"x": [1]}, {"x": [2]}, {"x": [3]}]}')
    spec = FileInputs.model_validate(
        {"kind": "file", "file": str(path), "repeat": {"kind": "uniform"}}
    )
    drawn = numbers(DrawnInputs(spec, [ONE]).of_run(1, 3000).inferences)
    assert set(drawn) == {1, 2, 3}
    assert drawn.count(1) == pytest.approx(len(drawn) / 3, rel=0.1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{", "input format: no JSON at line 1, column 2"),
        ("[]", "input format"),
        ('{"data": [{"INPUT": [1]},  // one', "input format: no JSON at line 1, column 28"),
        ('{"instances": [{"INPUT": [1]}]}', "TensorFlow Serving or KServe: call them data"),
        ('{"data": [{"x": "AAAA"}]}', r'not a list of \w+: write {"b64": "...", "shape"'),
        ('{"data": [3]}', "entry 1: not one"),
    ],
)
def test_a_file_that_cannot_be_sampled(tmp_path: Path, text: str, expected: str) -> None:
    path = tmp_path / "mine.json"
    path.write_text(text)
    spec = FileInputs.model_validate({"kind": "file", "file": path, "repeat": {"kind": "uniform"}})
    with pytest.raises(SpecError, match=expected):
        DrawnInputs(spec, [ONE]).of_run(1, 10)


NUMBERS = ["BOOL", "FP16", "BF16", "FP32", "FP64"]
NUMBERS += [f"{sign}INT{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64)]


@pytest.mark.parametrize("datatype", [*NUMBERS, "BYTES"])
def test_every_datatype_has_random_contents_of_its_size(datatype: str) -> None:
    tensor = TensorShape("x", datatype, (2, 8))
    contents_ = random_contents(tensor, 3, np.random.default_rng(1), (0, 100), string_length=5)
    assert len(set(contents_)) == 3
    assert {len(content) for content in contents_} == {content_bytes(tensor, string_length=5)}


def test_integers_stay_within_their_range_and_their_type() -> None:
    rng = np.random.default_rng(1)
    tensor = TensorShape("x", "INT8", (1000,))
    values = np.frombuffer(random_contents(tensor, 1, rng, (-5, 1000), 1)[0], dtype="i1")
    assert (values.min(), values.max()) == (-5, 127)


def test_bf16_is_the_upper_half_of_a_float32() -> None:
    tensor = TensorShape("x", "BF16", (100,))
    halves = np.frombuffer(random_contents(tensor, 1, np.random.default_rng(1), (0, 1), 1)[0], "u2")
    values = (halves.astype("u4") << 16).view("f4")
    assert np.all((values >= 0) & (values < 1))
    assert values.std() > 0.2


def test_strings_are_preceded_by_their_length() -> None:
    tensor = TensorShape("x", "BYTES", (2,))
    content = random_contents(tensor, 1, np.random.default_rng(1), (0, 1), string_length=3)[0]
    assert content[:4] == content[7:11] == b"\x03\0\0\0"
    assert (content[4:7] + content[11:]).decode().isalnum()


def test_an_unknown_datatype_is_a_spec_error() -> None:
    with pytest.raises(SpecError, match="FP4"):
        random_contents(TensorShape("x", "FP4", (1,)), 1, np.random.default_rng(1), (0, 1), 1)


IDS = parse('input { name: "ids" data_type: TYPE_INT64 dims: [ -1 ] }', "config.pbtxt")


def test_variable_dimensions_come_from_the_spec() -> None:
    assert resolve("m", IDS, {"ids": (128,)}) == (TensorShape("ids", "INT64", (128,)),)


@pytest.mark.parametrize(
    ("shapes", "expected"),
    [
        ({}, r"m leaves the shapes of inputs open: ids \[-1\]"),
        ({"ids": (128, 2)}, "cannot be"),
        ({"ids": (0,)}, "cannot be"),
        ({"idz": (128,)}, "the inputs of m are ids"),
    ],
)
def test_shapes_that_do_not_fit(shapes: dict[str, tuple[int, ...]], expected: str) -> None:
    with pytest.raises(SpecError, match=expected):
        resolve("m", IDS, shapes)


def test_optional_inputs_are_left_out_unless_the_spec_gives_their_shape() -> None:
    both = (
        'input [ { name: "ids" data_type: TYPE_INT64 dims: [ 4 ] }, '
        '{ name: "mask" data_type: TYPE_STRING dims: [ -1 ] optional: true } ]'
    )
    config = parse(both, "config.pbtxt")
    assert [tensor.name for tensor in resolve("m", config, {})] == ["ids"]
    assert resolve("m", config, {"mask": (7,)})[1] == TensorShape("mask", "BYTES", (7,))
