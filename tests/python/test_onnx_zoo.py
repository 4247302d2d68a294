"""Each network of the zoo, exported to ONNX, has the same logits in ONNX Runtime."""
# needs onnxruntime numpy; ranks 0

import os
import tempfile

import kolo
import numpy as np
import onnxruntime

BATCH = 3
IMAGES = [("mlp", (1, 8, 8), "hidden=16"), ("lenet", (1, 28, 28), ""), ("resnet20", (3, 16, 16), ""),
          ("resnet18", (3, 32, 32), ""), ("mobilenet_v2", (3, 32, 32), ""), ("densenet121", (3, 32, 32), ""),
          ("googlenet", (3, 64, 64), "aux=0"), ("vit_tiny", (1, 28, 28), "patch=7"), ("unet", (3, 32, 32), ""),
          ("deeplabv3_resnet101", (3, 33, 33), "")]
TOKENS = [("lstm_lm", "layers=2,hidden=16,width=16,context=8,vocab=256"), ("gpt2_tiny", "context=32"),
          ("gpt2_moe", "layers=2,width=16,heads=2,context=12,vocab=32,experts=4,top=1,capacity=60"),
          ("gpt2_moe", "layers=1,width=16,heads=2,context=12,vocab=32,experts=5,top=3,capacity=90"),
          ("llama_tiny", "layers=2"), ("bert_tiny", "vocab=128,mask=3,context=32")]


def compare(model, fields):
    """Predicts with Kolo and with ONNX Runtime, whose files read some of the fields."""
    session = kolo.Session(model, batch=BATCH, evaluate_only=True, seed=5)
    for name, (_, shape) in session.tensors().items():  # biases and running statistics as after training
        values = session.get(name)
        noise = np.random.default_rng(len(name)).uniform(0, 0.3, shape).astype(np.float32)
        if values.ndim == 1 or not values.any():
            session.set(name, values + noise)
    want = session.predict("logits", **fields)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "net.onnx")
        session.export_onnx(path)
        there = onnxruntime.InferenceSession(path)
        given = {i.name: fields[i.name] for i in there.get_inputs()}
        got, = there.run(None, given)
    assert got.shape == want.shape, (model.name, got.shape, want.shape)
    difference = np.abs(got - want).max() / np.abs(want).max()
    assert difference < 1e-4, f"{model.name} {model.options}: {difference}"


def main():
    random = np.random.default_rng(1)
    for name, sample, options in IMAGES:
        model = kolo.Model(name, sample=sample, classes=5, options=options)
        compare(model, {"x": random.normal(size=(BATCH, *sample)).astype(np.float32)})
    for name, options in TOKENS:
        model = kolo.Model(name, options=options)
        ids = random.integers(0, model.classes, (BATCH, *model.sample), dtype=np.int32)
        compare(model, {"x": ids, "y": 0 * ids - 1})  # bert masks no tokens without labels
    dlrm = kolo.Model("dlrm", options="tables=10,rows=7,dim=4,dense=3,bottom1=8,bottom2=0,bottom3=5,top1=6")
    compare(dlrm, {"x": random.normal(size=(BATCH, 3)).astype(np.float32),
                   "ids": random.integers(0, 7, (BATCH, 10), dtype=np.int32)})
    # Bags of texts: the ids after the last feature are -1.
    ids = random.integers(0, 50, (BATCH, 6), dtype=np.int32)
    ids[0, 4:] = ids[2, 1:] = -1
    texts = kolo.Model("fasttext", classes=4, options="rows=50,width=8,features=6")
    compare(texts, {"x": (1 / (ids >= 0).sum(1, keepdims=True)).astype(np.float32), "ids": ids})


main()
