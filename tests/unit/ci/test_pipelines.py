"""Workflows and pipelines against their published schemas, offline, and what schemas cannot say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from check_jsonschema import main
from click.testing import CliRunner

ROOT = Path(__file__).parents[3]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
NIGHTLY = ROOT / ".github" / "workflows" / "nightly.yml"
ACTION, HOOKS = ROOT / "action.yml", ROOT / ".pre-commit-hooks.yaml"
#: What pre-commit's documentation asks of a hook, as far as ours say it.
HOOK = {
    "type": "object",
    "required": ["id", "name", "entry", "language", "files"],
    "additionalProperties": False,
    "properties": {
        **{key: {"type": "string"} for key in ("id", "name", "description", "entry")},
        "language": {"const": "python"},
        "files": {"type": "string", "format": "regex"},
        "args": {"type": "array", "items": {"type": "string"}},
        **{key: {"type": "boolean"} for key in ("pass_filenames", "require_serial")},
        "stages": {"type": "array", "items": {"enum": ["pre-commit", "pre-push", "manual"]}},
    },
}


def problems(schema: str, path: Path) -> str:
    """What the validator says; empty when it says nothing. Its schemas come with it."""
    done = CliRunner().invoke(main, ["--builtin-schema", f"vendor.{schema}", str(path)])
    return "" if done.exit_code == 0 else done.output or repr(done.exception)


def read(path: Path) -> dict[str, Any]:
    data = yaml.load(path.read_text(), Loader=yaml.BaseLoader)  # `on` stays text
    assert isinstance(data, dict)
    return data


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda p: p.name)
def test_workflows_follow_githubs_schema(path: Path) -> None:
    assert problems("github-workflows", path) == ""


def test_the_validator_sees_mistakes(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yml"
    wrong.write_text(NIGHTLY.read_text().replace("runs-on:", "runs-at:"))
    assert "runs-at" in problems("github-workflows", wrong)


def test_the_gitlab_pipeline_in_the_docs_follows_gitlabs_schema(tmp_path: Path) -> None:
    document = (ROOT / "docs" / "nightly.md").read_text()
    (block,) = re.findall(r"```yaml\n(# \.gitlab-ci\.yml.*?)```", document, flags=re.DOTALL)
    path = tmp_path / ".gitlab-ci.yml"
    path.write_text(block)
    assert problems("gitlab-ci", path) == ""
    path.write_text(block.replace("when: always", "when: sometimes"))
    assert problems("gitlab-ci", path) != ""


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda p: p.name)
def test_actions_are_pinned_by_commit_and_say_their_version(path: Path) -> None:
    used = re.findall(r"uses: (.*)", path.read_text())
    assert used
    pinned = r"[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+"
    assert [line for line in used if not re.fullmatch(pinned, line)] == []


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda p: p.name)
def test_workflows_may_only_read(path: Path) -> None:
    workflow = read(path)
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        assert job.get("permissions", {}) in ({}, {"contents": "read"})
        assert int(job["timeout-minutes"]) <= 180


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda p: p.name)
def test_no_step_after_a_checkout_finds_its_token(path: Path) -> None:
    steps = [step for job in read(path)["jobs"].values() for step in job["steps"]]
    checkouts = [step for step in steps if step.get("uses", "").startswith("actions/checkout@")]
    assert checkouts
    assert [c for c in checkouts if c.get("with", {}).get("persist-credentials") != "false"] == []


def test_the_action_follows_githubs_schema(tmp_path: Path) -> None:
    assert problems("github-actions", ACTION) == ""
    wrong = tmp_path / "action.yml"
    wrong.write_text(ACTION.read_text().replace("shell: bash", "sheel: bash", 1))
    assert problems("github-actions", wrong) != ""


def test_hooks_are_as_pre_commit_reads_them_and_begin_when_a_config_changes() -> None:
    hooks = yaml.safe_load(HOOKS.read_text())
    assert [hook["id"] for hook in hooks] == ["tune-lint", "tune-check"]
    for hook in hooks:
        jsonschema.validate(hook, HOOK)
        changed = ["models/bert/config.pbtxt", "config.pbtxt", "m/1/model.py", "README.md", "a.py"]
        assert [p for p in changed if re.search(hook["files"], p)] == changed[:3]


def test_no_text_from_outside_is_put_into_a_script() -> None:
    jobs = [*read(NIGHTLY)["jobs"].values(), read(ACTION)["runs"]]
    for step in (step for job in jobs for step in job["steps"]):
        assert "${{" not in step.get("run", ""), step["name"]


def test_results_are_uploaded_whatever_happens_and_the_gate_watches_every_step() -> None:
    jobs = read(NIGHTLY)["jobs"]
    steps = {step["id"]: step for step in jobs["nightly"]["steps"] if "id" in step}
    assert steps["upload"]["if"] == "always()"
    assert set(jobs["nightly"]["outputs"]) == {*steps, "code"}
    gate = jobs["gate"]
    assert gate["if"].startswith("always()")
    environment = gate["steps"][0]["env"].values()
    watched = {re.search(r"outputs\.(\w+)", value)[1] for value in environment}  # type: ignore[index]
    assert watched == {*steps, "code"}


def test_linters_run_before_the_tests_and_each_part_of_ci_is_a_job() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    parts = dict(re.findall(r"^  (\w+)\)\n(.*?)^    ;;$", script, re.MULTILINE | re.DOTALL))
    order = [parts["all"].index(part) for part in ("install", "lint", "test_command", "newest")]
    assert order == sorted(order)
    jobs = read(ROOT / ".github" / "workflows" / "ci.yml")["jobs"]
    runs = {step["run"] for job in jobs.values() for step in job["steps"] if "run" in step}
    assert {"bash .ci/run", *(f"bash .ci/run {part}" for part in parts if part != "all")} <= runs
    assert jobs["test"]["needs"] == "lint"
