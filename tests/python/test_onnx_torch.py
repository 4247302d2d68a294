"""Networks that PyTorch's exporter writes train as the modules do: its folded weights, not its constants."""
# needs numpy onnx onnxscript torch; ranks 0

import os
import tempfile
import warnings

import kolo
import numpy as np
import torch
from torch import nn
from torch.nn import functional

STEPS, RATE = 3, 0.1


class Norms(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.head = nn.Conv2d(3, 8, 3), nn.Linear(8, 4)
        self.norms = nn.ModuleList(nn.GroupNorm(groups, 8) for groups in (2, 2, 4))
        nn.init.uniform_(self.norms[2].weight, 0.5, 1.5)

    def forward(self, x):
        x = self.first(x)
        for norm in self.norms:
            x = torch.relu(norm(x)) + x
        return self.head(x.mean((2, 3)))


class Attention(nn.Module):
    def __init__(self, bias):
        super().__init__()
        self.attention, self.head = nn.MultiheadAttention(12, 3, batch_first=True), nn.Linear(12, 4)
        if bias:
            nn.init.normal_(self.attention.in_proj_bias)
            nn.init.normal_(self.attention.out_proj.bias)

    def forward(self, x):
        return self.head(self.attention(x, x, x, need_weights=False)[0].mean(1))


class Tied(nn.Module):
    """The head has the weights of the embedding, which its product reads transposed."""

    def __init__(self):
        super().__init__()
        self.embedding, self.inner = nn.Embedding(9, 6), nn.Linear(6, 6)

    def forward(self, x):
        x = torch.tanh(self.inner(self.embedding(x)))
        return functional.linear(x, self.embedding.weight).mean(1)


class Scaled(nn.Module):
    """A parameter that only a computed value is left of."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 6))

    def forward(self, x):
        return x @ self.weight.t()


class Residual(Attention):
    """x is needed again, so that the samples must be the first dimension still."""

    def forward(self, x):
        return self.head((self.attention(x, x, x, need_weights=False)[0] + x).mean(1))


def export(module, x, path, **options):
    torch.onnx.export(module.eval(), (x,), path, dynamo=True, input_names=["x"], external_data=False, verbose=False,
                      **options)


def compare(module, x, path, **options):
    """Trains both; what the session has under names of the module equals the parameters there."""
    export(module, x, path, **options)
    session = kolo.Session(kolo.Model(path), batch=len(x), lr=RATE)
    optimizer, y = torch.optim.SGD(module.parameters(), lr=RATE), torch.arange(len(x)) % 4
    values = x.numpy() if x.is_floating_point() else x.numpy().astype(np.int32)
    for _ in range(STEPS):
        loss = session.step(x=values, y=y.numpy().astype(np.int32))["loss"]
        optimizer.zero_grad()
        want = functional.cross_entropy(module(x), y)
        want.backward()
        optimizer.step()
        assert abs(loss - want.item()) < 1e-5, (type(module).__name__, loss, want.item())
    names = session.tensors()
    for name, parameter in module.named_parameters():
        if name in names and session.get(name).shape == tuple(parameter.shape):
            assert np.abs(session.get(name) - parameter.detach().numpy()).max() < 1e-5, name
    with torch.no_grad():
        assert np.abs(session.predict("logits", x=values) - module(x).numpy()).max() < 1e-5
    return session


def main():
    torch.manual_seed(3)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "{}.onnx").format
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message=".*are trained")
            compare(Norms(), torch.randn(4, 3, 6, 5), path("norms"))
            compare(Attention(True), 2 * torch.randn(4, 5, 12), path("attention"))
            session = compare(Attention(False), torch.randn(4, 5, 12), path("zeros"))
            assert session.get("attention.out_proj.bias").any()  # the exporter leaves it out
            for batch in ({}, {"dynamic_shapes": ({0: torch.export.Dim("n")},)}):
                compare(Residual(True), torch.randn(4, 5, 12), path("residual"), **batch)
            compare(Tied(), torch.randint(0, 9, (4, 5)), path("tied"))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            compare(Scaled(), torch.randn(4, 6), path("scaled"))
        assert any("replaced the parameters weight by" in str(w.message) and "freeze them: t" in str(w.message)
                   for w in caught), [str(w.message) for w in caught]


main()
