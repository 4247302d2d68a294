"""Losses and metrics: sums over the batch."""

from __future__ import annotations

from typing import Optional

from ._bindings import c
from .graph import Value, call


def softmax_xent(logits: Value, labels: Value, ignore_index: Optional[int] = None,
                 smoothing: float = 0, weights: Optional[Value] = None) -> Value:
    """Cross-entropy of logits [N,C,...] and labels i32 [N,...], summed over the labels. ``weights``:
    of the classes, [C], such as a frozen parameter."""
    opts = c.kolo_loss_opts(ignore_index is not None, ignore_index or 0, smoothing)
    if weights is not None:
        opts.weights, opts.use_weights = weights.of(logits.graph), True
    return call("softmax_xent_opts", logits, labels, opts)


def ctc_loss(logits: Value, labels: Value, blank: int = 0, lengths: Optional[Value] = None) -> Value:
    """Connectionist temporal classification of logits [N,T,C] and labels i32 [N,S], which end before the
    first negative one; ``lengths``: i32 [N], time steps of each sample."""
    opts = c.kolo_ctc_opts(blank=blank)
    if lengths is not None:
        opts.lengths, opts.use_lengths = lengths.of(logits.graph), True
    return call("ctc_loss", logits, labels, opts)


def soft_xent(logits: Value, target: Value) -> Value:
    """Cross-entropy of logits and target probabilities [N,C,...]."""
    return call("soft_xent", logits, target)


def mse_loss(x: Value, target: Value) -> Value:
    """The sum of (x - target)^2."""
    return call("mse_loss", x, target)


def l1_loss(x: Value, target: Value) -> Value:
    """The sum of |x - target|."""
    return call("l1_loss", x, target)


def huber_loss(x: Value, target: Value, delta: float = 1) -> Value:
    """The sum of Huber's loss."""
    return call("huber_loss", x, target, delta)


def bce_with_logits(x: Value, target: Value) -> Value:
    """The sum of the binary cross-entropies of logits x and probabilities."""
    return call("bce_with_logits", x, target)


def kl_div(log_q: Value, p: Value) -> Value:
    """The Kullback-Leibler divergence of log-probabilities from probabilities."""
    return call("kl_div", log_q, p)


def accuracy(logits: Value, labels: Value, ignore_index: Optional[int] = None) -> Value:
    """The number of labels that have the largest logit; ``ignore_index``: that of the loss."""
    return call("accuracy_opts", logits, labels,
                c.kolo_loss_opts(ignore_index is not None, ignore_index or 0, 0))


def confusion(logits: Value, labels: Value) -> Value:
    """Counts [C,C] of labels i whose largest logit is j."""
    return call("confusion", logits, labels)


def score_counts(scores: Value, labels: Value) -> Value:
    """Counts [2,65536] of scores, such as logits, by label 0 or 1 and by value in bf16; as the output
    "score_counts" it adds the metric "auc" to evaluations."""
    return call("score_counts", scores, labels)
