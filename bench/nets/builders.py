"""Sixteen networks with Kolo's public builder, by the parameter names of the PyTorch modules in modules.py."""
from kolo import nn, ops


def conv_norm(x, conv, norm, channels, kernel=1, stride=1, groups=1, act=ops.relu, pad=None, eps=1e-5):
    if pad is None:
        pad = kernel // 2 if isinstance(kernel, int) else tuple(k // 2 for k in kernel)
    x = nn.conv2d(x, channels, kernel, conv, stride, pad, groups=groups, bias=False)
    x = ops.batch_norm(x, norm, eps)
    return act(x) if act else x


def pooled(x):
    return ops.flatten(ops.global_avg_pool2d(x))


def image(g, size, channels=3):
    return g.input("x", (channels, size, size))


def classify(g, logits, labels=()):
    y = g.input("y", labels, dtype="i32")
    g.output(logits=logits, loss=ops.softmax_xent(logits, y))


def squeeze_excite(x, name, squeeze, act=ops.relu):
    s = act(nn.conv2d(ops.global_avg_pool2d(x), squeeze, 1, f"{name}.fc1"))
    return x * ops.sigmoid(nn.conv2d(s, x.shape[1], 1, f"{name}.fc2"))


# ---- convolutional networks ----

def mobilenet_v2(g):
    x, i = conv_norm(image(g, 64), "features.0.0", "features.0.1", 32, 3, 2, act=ops.relu6), 0
    for expand, channels, repeats, stride in ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2),
                                              (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)):
        for k in range(repeats):
            i += 1
            name, j, step, h = f"features.{i}.conv", 0, stride if k == 0 else 1, x
            hidden = expand * x.shape[1]
            if expand > 1:
                h, j = conv_norm(h, f"{name}.0.0", f"{name}.0.1", hidden, act=ops.relu6), 1
            h = conv_norm(h, f"{name}.{j}.0", f"{name}.{j}.1", hidden, 3, step, hidden, ops.relu6)
            h = conv_norm(h, f"{name}.{j + 1}", f"{name}.{j + 2}", channels, act=None)
            x = x + h if k > 0 else h
    x = conv_norm(x, "features.18.0", "features.18.1", 1280, act=ops.relu6)
    classify(g, nn.linear(pooled(x), 10, "classifier.1"))


