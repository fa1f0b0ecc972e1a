#!/usr/bin/env bash
# Installs the packages of .ci/packages that this machine lacks. Answers at once when nothing is missing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

mapfile -t wanted < <(sed -e 's/#.*//' -e 's/[[:space:]]//g' -e '/^$/d' .ci/packages)
missing=()
for package in "${wanted[@]}"; do
  status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$status" = installed ] || missing+=("$package")
done
[ "${#missing[@]}" -gt 0 ] || exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "setup: could not install packages: neither root nor sudo; as root run: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi
apt() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 "$@" >&2
}
install() { apt install -y --no-install-recommends "${missing[@]}"; }

echo "setup: installing ${#missing[@]} packages: ${missing[*]}" >&2
if compgen -G '/var/lib/apt/lists/*_Packages*' >/dev/null && install; then
  exit 0
fi
apt update
install
