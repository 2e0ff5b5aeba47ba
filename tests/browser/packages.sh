#!/bin/sh
# Install Debian's chromium if there is no chromium, for the tests of the report's page.
set -eu

command -v chromium >/dev/null && exit 0
command -v apt-get >/dev/null || {
    echo "the tests of the report's page need a chromium on PATH (no apt-get here to install it)" >&2
    exit 2
}
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || { echo "installing chromium takes root, and there is no sudo" >&2; exit 2; }
    exec sudo "$0"
fi
echo "installing chromium …"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core
