#!/bin/sh
# What a job over three hosts does when a fault occurs: it ends on all ranks, with an error that names the rank, within
# seconds, or goes on. Prints a table with the seconds from the fault to the end of the last rank that can report it.
# Two of the rows, all of them with KOLO_SOAK=1. Exits with 77 without network namespaces.
#     faults.sh BUILD_FOLDER
set -u
kolo=$(realpath "$1")/kolo
here=$(cd "$(dirname "$0")" && pwd)
. "$here/net.sh"
hosts_possible || exit 77
. "$here/job.sh"
busy="$kolo bench allreduce --sizes 1M --seconds 60 --heartbeat 2 --timeout 30"
# In shared memory the most calls that a benchmark makes take a second with 1M.
shared="$kolo bench allreduce --sizes 64M --seconds 60 --heartbeat 2 --timeout 30"
short="$kolo bench allreduce --sizes 64K --seconds 3 --heartbeat 2 --timeout 30"
all="0 1 2"
soak=${KOLO_SOAK:-}
export KOLO_LOG=info # a line when the group has formed

row() { printf '%-52s %-34s %s\n' "$1" "$2" "$3"; }

# started: waits until all ranks have joined; then they are in their calls within the sleep.
started() {
    for _ in $(seq 200); do
        grep -q "joined 3 ranks" "$work/out.0" 2>/dev/null && sleep 0.7 && return
        sleep 0.05
    done
    fail "the job did not start"
}

in_flight() {
    start 1 $busy
    started
    at=$(now_ms)
}

# pid_of RANK [COMMAND]: the processes of a command on the host of a rank.
pid_of() {
    for p in $(ip netns pids "$net-h$(($1 + 1))"); do
        tr '\0' ' ' <"/proc/$p/cmdline" 2>/dev/null | grep -q "^$kolo ${2:-bench}" && echo "$p"
    done
}

# ended NAME RANKS MOST TEXT...: these ranks ended with an error that contains the texts, within MOST ms.
ended() {
    name=$1 ranks=$2 most=$3
    shift 3
    finish && fail "$name: the job went on"
    every_line "$ranks" "$@"
    last=0
    for r in $ranks; do
        took=$(($(cat "$work/end.$r") - at))
        [ $took -gt $last ] && last=$took
    done
    [ $last -le "$most" ] || fail "$name: $last ms until all ranks had ended"
    row "$name" "$1" "$(printf '%d.%03d s' $((last / 1000)) $((last % 1000)))"
}

goes_on() {
    finish || fail "$1: the job did not go on"
    row "$1" "goes on" "-"
}

# one_way FROM TO: what host FROM sends to host TO is lost, or not any more.
one_way() { ip -n "$net-h$1" route add blackhole "10.77.0.$2/32"; }
two_ways() { ip -n "$net-h$1" route del blackhole "10.77.0.$2/32"; }

rate() { # of all hosts
    for i in 1 2 3; do
        ip netns exec "$net-h$i" tc qdisc replace dev eth0 root tbf rate "$1" burst 16kb latency 400ms
    done
}

mtu() { # of all hosts
    for i in 1 2 3; do
        ip -n "$net-h$i" link set eth0 mtu "$1"
        ip -n "$net-sw" link set "p$i" mtu "$1"
    done
}

link_down() {
    in_flight
    hosts_cut 3
    ended "link of host 3 down" "$all" 9000 "is gone"
    every_line "0 1" "rank 2 is gone"
    hosts_heal 3
    for i in 1 2 3; do ip -n "$net-h$i" neigh flush all; done # failed resolutions
}

one_way_loss() {
    in_flight
    one_way "$1" "$2"
    ended "all that host $1 sends to host $2 is lost" "$all" 9000 "is gone"
    two_ways "$1" "$2"
}

silent_rank() {
    in_flight
    stopped=$(pid_of 1)
    kill -STOP "$stopped"
    for r in 0 2; do eval "wait \$pid_$r"; done
    kill -CONT "$stopped"
    ended "SIGSTOP of rank 1" "0 2" 9000 "rank 1 is gone"
}

pause() { # shorter than the heartbeat
    start 1 $short
    started
    stopped=$(pid_of 1)
    kill -STOP "$stopped"
    sleep 1
    kill -CONT "$stopped"
    goes_on "SIGSTOP of rank 1 for half of the heartbeat"
}

kill_rank() {
    in_flight
    kill -9 "$(pid_of "$1")"
    others=$(echo "$all" | tr ' ' '\n' | grep -v "$1" | tr '\n' ' ')
    ended "SIGKILL of rank $1" "$others" 5000 "rank $1 is gone"
}

# All ranks are children of the launcher; what is left of them would be found.
kill_launcher() {
    rm -f "$work/out.0" # of the job before
    on_host 1 "$kolo" run -n 3 -- $shared >"$work/out.0" 2>&1 &
    launcher=$!
    started
    launcher_pid=$(pid_of 0 run)
    [ -n "$launcher_pid" ] && [ -n "$(pid_of 0)" ] || { fail "the launcher and its ranks were not found"; return; }
    at=$(now_ms)
    kill -9 "$launcher_pid"
    while [ -n "$(pid_of 0)" ] && [ $(($(now_ms) - at)) -lt 10000 ]; do sleep 0.02; done
    [ -z "$(pid_of 0)" ] || fail "ranks outlived the launcher"
    took=$(($(now_ms) - at))
    wait "$launcher" 2>/dev/null
    row "SIGKILL of the launcher of three ranks" "all ranks end" "$(printf '%d.%03d s' $((took / 1000)) $((took % 1000)))"
}

slow_link() {
    rate 1mbit
    start 1 $short --seconds 1
    goes_on "1 Mbit/s"
    rate 1gbit
}

small_packets() {
    mtu 576
    start 1 $short --sizes 1M --seconds 1
    goes_on "MTU 576"
    mtu 1500
    start 1 $short --sizes 1M
    started
    mtu 576
    goes_on "MTU 576 while data is in flight"
    mtu 1500
}

# Clients without the secret at every port of rank 0, while the group forms and while it works.
hostile() {
    command -v python3 >/dev/null || { echo "skip: no python3, which plays hostile clients"; return; }
    start 1 env WORLD_SIZE=4 $short --timeout 60
    sleep 1
    ports=$(on_host 1 ss -Hltn | awk '{ sub(/.*:/, "", $4); print $4 }')
    on_host 2 python3 "$here/hostile.py" 10.77.0.1 "$1" 8 $ports >"$work/hostile" 2>&1 &
    attack=$!
    sleep 3
    on_host 2 env RANK=3 WORLD_SIZE=4 MASTER_ADDR=10.77.0.1 MASTER_PORT=29511 KOLO_SECRET_FILE="$secret" \
        $short --timeout 60 >"$work/out.3" 2>&1 || fail "$2: rank 3"
    goes_on "$2"
    wait $attack
    grep -q "^[1-9][0-9]* connections" "$work/hostile" || { cat "$work/hostile"; fail "$2: no connection was tried"; }
    sed 's/^/    /' "$work/hostile"
}

hosts_up 3 1gbit
row "fault" "effect" "seconds"
kill_rank 2
one_way_loss 3 1
if [ -n "$soak" ]; then
    one_way_loss 1 3
    link_down
    kill_rank 0
    kill_rank 1
    kill_launcher
    silent_rank
    pause
    slow_link
    small_packets
    hostile scan "scan of the ports of rank 0"
    hostile slow "slow clients"
    hostile garbage "garbage"
fi
[ $failures = 0 ] && echo "faults: all well"
exit $((failures > 0))
