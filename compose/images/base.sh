#!/usr/bin/env bash
# base.sh TAG: a local image TAG of Debian 13 with a Java runtime and what faults are made with inside a container, from the
# Debian mirror that this machine uses, without any registry. Needs Debian, root and mmdebstrap (installed if missing).
set -euo pipefail
tag=$1
# shellcheck disable=SC1091
codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
site=$(apt-get indextargets --format '$(SITE) $(CODENAME) $(COMPONENT) $(CREATED_BY)' |
    awk -v codename="$codename" '$2 == codename && $3 == "main" && $4 == "Packages" { print $1; exit }')
[ -n "$site" ] || { echo "apt has no Debian source for $codename" >&2; exit 3; }
if ! command -v mmdebstrap >/dev/null; then
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends mmdebstrap >/dev/null
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
# Java's installation scripts expect a directory of manual pages, which is left out otherwise.
mmdebstrap --quiet --variant=essential --aptopt='Acquire::Languages "none"' \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' --essential-hook='mkdir -p "$1/usr/share/man/man1"' \
    --include=openjdk-21-jre-headless,iproute2,iptables,iputils-ping,procps,util-linux,netcat-openbsd \
    trixie "$scratch/root.tar" "deb $site trixie main"
docker import --change 'ENV LANG=C.UTF-8' "$scratch/root.tar" "$tag" >/dev/null