def densenet(g, growth=8):
    x = conv_norm(image(g, 64), "features.conv0", "features.norm0", 16, 7, 2)
    x = ops.max_pool2d(x, 3, 2, 1)
    for b, layers in enumerate((6, 12, 24, 16), 1):
        for i in range(1, layers + 1):
            name = f"features.denseblock{b}.denselayer{i}"
            h = ops.relu(ops.batch_norm(x, f"{name}.norm1"))
            h = conv_norm(h, f"{name}.conv1", f"{name}.norm2", 4 * growth)
            x = ops.concat([x, nn.conv2d(h, growth, 3, f"{name}.conv2", pad=1, bias=False)])
        if b < 4:
            name = f"features.transition{b}"
            x = ops.relu(ops.batch_norm(x, f"{name}.norm"))
            x = ops.avg_pool2d(nn.conv2d(x, x.shape[1] // 2, 1, f"{name}.conv", bias=False), 2)
    x = ops.relu(ops.batch_norm(x, "features.norm5"))
    classify(g, nn.linear(pooled(x), 10, "classifier"))


def double_conv(x, name, channels):
    x = conv_norm(x, f"{name}.double_conv.0", f"{name}.double_conv.1", channels, 3)
    return conv_norm(x, f"{name}.double_conv.3", f"{name}.double_conv.4", channels, 3)


def conv_transpose(x, name, channels, kernel, stride, pad=0):
    w = x.graph.param(f"{name}.weight", (x.shape[1], channels, kernel, kernel))
    return ops.bias(ops.conv_transpose2d(x, w, stride, pad), x.graph.param(f"{name}.bias", (channels,)))


def unet(g, width=8, classes=3):
    levels = [double_conv(image(g, 32), "inc", width)]
    for i in range(1, 5):
        x = ops.max_pool2d(levels[-1], 2)
        levels.append(double_conv(x, f"down{i}.maxpool_conv.1", width << i))
    x = levels.pop()
    for i in range(1, 5):
        channels = width << 4 - i
        x = conv_transpose(x, f"up{i}.up", channels, 2, 2)
        x = double_conv(ops.concat([levels.pop(), x]), f"up{i}.conv", channels)
    classify(g, nn.conv2d(x, classes, 1, "outc.conv"), (32, 32))


def squeezenet(g):
    def fire(x, i, squeeze, expand):
        x = ops.relu(nn.conv2d(x, squeeze, 1, f"features.{i}.squeeze"))
        return ops.relu(ops.concat([nn.conv2d(x, expand, 1, f"features.{i}.expand1x1"),
                                    nn.conv2d(x, expand, 3, f"features.{i}.expand3x3", pad=1)]))

    x = ops.relu(nn.conv2d(image(g, 64), 64, 3, "features.0", 2))
    for i, squeeze in ((3, 16), (4, 16), (6, 32), (7, 32), (9, 48), (10, 48), (11, 64), (12, 64)):
        if i in (3, 6, 9):
            x = ops.max_pool2d(x, 3, 2, ceil=True)
        x = fire(x, i, squeeze, 4 * squeeze)
    classify(g, pooled(ops.relu(nn.conv2d(x, 10, 1, "classifier.1"))))


def shufflenet_v2(g):
    def branch(x, name, channels, stride):
        x = conv_norm(x, f"{name}.0", f"{name}.1", channels)
        x = conv_norm(x, f"{name}.3", f"{name}.4", channels, 3, stride, channels, None)
        return conv_norm(x, f"{name}.5", f"{name}.6", channels)

    x = ops.max_pool2d(conv_norm(image(g, 64), "conv1.0", "conv1.1", 24, 3, 2), 3, 2, 1)
    for stage, repeats, channels in ((2, 4, 48), (3, 8, 96), (4, 4, 192)):
        for k in range(repeats):
            name, half = f"stage{stage}.{k}", channels // 2
            if k == 0:
                a = conv_norm(x, f"{name}.branch1.0", f"{name}.branch1.1", x.shape[1], 3, 2, x.shape[1], None)
                a = conv_norm(a, f"{name}.branch1.2", f"{name}.branch1.3", half)
                b = branch(x, f"{name}.branch2", half, 2)
            else:
                a, b = ops.split(x, 1, (half, half))
                b = branch(b, f"{name}.branch2", half, 1)
            n, _, height, width = a.shape
            x = ops.transpose(ops.reshape(ops.concat([a, b]), (n, 2, half, height, width)), 1, 2)
            x = ops.reshape(x, (n, channels, height, width))
    classify(g, nn.linear(pooled(conv_norm(x, "conv5.0", "conv5.1", 1024)), 10, "fc"))


def inception_v3(g):
    def conv(x, name, channels, kernel=1, stride=1, pad=None):
        return conv_norm(x, f"{name}.conv", f"{name}.bn", channels, kernel, stride, pad=pad, eps=1e-3)

    def stack(x, name, *layers):
        """Layers (number, channels, kernel) of a branch."""
        for number, channels, kernel in layers:
            x = conv(x, f"{name}_{number}", channels, kernel)
        return x

    def pool(x, name, channels):
        return conv(ops.avg_pool2d(x, 3, 1, 1), f"{name}.branch_pool", channels)

    def block_a(x, name, channels):
        return ops.concat([
            conv(x, f"{name}.branch1x1", 64), stack(x, f"{name}.branch5x5", (1, 48, 1), (2, 64, 5)),
            stack(x, f"{name}.branch3x3dbl", (1, 64, 1), (2, 96, 3), (3, 96, 3)), pool(x, name, channels)])

    def block_c(x, name, c):
        return ops.concat([
            conv(x, f"{name}.branch1x1", 192),
            stack(x, f"{name}.branch7x7", (1, c, 1), (2, c, (1, 7)), (3, 192, (7, 1))),
            stack(x, f"{name}.branch7x7dbl", (1, c, 1), (2, c, (7, 1)), (3, c, (1, 7)), (4, c, (7, 1)),
                  (5, 192, (1, 7))), pool(x, name, 192)])

    def fork(x, name):
        return [conv(x, f"{name}a", 384, (1, 3)), conv(x, f"{name}b", 384, (3, 1))]

    def block_e(x, name):
        wide = fork(conv(x, f"{name}.branch3x3_1", 384), f"{name}.branch3x3_2")
        double = fork(stack(x, f"{name}.branch3x3dbl", (1, 448, 1), (2, 384, 3)), f"{name}.branch3x3dbl_3")
        return ops.concat([conv(x, f"{name}.branch1x1", 320), *wide, *double, pool(x, name, 192)])

    x = conv(conv(image(g, 75), "Conv2d_1a_3x3", 32, 3, 2, 0), "Conv2d_2a_3x3", 32, 3, pad=0)
    x = ops.max_pool2d(conv(x, "Conv2d_2b_3x3", 64, 3), 3, 2)
    x = ops.max_pool2d(conv(conv(x, "Conv2d_3b_1x1", 80), "Conv2d_4a_3x3", 192, 3, pad=0), 3, 2)
    for letter, channels in zip("bcd", (32, 64, 64)):
        x = block_a(x, f"Mixed_5{letter}", channels)
    double = stack(x, "Mixed_6a.branch3x3dbl", (1, 64, 1), (2, 96, 3))
    x = ops.concat([conv(x, "Mixed_6a.branch3x3", 384, 3, 2, 0),
                    conv(double, "Mixed_6a.branch3x3dbl_3", 96, 3, 2, 0), ops.max_pool2d(x, 3, 2)])
    for letter, channels in zip("bcde", (128, 160, 160, 192)):
        x = block_c(x, f"Mixed_6{letter}", channels)
    wide = stack(x, "Mixed_7a.branch7x7x3", (1, 192, 1), (2, 192, (1, 7)), (3, 192, (7, 1)))
    x = ops.concat([conv(conv(x, "Mixed_7a.branch3x3_1", 192), "Mixed_7a.branch3x3_2", 320, 3, 2, 0),
                    conv(wide, "Mixed_7a.branch7x7x3_4", 192, 3, 2, 0), ops.max_pool2d(x, 3, 2)])
    x = block_e(block_e(x, "Mixed_7b"), "Mixed_7c")
    classify(g, nn.linear(pooled(x), 10, "fc"))


def efficientnet_b0(g):
    x = conv_norm(image(g, 64), "features.0.0", "features.0.1", 32, 3, 2, act=ops.silu)
    stages = ((1, 3, 1, 16, 1), (6, 3, 2, 24, 2), (6, 5, 2, 40, 2), (6, 3, 2, 80, 3), (6, 5, 1, 112, 3),
              (6, 5, 2, 192, 4), (6, 3, 1, 320, 1))
    for i, (expand, kernel, stride, channels, repeats) in enumerate(stages, 1):
        for k in range(repeats):
            name, j, inputs, h = f"features.{i}.{k}.block", 0, x.shape[1], x
            if expand > 1:
                h, j = conv_norm(h, f"{name}.0.0", f"{name}.0.1", expand * inputs, act=ops.silu), 1
            step = stride if k == 0 else 1
            h = conv_norm(h, f"{name}.{j}.0", f"{name}.{j}.1", h.shape[1], kernel, step, h.shape[1], ops.silu)
            h = squeeze_excite(h, f"{name}.{j + 1}", max(1, inputs // 4), ops.silu)
            h = conv_norm(h, f"{name}.{j + 2}.0", f"{name}.{j + 2}.1", channels, act=None)
            x = x + h if k > 0 else h
    x = conv_norm(x, "features.8.0", "features.8.1", 1280, act=ops.silu)
    classify(g, nn.linear(pooled(x), 10, "classifier.1"))


def regnet_y(g):
    x = conv_norm(image(g, 64), "stem.0", "stem.1", 32, 3, 2)
    for i, (width, depth) in enumerate(((48, 1), (104, 3), (208, 6), (440, 6)), 1):
        for k in range(depth):
            name, step = f"trunk_output.block{i}.block{i}-{k}", 2 if k == 0 else 1
            h = conv_norm(x, f"{name}.f.a.0", f"{name}.f.a.1", width)
            h = conv_norm(h, f"{name}.f.b.0", f"{name}.f.b.1", width, 3, step, width // 8)
            h = squeeze_excite(h, f"{name}.f.se", round(x.shape[1] / 4))
            h = conv_norm(h, f"{name}.f.c.0", f"{name}.f.c.1", width, act=None)
            skip = conv_norm(x, f"{name}.proj.0", f"{name}.proj.1", width, 1, 2, act=None) if k == 0 else x
            x = ops.relu(skip + h)
    classify(g, nn.linear(pooled(x), 10, "fc"))


def convnext(g):
    def norm(x, name):
        x = ops.layer_norm(ops.permute(x, (0, 2, 3, 1)), name, 1e-6)
        return ops.permute(x, (0, 3, 1, 2))

    x = norm(nn.conv2d(image(g, 64), 24, 4, "features.0.0", 4), "features.0.1")
    for i, (channels, depth) in enumerate(((24, 3), (48, 3), (96, 9), (192, 3))):
        if i > 0:
            x = nn.conv2d(norm(x, f"features.{2 * i}.0"), channels, 2, f"features.{2 * i}.1", 2)
        for k in range(depth):
            name = f"features.{2 * i + 1}.{k}"
            h = nn.conv2d(x, channels, 7, f"{name}.block.0", pad=3, groups=channels)
            h = ops.layer_norm(ops.permute(h, (0, 2, 3, 1)), f"{name}.block.2", 1e-6)
            n, height, width, _ = h.shape
            h = ops.reshape(h, (n, height * width, channels))
            h = nn.linear(ops.gelu(nn.linear(h, 4 * channels, f"{name}.block.3")), channels, f"{name}.block.5")
            h = ops.permute(ops.reshape(h, (n, height, width, channels)), (0, 3, 1, 2))
            x = x + h * g.param(f"{name}.layer_scale", (channels, 1, 1), "ones")
    x = norm(ops.global_avg_pool2d(x), "classifier.0")
    classify(g, nn.linear(ops.flatten(x), 10, "classifier.2"))


def autoencoder(g):
    x = image(g, 28, 1)
    h = ops.relu(nn.conv2d(x, 8, 3, "encoder.0", 2, 1))
    h = ops.relu(nn.conv2d(h, 16, 3, "encoder.2", 2, 1))
    code = nn.linear(ops.flatten(h), 12, "encoder.5")
    h = ops.relu(nn.linear(code, 16 * 7 * 7, "decoder.0"))
    h = ops.relu(conv_transpose(ops.reshape(h, (g.samples, 16, 7, 7)), "decoder.3", 8, 4, 2, 1))
    logits = conv_transpose(h, "decoder.5", 1, 4, 2, 1)
    g.output(logits=logits, loss=ops.mse_loss(ops.sigmoid(logits), x))


# ---- sequences and others ----

def vit(g, width=48, heads=4, layers=4):
    x, part = nn.conv2d(image(g, 32), width, 8, "conv_proj", 8), "encoder.layers.encoder_layer_"
    x = ops.transpose(ops.reshape(x, (g.samples, width, 16)), 1, 2)
    token = ops.pad(g.param("class_token", (1, 1, width)), 1, 0, 16)
    x = ops.pad(x, 1, 1, 0) + (token + g.param("encoder.pos_embedding", (1, 17, width)))
    for i in range(layers):
        h = ops.layer_norm(x, f"{part}{i}.ln_1", 1e-6)
        qkv = ops.linear(h, g.param(f"{part}{i}.self_attention.in_proj_weight", (3 * width, width)),
                         g.param(f"{part}{i}.self_attention.in_proj_bias", (3 * width,)))
        x = x + nn.linear(ops.attention(qkv, heads), width, f"{part}{i}.self_attention.out_proj")
        h = ops.gelu(nn.linear(ops.layer_norm(x, f"{part}{i}.ln_2", 1e-6), 96, f"{part}{i}.mlp.0"))
        x = x + nn.linear(h, width, f"{part}{i}.mlp.3")
    x = ops.reshape(ops.slice(ops.layer_norm(x, "encoder.ln", 1e-6), 1, 0, 1), (g.samples, width))
    classify(g, nn.linear(x, 10, "heads.head"))


def gru(g):
    x = nn.embedding(g.input("x", (12,), dtype="i32"), 50, 16, "embedding")
    for layer in range(2):
        x = ops.gru(x, 24, "gru", layer, bidirectional=True)
    classify(g, nn.linear(ops.mean(x, 1), 10, "fc"))


def llama(g, width=32, heads=4, kv_heads=2, vocabulary=60):
    x = nn.embedding(g.input("x", (12,), dtype="i32"), vocabulary, width, "model.embed_tokens")
    for i in range(2):
        name = f"model.layers.{i}"
        h, kv = ops.rms_norm(x, f"{name}.input_layernorm", 1e-5), width * kv_heads // heads
        q, k, v = (nn.linear(h, size, f"{name}.self_attn.{part}_proj", bias=False)
                   for part, size in (("q", width), ("k", kv), ("v", kv)))
        h = ops.cross_attention(ops.rotary(q, heads), ops.rotary(k, kv_heads), v, heads, kv_heads, causal=True)
        x = x + nn.linear(h, width, f"{name}.self_attn.o_proj", bias=False)
        h = ops.rms_norm(x, f"{name}.post_attention_layernorm", 1e-5)
        up = nn.linear(h, 88, f"{name}.mlp.up_proj", bias=False)
        h = ops.silu(nn.linear(h, 88, f"{name}.mlp.gate_proj", bias=False)) * up
        x = x + nn.linear(h, width, f"{name}.mlp.down_proj", bias=False)
    logits = nn.linear(ops.rms_norm(x, "model.norm", 1e-5), vocabulary, "lm_head", bias=False)
    classify(g, ops.transpose(logits, 1, 2), (12,))


def t5_encoder(g, width=32, heads=4, each=8):
    x = nn.embedding(g.input("x", (12,), dtype="i32"), 60, width, "encoder.shared")
    buckets = g.input("buckets", (12 * 12,), dtype="i32")
    table = "encoder.encoder.block.0.layer.0.SelfAttention.relative_attention_bias"
    bias = ops.reshape(nn.embedding(buckets, 32, heads, table), (g.samples, 12, 12, heads))
    bias = ops.permute(bias, (0, 3, 1, 2))
    for i in range(2):
        name = f"encoder.encoder.block.{i}.layer"
        h = ops.rms_norm(x, f"{name}.0.layer_norm", 1e-6)
        q, k, v = (nn.linear(h, heads * each, f"{name}.0.SelfAttention.{part}", bias=False) for part in "qkv")
        h = ops.cross_attention(q, k, v, heads, scale=1, bias=bias)
        x = x + nn.linear(h, width, f"{name}.0.SelfAttention.o", bias=False)
        h = nn.linear(ops.rms_norm(x, f"{name}.1.layer_norm", 1e-6), 64, f"{name}.1.DenseReluDense.wi", bias=False)
        x = x + nn.linear(ops.relu(h), width, f"{name}.1.DenseReluDense.wo", bias=False)
    x = ops.rms_norm(x, "encoder.encoder.final_layer_norm", 1e-6)
    classify(g, nn.linear(ops.mean(x, 1), 10, "head"))


def distilbert(g, width=32, heads=4):
    positions = g.param("distilbert.embeddings.position_embeddings.weight", (16, width))
    x = nn.embedding(g.input("x", (12,), dtype="i32"), 60, width, "distilbert.embeddings.word_embeddings", positions)
    x = ops.layer_norm(x, "distilbert.embeddings.LayerNorm", 1e-12)
    for i in range(3):
        name = f"distilbert.transformer.layer.{i}"
        q, k, v = (nn.linear(x, width, f"{name}.attention.{part}_lin") for part in "qkv")
        h = nn.linear(ops.cross_attention(q, k, v, heads), width, f"{name}.attention.out_lin")
        x = ops.layer_norm(x + h, f"{name}.sa_layer_norm", 1e-12)
        h = ops.gelu(nn.linear(x, 64, f"{name}.ffn.lin1"))
        x = ops.layer_norm(x + nn.linear(h, width, f"{name}.ffn.lin2"), f"{name}.output_layer_norm", 1e-12)
    x = ops.reshape(ops.slice(x, 1, 0, 1), (g.samples, width))
    classify(g, nn.linear(ops.relu(nn.linear(x, width, "pre_classifier")), 10, "classifier"))


def dlrm(g, tables=8, rows=20, dim=8):
    x = g.input("x", (5,))
    for i, units in enumerate((16, dim)):
        x = ops.relu(nn.linear(x, units, f"bot_l.{2 * i}"))
    vectors = nn.embedding(g.input("ids", (tables,), dtype="i32"), tables * rows, dim, "emb")
    vectors = ops.concat([ops.reshape(x, (g.samples, 1, dim)), vectors])
    dots, n = ops.matmul(vectors, vectors, transpose_b=True), tables + 1
    dots = ops.reshape(dots, (g.samples, n * n))
    x = ops.concat([x] + [ops.slice(dots, 1, n * i, i) for i in range(1, n)])
    logits = nn.linear(ops.relu(nn.linear(x, 16, "top_l.0")), 1, "top_l.2")
    loss = ops.bce_with_logits(ops.reshape(logits, (g.samples,)), g.input("y"))
    g.output(logits=logits, loss=loss)
