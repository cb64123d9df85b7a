# Sourced by the scripts beside this file: a temporary folder, pinned packages, and a tritonserver.
set -euo pipefail
tmp=$(mktemp -d)
server=""
finish() {
  if [ -n "$server" ]; then
    kill "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
  fi
  rm -rf "$tmp"
}
trap finish EXIT

fail() { printf 'CHANGED: %s\n' "$*"; exit 1; }

install() {
  python3 -m venv "$tmp/venv"
  "$tmp/venv/bin/pip" install -q --disable-pip-version-check "$@"
}

# Starts tritonserver 2.51.0 with the models in $tmp/models, and puts perf_analyzer 2.51.0 on PATH.
start_server() {
  python3 -c 'import sys; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))' ||
    { echo "SKIPPED: needs Python 3.11 or 3.12 as python3, for NumPy 1"; exit 0; }
  install --no-deps nvidia-pytriton==0.7.0 tritonclient==2.51.0 numpy==1.26.4
  local packages python root
  packages=$("$tmp/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  python=$("$tmp/venv/bin/python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  root="$packages/pytriton/tritonserver"
  mkdir "$tmp/libraries"
  cp -r "$root/backends" "$tmp/backends"
  cp "$root/python_backend_stubs/$python/triton_python_backend_stub" "$tmp/backends/python/"
  ln -s "$("$tmp/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_config_var("LIBDIR"))')/libpython$python.so.1.0" "$tmp/libraries/"
  ln -s "$packages"/nvidia_pytriton.libs/libb64-*.so.0d "$tmp/libraries/libb64.so.0d"
  ln -s "$packages"/nvidia_pytriton.libs/libcudart-*.so.12* "$tmp/libraries/libcudart.so.12"
  export PATH="$tmp/venv/bin:$PATH" LD_LIBRARY_PATH="$tmp/libraries:$packages/nvidia_pytriton.libs"
  export no_proxy=127.0.0.1
  port=$(python - <<'PYTHON'
import socket
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    print(free.getsockname()[1])
PYTHON
  )
  "$root/bin/tritonserver" --model-repository="$tmp/models" --backend-directory="$tmp/backends" \
    --grpc-address=127.0.0.1 --grpc-port="$port" --allow-http=false --allow-metrics=false \
    >"$tmp/server.log" 2>&1 &
  server=$!
  for _ in $(seq 120); do
    ! grep -q "Started GRPCInferenceService" "$tmp/server.log" || return 0
    kill -0 "$server" 2>/dev/null || break
    sleep 0.5
  done
  cat "$tmp/server.log"
  echo "the server did not start"
  exit 1
}

# model NAME TYPE CODE: a Python model that answers each request with its input, after CODE.
model() {
  mkdir -p "$tmp/models/$1/1"
  cat >"$tmp/models/$1/config.pbtxt" <<CONFIG
backend: "python"
input { name: "x" data_type: $2 dims: 2 }
output { name: "y" data_type: $2 dims: 2 }
instance_group { count: 1 kind: KIND_CPU }
CONFIG
  cat >"$tmp/models/$1/1/model.py" <<MODEL
import time

import triton_python_backend_utils as pb


class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            x = pb.get_input_tensor_by_name(request, "x").as_numpy()
            $3
            answers.append(pb.InferenceResponse([pb.Tensor("y", x)]))
        return answers
MODEL
}

load() { perf_analyzer -i grpc -u "127.0.0.1:$port" "$@"; }
