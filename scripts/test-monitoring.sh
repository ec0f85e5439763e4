#!/usr/bin/env bash
# Metrics, alert rules and dashboards with the real Prometheus and node_exporter: installs them if they can be
# had, then runs test-monitoring.py. Where it cannot, that is said and is no failure.
set -euo pipefail
cd "$(dirname "$0")/.."

# The whole takes a minute.
MINUTES=10

leave_out() {
    echo "left out: the tests of monitoring: $1"
    exit 0
}

command -v python3 >/dev/null 2>&1 || leave_out "there is no python3"
if ! command -v prometheus >/dev/null 2>&1 || ! command -v promtool >/dev/null 2>&1; then
    command -v apt-get >/dev/null 2>&1 || leave_out "prometheus is not installed, and there is no apt"
    as_root=()
    if [ "$(id -u)" -ne 0 ]; then
        sudo -n true 2>/dev/null || leave_out "prometheus is not installed, and may not be"
        as_root=(sudo -n)
    fi
    echo "installing prometheus"
    timeout 300 "${as_root[@]}" apt-get update -qq || leave_out "apt reaches no packages"
    install=(timeout 300 "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends)
    "${install[@]}" prometheus || leave_out "apt does not install prometheus"
    "${install[@]}" prometheus-node-exporter || echo "left out: panels of node_exporter, which apt does not install"
fi

status=0
timeout "${MINUTES}m" python3 scripts/test-monitoring.py "$@" || status=$?
if [ "$status" -eq 124 ]; then
    echo "the tests of monitoring were not done within $MINUTES minutes"
fi
exit "$status"
