# Several hosts on one machine: network namespaces, connected by veth pairs to a bridge in another one, with each
# host's outgoing rate limited by a token bucket. To be sourced by other scripts (. net.sh), which then call
#     hosts_up N [RATE [both]]  RATE as tc has it (1gbit), or none; both: of what arrives, too
#     on_host I COMMAND...    runs a command on host I (1..N), whose address is 10.77.0.I on interface eth0
#     hosts_cut I, hosts_heal I
# Everything is removed when the script ends in any way.
net=kolo$$
hosts_n=0

hosts_possible() {
    [ "$(id -u)" = 0 ] || { echo "skip: network namespaces need root"; return 1; }
    command -v ip >/dev/null && command -v tc >/dev/null || { echo "skip: no iproute2"; return 1; }
    ip netns add "$net-try" 2>/dev/null || { echo "skip: no network namespaces here"; return 1; }
    ip netns del "$net-try"
}

hosts_up() {
    hosts_n=$1
    ip netns add "$net-sw"
    ip -n "$net-sw" link add br0 type bridge
    ip -n "$net-sw" link set br0 up
    for i in $(seq "$1"); do
        ip netns add "$net-h$i"
        ip link add eth0 netns "$net-h$i" type veth peer name "p$i" netns "$net-sw"
        ip -n "$net-sw" link set "p$i" master br0 up
        ip -n "$net-h$i" link set lo up
        ip -n "$net-h$i" addr add "10.77.0.$i/24" dev eth0
        ip -n "$net-h$i" link set eth0 up
        [ "${2:-none}" = none ] ||
            ip netns exec "$net-h$i" tc qdisc add dev eth0 root tbf rate "$2" burst 256kb latency 50ms
        [ "${3:-out}" = out ] ||
            ip netns exec "$net-sw" tc qdisc add dev "p$i" root tbf rate "$2" burst 256kb latency 50ms
    done
}

hosts_down() {
    for i in $(seq "$hosts_n"); do
        for p in $(ip netns pids "$net-h$i" 2>/dev/null); do kill -9 "$p" 2>/dev/null || true; done
        ip netns del "$net-h$i" 2>/dev/null || true
    done
    ip netns del "$net-sw" 2>/dev/null || true
    hosts_n=0
}

on_host() {
    host=$1
    shift
    ip netns exec "$net-h$host" "$@"
}

hosts_cut() { ip -n "$net-sw" link set "p$1" down; }
hosts_heal() { ip -n "$net-sw" link set "p$1" up; }

# Bytes sent by host I.
hosts_sent() { on_host "$1" cat /sys/class/net/eth0/statistics/tx_bytes; }
