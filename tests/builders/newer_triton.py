# ruff: noqa: N802  gRPC names the methods
"""A stand-in for tritonserver 2.73 (release 26.09): answers in its way, and doubles one input.

From its public documentation and sources: `ModelReady` of a model that is not loaded is an error;
failures are counted by reason; there are histograms, and metrics of pinned memory and of loading;
the config has `model_metrics`, field 26, which older clients do not know.
"""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import docker
import grpc
import numpy as np
from google.protobuf import json_format, text_format
from tritonclient.grpc import model_config_pb2, service_pb2, service_pb2_grpc

from tuner.server.server import FLAGS

CERTIFICATES = Path(__file__).parents[1] / "certificates"
VERSION = "2.73.0"
MODEL_METRICS = b"\xd2\x01\x00"
HOST = "127.0.0.1"
GPU_BYTES = 3.0e9
SERVICES = ("http", "grpc", "metrics")
EXTENSIONS = ("model_repository", "model_configuration", "statistics", "trace", "logging")
KNOWN = ("--model-repository", "--model-control-mode", "--disable-auto-complete-config", *FLAGS)
KNOWN += tuple(f"--{service}-{what}" for service in SERVICES for what in ("address", "port"))
METRICS = """\
# HELP nv_inference_request_success Number of successful inference requests, all batch sizes
# TYPE nv_inference_request_success counter
nv_inference_request_success{model="MODEL",version="1"} COUNT
# HELP nv_inference_request_failure Number of failed inference requests, all batch sizes
# TYPE nv_inference_request_failure counter
nv_inference_request_failure{model="MODEL",reason="OTHER",version="1"} 0
nv_inference_request_failure{model="MODEL",reason="BACKEND",version="1"} 2
nv_inference_request_failure{model="MODEL",reason="CANCELED",version="1"} 0
nv_inference_request_failure{model="MODEL",reason="REJECTED",version="1"} 1
# HELP nv_inference_pending_request_count Requests awaiting execution
# TYPE nv_inference_pending_request_count gauge
nv_inference_pending_request_count{model="MODEL",version="1"} 0
# HELP nv_inference_first_response_histogram_ms Until the first response
# TYPE nv_inference_first_response_histogram_ms histogram
nv_inference_first_response_histogram_ms_count{model="MODEL",version="1"} COUNT
nv_inference_first_response_histogram_ms_sum{model="MODEL",version="1"} 12
nv_inference_first_response_histogram_ms_bucket{model="MODEL",version="1",le="100"} COUNT
nv_inference_first_response_histogram_ms_bucket{model="MODEL",version="1",le="+Inf"} COUNT
# HELP nv_model_load_duration_secs Model load time in seconds
# TYPE nv_model_load_duration_secs gauge
nv_model_load_duration_secs{model="MODEL",version="1"} 0.1
# HELP nv_pinned_memory_pool_used_bytes Pinned memory pool used memory size, in bytes
# TYPE nv_pinned_memory_pool_used_bytes gauge
nv_pinned_memory_pool_used_bytes 0
# HELP nv_gpu_memory_used_bytes GPU used memory, in bytes
# TYPE nv_gpu_memory_used_bytes gauge
nv_gpu_memory_used_bytes{gpu_uuid="GPU-1"} 3000000000
nv_gpu_memory_total_bytes{gpu_uuid="GPU-1"} 84825604096
nv_cpu_memory_total_bytes 68719476736
"""


