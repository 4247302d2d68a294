"""A transformer over the bytes of a text, with a training loop of its own.

    kolo run -n 2 -- python3 transformer.py FILE [STEPS]

Ends with the loss on the last tenth of the text, and text that the network continues.
"""

import sys

import kolo
import numpy as np
from kolo import nn, ops

TOKENS, WINDOW, WIDTH, HEADS, LAYERS, BATCH = 256, 64, 96, 4, 2, 16


def block(x, name):
    """Attention and a multilayer perceptron, each added to x [N,T,C]."""
    x = x + nn.self_attention(ops.layer_norm(x, f"{name}.norm1"), HEADS, f"{name}.attention", causal=True)
    hidden = ops.gelu(nn.linear(ops.layer_norm(x, f"{name}.norm2"), 4 * WIDTH, f"{name}.up"))
    return x + nn.linear(hidden, WIDTH, f"{name}.down")


def transformer(g):
    x, y = g.input("x", (WINDOW,), "i32"), g.input("y", (WINDOW,), "i32")
    positions = g.param("positions", (WINDOW, WIDTH), ("normal", 0.02))
    h = nn.embedding(x, TOKENS, WIDTH, "tokens", positions, ("normal", 0.02))
    for i in range(LAYERS):
        h = block(h, f"block{i}")
    logits = nn.linear(ops.layer_norm(h, "norm"), TOKENS, "head")
    rows, labels = ops.reshape(logits, (-1, TOKENS)), ops.reshape(y, (-1,))
    g.output(logits=logits, loss=ops.softmax_xent(rows, labels), correct=ops.accuracy(rows, labels))


def windows(text, starts):
    """Windows of the text, and the byte after each of their bytes."""
    index = starts[:, None] + np.arange(WINDOW)
    return {"x": text[index].astype(np.int32), "y": text[index + 1].astype(np.int32)}


def continue_text(session, text, length):
    """Appends the most probable byte, repeatedly."""
    for _ in range(length):
        x = np.zeros((1, WINDOW), np.int32)
        last = text[-WINDOW:]
        x[0, :len(last)] = np.frombuffer(last, np.uint8)
        logits = session.predict("logits", x=x)[0, len(last) - 1]
        text += bytes([int(logits.argmax())])
    return text


def main(path, steps=300):
    text = np.fromfile(path, np.uint8)
    held_out = len(text) * 9 // 10
    comm = kolo.init()
    session = kolo.Session(transformer, comm, global_batch=BATCH, optimizer="adamw", lr=2e-3, clip=1.0,
                           schedule="cosine", warmup_steps=max(steps // 10, 1), steps=steps,
                           weight_decay=0.01, decay_matrices_only=True)
    random = np.random.default_rng(1)  # the same samples on all ranks, of which each takes its share
    mine = session.share(BATCH)
    for step in range(1, steps + 1):
        starts = random.integers(0, held_out - WINDOW, BATCH)
        metrics = session.step(windows(text, starts[mine]))
        if comm.rank == 0 and step % max(steps // 10, 1) == 0:
            print(f"step {step}  loss {metrics['loss']:.4f}  accuracy {metrics['accuracy']:.4f}")
    starts = np.arange(held_out, len(text) - WINDOW, WINDOW)
    test = session.evaluate(windows(text, starts))
    if comm.rank == 0:
        print(f"test loss {test['loss']:.4f}, a perplexity of {np.exp(test['loss']):.1f} for each byte")
        print(continue_text(session, b"The ", 60).decode(errors="replace"))
    return test["loss"]


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
