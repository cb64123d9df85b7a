"""Messages about names: all of a few, and of a hundred the first ones and a count."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from tritonclient.grpc.model_config_pb2 import ModelConfig

from tuner.errors import SpecError, TunerError
from tuner.load.traffic.encoding import misfits, resolve
from tuner.load.traffic.recordings.lines import Label, _no_stream
from tuner.modelconfig.files import model_directory
from tuner.spec.load import load_spec
from tuner.spec.mistakes import listed, meant_or_listed
from tuner.spec.server import ServerMode
from tuner.triton.needs import refuse_lacking

TUNER = Path(__file__).parents[3] / "tuner"
NAMES = [f"name-{number:03}" for number in range(100)]


def test_few_names_are_all_listed_and_many_are_counted() -> None:
    assert listed([]) == ""
    assert listed(["a", 2], " and ") == "a and 2"
    assert listed(NAMES[:16]).endswith("name-014, name-015")
    assert listed(NAMES) == ", ".join(NAMES[:8]) + " and 92 more"
    assert listed(map(str, range(10_000))).endswith(" 7 and 9,992 more")


def test_the_name_that_is_meant_comes_instead_of_a_list() -> None:
    assert meant_or_listed("nmae-099", NAMES) == "did you mean name-099 or name-098?"
    assert meant_or_listed("x", ["a", "b"]) == "known: a, b"
    assert meant_or_listed("x", NAMES, "known are").startswith("known are name-000, ")
    assert meant_or_listed("x", []) == "known: none"


def _stream_of_no_model(here: Path) -> None:
    models = "".join(f"  {name}: {{}}\n" for name in NAMES)
    streams = "repository: .\nstreams: {s: {model: zzz}}\nslo: [p99_latency <= 9ms]\n"
    (here / "spec.yaml").write_text(f"models:\n{models}{streams}")
    load_spec(here / "spec.yaml")


def _model_of_a_repository(here: Path) -> None:
    for name in NAMES:
        (here / name / "1").mkdir(parents=True)
    model_directory(here, "zzz")


def _input_of_a_model(here: Path) -> None:
    config = ModelConfig(input=[{"name": name, "dims": [1]} for name in NAMES])
    for _, text in misfits("m", config, {"zzz": [1]}):
        raise SpecError(text)


def _open_shapes(here: Path) -> None:
    config = ModelConfig(input=[{"name": name, "dims": [-1]} for name in NAMES])
    resolve("m", config, {})


def _stream_of_a_recording(here: Path) -> None:
    raise SpecError(_no_stream(Label(stream="zzz", model=""), dict.fromkeys(NAMES, "m")))


def _backend_of_a_server(here: Path) -> None:
    (here / "m").mkdir()
    refuse_lacking({"zzz": here / "m"}, NAMES, "the server", ServerMode.LOCAL)


CASES = (
    _stream_of_no_model, _model_of_a_repository, _input_of_a_model, _open_shapes,
    _stream_of_a_recording, _backend_of_a_server,
)  # fmt: skip


@pytest.mark.parametrize("refused", CASES)
def test_a_message_about_a_hundred_names_is_cut(
    refused: Callable[[Path], None], tmp_path: Path
) -> None:
    with pytest.raises(TunerError) as error:
        refused(tmp_path)
    text = f"{error.value.message}\n{error.value.hint}".replace(str(tmp_path), "")
    assert "name-007" in text
    assert "name-008" not in text
    assert " and 92 more" in text


def test_no_message_lists_what_something_has_by_itself() -> None:
    words = "it has|known:|it holds|only|known are|there are|the inputs are|of the models:"
    uncut = re.compile(rf"""({words}) \{{["'].{{1,5}}["']\.join""")
    assert uncut.search("f\"it has {', '.join(names)}\"")
    files = {str(path): uncut.search(path.read_text()) for path in TUNER.rglob("*.py")}
    assert {path: lists[0] for path, lists in files.items() if lists} == {}
