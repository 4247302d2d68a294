"""The networks of the comparison in PyTorch, layer by layer those of Kolo's zoo.

make(name) gives the module, a function from a batch size to inputs and labels, and the loss. Written
out here because torchvision is not in Debian; main checks the counts of parameters that the papers'
reference implementations have.
"""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F


def conv(i, o, k, stride=1, pad=0, dilation=1):
    return nn.Conv2d(i, o, k, stride, pad, dilation, bias=False)


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 6, 5, padding=2), nn.Conv2d(6, 16, 5)
        self.fc1, self.fc2, self.fc3 = nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x.flatten(1))))))


class Mlp(nn.Module):
    def __init__(self, hidden=128):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(784, hidden), nn.Linear(hidden, hidden)
        self.fc3 = nn.Linear(hidden, 10)

    def forward(self, x):
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x.flatten(1))))))


def classifier(inputs, classes):
    relu = nn.ReLU(inplace=True)
    return [nn.Linear(inputs, 4096), relu, nn.Dropout(), nn.Linear(4096, 4096), relu,
            nn.Linear(4096, classes)]


def alexnet(classes=1000):
    relu = nn.ReLU(inplace=True)
    pool = nn.MaxPool2d(3, 2)
    return nn.Sequential(
        nn.Conv2d(3, 64, 11, 4, 2), relu, pool, nn.Conv2d(64, 192, 5, 1, 2), relu, pool,
        nn.Conv2d(192, 384, 3, 1, 1), relu, nn.Conv2d(384, 256, 3, 1, 1), relu,
        nn.Conv2d(256, 256, 3, 1, 1), relu, pool, nn.Flatten(), nn.Dropout(),
        *classifier(256 * 6 * 6, classes))


def vgg16(classes=1000):
    layers, inputs = [], 3
    for width, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(count):
            layers += [nn.Conv2d(inputs, width, 3, 1, 1), nn.ReLU(inplace=True)]
            inputs = width
        layers.append(nn.MaxPool2d(2))
    head = classifier(512 * 7 * 7, classes)
    return nn.Sequential(*layers, nn.Flatten(), *head[:-1], nn.Dropout(), head[-1])


class ConvNorm(nn.Sequential):
    def __init__(self, i, o, k, stride=1, pad=0, dilation=1, relu=True, eps=1e-5):
        layers = [conv(i, o, k, stride, pad, dilation), nn.BatchNorm2d(o, eps=eps)]
        super().__init__(*layers, *([nn.ReLU(inplace=True)] if relu else []))


class Inception(nn.Module):
    def __init__(self, i, a, b0, b, c0, c, d):
        super().__init__()
        layer = lambda *n, **k: ConvNorm(*n, **k, eps=1e-3)
        self.branches = nn.ModuleList([
            layer(i, a, 1), nn.Sequential(layer(i, b0, 1), layer(b0, b, 3, pad=1)),
            nn.Sequential(layer(i, c0, 1), layer(c0, c, 3, pad=1)),
            nn.Sequential(nn.MaxPool2d(3, 1, 1), layer(i, d, 1))])

    def forward(self, x):
        return torch.cat([branch(x) for branch in self.branches], 1)


def googlenet(classes=1000):
    pool = nn.MaxPool2d(3, 2, ceil_mode=True)
    layer = lambda *n, **k: ConvNorm(*n, **k, eps=1e-3)
    return nn.Sequential(
        layer(3, 64, 7, 2, 3), pool, layer(64, 64, 1), layer(64, 192, 3, pad=1), pool,
        Inception(192, 64, 96, 128, 16, 32, 32), Inception(256, 128, 128, 192, 32, 96, 64), pool,
        Inception(480, 192, 96, 208, 16, 48, 64), Inception(512, 160, 112, 224, 24, 64, 64),
        Inception(512, 128, 128, 256, 24, 64, 64), Inception(512, 112, 144, 288, 32, 64, 64),
        Inception(528, 256, 160, 320, 32, 128, 128), nn.MaxPool2d(2, 2, ceil_mode=True),
        Inception(832, 256, 160, 320, 32, 128, 128), Inception(832, 384, 192, 384, 48, 128, 128),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(1024, classes))


class Residual(nn.Module):
    def __init__(self, inputs, width, stride, bottleneck, dilation=1):
        super().__init__()
        outputs = 4 * width if bottleneck else width
        if bottleneck:
            self.body = nn.Sequential(
                ConvNorm(inputs, width, 1), ConvNorm(width, width, 3, stride, dilation, dilation),
                ConvNorm(width, outputs, 1, relu=False))
        else:
            self.body = nn.Sequential(ConvNorm(inputs, width, 3, stride, 1),
                                      ConvNorm(width, outputs, 3, 1, 1, relu=False))
        same = inputs == outputs and stride == 1
        self.skip = nn.Identity() if same else ConvNorm(inputs, outputs, 1, stride, relu=False)

    def forward(self, x):
        return F.relu(self.body(x) + self.skip(x), inplace=True)


