#!/usr/bin/env python3
"""Writes the ONNX files of tests/onnx/nets: small PyTorch networks, an input and ONNX Runtime's output each.

    make_onnx_nets.py FOLDER    needs torch, onnx, onnxscript, onnxruntime
"""
import os
import sys

import numpy as np
import onnxruntime
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn
from torch.nn import functional


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU6())
        self.deep = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1, groups=4, bias=False), nn.BatchNorm2d(4), nn.Hardswish())
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        x = functional.max_pool2d(self.first(x), 2)
        x = torch.cat([x, x + self.deep(x)], 1)
        return self.head(functional.dropout(functional.adaptive_avg_pool2d(x, 1).flatten(1), 0.1, self.training))


class Vit(nn.Module):
    def __init__(self, width=8, heads=2):
        super().__init__()
        self.patches = nn.Conv2d(1, width, 4, 4)
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.position = nn.Parameter(torch.randn(1, 5, width))
        layer = nn.TransformerEncoderLayer(width, heads, 2 * width, 0.0, "gelu", batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head = nn.Linear(width, 4)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.position
        return self.head(self.encoder(x)[:, 0])


class Gpt(nn.Module):
    def __init__(self, vocabulary=16, tokens=6, width=8, heads=2):
        super().__init__()
        self.heads = heads
        self.embedding = nn.Embedding(vocabulary, width)
        self.position = nn.Embedding(tokens, width)
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids):
        x = self.embedding(ids) + self.position(torch.arange(ids.shape[1]))
        n, t, c = x.shape
        q, k, v = (y.view(n, t, self.heads, -1).transpose(1, 2) for y in self.qkv(self.before(x)).split(c, 2))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(n, t, c))
        return self.head(self.after(x))


class Rnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(3, 4, 2, batch_first=True, bidirectional=True)
        self.lstm = nn.LSTM(8, 3, batch_first=True)
        self.start = nn.Linear(3, 3)
        self.head = nn.Linear(6, 4)

    def forward(self, x):
        x = x.squeeze(1)  # an image of one channel, its rows as steps
        h = torch.tanh(self.start(x[:, 0])).unsqueeze(0)
        y, _ = self.gru(x)
        y, (h, c) = self.lstm(y, (h, h * 0.5))
        return self.head(torch.cat([h[-1], y.mean(1)], 1))


class Video(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv3d(2, 4, (3, 2, 3), (1, 2, 1), (1, 0, 1), bias=False)
        self.norm = nn.BatchNorm3d(4)
        self.groups = nn.Conv3d(4, 6, (2, 1, 1), groups=2)
        self.head = nn.Linear(6, 4)

    def forward(self, x):
        x = functional.max_pool3d(torch.relu(self.norm(self.stem(x))), (2, 1, 3), (1, 1, 2), (1, 0, 1))
        x = functional.avg_pool3d(self.groups(x), 2, 1, 1, count_include_pad=False)
        return self.head(functional.adaptive_avg_pool3d(x, 1).flatten(1))


class Resized(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 3, 3), nn.Conv2d(3, 2, 3)

    def forward(self, x):
        x = functional.interpolate(self.first(x), (10, 4))
        x = functional.interpolate(self.second(x), scale_factor=2)
        return functional.interpolate(x, (5, 7), mode="bilinear").flatten(2).mean(2)


class Windows(nn.Module):
    """Attention in shifted windows; assignments to slices become ScatterND."""

    def __init__(self, width=8, heads=2, window=2):
        super().__init__()
        self.window, self.heads = window, heads
        self.patches = nn.Conv2d(1, width, 2, 2)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 4)

    def windows(self, x):
        n, h, w, c = x.shape
        x = x.view(n, h // self.window, self.window, w // self.window, self.window, c)
        return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, self.window * self.window, c)

    def forward(self, x):
        x = self.patches(x).permute(0, 2, 3, 1)
        n, h, w, c = x.shape
        y = self.windows(torch.roll(x, (-1, -1), (1, 2)))
        regions = x.new_zeros((1, h, w, 1))
        for i, rows in enumerate((slice(0, -2), slice(-2, -1), slice(-1, None))):
            for k, columns in enumerate((slice(0, -2), slice(-2, -1), slice(-1, None))):
                regions[:, rows, columns] = 3 * i + k
        regions = self.windows(regions).squeeze(2)
        mask = (regions.unsqueeze(1) != regions.unsqueeze(2)) * -100.0
        q, k, v = (z.view(*z.shape[:2], self.heads, -1).transpose(1, 2) for z in self.qkv(self.norm(y)).split(c, 2))
        scores = (q @ k.transpose(2, 3)).view(n, mask.shape[0], self.heads, *mask.shape[1:])
        scores = (scores + mask.unsqueeze(1).unsqueeze(0)).view(-1, self.heads, *mask.shape[1:])
        y = self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(y.shape)) + y
        y = y.view(n, -1, c)
        y[:, 1:3] = torch.tanh(y[:, 3:5])
        return self.head(y.mean(1))


