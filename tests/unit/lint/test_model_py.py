from __future__ import annotations

from pathlib import Path
from textwrap import indent

import pytest
from builders.model_files import write_model

from tuner.lint.model_py import lint_source, parameters_read
from tuner.lint.rules import Severity
from tuner.modelconfig.files import read_model
from tuner.modelconfig.message import parse

PATH = Path("m/1/model.py")
MODEL = """
import time, threading
from concurrent.futures import ThreadPoolExecutor
import concurrent.futures as cf

class TritonPythonModel:
    def initialize(self, args):
        {initialize}

    def execute(self, requests):
{execute}
        return []
"""


def lint(execute="pass", initialize="pass"):
    source = MODEL.format(execute=indent(execute, " " * 8), initialize=initialize)
    return [(f.rule, f.severity) for f in lint_source(PATH, source)]


def test_plain_model_has_no_findings():
    assert lint() == []


@pytest.mark.parametrize(
    ("source", "rule", "line"),
    [
        ("class TritonPythonModel:\n    def execute(self:\n", "python-syntax", 2),
        ("class Model:\n    pass\n", "python-model", 1),
        ("\nclass TritonPythonModel:\n    def run(self): ...\n", "python-model", 2),
    ],
)
def test_models_that_cannot_work(source, rule, line):
    (finding,) = lint_source(PATH, source)
    assert (finding.rule, finding.line, finding.severity) == (rule, line, Severity.ERROR)
    assert finding.file == PATH


def test_execute_may_be_inherited_or_asynchronous():
    assert list(lint_source(PATH, "class TritonPythonModel(Base):\n    pass\n")) == []
    source = "class TritonPythonModel:\n    async def execute(self, requests): ...\n"
    assert list(lint_source(PATH, source)) == []


@pytest.mark.parametrize(
    "loop",
    [
        "for r in requests:\n    self.model(r)",
        "for i, r in enumerate(requests):\n    self.session.run(None, r)",
        "out = [self.model(r) for r in requests]",
    ],
)
def test_work_on_one_request_at_a_time(loop):
    assert lint(loop) == [("per-request-loop", Severity.NOTE)]


LATER = """
class TritonPythonModel:
    async def one(self, request):
        return await self.ask(request)

    async def execute(self, requests):
        {execute}
"""


@pytest.mark.parametrize(
    ("execute", "reported"),
    [
        ("return await asyncio.gather(*[self.one(r) for r in requests])", False),
        ("calls = [self.one(r) for r in requests]; return await asyncio.gather(*calls)", False),
        ("[self.pool.submit(self.ask, r) for r in requests]", False),
        ("return [await self.one(r) for r in requests]", True),
        ("for r in requests: await self.one(r)", True),
        ("return await asyncio.gather(*[self.prepare(r) for r in requests])", True),
    ],
)
def test_requests_that_are_worked_on_at_the_same_time_are_no_loop(execute, reported):
    findings = lint_source(PATH, LATER.format(execute=execute))
    assert [f.rule for f in findings] == (["per-request-loop"] if reported else [])


@pytest.mark.parametrize(
    ("loop", "reported"),
    [
        ("for r in requests: answer = await ask(r).async_exec()", True),
        ("for r in requests:\n            call = make(r)\n            call.exec()", True),
        ("return await asyncio.gather(*[make(r).async_exec() for r in requests])", False),
    ],
)
def test_other_models_that_are_called_for_one_request_at_a_time(loop, reported):
    (hint,) = [f.hint for f in lint_source(PATH, LATER.format(execute=loop))] or [""]
    assert ("async_exec" in hint) is reported


def test_gathering_inputs_and_one_call_is_as_it_should_be():
    execute = "batch = []\nfor r in requests:\n    batch.append(get(r))\nself.model(batch)"
    assert lint(execute) == []
    assert lint("for layer in self.layers:\n    self.run(layer)") == []


def test_a_loop_that_asks_for_cancellation():
    execute = "while self.more():\n    if r.is_cancelled(): break"
    assert lint(execute) == []
    for endless in ("self.more():\n    step()", "True:\n    step()", "x:\n    sender.send(y)"):
        assert lint(f"while {endless}") == [("cancellation", Severity.NOTE)]
    assert lint("while len(rows) < 4:\n    rows.append(0)") == []


def test_sleep_in_execute_is_reported_and_in_initialize_is_not():
    assert lint("time.sleep(1)") == [("sleep", Severity.WARNING)]
    assert lint(initialize="time.sleep(1)") == []