def trunk(blocks, bottleneck, dilated=False):
    """Stem and stages; `dilated`: the last two stages keep their size, as DeepLab wants."""
    layers, inputs, dilation = [ConvNorm(3, 64, 7, 2, 3), nn.MaxPool2d(3, 2, 1)], 64, 1
    for stage, count in enumerate(blocks):
        width, stride, before = 64 << stage, 2 if stage else 1, dilation
        if dilated and stage >= 2:
            dilation, stride = dilation * stride, 1
        for i in range(count):
            layers.append(Residual(inputs, width, stride if i == 0 else 1, bottleneck,
                                   before if i == 0 else dilation))
            inputs = 4 * width if bottleneck else width
    return layers, inputs


def resnet(blocks, bottleneck, classes=1000):
    layers, inputs = trunk(blocks, bottleneck)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))


class DeepLabV3(nn.Module):
    """Chen et al., 2017, on ResNet-101 with output stride 8, without the auxiliary head."""

    def __init__(self, classes=21):
        super().__init__()
        layers, inputs = trunk((3, 4, 23, 3), True, dilated=True)
        self.trunk = nn.Sequential(*layers)
        self.branches = nn.ModuleList(
            [ConvNorm(inputs, 256, 1)] +
            [ConvNorm(inputs, 256, 3, 1, rate, rate) for rate in (12, 24, 36)])
        self.pooled = nn.Sequential(nn.AdaptiveAvgPool2d(1), ConvNorm(inputs, 256, 1))
        self.head = nn.Sequential(ConvNorm(5 * 256, 256, 1), nn.Dropout(0.5),
                                  ConvNorm(256, 256, 3, pad=1), nn.Conv2d(256, classes, 1))

    def forward(self, x):
        size, x = x.shape[-2:], self.trunk(x)
        parts = [branch(x) for branch in self.branches]
        pooled = F.interpolate(self.pooled(x), x.shape[-2:], mode="bilinear", align_corners=False)
        return F.interpolate(self.head(torch.cat(parts + [pooled], 1)), size, mode="bilinear",
                             align_corners=False)


class LstmLm(nn.Module):
    """Two layers of 512 over 64 tokens, as a language model."""

    def __init__(self, vocab=10000, width=512, layers=2):
        super().__init__()
        self.embed, self.out = nn.Embedding(vocab, width), nn.Linear(width, vocab)
        self.lstm = nn.LSTM(width, width, layers, batch_first=True)

    def forward(self, tokens):
        return self.out(self.lstm(self.embed(tokens))[0]).flatten(0, 1)


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.norm1, self.norm2 = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, mask):
        b, t, c = x.shape
        qkv = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, c // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-1, -2)) * (c // self.heads) ** -0.5 + mask
        x = x + self.proj((F.softmax(scores, -1) @ v).transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, vocab=8192, width=384, layers=6, heads=6, length=256):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocab, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocab, bias=False)
        self.head.weight = self.tokens.weight
        self.register_buffer("mask", torch.full((length, length), float("-inf")).triu(1))

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places.weight
        for block in self.blocks:
            x = block(x, self.mask)
        return self.head(self.norm(x)).flatten(0, 1)


