"""The files of docs/deploy: manifests against a strict schema, offline, and the Dockerfiles."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import click
import jsonschema
import pytest
import yaml

from tuner.cli import cli
from tuner.spec.load import load_spec
from tuner.spec.server import ServerMode

TOP = Path(__file__).parents[3]
DEPLOY = TOP / "docs" / "deploy"
SCHEMA = json.loads((TOP / "tests" / "schemas" / "kubernetes.schema.json").read_text())
MANIFESTS = ("job.yaml", "cronjob.yaml")
DOCKERFILES = ("Dockerfile", "Dockerfile.sdk")


def read(name: str) -> dict[str, Any]:
    (manifest,) = yaml.safe_load_all((DEPLOY / name).read_text())
    assert isinstance(manifest, dict)
    return manifest


def pod_of(manifest: dict[str, Any]) -> dict[str, Any]:
    spec = manifest["spec"].get("jobTemplate", manifest)["spec"]
    pod = spec["template"]["spec"]
    assert isinstance(pod, dict)
    return pod


def is_valid(manifest: dict[str, Any]) -> bool:
    return jsonschema.Draft202012Validator(SCHEMA).is_valid(manifest)


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_manifest_follows_the_schema(name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert is_valid(read(name))


@pytest.mark.parametrize("name", MANIFESTS)
@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("securityContext.runAsNonRoot", False),
        ("securityContext.runAsUser", 0),
        ("containers.0.securityContext.readOnlyRootFilesystem", False),
        ("containers.0.securityContext.privileged", True),
        ("containers.0.securityContext.capabilities.add", ["SYS_ADMIN"]),
        ("containers.0.resources.limits", {"cpu": "4"}),
        ("containers.0.image", "registry.example.com/tune"),
        ("containers.0.volumeMount", []),
        ("volumes.0.hostPath", {"path": "/"}),
        ("restartPolicy", "Always"),
        ("terminationGracePeriodSeconds", 30),
        ("hostNetwork", True),
    ],
)
def test_the_schema_sees_what_must_not_be(name: str, place: str, value: object) -> None:
    manifest = copy.deepcopy(read(name))
    target: Any = pod_of(manifest)
    *path, last = place.split(".")
    for step in path:
        target = target[int(step) if step.isdigit() else step]
    target[last] = value
    assert not is_valid(manifest)


@pytest.mark.parametrize("name", MANIFESTS)
def test_its_command_is_one_of_tune_and_its_paths_are_mounted(name: str) -> None:
    pod = pod_of(read(name))
    (container,) = pod["containers"]
    program, command_name, *arguments = container["command"]
    top = click.Context(cli, info_name=program)
    command = cli.get_command(top, command_name)
    assert program == "tune"
    assert command is not None
    parsed = command.make_context(command_name, arguments, parent=top).params
    mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert {mount["name"] for mount in mounts.values()} == {*volumes}
    spec = load_spec(DEPLOY / "spec.yaml").spec
    specs = parsed["specs"] if "specs" in parsed else [parsed["spec"]]
    assert list(map(str, specs)) == ["/spec/spec.yaml"]
    assert "configMap" in volumes[mounts["/spec"]["name"]]
    assert spec.server.mode is ServerMode.REMOTE
    assert mounts[str(spec.repository)]["readOnly"]
    writable = {path for path, mount in mounts.items() if not mount.get("readOnly")}
    assert writable == {str(parsed["output"]), "/tmp"}
    assert "emptyDir" in volumes[mounts["/tmp"]["name"]]
    assert container["resources"]["requests"] == container["resources"]["limits"]


def instructions(name: str) -> list[list[str]]:
    """Each instruction of a Dockerfile in words, comments left out."""
    lines = (DEPLOY / name).read_text().replace("\\\n", " ").splitlines()
    return [line.split() for line in lines if line and not line.startswith("#")]


@pytest.mark.parametrize("name", DOCKERFILES)
def test_a_dockerfile_installs_the_project_on_a_pinned_image_for_a_plain_user(name: str) -> None:
    steps = instructions(name)
    bases = [words[1] for words in steps if words[0] == "FROM"]
    assert [base for base in bases if not re.fullmatch(r"[a-z0-9./-]+:\d[\w.-]+", base)] == []
    assert not any(words[0] == "ADD" or "://" in " ".join(words) for words in steps)
    sources = [word for words in steps if words[0] == "COPY" for word in words[1:-1]]
    assert [source for source in sources if not (TOP / source).exists()] == []
    assert {"pyproject.toml", "tuner"} < {*sources}
    (install,) = (words for words in steps if "install" in words and '"/src[run]"' in words)
    assert any(word.endswith("pip") for word in install)
    (user,) = (words[1] for words in steps if words[0] == "USER")
    pod = pod_of(read("job.yaml"))["securityContext"]
    assert user == f"{pod['runAsUser']}:{pod['runAsGroup']}"
    assert [words[0] for words in steps].index("USER") > steps.index(install)
    assert steps[-1] == ["ENTRYPOINT", '["tune"]']


@pytest.mark.parametrize("name", DOCKERFILES)
def test_the_images_are_built_with_the_commands_of_the_page(name: str) -> None:
    page = (TOP / "docs" / "kubernetes.md").read_text()
    built = re.findall(r"^docker build -f docs/deploy/(\S+) -t (\S+) \.$", page, re.MULTILINE)
    tags = dict(built)
    assert f"docker build -f docs/deploy/{name} -t {tags[name]} ." in (DEPLOY / name).read_text()
    (container,) = pod_of(read("job.yaml"))["containers"]
    assert container["image"] in tags.values()


#: Source: Triton's docs/user_guide/metrics.md.
TRITON_METRICS = {
    "nv_cache_num_hits_per_model",
    "nv_cache_num_misses_per_model",
    "nv_gpu_memory_total_bytes",
    "nv_gpu_memory_used_bytes",
    "nv_inference_pending_request_count",
    "nv_inference_request_failure",
}


def test_alerts_read_metrics_that_triton_and_checks_export() -> None:
    (group,) = read("alerts.yaml")["groups"]
    text = " ".join(rule["expr"] for rule in group["rules"])
    assert {*re.findall(r"nv_\w+", text)} == TRITON_METRICS
    page = (TOP / "docs" / "nightly.md").read_text()
    assert all(name in page for name in re.findall(r"tune_\w+", text))
    assert "deploy/alerts.yaml" in page