@pytest.mark.parametrize(
    ("call", "fine"),
    [
        ("ThreadPoolExecutor()", False),
        ("cf.ThreadPoolExecutor(max_workers=None)", False),
        ("ThreadPoolExecutor(4)", True),
        ("cf.ThreadPoolExecutor(max_workers=self.n)", True),
    ],
)
def test_pools_have_a_size(call, fine):
    expected = [] if fine else [("thread-pool-size", Severity.WARNING)]
    assert lint(initialize=f"self.pool = {call}") == expected


@pytest.mark.parametrize("call", ["threading.Thread(target=f).start()", "ThreadPoolExecutor(2)"])
def test_threads_for_each_call(call):
    assert lint(call) == [("thread-per-request", Severity.WARNING)]
    assert lint(initialize=call) == []


@pytest.mark.parametrize(
    "source",
    [
        "from impl import *\n",
        "from impl import TritonPythonModel\n",
        "from impl import Model as TritonPythonModel\n",
        "class Model: ...\nTritonPythonModel = Model\n",
        "try:\n    from a import TritonPythonModel\nexcept ImportError:\n    pass\n",
        "TritonPythonModel: type = make()\n",
        "def run(self, requests): ...\nclass TritonPythonModel:\n    execute = run\n",
    ],
)
def test_the_class_may_come_from_elsewhere(source):
    assert list(lint_source(PATH, source)) == []


@pytest.mark.parametrize(
    "source",
    [
        "if a: pass\n" + "elif a: pass\n" * 3000,
        "x = " + " + ".join(["1"] * 50_000) + "\n",
        "x = " + "(" * 5000 + "\n",
        "class TritonPythonModel:\n    def execute(self, r):\n        a" + ".b" * 200_000 + "()\n",
        "\0",
        "x" * 1_000_001,
    ],
    ids=["elif", "terms", "brackets", "attributes", "NUL", "long"],
)
def test_deep_and_long_code_does_not_end_the_lint(source):
    findings = list(lint_source(PATH, source))
    assert {f.rule for f in findings} <= {"python-syntax", "python-unread", "python-model"}
    assert findings


@pytest.mark.parametrize("method", ["parameters", "requested_output_names"])
@pytest.mark.parametrize("cached", [True, False])
def test_cached_model_that_reads_inputs_the_cache_ignores_is_reported(
    method: str, cached: bool
) -> None:
    source = (
        "class TritonPythonModel:\n"
        "    def execute(self, requests):\n"
        "        return [self.answer(r) for r in requests]\n\n"
        "    def answer(self, request):\n"
        f"        return request.{method}()\n"
    )
    config = parse(f"response_cache {{ enable: {str(cached).lower()} }}")
    findings = [f for f in lint_source(PATH, source, config) if f.rule == "cached-parameters"]
    assert [(f.line, f.severity) for f in findings] == ([(6, Severity.WARNING)] if cached else [])


def test_parameters_that_a_model_may_read_are_known(tmp_path: Path) -> None:
    code = (
        "import json\nclass TritonPythonModel:\n    def execute(self, requests):\n"
        "        p = json.loads(requests[0].parameters())\n"
        "        return [p.get('scale', 1), p['mode'], p.pop('top_k', 3)]\n"
    )
    write_model(tmp_path / "m", 'backend: "python"', code)
    write_model(tmp_path / "other", 'backend: "python"', code.replace("parameters()", "inputs()"))
    for name, expected in (("m", ("scale", "mode", "top_k")), ("other", ())):
        files = read_model(tmp_path, name)
        assert parameters_read(files, files.config()) == expected


@pytest.mark.parametrize(
    ("line", "reported"),
    [
        ("self.model.cuda()", True),
        ('self.model.to("cuda:1")', True),
        ('self.device = "cuda" if torch.cuda.is_available() else "cpu"', True),
        ("self.device = f\"cuda:{args['model_instance_device_id']}\"", True),
        ('ort.InferenceSession(p, providers=["CUDAExecutionProvider"])', True),
        ("import cupy", True),
        ('"""Runs on cuda where it can."""', False),
        ('self.model.to("cpu")', False),
        ('d = "cuda" if args["model_instance_kind"] == "GPU" else "cpu"', False),
    ],
)
@pytest.mark.parametrize("kind", ["KIND_CPU", "KIND_GPU", "KIND_MODEL"])
def test_kind_cpu_of_code_that_takes_a_gpu(line, reported, kind):
    source = MODEL.format(initialize=line, execute=" " * 8 + "pass")
    config = parse(f'backend: "python" instance_group [{{ kind: {kind} }}]')
    rules = [f.rule for f in lint_source(PATH, source, config)]
    assert ("kind-cpu-on-gpu" in rules) is (reported and kind == "KIND_CPU")