class NewerTriton(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc]
    """A server of one model; use it as a context manager.

    Args:
        demanded: Header and value that every request must have, as a gateway before a server asks;
            what came instead is told in the refusal. All endpoints have TLS then, and ask for a
            certificate of the tests.
    """

    def __init__(
        self, repository: Path, args: Sequence[str] = (), demanded: tuple[str, str] | None = None
    ) -> None:
        self.demanded = demanded
        given = dict(arg.partition("=")[::2] for arg in args)
        self.unknown = [arg for arg in args if arg.partition("=")[0] not in KNOWN]
        (file,) = repository.glob("*/config.pbtxt")
        self.model, self.file = file.parent.name, file.read_text()
        #: Of the file, what older clients cannot write.
        self.newer = b""
        self.running: Any = None
        self.requests = 0
        self.key = given.get(FLAGS[0], "").rpartition("=")[2]
        self.ports = {s: int(given.get(f"--{s}-port", 0)) for s in SERVICES}
        self.alive = False

    def __enter__(self) -> NewerTriton:
        demands = () if self.demanded is None else (_Demand(*self.demanded),)
        self._grpc = grpc.server(ThreadPoolExecutor(4), interceptors=demands)
        service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(self, self._grpc)
        address = f"{HOST}:{self.ports['grpc']}"
        self.ports["grpc"] = (
            self._grpc.add_insecure_port(address)
            if self.demanded is None
            else self._grpc.add_secure_port(address, _credentials())
        )
        self._grpc.start()
        self._web = {}
        for service in ("http", "metrics"):
            handler = type("Handler", (_Handler,), {"triton": self})
            web = self._web[service] = ThreadingHTTPServer((HOST, self.ports[service]), handler)
            if self.demanded is not None:
                web.socket = _context().wrap_socket(web.socket, server_side=True)
            self.ports[service] = web.server_port
            threading.Thread(target=web.serve_forever, args=(0.01,), daemon=True).start()
        self.alive = True
        return self

    def __exit__(self, *_: object) -> None:
        if self.alive:
            self.alive = False
            self._grpc.stop(None).wait()
            for web in self._web.values():
                web.shutdown()
                web.server_close()

    def metrics(self) -> str:
        return METRICS.replace("MODEL", self.model).replace("COUNT", str(self.requests))

    def _restricted(self, context: Any) -> None:
        header = "triton-grpc-protocol-tune-key"
        if self.key and dict(context.invocation_metadata()).get(header) != self.key:
            message = f"This protocol is restricted, expecting header '{header}'"
            context.abort(grpc.StatusCode.UNAVAILABLE, message)

    def _loaded(self, name: str, context: Any) -> None:
        if name != self.model or self.running is None:
            message = f"Request for unknown model: '{name}' is not found"
            context.abort(grpc.StatusCode.NOT_FOUND, message)

    def ServerMetadata(self, request: Any, context: Any) -> Any:
        return service_pb2.ServerMetadataResponse(
            name="triton", version=VERSION, extensions=EXTENSIONS
        )

    def ModelReady(self, request: Any, context: Any) -> Any:
        self._loaded(request.name, context)
        return service_pb2.ModelReadyResponse(ready=True)

    def RepositoryIndex(self, request: Any, context: Any) -> Any:
        self._restricted(context)
        state = "UNAVAILABLE" if self.running is None else "READY"
        index = service_pb2.RepositoryIndexResponse()
        index.models.add(name=self.model, version="1", state=state)
        return index

    def RepositoryModelLoad(self, request: Any, context: Any) -> Any:
        self._restricted(context)
        given = request.parameters["config"].string_param
        config = model_config_pb2.ModelConfig()
        if given:
            json_format.Parse(given, config)
        else:
            text_format.Parse(self.file, config)
            config.MergeFromString(self.newer)
        config.name = self.model
        self.running, self.requests = config, 0
        return service_pb2.RepositoryModelLoadResponse()

    def RepositoryModelUnload(self, request: Any, context: Any) -> Any:
        self._restricted(context)
        if request.model_name == self.model:
            self.running = None
        return service_pb2.RepositoryModelUnloadResponse()

    def ModelConfig(self, request: Any, context: Any) -> Any:
        self._loaded(request.name, context)
        return service_pb2.ModelConfigResponse(config=self.running)

    def ModelStatistics(self, request: Any, context: Any) -> Any:
        self._loaded(request.name, context)
        count = self.requests
        response = service_pb2.ModelStatisticsResponse()
        stats = response.model_stats.add(
            name=self.model, version="1", inference_count=count, execution_count=count
        )
        took = service_pb2.StatisticDuration(count=count, ns=count * 1000)
        for name in ("success", "queue", "compute_infer"):
            getattr(stats.inference_stats, name).CopyFrom(took)
        stats.batch_stats.add(batch_size=1).compute_infer.CopyFrom(took)
        stats.response_stats["0"].success.CopyFrom(took)
        stats.response_stats["0"].cancel.CopyFrom(took)
        stats.memory_usage.add(type="GPU", id=0, byte_size=int(GPU_BYTES))
        return response

    def ModelInfer(self, request: Any, context: Any) -> Any:
        self._loaded(request.model_name, context)
        self.requests += 1
        doubled = np.frombuffer(request.raw_input_contents[0], np.float32) * 2
        shape = request.inputs[0].shape
        response = service_pb2.ModelInferResponse(model_name=self.model, model_version="1")
        response.outputs.add(name="y", datatype="FP32", shape=shape)
        response.raw_output_contents.append(doubled.tobytes())
        return response