class Buffers(nn.Module):
    """Beside parameters: a buffer, a constant, norms without parameters."""

    def __init__(self, width=4):
        super().__init__()
        self.first, self.head = nn.Linear(8, width), nn.Linear(width, 4)
        self.norm, self.batch = nn.LayerNorm(width, elementwise_affine=False), nn.BatchNorm1d(width, affine=False)
        self.register_buffer("shift", torch.linspace(-1, 1, width))
        self.factors = torch.tensor([1.0, 0.5, -0.5, 2.0])

    def forward(self, x):
        x = self.batch(self.norm(self.first(x[:, 0, 0])) * self.factors + self.shift)
        return self.head(torch.tanh(x))


class Bicubic(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(1, 2, 3)

    def forward(self, x):
        x = functional.interpolate(self.first(x), (9, 5), mode="bicubic")
        x = functional.interpolate(x, (4, 5), mode="bicubic", align_corners=True)
        x = functional.max_pool2d(x, (2, 2), 1, dilation=(1, 2))
        return functional.interpolate(x, (2, 2), mode="bilinear", antialias=True).flatten(1)


def write_data(path, *inputs):
    """The inputs and ONNX Runtime's outputs, beside the model."""
    folder = os.path.join(os.path.dirname(path), "test_data_set_0")
    os.makedirs(folder, exist_ok=True)
    session = onnxruntime.InferenceSession(path)
    names = [x.name for x in session.get_inputs()]
    outputs = session.run(None, dict(zip(names, inputs)))
    for what, arrays, of in (("input", inputs, names), ("output", outputs, [y.name for y in session.get_outputs()])):
        for k, (array, name) in enumerate(zip(arrays, of)):
            with open(os.path.join(folder, f"{what}_{k}.pb"), "wb") as file:
                file.write(numpy_helper.from_array(np.asarray(array), name).SerializeToString())


def write_graph(path, nodes, constants, shapes, opset, labels=None):
    """Writes nodes from x, and labels of a shape, to y, and constants, which Constant nodes hold."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in zip("xy", shapes)]
    if labels:
        info.insert(1, helper.make_tensor_value_info("labels", TensorProto.INT64, labels))
    for name, array in constants.items():
        value = numpy_helper.from_array(np.array(array), name)
        nodes = [helper.make_node("Constant", [], [name], value=value), *nodes]
    graph = helper.make_graph(nodes, "graph", info[:-1], info[-1:])
    version = 4 if opset < 10 else 8
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=version)
    with open(path, "wb") as file:
        file.write(model.SerializeToString())


def write_upsample(folder):
    """The bilinear Upsample of opset 9, which exporters of today do not write."""
    path = os.path.join(folder, "model.onnx")
    node = helper.make_node("Upsample", ["x", "scales"], ["y"], mode="linear")
    write_graph(path, [node], {"scales": np.float32([1, 1, 2, 3])}, [(1, 2, 3, 2), (1, 2, 6, 6)], 9)
    write_data(path, np.arange(12, dtype=np.float32).reshape(1, 2, 3, 2) ** 2 / 8)


def write_constants(folder):
    """Arithmetic on constants alone."""
    path = os.path.join(folder, "model.onnx")
    table = np.arange(6, dtype=np.float32).reshape(2, 3) / 4 - 0.5
    constants = {"list": table[1], "table": table, "rows": np.int64([0]), "all": np.int64([1, 0]), "two": np.float32([2])}
    nodes = [helper.make_node("ReduceL1", ["table", "rows"], ["a"]),
             helper.make_node("ReduceLogSumExp", ["table", "all"], ["b"]),
             helper.make_node("ReduceSumSquare", ["list"], ["c"], keepdims=0),
             helper.make_node("ReduceMean", ["table", "rows"], ["d"], keepdims=0),
             helper.make_node("Mod", ["table", "two"], ["rest"], fmod=1),
             helper.make_node("ReduceL2", ["rest", "rows"], ["e"]),
             helper.make_node("ReduceProd", ["rest", "rows"], ["f"])]
    for name, last, y in zip("abcdef", ("x", *"ghijk"), (*"ghijk", "y")):
        nodes.append(helper.make_node("Add", [last, name], [y]))
    write_graph(path, nodes, constants, [(1, 3), (1, 3)], 18)
    write_data(path, np.float32([[1, 2, 3]]))


def write_cells(folder):
    """Recurrent layers that PyTorch does not have: functions, an early reset gate, peepholes."""
    path, random = os.path.join(folder, "model.onnx"), np.random.RandomState(2)
    constants = {"rows": np.int64([0, 0, -1])}
    nodes = [helper.make_node("Transpose", ["x"], ["first"], perm=[1, 0, 2])]
    inputs, width = "first", 3
    layers = (("RNN", 1, 2, {"activations": ["Relu", "Tanh"], "direction": "bidirectional"}),
              ("GRU", 3, 1, {"direction": "reverse"}), ("LSTM", 4, 1, {}))
    for name, gates, directions, attributes in layers:
        hidden = 4
        for of, shape in (("W", (gates * hidden, width)), ("R", (gates * hidden, hidden)), ("B", (2 * gates * hidden,))):
            constants[name + of] = np.float32(random.randn(directions, *shape) / 2)
        more = []
        if name == "LSTM":
            constants["P"] = np.float32(random.randn(1, 3 * hidden))
            more = ["", "", "", "P"]
        nodes.append(helper.make_node(name, [inputs, *(name + of for of in "WRB"), *more], [name], hidden_size=hidden,
                                      **attributes))
        nodes.append(helper.make_node("Transpose", [name], [name + "t"], perm=[0, 2, 1, 3]))
        inputs, width = name + "y", directions * hidden
        nodes.append(helper.make_node("Reshape", [name + "t", "rows"], [inputs]))
    nodes.append(helper.make_node("Transpose", [inputs], ["y"], perm=[1, 0, 2]))
    write_graph(path, nodes, constants, [(1, 5, 3), (1, 5, 4)], 14)
    write_data(path, np.float32(random.randn(1, 5, 3)))


def write_scores(folder):
    """Attention to earlier keys, with limited scores; ScatterND that adds."""
    path, random = os.path.join(folder, "model.onnx"), np.random.RandomState(3)
    constants = {name: np.float32(random.randn(1, 2, 3, 8)) for name in ("key", "value")}
    constants["at"] = np.int64([[[0, 1], [0, 3], [0, 1]]])
    nodes = [helper.make_node("Attention", ["x", "x", "x", "", "key", "value"], ["a", "keys", "values"], is_causal=1, q_num_heads=2,
                              kv_num_heads=2, softcap=1.5),
             helper.make_node("Tanh", ["x"], ["t"]), helper.make_node("Slice", ["t", "from", "to", "axis"], ["u"]),
             helper.make_node("ScatterND", ["a", "at", "u"], ["y"], reduction="add")]
    constants.update({"from": np.int64([0]), "to": np.int64([3]), "axis": np.int64([1])})
    write_graph(path, nodes, constants, [(1, 4, 16), (1, 4, 16)], 23)
    write_data(path, np.float32(random.randn(1, 4, 16)))


def write_selected(folder):
    """Places of maxima, the largest elements, elements by index, sums and products up to each."""
    path, random = os.path.join(folder, "model.onnx"), np.random.RandomState(4)
    node = helper.make_node
    constants = {"two": np.int64([2]), "last": np.int64(2), "axis": np.int64([2]), "size": np.int64([3, 7]),
                 "at": np.int64([[[0, 3, -1], [1, 1, 5], [2, 4, 0], [5, 3, 3]]]),
                 "tuples": np.int64([[[0, 1, 2], [0, 3, 5], [0, 0, 0], [0, 2, -1]]]),
                 "more": np.float32(random.randn(1, 4, 3)), "kept": np.array([1, 0, 0, 1, 1], bool),
                 "cosines": np.float32(random.randn(5, 2)), "sines": np.float32(random.randn(5, 2)),
                 "places": np.int64([[4, 0, 2, 2]]), "four": np.int64([1, 4, 1]),
                 "inner": np.int64([1, 2]), "matrix": np.float32(random.randn(6, 6))}
    nodes = [node("ArgMax", ["x"], ["i"], axis=2), node("Cast", ["i"], ["a"], to=TensorProto.FLOAT),
             node("ArgMin", ["x"], ["j"], axis=2, keepdims=0), node("Unsqueeze", ["j", "axis"], ["k"]),
             node("Cast", ["k"], ["b"], to=TensorProto.FLOAT),
             node("Hardmax", ["x"], ["c"]), node("TopK", ["x", "two"], ["d", "l"], largest=0),
             node("Cast", ["l"], ["e"], to=TensorProto.FLOAT), node("GatherElements", ["x", "at"], ["f"], axis=2),
             node("ScatterElements", ["x", "at", "more"], ["g"], axis=2, reduction="add"),
             node("GatherND", ["x", "tuples"], ["m"]), node("Reshape", ["m", "four"], ["h"]),
             node("CumSum", ["x", "last"], ["n"], exclusive=1), node("CumSum", ["x", "last"], ["o"], reverse=1),
             node("ReduceProd", ["x", "axis"], ["p"]), node("LpPool", ["x"], ["q"], kernel_shape=[2], p=3, pads=[1, 0]),
             node("Compress", ["x", "kept"], ["r"], axis=2), node("CenterCropPad", ["x", "size"], ["v"], axes=[1, 2]),
             node("Compress", ["v", "kept"], ["s"], axis=2), node("ReduceProd", ["s", "inner"], ["t"]),
             node("Mul", ["x", "t"], ["u"]),
             node("RotaryEmbedding", ["x", "cosines", "sines", "places"], ["w"], num_heads=1, interleaved=1,
                  rotary_embedding_dim=4),
             node("Einsum", ["x", "matrix"], ["z"], equation="...i,ji->...j"),
             node("Concat", list("abcdefghnopqruwz"), ["y"], axis=2)]
    write_graph(path, nodes, constants, [(1, 4, 6), (1, 4, 62)], 23)
    write_data(path, np.float32(random.randn(1, 4, 6)))


def write_lengths(folder):
    """Recurrent layers over sequences of different lengths."""
    path, random = os.path.join(folder, "model.onnx"), np.random.RandomState(6)
    node, nodes, hidden, parts = helper.make_node, [], 3, []
    constants = {"flat": np.int64([0, -1])}
    nodes = [node("Transpose", ["x"], ["steps"], perm=[1, 0, 2]), node("Cast", ["labels"], ["lengths"], to=TensorProto.INT32)]
    for name, gates, directions, attributes in (("LSTM", 4, 2, {"direction": "bidirectional"}),
                                                ("GRU", 3, 1, {"linear_before_reset": 1}), ("RNN", 1, 1, {"direction": "reverse"})):
        for of, shape in (("W", (gates * hidden, 2)), ("R", (gates * hidden, hidden)), ("B", (2 * gates * hidden,))):
            constants[name + of] = np.float32(random.randn(directions, *shape) / 2)
        outputs = [name + of for of in ("y", "h", "c")[:3 if name == "LSTM" else 2]]
        nodes.append(node(name, ["steps", *(name + of for of in "WRB"), "lengths"], outputs, hidden_size=hidden, **attributes))
        for output in outputs:  # [T,D,N,H] and [D,N,H]
            order = [2, 0, 1, 3] if output.endswith("y") else [1, 0, 2]
            nodes += [node("Transpose", [output], [output + "t"], perm=order),
                      node("Reshape", [output + "t", "flat"], [output + "r"])]
            parts.append(output + "r")
    nodes.append(node("Concat", parts, ["y"], axis=1))
    write_graph(path, nodes, constants, [(4, 5, 2), (4, 5 * 4 * hidden + 6 * hidden)], 14, (4,))
    write_data(path, np.float32(random.randn(4, 5, 2)), np.int64([5, 2, 1, 4]))


def write_losses(folder):
    """Losses of labels, some of which are ignored."""
    path, random = os.path.join(folder, "model.onnx"), np.random.RandomState(5)
    node = helper.make_node
    nodes = [node("SoftmaxCrossEntropyLoss", ["x", "labels"], ["a", "p"], ignore_index=4),
             node("NegativeLogLikelihoodLoss", ["p", "labels", "weights"], ["b"], reduction="none", ignore_index=-7),
             node("SoftmaxCrossEntropyLoss", ["x", "labels", "weights"], ["c"], reduction="sum"),
             node("SoftmaxCrossEntropyLoss", ["x", "labels", "weights"], ["d"], ignore_index=2),
             node("Add", ["a", "b"], ["e"]), node("Add", ["c", "d"], ["f"]), node("Mul", ["e", "f"], ["y"])]
    constants = {"weights": np.float32([0.5, 1, 2, 0.25, 3])}
    write_graph(path, nodes, constants, [(3, 5, 2), (3, 2)], 13, (3, 2))
    write_data(path, np.float32(random.randn(3, 5, 2)), np.int64([[1, 4], [3, 0], [2, 2]]))


def main():
    torch.manual_seed(1)
    image = torch.randn(1, 1, 8, 8)
    mlp = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.Tanh(), nn.Linear(8, 4))
    nets = {"mlp": (mlp, image), "cnn": (Cnn(), image), "vit": (Vit(), image), "gpt": (Gpt(), torch.randint(0, 16, (1, 6)))}
    with torch.random.fork_rng():  # leaves the numbers of the others
        nets["rnn"] = (Rnn(), torch.randn(1, 1, 5, 3))
        nets["video"] = (Video(), torch.randn(1, 2, 4, 6, 5))
        nets["resized"] = (Resized(), image)
        nets["attention"] = (Gpt(), nets["gpt"][1])
    with torch.random.fork_rng():
        nets["windows"] = (Windows(), torch.randn(1, 1, 8, 8))
    with torch.random.fork_rng():
        nets["buffers"] = (Buffers(), image)
        nets["bicubic"] = (Bicubic(), image)
    for name, (net, x) in nets.items():
        for module in net.modules():  # as after training
            if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)):
                if module.affine:
                    nn.init.uniform_(module.weight, 0.5, 1.5)
                    nn.init.uniform_(module.bias, -0.5, 0.5)
                nn.init.uniform_(module.running_mean, -0.5, 0.5)
                nn.init.uniform_(module.running_var, 0.5, 1.5)
        folder = os.path.join(sys.argv[1], name)
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, "model.onnx")
        # The first keeps batch normalization, the second is today's exporter; the operator Attention is of opset 23.
        if name == "cnn":
            torch.onnx.export(net.eval(), (x,), path, dynamo=False, do_constant_folding=False,
                              training=torch.onnx.TrainingMode.PRESERVE, dynamic_axes={"x": {0: "n"}}, input_names=["x"])
        else:
            opset = {"opset_version": 23} if name == "attention" else {}
            torch.onnx.export(net.eval(), (x,), path, dynamo=True, external_data=False, verbose=False, **opset)
        import onnx
        model = onnx.load(path)
        for node in model.graph.node:  # source lines of PyTorch
            node.doc_string = ""
            del node.metadata_props[:]
        del model.graph.value_info[:]
        del model.metadata_props[:]
        onnx.save(model, path)
        write_data(path, x.numpy())
    write_upsample(os.path.join(sys.argv[1], "upsample"))
    write_constants(os.path.join(sys.argv[1], "constants"))
    write_cells(os.path.join(sys.argv[1], "cells"))
    write_scores(os.path.join(sys.argv[1], "scores"))
    write_selected(os.path.join(sys.argv[1], "selected"))
    write_lengths(os.path.join(sys.argv[1], "lengths"))
    write_losses(os.path.join(sys.argv[1], "losses"))


if __name__ == "__main__":
    main()
