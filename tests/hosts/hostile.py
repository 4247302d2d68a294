"""Clients without the job's secret: hostile.py ADDRESS KIND SECONDS PORT... They connect to these ports until the time is over:
"scan": open and close, at once; "slow": many connections, which send a byte now and then; "garbage": random bytes."""

import random
import socket
import sys
import time

address, kind, seconds, ports = sys.argv[1], sys.argv[2], float(sys.argv[3]), [int(p) for p in sys.argv[4:]]
end = time.monotonic() + seconds
draw = random.Random(1)
held, connections, refused = [], 0, 0
while time.monotonic() < end:
    for port in ports:
        s = socket.socket()
        s.settimeout(0.5)
        try:
            s.connect((address, port))
            connections += 1
            if kind == "garbage":
                s.sendall(draw.randbytes(draw.randrange(1, 20000)))
        except OSError:
            refused += 1
        if kind == "slow":
            held = [*held[-500:], s]
        else:
            s.close()
    for s in held[-50:]:
        try:
            s.sendall(b"\0")
        except OSError:
            pass
    if kind == "slow":
        time.sleep(0.01)
print(f"{connections} connections, {refused} ended by the other side or refused")
