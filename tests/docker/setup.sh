#!/usr/bin/env bash
# Installs what `pytest -m docker tests/docker` needs: Podman, which answers Docker's API, and an
# image that stands in for NVIDIA's (the same tritonserver, Python backend only). Run as root on
# Debian or Ubuntu; it uses the apt mirror and the package index this machine is set up with.
# Running it again changes nothing.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
image=local/tritonserver-stand-in:24.10
export CONTAINERS_CONF=$here/containers.conf DEBIAN_FRONTEND=noninteractive

packages=(podman runc crun netavark aardvark-dns iptables debootstrap)
if ! dpkg --status "${packages[@]}" >/dev/null 2>&1; then
    apt-get update
    apt-get install -y --no-install-recommends "${packages[@]}"
fi

if podman image exists "$image"; then
    echo "$image is there"
    exit 0
fi

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
site=$root/usr/local/lib/python3.11/dist-packages # Debian 12's Python is 3.11

debootstrap --variant=minbase --include=python3,libpython3.11 bookworm "$root"
python3 -m pip install --no-deps --only-binary=:all: --python-version=3.11 --target="$site" \
    nvidia-pytriton==0.7.0 'numpy==1.26.*'

# The layout of NVIDIA's image: everything under /opt/tritonserver, the stub beside its backend.
server=$site/pytriton/tritonserver
cp "$server/python_backend_stubs/3.11/triton_python_backend_stub" "$server/backends/python/"
ln -s "${server#"$root"}" "$root/opt/tritonserver"

tar -C "$root" -c . | podman import \
    --change 'ENV PATH=/opt/tritonserver/bin:/usr/local/bin:/usr/bin:/bin' \
    - "$image"
podman run --rm "$image" sh -c "command -v tritonserver"
