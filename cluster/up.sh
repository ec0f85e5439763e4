#!/bin/bash
# Starts a ring of Cassandra nodes on loopback addresses, and waits until each answers and sees the others. README.md says more.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/java.sh"
directory=${1:?usage: up.sh DIRECTORY}
nodes=${CLUSTER_NODES:-3}
heap=${CLUSTER_HEAP_MB:-384}
network=${CLUSTER_NETWORK:-127.0.0}
port=${CLUSTER_PORT:-9042}
durable=${CLUSTER_DURABLE:-0}
secure=${CLUSTER_SECURE:-0}
jmx=${CLUSTER_JMX:-7099}
replace=${CLUSTER_REPLACE:-}
leave=${CLUSTER_LEAVE:-}
[[ $nodes == 1 || $nodes == 3 ]] || { echo "CLUSTER_NODES is 1 or 3" >&2; exit 2; }
mkdir -p "$directory"
directory=$(cd "$directory" && pwd)
jars=${CLUSTER_JARS:-$directory/jars}

need_java
fetch_jars Cassandra 'cassandra-all-*.jar' "$here/pom.xml" "$jars"
agent=$(compgen -G "$jars/jamm-*.jar" | head -1)

seeds=""
for node in $(seq 1 "$nodes"); do seeds+="${seeds:+,}$network.$node:7000"; done
tokens=(-9223372036854775808 -3074457345618258603 3074457345618258602)

sign() { # NAME SUBJECT EXTENSIONS: a key and a certificate of the authority in DIRECTORY/secure
    local place=$directory/secure/$1
    openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$place.key"
    openssl req -new -key "$place.key" -subj "/CN=$2" -out "$place.csr"
    openssl x509 -req -in "$place.csr" -CA "$directory/secure/authority.pem" -CAkey "$directory/secure/authority.key" \
        -CAcreateserial -days 30 -extfile <(printf '%s\n' "$3") -out "$place.pem" 2>/dev/null
    rm "$place.csr"
}

if [[ $secure == 1 && ! -f $directory/secure/password ]]; then
    # An authority of this directory's own, a certificate of each node for its address, and one for clients.
    (
        umask 077
        mkdir -p "$directory/secure"
        openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$directory/secure/authority.key"
        openssl req -x509 -new -key "$directory/secure/authority.key" -subj '/CN=exacat development' -days 30 \
            -addext basicConstraints=critical,CA:TRUE -out "$directory/secure/authority.pem"
        for node in $(seq 1 "$nodes"); do
            sign "node$node" "node$node" "subjectAltName=IP:$network.$node"
            # As Cassandra reads it: the key, then the chain.
            cat "$directory/secure/node$node.key" "$directory/secure/node$node.pem" >"$directory/secure/node$node.both.pem"
        done
        sign client exacat 'extendedKeyUsage=clientAuth'
        # The user that Cassandra makes by itself.
        printf 'cassandra\n' >"$directory/secure/password"
    )
fi

configure() { # NODE: writes the node's configuration
    local node=$1 home=$directory/node$1 seeds=$seeds token="initial_token: ${tokens[$(($1 - 1))]}"
    if [[ $node == "$replace" ]]; then
        # A seed never joins, and the dead node's token comes with its place.
        seeds=$(sed -E "s/(^|,)$network\.$node:7000//; s/^,//" <<<"$seeds")
        token=""
    fi
    mkdir -p "$home/conf" "$home/log" "$home/data"
    cp "$here/logback.xml" "$home/conf/"
    printf 'dc=datacenter1\nrack=rack1\n' >"$home/conf/cassandra-rackdc.properties"
    cat >"$home/conf/cassandra.yaml" <<YAML
cluster_name: 'exacat development'
num_tokens: 1
$token
partitioner: org.apache.cassandra.dht.Murmur3Partitioner
# The simple snitch would read from the first replica in ring order, not from the nearest.
endpoint_snitch: GossipingPropertyFileSnitch
seed_provider:
  - class_name: org.apache.cassandra.locator.SimpleSeedProvider
    parameters:
      - seeds: "$seeds"
listen_address: $network.$node
rpc_address: $network.$node
storage_port: 7000
native_transport_port: $port
start_native_transport: true
data_file_directories: [ $home/data/tables ]
commitlog_directory: $home/data/commitlog
saved_caches_directory: $home/data/saved_caches
hints_directory: $home/data/hints
cdc_raw_directory: $home/data/cdc_raw
commitlog_sync: periodic
commitlog_sync_period: 10000ms
commitlog_segment_size: 16MiB
commitlog_total_space: 256MiB
storage_compatibility_mode: NONE
memtable:
  configurations:
    trie:
      class_name: TrieMemtable
    default:
      inherits: trie
memtable_allocation_type: offheap_objects
memtable_heap_space: 64MiB
memtable_offheap_space: 96MiB
sstable:
  selected_format: bti
uuid_sstable_identifiers_enabled: true
default_compaction:
  class_name: UnifiedCompactionStrategy
  parameters:
    scaling_parameters: T4
paxos_variant: v2
paxos_state_purging: repaired
key_cache_size: 0MiB
row_cache_size: 0MiB
counter_cache_size: 0MiB
file_cache_size: 64MiB
networking_cache_size: 32MiB
native_transport_max_threads: 16
concurrent_reads: 16
concurrent_writes: 16
concurrent_compactors: 1
compaction_throughput: 32MiB/s
auto_snapshot: false
hinted_handoff_enabled: true
hints_flush_period: 2000ms
dynamic_snitch: false
materialized_views_enabled: false
user_defined_functions_enabled: false
YAML
    if [[ $secure == 1 ]]; then
        cat >>"$home/conf/cassandra.yaml" <<YAML
authenticator: PasswordAuthenticator
authorizer: CassandraAuthorizer
role_manager: CassandraRoleManager
client_encryption_options:
  enabled: true
  optional: false
  require_client_auth: true
  ssl_context_factory:
    class_name: org.apache.cassandra.security.PEMBasedSslContextFactory
  keystore: $directory/secure/node$node.both.pem
  truststore: $directory/secure/authority.pem
YAML
    else
        cat >>"$home/conf/cassandra.yaml" <<YAML
authenticator: AllowAllAuthenticator
authorizer: AllowAllAuthorizer
YAML
    fi
}

