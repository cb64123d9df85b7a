from __future__ import annotations

import ast
from pathlib import Path

import pytest
from builders.model_files import write_model

from tuner.lint.model_py import lint_source, threads_left_open
from tuner.lint.rules import Severity
from tuner.lint.runtime_threads import RUNTIMES, open_threads
from tuner.modelconfig.files import read_model
from tuner.modelconfig.message import parse

MODEL = """
{imports}

class TritonPythonModel:
    def initialize(self, args):
        {initialize}

    def execute(self, requests):
        return []
"""
CPU = 'backend: "python" instance_group [{ count: 2 kind: KIND_CPU }]'


def lint(imports, initialize="pass", config=CPU):
    source = MODEL.format(imports=imports, initialize=initialize)
    return [*lint_source(Path("m/1/model.py"), source, parse(config))]


@pytest.mark.parametrize("runtime", RUNTIMES, ids=lambda r: r.name)
def test_import_without_a_thread_count_is_reported_with_its_line(runtime):
    (finding,) = lint(f"import json\nimport {runtime.modules[0]} as runtime")
    assert (finding.line, finding.rule) == (3, "thread-count")
    assert finding.severity is Severity.WARNING
    assert runtime.name in finding.message
    assert "2 instances" in finding.message
    assert runtime.limit in finding.hint
    assert all(name in finding.hint for name in runtime.variables)


def test_the_hint_for_xgboost_names_the_call_after_loading():
    (finding,) = lint("from xgboost import Booster", "self.model = Booster(model_file='m.ubj')")
    assert 'booster.set_param({"nthread": 1}) after loading' in finding.hint
    assert "a saved model does not hold the nthread of its training" in finding.hint


@pytest.mark.parametrize(
    ("imports", "initialize"),
    [
        ("import torch", "torch.set_num_threads(1)"),
        ("from torch import nn, set_num_threads", "set_num_threads(2)"),
        ("import xgboost", 'self.booster.set_param({"nthread": 1})'),
        ("import xgboost", 'self.booster.set_param("nthread", 1)'),
        ("import xgboost", "self.model = xgboost.XGBClassifier(n_jobs=1)"),
        ("import lightgbm", "self.run = partial(self.model.predict, num_threads=1)"),
        ("import lightgbm", "options['num_threads'] = 1"),
        ("import sklearn.ensemble", "self.model.set_params(n_jobs=1)"),
        ("import ctranslate2", "ctranslate2.Translator(path, intra_threads=1)"),
        ("import catboost", "self.model.predict(x, thread_count=1)"),
        ("import openvino as ov", "ov.compile_model(m, 'CPU', {'ENABLE_CPU_PINNING': False})"),
        ("import openvino as ov", "c.set_property('CPU', {hints.enable_cpu_pinning(): False})"),
        ("import onnxruntime", "options.intra_op_num_threads = 1"),
        ("import tensorflow as tf", "tf.config.threading.set_intra_op_parallelism_threads(1)"),
        ("import cv2", "cv2.setNumThreads(0 or 1)"),
        ('import os\nos.environ["OMP_NUM_THREADS"] = "1"\nimport torch', "pass"),
        ('import os\nos.environ.setdefault("OMP_NUM_THREADS", "1")\nimport torch', "pass"),
        ('import os\nos.environ.update(OMP_NUM_THREADS="1")\nimport torch', "pass"),
        ('import os\nos.environ.update({"OMP_NUM_THREADS": "1"})\nimport torch', "pass"),
        ("from torch.utils.dlpack import from_dlpack", "pass"),
        ("import numpy", "pass"),
    ],
)
def test_a_thread_count_that_is_set_is_enough(imports, initialize):
    assert lint(imports, initialize) == []


@pytest.mark.parametrize(
    ("imports", "initialize"),
    [
        ("import torch", "torch.set_num_threads(os.cpu_count())"),
        ("import torch", "torch.get_num_threads()"),
        ("from sklearn.ensemble import RandomForestClassifier as F", "self.model = F(n_jobs=-1)"),
        ("import xgboost", "self.model = xgboost.XGBClassifier(n_jobs=None)"),
        ("import catboost", "os.environ['OMP_NUM_THREADS'] = '1'"),
        ("import openvino", "core.compile_model(m, 'CPU', {'INFERENCE_NUM_THREADS': 1})"),
        ("import os\nos.environ.get('OMP_NUM_THREADS', '1')\nimport torch", "pass"),
    ],
)
def test_thread_counts_left_to_the_cpus_are_reported(imports, initialize):
    assert [f.rule for f in lint(imports, initialize)] == ["thread-count"]


def test_a_variable_that_is_set_after_the_import_is_too_late():
    (finding,) = lint('import os, torch\nos.environ["OMP_NUM_THREADS"] = "1"')
    assert "line 3 sets OMP_NUM_THREADS, after this import has read it" in finding.message
    assert finding.hint == "move that above line 2"


@pytest.mark.parametrize(
    ("group", "severity"),
    [
        ("[{ count: 1 kind: KIND_CPU }, { count: 1 kind: KIND_CPU }]", Severity.WARNING),
        ("[{ count: 2 }]", Severity.NOTE),
        ("[{ count: 1 kind: KIND_CPU }]", None),
        ("[{ count: 4 kind: KIND_GPU }]", None),
        ("[{ count: 1 }]", None),
    ],
)
def test_instances_on_cpus_are_what_matters(group, severity):
    findings = lint("import torch", config=f"instance_group {group}")
    assert [f.severity for f in findings] == ([] if severity is None else [severity])


def test_long_chains_of_calls_are_read():
    module = ast.parse("import torch\nx = f" + "()" * 500 + "\ny = f" + "[0]" * 500)
    assert [left.runtime.name for left in open_threads(module)] == ["torch"]


def test_the_draft_is_given_a_line_for_each_open_runtime(tmp_path):
    code = MODEL.format(imports="import torch", initialize="pass")
    write_model(tmp_path / "m", 'backend: "python"', code)
    files = read_model(tmp_path, "m")
    ((line, variable),) = threads_left_open(files, files.config()).items()
    assert variable == "OMP_NUM_THREADS"
    assert line.startswith("1/model.py:2 leaves the threads of torch open: ")
    assert "torch.set_num_threads(1)" in line
    (tmp_path / "m/1/model.py").write_text(code + "# tune: ignore thread-count\n")
    assert threads_left_open(files, files.config()) == {}
