#!/usr/bin/env bash
# `make bench-peers`: builds and runs exacat beside RocksDB and MariaDB. Installs what it compares with from Debian's
# packages, asking nothing; a peer that cannot be had is left out with a word. No packaged service is installed or started:
# MariaDB's server comes from its -core package, and the bench starts its own.
# Usage: bench-peers.sh EXACAT-BINARY [bench-peers options]
set -euo pipefail

exacat=$(realpath "$1")
shift
cd "$(dirname "$0")/.."

has_rocksdb() { echo 'int main(void){return 0;}' | cc -x c - -lrocksdb -o /dev/null 2>/dev/null; }
has_mariadb() {
    PATH=$PATH:/usr/sbin
    command -v mariadbd >/dev/null 2>&1 && command -v mariadb-install-db >/dev/null 2>&1 \
        && command -v my_print_defaults >/dev/null 2>&1
}

missing=()
has_rocksdb || missing+=(librocksdb-dev)
has_mariadb || missing+=(mariadb-server-core mariadb-client-core)
if [ ${#missing[@]} -gt 0 ]; then
    as_root=()
    [ "$(id -u)" -eq 0 ] || as_root=(sudo -n)
    echo "bench-peers: installing ${missing[*]}" >&2
    if ! command -v apt-get >/dev/null 2>&1; then
        echo "bench-peers: there is no apt-get here: what is missing is left out" >&2
    elif ! { "${as_root[@]}" apt-get update -qq \
        && "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"; } >&2; then
        echo "bench-peers: could not install ${missing[*]}: left out" >&2
    fi
fi

features=()
has_rocksdb || features=(--no-default-features)
exec "${CARGO:-cargo}" run --release --locked --manifest-path bench/peers/Cargo.toml "${features[@]}" -- \
    --exacat "$exacat" "$@"
