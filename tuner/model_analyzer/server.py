"""How Model Analyzer launches Triton, as the `server` section of a spec."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tuner.model_analyzer.yaml_file import Profile
from tuner.spec.model import is_own_argument

#: Model Analyzer's own defaults.
DOCKER_IMAGE = "nvcr.io/nvidia/tritonserver:26.09-py3"
ENDPOINTS = {"http": "localhost:8000", "grpc": "localhost:8001", "metrics": "localhost:8002"}

_OPTIONS = {"http": "triton_http_endpoint", "grpc": "triton_grpc_endpoint"}
_OPTIONS["metrics"] = "triton_metrics_url"
_FLAGS = "triton_server_flags"
_ENVIRONMENT = "triton_server_environment"


def server(profile: Profile, path: Callable[[str], str]) -> dict[str, Any]:
    """The mode and what belongs to it, in the names of the spec's `Server`.

    ``path`` gives what the spec writes for a path of the YAML.
    """
    mode = profile.take_text("triton_launch_mode") or "local"
    if mode == "c_api":
        reason = "mode local instead: a real server with endpoints, as the one you serve with"
        profile.leave(("triton_launch_mode",), reason)
        mode = "local"
    if mode not in ("local", "docker", "remote"):
        message = "local, docker, remote or c_api is expected"
        raise profile.mistake(("triton_launch_mode",), message)
    if mode == "remote":
        return {"mode": mode, **_endpoints(profile)}
    found: dict[str, Any] = {"mode": mode}
    if mode == "docker":
        found |= _container(profile)
    else:
        binary = profile.take_text("triton_server_path")
        if binary is not None and "/" in binary:
            found["binary"] = path(binary)
    found |= _given("args", _arguments(profile))
    environment = profile.take_mapping(_ENVIRONMENT)
    found |= _given("environment", {str(k): str(v) for k, v in environment.items()})
    return found | _gpus(profile)


def leave_launch(profile: Profile, mode: str) -> None:
    """Lists options that only a launch in another mode would need."""
    options = {
        "local": ("triton_server_path",),
        "docker": ("triton_docker_image", "triton_docker_mounts", "triton_docker_shm_size"),
        "remote": tuple(_OPTIONS.values()),
        "not remote": (_FLAGS, _ENVIRONMENT, "gpus"),
    }
    for needed, names in options.items():
        used = needed == mode or (needed == "not remote" and mode != "remote")
        for name in names:
            if not used and name in profile.values:
                profile.take(name)
                reason = f"is not used in mode {mode}"
                if needed == "remote":
                    reason = "tune takes free ports and watches the server there"
                profile.leave((name,), reason)


def _endpoints(profile: Profile) -> dict[str, str]:
    """``host:port`` without scheme and path."""
    found = {}
    for name, option in _OPTIONS.items():
        given = profile.take_text(option) or ENDPOINTS[name]
        address = re.sub(r"^\w+://", "", given).split("/", 1)[0]
        if not re.fullmatch(r"[^\s:]+:\d{1,5}", address):
            raise profile.mistake((option,), f"'{given}' has no host:port")
        found[name] = address
    return found


def _container(profile: Profile) -> dict[str, Any]:
    image = profile.take_text("triton_docker_image")
    found: dict[str, Any] = {"image": image or DOCKER_IMAGE}
    mounts = {}
    given = profile.take("triton_docker_mounts") or []
    for index, mount in enumerate(given if isinstance(given, list) else str(given).split(",")):
        source, target, access = (*str(mount).split(":"), "", "")[:3]
        where = ("triton_docker_mounts", index) if isinstance(given, list) else _MOUNTS
        if not (source.startswith("/") and target.startswith("/")):
            raise profile.mistake(where, "/HOST/PATH:/CONTAINER/PATH:ACCESS is expected")
        mounts[source] = target
        if access == "rw":
            profile.leave(where, "is mounted read-only")
    found |= _given("mounts", mounts)
    size = profile.take_text("triton_docker_shm_size")
    return found | _given("shm_size", _docker_size(size) if size else None)


def _arguments(profile: Profile) -> list[str]:
    arguments = []
    for name, value in profile.take_mapping(_FLAGS).items():
        flag = "--" + str(name).strip().replace("_", "-")
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if is_own_argument(flag):
            profile.leave((_FLAGS, name), "is tune's own to set")
        elif isinstance(value, (list, dict)) or " " in text:
            profile.leave((_FLAGS, name), f"write it as {flag}=VALUE under server.args")
        else:
            arguments.append(f"{flag}={text}")
    return arguments


def _gpus(profile: Profile) -> dict[str, Any]:
    given = profile.take("gpus")
    if given in (None, "all", ["all"]):
        return {}
    names = str(given).split(",") if isinstance(given, (str, int)) else list(given)
    if not any(str(name).strip() for name in names):
        return {"gpus": "none"}
    if all(str(name).strip().isdigit() for name in names):
        return {"gpus": [int(name) for name in names]}
    profile.leave(("gpus",), "tune counts GPUs as CUDA does: write their numbers in server.gpus")
    return {}


def _docker_size(text: str) -> str:
    """Docker's ``1g`` and ``512m`` are powers of 1024."""
    match = re.fullmatch(r"(\d+)([bkmgBKMG]?)", text.strip())
    if match is None:
        return text
    unit = {"": "B", "b": "B", "k": "KiB", "m": "MiB", "g": "GiB"}[match[2].lower()]
    return f"{match[1]}{unit}"


def _given(name: str, value: Any) -> dict[str, Any]:
    return {name: value} if value else {}


_MOUNTS = ("triton_docker_mounts",)