class InvertedResidual(nn.Module):
    def __init__(self, i, o, stride, expand):
        super().__init__()
        inside = i * expand
        layer = lambda i, o, k, stride=1, groups=1: nn.Sequential(
            nn.Conv2d(i, o, k, stride, k // 2, groups=groups, bias=False), nn.BatchNorm2d(o),
            nn.ReLU6(inplace=True))
        self.body = nn.Sequential(
            *([layer(i, inside, 1)] if expand > 1 else []),
            layer(inside, inside, 3, stride, inside), ConvNorm(inside, o, 1, relu=False))
        self.add = stride == 1 and i == o

    def forward(self, x):
        return x + self.body(x) if self.add else self.body(x)


def mobilenet_v2(classes=1000):
    outer = lambda i, o, k, stride: [conv(i, o, k, stride, k // 2), nn.BatchNorm2d(o),
                                     nn.ReLU6(inplace=True)]
    layers, inputs = outer(3, 32, 3, 2), 32
    for expand, outputs, count, stride in ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2),
                                           (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)):
        for i in range(count):
            layers.append(InvertedResidual(inputs, outputs, stride if i == 0 else 1, expand))
            inputs = outputs
    return nn.Sequential(*layers, *outer(inputs, 1280, 1, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Dropout(0.2), nn.Linear(1280, classes))


def attend(qkv, heads, causal):
    """Of [N,T,3 heads D], by PyTorch's fused attention: [N,T,heads D]."""
    b, t, c = qkv.shape
    q, k, v = qkv.view(b, t, 3, heads, c // 3 // heads).permute(2, 0, 3, 1, 4)
    y = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    return y.transpose(1, 2).reshape(b, t, c // 3)


class VitBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=1e-6), nn.LayerNorm(width, eps=1e-6)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.proj(attend(self.qkv(self.norm1(x)), self.heads, False))
        return x + self.mlp(self.norm2(x))


class Vit(nn.Module):
    """vit_tiny: patches of 16x16, 12 layers of width 192."""

    def __init__(self, size=224, width=192, layers=12, heads=3, classes=1000):
        super().__init__()
        self.cut = nn.Conv2d(3, width, 16, 16)
        self.first = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(torch.randn(1, 1 + (size // 16) ** 2, width) * 0.02)
        self.blocks = nn.Sequential(*(VitBlock(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width, eps=1e-6), nn.Linear(width, classes)

    def forward(self, x):
        x = self.cut(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(x.shape[0], -1, -1), x], 1) + self.places
        return self.head(self.norm(self.blocks(x))[:, 0])


class LlamaBlock(nn.Module):
    def __init__(self, width, heads, mlp):
        super().__init__()
        line = lambda i, o: nn.Linear(i, o, bias=False)
        self.heads = heads
        self.norm1, self.norm2 = nn.RMSNorm(width, eps=1e-5), nn.RMSNorm(width, eps=1e-5)
        self.q, self.k, self.v, self.o = (line(width, width) for _ in range(4))
        self.gate, self.up, self.down = line(width, mlp), line(width, mlp), line(mlp, width)

    def forward(self, x, cos, sin):
        b, t, c = x.shape
        split = lambda y: y.view(b, t, self.heads, c // self.heads).transpose(1, 2)

        def rotated(y):
            low, high = y.chunk(2, -1)
            return y * cos + torch.cat([-high, low], -1) * sin

        h = self.norm1(x)
        y = F.scaled_dot_product_attention(rotated(split(self.q(h))), rotated(split(self.k(h))),
                                           split(self.v(h)), is_causal=True)
        x = x + self.o(y.transpose(1, 2).reshape(b, t, c))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Llama(nn.Module):
    def __init__(self, vocab=8192, width=384, layers=6, heads=6, mlp=1024, length=256):
        super().__init__()
        self.tokens, self.head = nn.Embedding(vocab, width), nn.Linear(width, vocab, bias=False)
        self.blocks = nn.ModuleList(LlamaBlock(width, heads, mlp) for _ in range(layers))
        self.norm = nn.RMSNorm(width, eps=1e-5)
        each = width // heads
        angle = torch.outer(torch.arange(length), 10000.0 ** (-torch.arange(0, each, 2) / each))
        self.register_buffer("cos", torch.cat([angle, angle], -1).cos())
        self.register_buffer("sin", torch.cat([angle, angle], -1).sin())

    def forward(self, tokens):
        x = self.tokens(tokens)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return self.head(self.norm(x)).flatten(0, 1)


def images(channels, size, classes):
    return lambda b: (torch.randn(b, channels, size, size), torch.randint(classes, (b,)))


def tokens(vocab, length):
    return lambda b: (torch.randint(vocab, (b, length)), torch.randint(vocab, (b * length,)))


def make(name, size=0):
    """`size` replaces the height and width of images; 0: the usual one."""
    photos = images(3, size or 224, 1000)
    table = {
        "lenet": (LeNet, images(1, 28, 10)),
        "mlp": (Mlp, images(1, 28, 10)),
        "alexnet": (alexnet, photos),
        "vgg16": (vgg16, photos),
        "googlenet": (googlenet, photos),
        "resnet18": (lambda: resnet((2, 2, 2, 2), False), photos),
        "resnet34": (lambda: resnet((3, 4, 6, 3), False), photos),
        "resnet50": (lambda: resnet((3, 4, 6, 3), True), photos),
        "resnet101": (lambda: resnet((3, 4, 23, 3), True), photos),
        "deeplabv3_resnet101": (DeepLabV3, lambda b: (
            torch.randn(b, 3, size or 256, size or 256),
            torch.randint(21, (b, size or 256, size or 256)))),
        "lstm_lm": (LstmLm, tokens(10000, 64)),
        "gpt": (Gpt, tokens(8192, 256)),
        "llama": (Llama, tokens(8192, 256)),
        "mobilenet_v2": (mobilenet_v2, photos),
        "vit_tiny": (lambda: Vit(size or 224), photos),
    }
    if name not in table:
        sys.exit(f"torch_models: no net \"{name}\" here: one of {', '.join(table)}")
    build, batch = table[name]
    return build(), batch, F.cross_entropy


if __name__ == "__main__":
    counts = {"lenet": 61706, "alexnet": 61100840, "vgg16": 138357544, "googlenet": 6624904,
              "resnet18": 11689512, "resnet34": 21797672, "resnet50": 25557032,
              "resnet101": 44549160, "deeplabv3_resnet101": 58630997,
              "mobilenet_v2": 3504872, "vit_tiny": 5717416, "llama": 16913280}
    for name, count in counts.items():
        have = sum(p.numel() for p in make(name)[0].parameters())
        print(name, have, "ok" if have == count else f"WRONG: {count} expected")
