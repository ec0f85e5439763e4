#!/bin/bash
# One broker of Kafka on loopback, for tests: starts, kills and stops it, and makes topics. See README.md.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/java.sh"
usage='usage: kafka.sh up|kill|down DIRECTORY, or kafka.sh topic DIRECTORY NAME PARTITIONS [CONFIG=VALUE]...'
action=${1:?$usage}
directory=${2:?$usage}
mkdir -p "$directory"
directory=$(cd "$directory" && pwd)
jars=${KAFKA_JARS:-$directory/jars}
heap=${KAFKA_HEAP_MB:-256}
options=(-Xmx"${heap}m" -Xss512k -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData -Djava.net.preferIPv4Stack=true
    -Dlog4j2.level=WARN -cp "$jars/*")

is_up() { # the broker, and not another process that was given its number since
    [[ -f $directory/pid ]] && tr '\0' ' ' <"/proc/$(cat "$directory/pid")/cmdline" 2>/dev/null \
        | grep -q "kafka.Kafka $directory/server.properties"
}

configure() { # ports that are free now, an authority with a certificate, and the configuration
    python3 - >"$directory/ports" <<'PYTHON'
import socket
sockets = [socket.socket() for _ in range(5)]
for one in sockets:
    one.bind(("127.0.0.1", 0))
print(*(one.getsockname()[1] for one in sockets))
PYTHON
    local plain secure faulty proxy controller
    read -r plain secure faulty proxy controller <"$directory/ports"
    (
        umask 077
        mkdir -p "$directory/secure"
        cd "$directory/secure"
        openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out authority.key
        openssl req -x509 -new -key authority.key -subj '/CN=exacat development' -days 30 \
            -addext basicConstraints=critical,CA:TRUE -out authority.pem
        openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out broker.key
        openssl req -new -key broker.key -subj /CN=localhost -out broker.csr
        openssl x509 -req -in broker.csr -CA authority.pem -CAkey authority.key -CAcreateserial -days 30 \
            -extfile <(echo subjectAltName=DNS:localhost) -out broker.pem 2>/dev/null
        cat broker.key broker.pem >broker.both.pem
        head -c 12 /dev/urandom | od -An -tx1 | tr -d ' \n' >password
    )
    local password
    password=$(cat "$directory/secure/password")
    # Clients of FAULTY are sent to a port where only the proxy of a test listens. Clocks of tests are ahead.
    cat >"$directory/server.properties" <<PROPERTIES
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:$controller
controller.listener.names=CONTROLLER
listeners=PLAIN://127.0.0.1:$plain,SECURE://127.0.0.1:$secure,FAULTY://127.0.0.1:$faulty,CONTROLLER://127.0.0.1:$controller
advertised.listeners=PLAIN://127.0.0.1:$plain,SECURE://localhost:$secure,FAULTY://127.0.0.1:$proxy
listener.security.protocol.map=PLAIN:PLAINTEXT,SECURE:SASL_SSL,FAULTY:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=PLAIN
listener.name.secure.ssl.keystore.type=PEM
listener.name.secure.ssl.keystore.location=$directory/secure/broker.both.pem
listener.name.secure.sasl.enabled.mechanisms=SCRAM-SHA-512,PLAIN
listener.name.secure.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.secure.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_exacat="$password";
log.dirs=$directory/data
auto.create.topics.enable=false
log.message.timestamp.after.max.ms=9223372036854775807
log.cleaner.dedupe.buffer.size=16777216
log.cleaner.backoff.ms=200
offsets.topic.replication.factor=1
PROPERTIES
    local id
    id=$(java "${options[@]}" kafka.tools.StorageTool random-uuid 2>/dev/null)
    java "${options[@]}" kafka.tools.StorageTool format -t "$id" -c "$directory/server.properties" \
        --add-scram "SCRAM-SHA-512=[name=exacat,password=$password]" >"$directory/format.log" 2>&1 \
        || { cat "$directory/format.log" >&2; exit 1; }
}

listens() { (exec 4<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

case $action in
up)
    need_java
    fetch_jars Kafka 'kafka_2.13-*.jar' "$here/kafka-pom.xml" "$jars"
    is_up && { echo "the broker runs already"; exit 0; }
    [[ -f $directory/server.properties ]] || configure
    (exec setsid java "${options[@]}" kafka.Kafka "$directory/server.properties") \
        >"$directory/log" 2>&1 </dev/null 3>&- &
    echo $! >"$directory/pid"
    read -r plain secure faulty _ <"$directory/ports"
    for _ in $(seq 1 600); do
        listens "$plain" && listens "$secure" && listens "$faulty" && { echo "up: kafka://127.0.0.1:$plain"; exit 0; }
        kill -0 "$(cat "$directory/pid")" 2>/dev/null || { echo "the broker ended: see $directory/log" >&2; exit 1; }
        sleep 0.1
    done
    echo "the broker did not come up in a minute: see $directory/log" >&2
    exit 1
    ;;
kill)
    is_up || { echo "no broker runs" >&2; exit 1; }
    id=$(cat "$directory/pid")
    kill -9 "$id"
    while kill -0 "$id" 2>/dev/null; do sleep 0.05; done
    ;;
down)
    if is_up; then
        id=$(cat "$directory/pid")
        kill "$id"
        for _ in $(seq 1 200); do kill -0 "$id" 2>/dev/null || break; sleep 0.1; done
        kill -9 "$id" 2>/dev/null || true
    fi
    # The next broker is a new one; its jars stay.
    rm -rf "$directory"/{data,secure,ports,pid,server.properties,format.log}
    ;;
topic)
    name=${3:?$usage}
    partitions=${4:?$usage}
    shift 4
    settings=()
    for setting in "$@"; do settings+=(--config "$setting"); done
    read -r plain _ <"$directory/ports"
    java "${options[@]}" org.apache.kafka.tools.TopicCommand --bootstrap-server "127.0.0.1:$plain" \
        --create --topic "$name" --partitions "$partitions" ${settings[@]+"${settings[@]}"}
    ;;
*)
    echo "$usage" >&2
    exit 2
    ;;
esac
