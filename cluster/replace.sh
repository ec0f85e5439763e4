#!/bin/bash
# Replaces a dead node of a ring that up.sh started, by the steps of docs/operating/cluster.md: replace.sh DIRECTORY NODE KEYSPACE.
# The exacat servers of the keyspace must be stopped. What the dead node had is left in DIRECTORY/nodeNODE/data.dead.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
directory=${1:?usage: replace.sh DIRECTORY NODE KEYSPACE}
dead=${2:?usage: replace.sh DIRECTORY NODE KEYSPACE}
keyspace=${3:?usage: replace.sh DIRECTORY NODE KEYSPACE}
home=$directory/node$dead
runs() { [[ -f $home/pid ]] && tr '\0' ' ' <"/proc/$(cat "$home/pid")/cmdline" 2>/dev/null | grep -q CassandraDaemon; }
# One that was just killed takes a moment to go.
for _ in $(seq 1 100); do runs || break; sleep 0.1; done
if runs; then
    echo "node $dead runs: this is for one that is dead" >&2; exit 1
fi

# A repair asks every node that its coordinator believes to be up, so each survivor must see the dead one as down.
for node in 1 2 3; do
    [[ $node == "$dead" ]] && continue
    for _ in $(seq 1 60); do
        seen=$("$here/nodetool.sh" "$directory" "$node" status | grep -E '^[UD]N ' | cut -c1 | sort | tr -d '\n' || true)
        [[ $seen == DUU ]] && break
        sleep 1
    done
    [[ $seen == DUU ]] || { echo "node $node does not see one node down and two up" >&2; exit 1; }
done

# Each survivor gets all that was answered, before anything is streamed from one of them.
for node in 1 2 3; do
    [[ $node == "$dead" ]] && continue
    echo "node $node: repair with the other survivor"
    "$here/nodetool.sh" "$directory" "$node" repair -full --force "$keyspace"
done

rm -rf "$home/data.dead"
mv "$home/data" "$home/data.dead"
echo "node $dead: joins in the place of the dead one"
CLUSTER_NODES=3 CLUSTER_REPLACE=$dead "$here/up.sh" "$directory"
for _ in $(seq 1 600); do
    up=$("$here/nodetool.sh" "$directory" "$dead" status | grep -c '^UN ' || true)
    [[ $up == 3 ]] && break
    sleep 0.5
done
[[ $up == 3 ]] || { echo "node $dead does not see three nodes up" >&2; exit 1; }

echo "node $dead: repair"
"$here/nodetool.sh" "$directory" "$dead" repair -full "$keyspace"
echo "replaced: start the servers, then run exacat fsck"