class _Demand(grpc.ServerInterceptor):  # type: ignore[misc]
    def __init__(self, name: str, value: str) -> None:
        self._wanted = name, value

    def intercept_service(self, proceed: Any, call: Any) -> Any:
        if self._wanted in call.invocation_metadata:
            return proceed(call)
        message = f"not allowed: {dict(call.invocation_metadata).get(self._wanted[0])}"

        def refuse(_: Any, context: Any) -> None:
            context.abort(grpc.StatusCode.UNAUTHENTICATED, message)

        return grpc.unary_unary_rpc_method_handler(refuse)


def _credentials() -> Any:
    key, certificate, ca = (
        (CERTIFICATES / name).read_bytes() for name in ("server.key", "server.pem", "ca.pem")
    )
    return grpc.ssl_server_credentials([(key, certificate)], ca, require_client_auth=True)


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATES / "server.pem", CERTIFICATES / "server.key")
    context.load_verify_locations(CERTIFICATES / "ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    return context


class _Handler(BaseHTTPRequestHandler):
    triton: NewerTriton
    protocol_version = "HTTP/1.1"

    def _refused(self) -> bool:
        name, value = self.triton.demanded or ("", None)
        given = self.headers.get(name)
        if given != value:
            self._answer(HTTPStatus.UNAUTHORIZED, json.dumps({"error": f"not allowed: {given}"}))
        return given != value

    def do_GET(self) -> None:
        if self._refused():
            return
        self._answer(HTTPStatus.OK, self.triton.metrics() if self.path == "/metrics" else "")

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        if self._refused():
            return
        self._answer(HTTPStatus.FORBIDDEN if self.triton.key else HTTPStatus.OK, "")

    def _answer(self, status: HTTPStatus, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        pass


class Engine:
    """A container engine's client that runs the stand-in; only what the docker mode asks it for."""

    def __init__(self) -> None:
        self.server: NewerTriton | None = None
        self.removed: list[str] = []
        image = SimpleNamespace(
            id="sha256:1", attrs={"Config": {"Env": [f"TRITON_SERVER_VERSION={VERSION}"]}}
        )
        self.images = SimpleNamespace(get=lambda name: image)
        self.containers = SimpleNamespace(create=self._create)
        self.api = SimpleNamespace(
            containers=lambda **_: [], kill=self.kill, remove_container=self._remove
        )

    def _create(self, command: list[str], mounts: Any, **_: Any) -> Container:
        return Container(self, NewerTriton(Path(mounts[0]["Source"]), command[1:]))

    def kill(self, _: str) -> None:
        if self.server is not None:
            self.server.__exit__()

    def _remove(self, container: str, **_: Any) -> None:
        if container in self.removed:
            raise docker.errors.NotFound("no such container")
        self.removed.append(container)

    def close(self) -> None:
        pass


class Container:
    id = "c" * 64

    def __init__(self, engine: Engine, server: NewerTriton) -> None:
        self.client, self.server = engine, server
        self.status = "created"

    def start(self) -> None:
        self.client.server, self.client.removed = self.server, []
        if not self.server.unknown:
            self.server.__enter__()
        self.reload()

    def reload(self) -> None:
        self.status = "running" if self.server.alive else "exited"

    def logs(self, **_: Any) -> Iterator[bytes]:
        """A generator, as the engine's; ends at once, with what a refused option is told."""
        yield from (
            f"tritonserver: unrecognized option '{o}'\n".encode() for o in self.server.unknown
        )
