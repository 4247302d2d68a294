"""The PyTorch modules of the networks in builders.py, with inputs and losses: torchvision's and Hugging Face's, made
small by their own options where the full ones take long."""
import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torchvision.models as zoo
import transformers
from torchvision.models.convnext import CNBlockConfig

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools/golden"))
from make_models import Dlrm, UNet  # noqa: E402  pylint: disable=wrong-import-position

# A build of PyTorch for CUDA, without CUDA, crashes in this one.
torch.cuda.is_current_stream_capturing = lambda: False


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU(), nn.Flatten(),
            nn.Linear(16 * 7 * 7, 12))
        self.decoder = nn.Sequential(
            nn.Linear(12, 16 * 7 * 7), nn.ReLU(), nn.Unflatten(1, (16, 7, 7)),
            nn.ConvTranspose2d(16, 8, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(8, 1, 4, 2, 1))

    def forward(self, x):
        return self.decoder(self.encoder(x))


class Gru(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(50, 16)
        self.gru = nn.GRU(16, 24, 2, batch_first=True, bidirectional=True)
        self.fc = nn.Linear(48, 10)

    def forward(self, x):
        return self.fc(self.gru(self.embedding(x))[0].mean(1))


class T5(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = transformers.T5EncoderModel(transformers.T5Config(
            vocab_size=60, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, dropout_rate=0))
        self.head = nn.Linear(32, 10)

    def forward(self, x):
        return self.head(self.encoder(x).last_hidden_state.mean(1))


class Logits(nn.Module):
    """A model of Hugging Face by its parameter names, with logits as the output."""

    def __init__(self, model, turn=False):
        super().__init__()
        self.model, self.turn = model, turn

    def forward(self, x):
        logits = self.model(x).logits
        return logits.transpose(1, 2) if self.turn else logits

    def named_parameters(self, *args, **opts):
        return self.model.named_parameters(*args, **opts)

    def state_dict(self, *args, **opts):
        return self.model.state_dict(*args, **opts)

    def load_state_dict(self, *args, **opts):
        return self.model.load_state_dict(*args, **opts)


def llama():
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=60, hidden_size=32, intermediate_size=88, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, rms_norm_eps=1e-5, attn_implementation="eager", use_cache=False))
    model.model.rotary_emb.inv_freq = 1 / 10000 ** (torch.arange(0, 8, 2, dtype=torch.float64) / 8)
    return Logits(model, turn=True)


def distilbert():
    return Logits(transformers.DistilBertForSequenceClassification(transformers.DistilBertConfig(
        vocab_size=60, max_position_embeddings=16, n_layers=3, n_heads=4, dim=32, hidden_dim=64, dropout=0,
        attention_dropout=0, seq_classif_dropout=0, num_labels=10, pad_token_id=None, attn_implementation="eager")))


def convnext():
    sizes = ((24, 48, 3), (48, 96, 3), (96, 192, 9), (192, None, 3))
    return zoo.ConvNeXt([CNBlockConfig(*s) for s in sizes], stochastic_depth_prob=0, num_classes=10)


def relative_buckets(length):
    """T5's bucket of each pair of positions, [length * length]."""
    at = torch.arange(length)
    attention = transformers.models.t5.modeling_t5.T5Attention
    buckets = attention._relative_position_bucket  # pylint: disable=protected-access
    return buckets(at[None] - at[:, None], bidirectional=True, num_buckets=32, max_distance=128).flatten().numpy()


# ---- inputs: fields of a batch as Kolo takes them ----

def images(size, channels=3, classes=10, maps=False):
    def draw(rng, n):
        return {"x": rng.standard_normal((n, channels, size, size)).astype(np.float32),
                "y": rng.integers(0, classes, (n, size, size) if maps else n)}
    return draw


def tokens(vocabulary, labels=0):
    def draw(rng, n):
        return {"x": rng.integers(0, vocabulary, (n, 12)),
                "y": rng.integers(0, labels, (n, 12)) if labels else rng.integers(0, 10, n)}
    return draw


def t5_tokens(rng, n):
    return {**tokens(60)(rng, n), "buckets": np.tile(relative_buckets(12), (n, 1))}


def clicks(rng, n):
    return {"x": rng.standard_normal((n, 5)).astype(np.float32),
            "ids": rng.integers(0, 20, (n, 8)) + 20 * np.arange(8),
            "y": rng.integers(0, 2, n).astype(np.float32)}


def only_images(rng, n):
    return {"x": rng.random((n, 1, 28, 28)).astype(np.float32)}


# ---- losses: of the mean over the labels ----

def cross_entropy(logits, batch):
    return F.cross_entropy(logits, batch["y"].long())


def squares(logits, batch):
    return F.mse_loss(logits.sigmoid(), batch["x"], reduction="sum") / len(logits)


def click_loss(logits, batch):
    return F.binary_cross_entropy_with_logits(logits[:, 0], batch["y"])


# Name, source, module, inputs, learning rate of the five steps, loss. Normalization of a few values, as in the last
# layers here, amplifies rounding: with larger rates losses in f32 drift apart, as those of PyTorch do from its f64.
NETS = [
    ("mobilenet_v2", "torchvision", lambda: zoo.mobilenet_v2(num_classes=10, dropout=0), images(64), 1e-6),
    ("densenet", "torchvision, growth 8", lambda: zoo.DenseNet(8, (6, 12, 24, 16), 16, num_classes=10), images(64),
     1e-5),
    ("unet", "milesial/Pytorch-UNet, width 8", lambda: UNet(8, 3), images(32, classes=3, maps=True), 1e-2),
    ("vit", "torchvision, 4 layers, width 48", lambda: zoo.VisionTransformer(32, 8, 4, 4, 48, 96, num_classes=10),
     images(32), 1e-2),
    ("squeezenet", "torchvision, 1.1", lambda: zoo.SqueezeNet("1_1", 10, 0), images(64), 1e-3),
    ("shufflenet_v2", "torchvision, x0.5", lambda: zoo.shufflenet_v2_x0_5(num_classes=10), images(64), 1e-5),
    ("inception_v3", "torchvision", lambda: zoo.Inception3(10, False, init_weights=False, dropout=0), images(75),
     1e-6),
    ("llama", "transformers, 2 layers, width 32", llama, tokens(60, 60), 1e-1),
    ("gru", "nn.GRU, 2 layers, bidirectional", Gru, tokens(50), 1e-1),
    ("autoencoder", "nn.Conv2d, nn.ConvTranspose2d", Autoencoder, only_images, 1e-3, squares),
    ("dlrm", "facebookresearch/dlrm, 8 tables", lambda: Dlrm(8, 20, 8, (5, 16), (16,)), clicks, 1e-1, click_loss),
    ("convnext", "torchvision, a quarter of the width", convnext, images(64), 1e-2),
    ("efficientnet_b0", "torchvision",
     lambda: zoo.efficientnet_b0(num_classes=10, dropout=0, stochastic_depth_prob=0), images(64), 1e-6),
    ("regnet_y", "torchvision, 400MF", lambda: zoo.regnet_y_400mf(num_classes=10), images(64), 1e-6),
    ("t5_encoder", "transformers, 2 blocks, width 32", T5, t5_tokens, 1e-1),
    ("distilbert", "transformers, 3 layers, width 32", distilbert, tokens(60), 1e-1),
]
