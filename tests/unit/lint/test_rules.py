"""Lint as a gate in CI: rules are listed, can be silenced, and need no weights."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from builders.effort import takes_at_most

from tuner.cli import cli
from tuner.cli.boundary import guarded
from tuner.lint.repository import lint_repository
from tuner.lint.rules import RULES, silenced_in
from tuner.modelconfig.rules import Rule
from tuner.modelconfig.traps import TRAPS

ROOT = Path(__file__).parents[3]
SOURCES = sorted((ROOT / "tuner" / "lint").glob("*.py"))


def model(repository: Path, name: str, config: str, code: str = "") -> None:
    (repository / name).mkdir()
    (repository / name / "config.pbtxt").write_text(config)
    if code:
        (repository / name / "1").mkdir()
        (repository / name / "1" / "model.py").write_text(code)


def rules(repository: Path, **options: object) -> set[str]:
    return {finding.rule for finding in lint_repository(repository, **options)}  # type: ignore[arg-type]


def _written() -> set[str]:
    """Ids in the sources: what follows a severity, and what `error_at` is given."""
    reported = set()
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            parts: list[ast.expr] = []
            if isinstance(node, ast.Call):
                parts = list(node.args)
            elif isinstance(node, ast.Tuple):
                parts = list(node.elts)
            elif isinstance(node, ast.Yield) and isinstance(node.value, ast.Tuple):
                parts = list(node.value.elts)
            texts = [p.value if isinstance(p, ast.Constant) else None for p in parts]
            after = [
                texts[i + 1]
                for i, part in enumerate(parts[:-1])
                if isinstance(part, ast.Attribute) and getattr(part.value, "id", "") == "Severity"
            ]
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "error_at":
                after += texts[2:3]
            reported |= {text for text in after if isinstance(text, str)}
    return reported


def test_every_rule_of_the_code_is_listed_and_every_listed_one_is_in_the_code() -> None:
    unread = {"encoding", "config-file"}  # which of them is chosen when a config cannot be read
    traps = {rule for rule, _ in TRAPS}
    assert _written() | {rule.value for rule in Rule} | traps | unread == set(RULES)


def test_the_page_of_rules_is_the_list() -> None:
    page = (ROOT / "docs" / "lint.md").read_text()
    rows = dict(re.findall(r"^- `([a-z-]+)`: (.*)$", page, re.MULTILINE))
    assert rows == {rule: text.about for rule, text in RULES.items()}


def test_a_rule_is_silenced_on_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model(tmp_path, "m", 'name: "n" backend: "python"', "class TritonPythonModel(Base): ...\n")
    assert guarded(cli, ["lint", str(tmp_path)]) == 2
    assert guarded(cli, ["lint", str(tmp_path), "--ignore", "name-mismatch"]) == 0
    assert "no problems found" in capsys.readouterr().err


def test_a_rule_is_silenced_by_a_comment_in_the_file(tmp_path: Path) -> None:
    comment = "# tune: ignore name-mismatch, instance-count\n"
    config = 'name: "n" backend: "python" instance_group { count: -1 }'
    code = "class TritonPythonModel:\n    def execute(self, r):\n        time.sleep(1)\n"
    model(tmp_path, "m", config, code)
    assert rules(tmp_path) == {"name-mismatch", "instance-count", "sleep"}
    (tmp_path / "m" / "config.pbtxt").write_text(comment + config)
    assert rules(tmp_path) == {"sleep"}
    (tmp_path / "m" / "1" / "model.py").write_text(code + "# why not  # tune: ignore sleep\n")
    assert rules(tmp_path) == set()


def test_checkout_without_weights_is_recognised_or_reported(tmp_path: Path) -> None:
    model(tmp_path, "a", 'backend: "onnxruntime"')
    assert rules(tmp_path) == set()
    model(tmp_path, "b", 'backend: "python"', "class TritonPythonModel(Base): ...\n")
    assert rules(tmp_path) == {"version-directory"}
    assert rules(tmp_path, weights=False) == set()


@pytest.mark.parametrize(
    ("config", "code", "rule"),
    [
        ("sequence_batching { oldest { } }", "requests[0].flags()", "stateless-sequences"),
        ("max_batch_size: 0", "for r in requests:\n            self.run(r)", "per-request-loop"),
        ("", "for r in requests:\n            self.logger.info(r)", "per-request-loop"),
        (
            'max_batch_size: 4 output { name: "logits" data_type: TYPE_FP32 dims: [ -1, -1 ] }',
            "pass",
            "batch-in-dims",
        ),
        ("max_batch_size: 4 dynamic_batching { }", "pass", "no-queue-timeout"),
    ],
)
def test_notes_that_were_wrong_are_not_given(
    tmp_path: Path, config: str, code: str, rule: str
) -> None:
    source = f"class TritonPythonModel:\n    def execute(self, requests):\n        {code}\n"
    model(tmp_path, "m", f'backend: "python" {config}', source)
    assert rule not in rules(tmp_path)


@pytest.mark.parametrize(
    ("delay", "timeout", "rule"),
    [
        (200_000, 0, "no-queue-timeout"),
        (2000, 100_000, "timeout-beside-delay"),
        (2000, 1000, "timeout-within-delay"),
        (0, 100_000, "queue-policy-idle"),
        (2000, 0, ""),
    ],
)
def test_queue_timeout_beside_a_delay_is_explained(
    tmp_path: Path, delay: int, timeout: int, rule: str
) -> None:
    policy = f"default_queue_policy {{ default_timeout_microseconds: {timeout} }}"
    batching = f"dynamic_batching {{ max_queue_delay_microseconds: {delay} {policy} }}"
    model(
        tmp_path,
        "m",
        f'backend: "python" max_batch_size: 4 {batching}',
        "class TritonPythonModel(Base): ...\n",
    )
    findings = lint_repository(tmp_path)
    idle = ["queue-policy-idle"] if timeout else []
    assert {f.rule for f in findings} == {*idle, *([rule] if rule else [])}
    findings = [f for f in findings if f.rule == rule]
    if rule in ("no-queue-timeout", "timeout-beside-delay"):
        assert "server#8870" in f"{findings[0].message} {findings[0].hint}"


def test_sizes_of_a_tensorrt_plan_may_be_preferred(tmp_path: Path) -> None:
    model(
        tmp_path,
        "m",
        'platform: "tensorrt_plan" max_batch_size: 8 dynamic_batching { preferred_batch_size: 4 }',
    )
    assert "preferred-sizes-set" not in rules(tmp_path)


def test_a_long_line_of_signs_is_looked_through_at_once() -> None:
    none = "#" * 100_000 + " tune: ignore" + "#" * 100_000
    two = f"x: 1 {'#' * 100_000} tune: ignore sleep, batch-in-dims"
    assert silenced_in(none) == frozenset()
    assert silenced_in(two) == {"sleep", "batch-in-dims"}
    assert takes_at_most(100, lambda: (silenced_in(none), silenced_in(two)))


def test_the_file_of_labels_must_be_there(tmp_path: Path) -> None:
    output = 'output { name: "y" data_type: TYPE_FP32 dims: 4 label_filename: "labels.txt" }'
    model(tmp_path, "m", f'backend: "x"\n{output}')
    (finding,) = (f for f in lint_repository(tmp_path, "m") if f.rule == "label-file")
    assert finding.line == 2
    assert "labels.txt" in finding.message
    (tmp_path / "m" / "labels.txt").write_text("cat\n")
    assert "label-file" not in rules(tmp_path)


@pytest.mark.parametrize(
    ("path", "code"), [(".", 2), ("above", 2), ("config.pbtx", 4), ("file", 4), ("x" * 300, 4)]
)
def test_a_path_that_is_no_repository_does_not_pass_a_gate(
    tmp_path: Path, path: str, code: int
) -> None:
    (tmp_path / "above" / "models" / "m").mkdir(parents=True)
    (tmp_path / "file").touch()
    assert guarded(cli, ["lint", str(tmp_path / path)]) == code
