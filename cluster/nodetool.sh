#!/bin/bash
# Cassandra's own tool for operators, at a node that up.sh started: nodetool.sh DIRECTORY NODE COMMAND…
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
directory=${1:?usage: nodetool.sh DIRECTORY NODE COMMAND…}
node=${2:?usage: nodetool.sh DIRECTORY NODE COMMAND…}
shift 2
jars=${CLUSTER_JARS:-$directory/jars}
exec java -Xmx128m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData @"$here/java17.options" \
    -Dlogback.configurationFile="file://$here/logback-tools.xml" \
    -cp "$jars/*" org.apache.cassandra.tools.NodeTool -h 127.0.0.1 -p $((${CLUSTER_JMX:-7099} + 100 * node)) "$@"
