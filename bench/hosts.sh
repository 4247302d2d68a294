#!/bin/sh
# Times the allreduce between hosts (network namespaces with 1 Gbit/s links) as a share of the bound
# 2 (n-1)/n bytes / goodput, where goodput is that of plain TCP between the same namespaces in the same run.
#     bench/hosts.sh [BUILD_FOLDER]        default build/release; needs root
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=$(realpath "${1:-$here/../build/release}")
. "$here/../tests/hosts/net.sh"
hosts_possible || exit 0
work=$(mktemp -d)
trap 'hosts_down; rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
(umask 077; head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$work/secret")

# Plain TCP, 64 MiB from host 2 to host 1 in writes of 1 MiB: bytes per second from the first byte to the last.
goodput() {
    on_host 1 python3 -c '
import socket, time
s = socket.create_server(("10.77.0.1", 29600))
c = s.accept()[0]
got, buffer = 0, memoryview(bytearray(1 << 20))
n = c.recv_into(buffer)
start = time.perf_counter()
while n:
    got += n
    n = c.recv_into(buffer)
print(int(got / (time.perf_counter() - start)))' >"$work/goodput" &
    sleep 0.5
    on_host 2 python3 -c '
import socket
s = socket.create_connection(("10.77.0.1", 29600))
for i in range(64): s.sendall(bytes(1 << 20))
s.close()'
    wait $!
    cat "$work/goodput"
}

# measure HOSTS RANKS_PER_HOST BYTES ALGORITHM: median microseconds; and bytes that host 1 sent per call.
measure() {
    world=$(($1 * $2)) r=0 pids=
    while [ $r -lt $world ]; do
        json=
        [ $r = 0 ] && json="--json $work/result.json"
        on_host $((r / $2 + 1)) env RANK=$r WORLD_SIZE=$world MASTER_ADDR=10.77.0.1 MASTER_PORT=29511 \
            KOLO_SECRET_FILE="$work/secret" "$build/kolo" bench allreduce --sizes "$3" --algorithm "$4" \
            --seconds 2 --timeout 60 $json >/dev/null &
        pids="$pids $!"
        r=$((r + 1))
    done
    for p in $pids; do wait "$p"; done
    sed -n 's/.*"us_median": *\([0-9.]*\).*/\1/p' "$work/result.json"
}

report() {
    us=$(measure "$@")
    awk -v n=$(($1 * $2)) -v hosts="$1" -v per="$2" -v bytes="$3" -v name="$4" -v us="$us" -v goodput="$rate" '
        BEGIN {
            bound = 2 * (hosts - 1) / hosts * bytes / goodput * 1e6
            printf "%d hosts x %d ranks  %-12s  %9d bytes  %10.0f us  bound %8.0f us  %5.1f %%\n",
                hosts, per, name, bytes, us, bound, 100 * bound / us
        }'
}

for hosts in 2 4; do
    hosts_up $hosts 1gbit
    rate=$(goodput)
    echo "plain TCP between $hosts hosts: $rate bytes/s"
    report $hosts 1 16777216 ring
    if [ $hosts = 2 ]; then
        report 2 2 16777216 ring
        if "$build/kolo" help bench allreduce | grep -q hierarchical; then report 2 2 16777216 hierarchical; fi
    fi
    hosts_down
done