start() { # NODE: starts it in the background, its process id in DIRECTORY/nodeN/pid
    local node=$1 home=$directory/node$1 quick=()
    if [[ -f $home/pid ]] && kill -0 "$(cat "$home/pid")" 2>/dev/null; then
        echo "node $node runs already"; return
    fi
    rm -f "$home/log/system.log"
    # For tests: what the system tables hold is not synced, so a node is up sooner. Never where data matters.
    [[ $node == "$replace" ]] && quick+=("-Dcassandra.replace_address_first_boot=$network.$node")
    [[ $durable == 1 ]] || quick+=(-XX:TieredStopAtLevel=1 -Dcassandra.unsafesystem=true -Dcassandra.skip_sync=true)
    (
        cd "$home"
        exec setsid java -da -Xms"${heap}m" -Xmx"${heap}m" -Xss256k -XX:+UseSerialGC -XX:+ExitOnOutOfMemoryError \
            -XX:+PerfDisableSharedMem -XX:-UsePerfData -XX:MaxDirectMemorySize=256m \
            -javaagent:"$agent" @"$here/java17.options" -Djava.net.preferIPv4Stack=true \
            -Dio.netty.tryReflectionSetAccessible=true \
            -Dcassandra.jmx.local.port=$((jmx + 100 * node)) -Dcassandra.superuser_setup_delay_ms=0 \
            -Dcassandra.config="file://$home/conf/cassandra.yaml" \
            -Dcassandra-rackdc.properties="file://$home/conf/cassandra-rackdc.properties" \
            -Dlogback.configurationFile="file://$home/conf/logback.xml" \
            -Dcassandra.storagedir="$home/data" -Dcassandra.logdir="$home/log" -Dcassandra-foreground=yes \
            -Dcassandra.skip_wait_for_gossip_to_settle=0 -Dcassandra.ring_delay_ms=2000 \
            ${quick[@]+"${quick[@]}"} \
            -cp "$jars/*" org.apache.cassandra.service.CassandraDaemon
    ) >"$home/log/stdout" 2>&1 </dev/null 3>&- &
    echo $! >"$home/pid"
}

wait_for() { # NODE PATTERN TIMES: until the node's log says so that often
    local home=$directory/node$1
    for _ in $(seq 1 1800); do
        [[ $(grep -cE "$2" "$home/log/system.log" 2>/dev/null || true) -ge $3 ]] && return
        kill -0 "$(cat "$home/pid")" 2>/dev/null || { echo "node $1 ended: see $home/log" >&2; exit 1; }
        sleep 0.1
    done
    echo "node $1 did not come up in three minutes: see $home/log" >&2
    exit 1
}

for node in $(seq 1 "$nodes"); do
    [[ $node == "$leave" ]] || { configure "$node"; start "$node"; }
done
hosts=""
for node in $(seq 1 "$nodes"); do
    if [[ $node == "$leave" ]]; then hosts+="${hosts:+,}$network.$node:$port"; continue; fi
    wait_for "$node" 'Starting listening for CQL clients' 1
    wait_for "$node" 'is now UP' $((nodes - 1 - ${#leave}))
    hosts+="${hosts:+,}$network.$node:$port"
done
if [[ $secure == 1 && ! -f $directory/secure/ready ]]; then
    wait_for 1 'Created default superuser role' 1
    touch "$directory/secure/ready"
fi
echo "$hosts" >"$directory/hosts"
echo "up: EXACAT_CASSANDRA=$hosts"
