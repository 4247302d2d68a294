"""Shards written by Python's tarfile, as webdataset's TarWriter writes them, are read."""
# needs numpy; ranks 0

import io
import os
import struct
import tarfile
import tempfile
import zlib

import numpy as np

import kolo


def png(grey):
    """An image of 6 x 6 pixels of one grey."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = b"".join(b"\0" + bytes([grey]) * 6 for _ in range(6))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 6, 6, 8, 0, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def write_shard(path, samples, tar_format):
    with tarfile.open(path, "w", format=tar_format) as tar:
        for key, grey, label in samples:
            for kind, data in (("png", png(grey)), ("cls", str(label).encode()), ("json", b"{}")):
                info = tarfile.TarInfo(f"{key}.{kind}")
                info.size = len(data)
                info.mtime = 1700000000.25  # of pax: a header of its own
                info.mode, info.uname, info.gname = 0o444, "bigdata", "bigdata"
                tar.addfile(info, io.BytesIO(data))


def read_all(spec, split):
    data = kolo.Dataset.open(spec, split)
    batch = data.gather(list(range(len(data))))
    assert batch["x"].shape == (len(data), 3, 4, 4), batch["x"].shape
    return [(int(x[0, 0, 0]), int(y)) for x, y in zip(batch["x"], batch["y"])], data.classes


with tempfile.TemporaryDirectory() as folder:
    forms = (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT)
    wanted = []
    for i, form in enumerate(forms):
        deep = "d" * 60 + "/" + "e" * 60  # longer than the name of a header
        samples = [(f"{deep}/{i}{k}", 60 * i + 20 * k, (i + k) % 4) for k in range(3)]
        write_shard(f"{folder}/train-{i:04}.tar", samples, form)
        wanted += [(grey, label) for _, grey, label in samples]
    write_shard(f"{folder}/val-0000.tar", [("x/a", 200, 2), ("c", 210, 3)], tarfile.PAX_FORMAT)
    spec = f"webdataset:{folder}/train-*.tar,test=val-*.tar,size=4"
    assert read_all(spec, "train") == (wanted, 4), read_all(spec, "train")
    assert read_all(spec, "test") == ([(200, 2), (210, 3)], 4)
    halves = [read_all(f"webdataset:{folder}/train-*.tar,size=4,split=0.5", s)[0] for s in ("train", "test")]
    assert sorted(halves[0] + halves[1]) == sorted(wanted) and len(halves[1]) in (4, 5), halves

    whole = open(f"{folder}/train-0001.tar", "rb").read()
    with open(f"{folder}/cut-0000.tar", "wb") as f:
        f.write(whole[:2000])
    try:
        read_all(f"webdataset:{folder}/cut-*.tar", "train")
        raise AssertionError("a truncated shard was read")
    except kolo.Error as error:
        assert "cut-0000.tar: offset" in str(error) and "whole, uncompressed tar" in str(error), error
print("ok")
