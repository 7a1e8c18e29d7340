#!/usr/bin/env bash
# Installs the Debian packages named, where they are missing. Does nothing on a system without dpkg.
set -euo pipefail
command -v dpkg-query >/dev/null || exit 0
missing=()
for package in "$@"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
((${#missing[@]})) || exit 0
printf '\033[1m==> installing Debian packages: %s\033[0m\n' "${missing[*]}"
sudo=""
[ "$(id -u)" = 0 ] || sudo=sudo
$sudo apt-get update -qq
$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
