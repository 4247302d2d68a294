# Jobs over the hosts of net.sh, started by the rank environment; to be sourced after it. The output of rank r is in
# $work/out.r, its exit status in $work/rc.r, the time of its end (now_ms) in $work/end.r.
work=$(mktemp -d)
trap 'hosts_down; rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
(umask 077; head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$work/secret")
failures=0
secret=$work/secret

fail() {
    echo "FAILED: $1"
    tail -n 3 "$work"/out.* 2>/dev/null
    failures=$((failures + 1))
}

now_ms() { date +%s%3N; }

# start RANKS_PER_HOST COMMAND...: starts the ranks on every host; output of rank r in out.r.
start() {
    per=$1
    shift
    rm -f "$work"/out.* "$work"/rc.* "$work"/end.*
    world=$((hosts_n * per)) r=0
    while [ $r -lt $world ]; do
        (on_host $((r / per + 1)) env RANK=$r WORLD_SIZE=$world MASTER_ADDR=10.77.0.1 MASTER_PORT=29511 \
            KOLO_SECRET_FILE="$secret" "$@" >"$work/out.$r" 2>&1
            echo $? >"$work/rc.$r"; now_ms >"$work/end.$r") &
        eval "pid_$r=$!"
        r=$((r + 1))
    done
}

# finish: waits for all ranks; true if all exited with status 0.
finish() {
    r=0 good=true
    while [ $r -lt $world ]; do
        eval "wait \$pid_$r"
        [ "$(cat "$work/rc.$r")" = 0 ] || good=false
        r=$((r + 1))
    done
    $good
}

# every_line RANKS TEXT...: each of these ranks has failed with one line that contains all the texts.
every_line() {
    ranks=$1
    shift
    for r in $ranks; do
        case $(cat "$work/rc.$r") in # 2: what cannot be
        1 | 2) ;;
        *) fail "rank $r ended with $(cat "$work/rc.$r")"; return ;;
        esac
        for text; do
            grep -q "^kolo: .*$text" "$work/out.$r" || { fail "rank $r no output '$text'"; return; }
        done
    done
}
