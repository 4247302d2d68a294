"""Hosts for benchmarks: network namespaces on this machine (tests/hosts/net.sh), as root."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PORT = 29511
MOST_SECONDS = 1800  # of a command

# Reads lines: "start HOST OUT WORDS...", a command, whose words have no line breaks; "wait" for all of them, which prints the
# number of one that failed, or "-"; "sent HOST", which prints a number of bytes.
SHELL = """
. "$HERE/tests/hosts/net.sh"
hosts_possible >&2 || exit 77
trap hosts_down EXIT
trap 'trap "" INT TERM; exit 1' INT TERM # a second one must not end hosts_down
trap '' PIPE # a program that is killed does not read what is printed
set -e # without a link of this rate there is nothing to measure
hosts_up "$1" "$2" "$3"
set +e
echo up
while read -r kind rest; do
    case $kind in
    start) eval "set -- $rest"
        host=$1 out=$2
        shift 2
        on_host "$host" "$@" >"$out" 2>"$out.err" </dev/null &
        pids="$pids $!" ;;
    wait) failed=- n=0
        for p in $pids; do wait "$p" || failed=$n; n=$((n + 1)); done
        pids=
        echo "$failed" ;;
    sent) hosts_sent "$rest" ;;
    esac
done
"""


class Failure(Exception):
    """A run that failed or cannot be made here."""


def end_on_signals():
    """Makes the program end by an exception upon the first SIGINT, SIGTERM or SIGHUP, so that namespaces are removed."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def end(number, _):
        for n in numbers:
            signal.signal(n, signal.SIG_IGN)
        sys.exit(128 + number)

    for number in numbers:
        signal.signal(number, end)


def quoted(word):
    return "'" + str(word).replace("'", "'\\''") + "'"


class Hosts:
    """So many namespaces, each with a link of this rate (as tc has it), until the context ends. `both`: the rate limits what
    arrives at a host, too, not only what it sends."""

    def __init__(self, n, rate, both=False):
        self.n, self.rate, self.errors = n, rate, ""
        self.ways = "both" if both else "out"
        self.folder = tempfile.TemporaryDirectory()
        self.secret = os.path.join(self.folder.name, "secret")
        with open(os.open(self.secret, os.O_CREAT | os.O_WRONLY, 0o600), "w", encoding="ascii") as f:
            f.write(secrets.token_hex(32))

    def __enter__(self):
        self.shell = subprocess.Popen(["sh", "-c", SHELL, "sh", str(self.n), self.rate, self.ways], stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, text=True, env={**os.environ, "HERE": HERE})
        try:
            if self.shell.stdout.readline() != "up\n":
                raise Failure(f"no network namespaces with links of {self.rate} here, which need root")
        except BaseException as e:
            self.__exit__(type(e))
            raise
        return self

    def __exit__(self, kind=None, *_):
        if kind:
            self.shell.terminate()  # it may be waiting for commands; its trap ends them
        self.shell.stdin.close()
        self.shell.wait()
        self.shell.stdout.close()
        self.folder.cleanup()

    def ask(self, line):
        self.shell.stdin.write(line + "\n")
        self.shell.stdin.flush()

    def run(self, commands):
        """Runs a command, a list of words, on each host at the same time; what the first one prints."""
        outs = [os.path.join(self.folder.name, f"out.{i}") for i in range(len(commands))]
        for i, words in enumerate(commands):
            self.ask("start " + " ".join(quoted(w) for w in [i + 1, outs[i], "timeout", MOST_SECONDS, *words]))
        self.ask("wait")
        failed = self.shell.stdout.readline().strip()
        if failed != "-":
            with open(outs[int(failed or 0)] + ".err", encoding="utf-8", errors="replace") as f:
                raise Failure((f.read().strip() or "failed").splitlines()[-1])
        with open(outs[0] + ".err", encoding="utf-8", errors="replace") as f:
            self.errors = f.read()  # of the first host
        with open(outs[0], encoding="utf-8") as f:
            return f.read()

    def run_ranks(self, command):
        """A rank of one job on each host."""
        return self.run([["env", f"RANK={i}", f"WORLD_SIZE={self.n}", "MASTER_ADDR=10.77.0.1", f"MASTER_PORT={PORT}",
                          f"KOLO_SECRET_FILE={self.secret}", "GLOO_SOCKET_IFNAME=eth0", *command] for i in range(self.n)])

    def sent(self, host):
        """Bytes that host 1, 2, ... has sent, with the headers of its frames."""
        self.ask(f"sent {host}")
        return int(self.shell.stdout.readline())

    def goodput(self):
        """Bytes per second of plain TCP, 64 MiB from host 2 to host 1 in writes of 1 MiB."""
        receive = ("import socket, time\n"
                   "s = socket.create_server(('10.77.0.1', 29600))\n"
                   "c = s.accept()[0]\n"
                   "got, buffer = 0, memoryview(bytearray(1 << 20))\n"
                   "n = c.recv_into(buffer)\n"
                   "start = time.perf_counter()\n"
                   "while n:\n"
                   "    got += n\n"
                   "    n = c.recv_into(buffer)\n"
                   "print(got / (time.perf_counter() - start))")
        send = ("import socket, time\n"
                "for i in range(100):\n"
                "    try:\n"
                "        s = socket.create_connection(('10.77.0.1', 29600))\n"
                "        break\n"
                "    except ConnectionRefusedError:\n"
                "        time.sleep(0.05)\n"
                "for i in range(64): s.sendall(bytes(1 << 20))\n"
                "s.close()")
        paths = []
        for name, text in (("receive.py", receive), ("send.py", send)):
            paths.append(os.path.join(self.folder.name, name))
            with open(paths[-1], "w", encoding="ascii") as f:
                f.write(text)
        return float(self.run([["python3", path] for path in paths]))
