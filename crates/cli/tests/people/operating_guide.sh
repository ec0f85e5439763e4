# Runs the commands of an operating page, given as PAGE, on a server of its own below PLACE.
# `systemctl` and `sudo` act on that server, so that pages can be read as they stand.
set -euo pipefail
export EXACAT_DATA=$PLACE/data HOME=$PLACE

sudo() { "$@"; }

serve() {
    exacat serve --listen 127.0.0.1:"$NATIVE" --http 127.0.0.1:"$HTTP" --http-plain > /dev/null 2>> "$PLACE/log" &
    server=$!
    for _ in $(seq 600); do
        if exacat --timeout 5s --quiet whoami > /dev/null 2>&1; then return; fi
        kill -0 "$server" 2> /dev/null || break
        sleep 0.1
    done
    echo "the server did not start" >&2
    tail -5 "$PLACE/log" >&2
    return 1
}

end() {
    kill -TERM "$server"
    # `wait` of a process that another wait has taken fails.
    wait "$server" || true
    server=
}

systemctl() {
    case $1 in
    start) serve ;;
    stop) end ;;
    restart) end; serve ;;
    is-active) kill -0 "$server" && echo active ;;
    *) echo "systemctl $1 is not run here" >&2; return 1 ;;
    esac
}

server=
# Ends what a page left in the background, too: it would hold the output open.
trap 'jobs -p | xargs -r kill -KILL 2> /dev/null || true' EXIT
serve
set -x
source "$PAGE"
