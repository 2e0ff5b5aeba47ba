#!/bin/sh
# Install the Debian packages of the virtual cluster that are missing, and others that are named, without starting their daemons on this machine.
set -eu

packages="slurm-wlm munge libpmix2 libpmix-dev iproute2 openssh-server slurmdbd slurm-wlm-mysql-plugin mariadb-server $*"

command -v apt-get >/dev/null || {
    echo "the virtual cluster needs Debian or Ubuntu (no apt-get here); its packages are: $packages" >&2
    exit 2
}
missing=
for package in $packages; do
    [ "$(dpkg-query -Wf '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing="$missing $package"
done
command -v cc >/dev/null || missing="$missing gcc libc6-dev"
[ -n "$missing" ] || exit 0

if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || { echo "installing$missing takes root, and there is no sudo" >&2; exit 2; }
    exec sudo "$0" "$@"
fi
echo "installing$missing …"
policy=/usr/sbin/policy-rc.d # Debian asks this program before it starts an installed daemon; 101 means no
if [ ! -e $policy ]; then
    trap 'rm -f $policy' EXIT
    trap 'exit 130' INT TERM
    printf '#!/bin/sh\nexit 101\n' >$policy
    chmod 755 $policy
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
# shellcheck disable=SC2086  # one word for each package
apt-get install -y -qq --no-install-recommends $missing
