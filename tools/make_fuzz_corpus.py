#!/usr/bin/env python3
"""Makes the seeds of the fuzzers, small files in tests/fuzz/corpus/NAME, most of them well-formed.

They are committed; run this again only to add one.
"""
import base64
import gzip
import io
import json
import pathlib
import struct
import tarfile
import zlib

CORPUS = pathlib.Path(__file__).resolve().parent.parent / "tests/fuzz/corpus"


def idx(*dims):
    count = 1
    for dim in dims:
        count *= dim
    header = struct.pack(">I", 0x800 | len(dims)) + struct.pack(f">{len(dims)}I", *dims)
    return header + bytes(i % 10 for i in range(count))


def packed(data):
    return gzip.compress(data, mtime=0)


def safetensors(header, data):
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + bytes(range(data))


def tensor(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def clicks(*lines):
    """The two options of the fuzzer, and lines of Criteo's log with a number and a category each."""
    text = "".join(f"{y}\t{number}{13 * chr(9)}{category}{25 * chr(9)}\n" for y, number, category in lines)
    return b"\1\x63" + text.encode()


def archive(form, *names):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=form) as tar:
        for name in names:
            info = tarfile.TarInfo(name)
            info.size, info.mtime = 3, 1.25
            tar.addfile(info, io.BytesIO(b"123"))
    return file.getvalue()[:512 * (4 * len(names) + 3)]


def shard_index(*samples):
    """Of the shard of the fuzzer, which sets the hash."""
    text = b"cls\n\n/a.tar"
    head = struct.pack("<16sQqqqqQQ", b"kolo tar index 1", 4096, 1700000000, 1, 1700000001, 2, len(text), len(samples))
    return head + text + bytes(-len(text) % 8) + b"".join(struct.pack("<QQii", *s, 0) for s in samples) + bytes(8)


def png(colour, channels, depth=8):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    row = b"\0" + bytes(range(5 * channels * depth // 8))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 5, 4, depth, colour, 0, 0, 0)) +
            (chunk(b"PLTE", bytes(range(30))) if colour == 3 else b"") +
            chunk(b"IDAT", zlib.compress(row * 4)) + chunk(b"IEND", b""))


SEEDS = {
    "criteo/log": clicks((1, 3, "05db9164"), (0, -1, ""), (0, "", "FFffFFff")),
    "criteo/blank": clicks((1, 3, "a")) + b"\r\n\n" + clicks((0, 123456789012345, "0"))[2:-1],
    "labelled/text": b"\1\7__label__a x y z\n__label__b\n\n__label__a y\n",
    "labelled/one": b"\0\0__label__a\tx\r\n",
    "labelled/two": b"\3\100__label__a __label__b x\n",
    "tar/pax": archive(tarfile.PAX_FORMAT, "a.jpg", "a.cls"),
    "tar/gnu": archive(tarfile.GNU_FORMAT, "d" * 101 + "/a.jpg", "a.cls"),
    "tar/ustar": archive(tarfile.USTAR_FORMAT, "d" * 90 + "/" + "e" * 90 + ".png", "b"),
    "shard_index/none": shard_index(),
    "shard_index/two": shard_index((512, 1000, 3), (2048, 2048, 0)),
    "image/grey.png": png(0, 1),
    "image/rgb16.png": png(2, 3, 16),
    "image/palette.png": png(3, 1),
    "image/rgba.png": png(6, 4),
    # 9 x 7 pixels, by libjpeg.
    "image/baseline.jpg": base64.b64decode(
        "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAA0JCgsKCA0LCgsODg0PEyAVExISEyccHhcgLikxMC4pLSwzOko+MzZGNywtQFdBRkxO"
        "UlNSMj5aYVpQYEpRUk//2wBDAQ4ODhMREyYVFSZPNS01T09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09P"
        "T09PT09PT0//wAARCAAHAAkDASIAAhEBAxEB/8QAFgABAQEAAAAAAAAAAAAAAAAAAAIG/8QAHBAAAQMFAAAAAAAAAAAAAAAAAAEC"
        "BQYWISJR/8QAFAEBAAAAAAAAAAAAAAAAAAAAAv/EABQRAQAAAAAAAAAAAAAAAAAAAAD/2gAMAwEAAhEDEQA/AJgadbrhDU263iAC"
        "F//Z"),
    "image/progressive.jpg": base64.b64decode(
        "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAA0JCgsKCA0LCgsODg0PEyAVExISEyccHhcgLikxMC4pLSwzOko+MzZGNywtQFdBRkxO"
        "UlNSMj5aYVpQYEpRUk//2wBDAQ4ODhMREyYVFSZPNS01T09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09P"
        "T09PT09PT0//wgARCAAHAAkDASIAAhEBAxEB/8QAFgABAQEAAAAAAAAAAAAAAAAAAAEF/8QAFAEBAAAAAAAAAAAAAAAAAAAAAf/a"
        "AAwDAQACEAMQAAABmoJ//8QAFxABAAMAAAAAAAAAAAAAAAAAAAMEFP/aAAgBAQABBQKCuzv/xAAUEQEAAAAAAAAAAAAAAAAAAAAA"
        "/9oACAEDAQE/AX//xAAUEQEAAAAAAAAAAAAAAAAAAAAA/9oACAECAQE/AX//xAAUEAEAAAAAAAAAAAAAAAAAAAAQ/9oACAEBAAY/"
        "Aj//xAAXEAEAAwAAAAAAAAAAAAAAAAAAAREh/9oACAEBAAE/IY8Vf//aAAwDAQACAAMAAAAQc//EABQRAQAAAAAAAAAAAAAAAAAA"
        "AAD/2gAIAQMBAT8Qf//EABQRAQAAAAAAAAAAAAAAAAAAAAD/2gAIAQIBAT8Qf//EABcQAAMBAAAAAAAAAAAAAAAAAAABQWH/2gAI"
        "AQEAAT8QgIwR/9k="),
    "image/cmyk.jpg": base64.b64decode(
        "/9j/7gAOQWRvYmUAZAAAAAAA/9sAQwANCQoLCggNCwoLDg4NDxMgFRMSEhMnHB4XIC4pMTAuKS0sMzpKPjM2RjcsLUBXQUZMTlJT"
        "UjI+WmFaUGBKUVJP/8AAFAgABwAJBEMRAE0RAFkRAEsRAP/EABYAAQEBAAAAAAAAAAAAAAAAAAEDBP/EACEQAAEEAgAHAAAAAAAA"
        "AAAAAAECAwQRAAUGFiExVJPS/9oADgRDAE0AWQBLAAA/AHQaaPEirlSCEMsoLjiqukgWTQ69hlNBpo8SKuVIIQyyguOKq6SBZNDr"
        "2GX0GmjxIq5UghDLKC44qrpIFk0OvYZq0GmjxIq5UghDLKC44qrpIFk0OvYY86cPeFsfW39486cPeFsfW39486cPeFsfW39486cP"
        "eFsfW395/9k="),
    # Rows of 24 x 45 grey pixels, and units of 68 x 37 of 2x1 colours, between restart markers.
    "image/restart_rows.jpg": base64.b64decode(
        "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDACgcHiMeGSgjISMtKygwPGRBPDc3PHtYXUlkkYCZlo+AjIqgtObDoKrarYqMyP/L2u71////"
        "m8H////6/+b9//j/wAALCAAtABgBAREA/8QAFwAAAwEAAAAAAAAAAAAAAAAAAQIEA//EACMQAAEEAQQCAwEAAAAAAAAAAAEAAgMRIRIT"
        "IjFBUQQjYYH/3QAEAAP/2gAIAQEAAD8AqgjLXW4UK8pnkCa2i8jPhCYGUtI5V68L/9CyV5nbpZ7ukWANj0HDq6QY8Q2D5X//0bQB8c6n"
        "ZvFBIQ6V250zuk5aJRYxp7tf/9Kxo3uNVWUTII/pAs9Wloxmzyv+Uv/TrfbBbcXiimbGC3dPYz+YQDxLj16X/9S2PnevIAulm57jJtg0"
        "y60p3NEVaMX2v//Z"),
    "image/restart_units.jpg": base64.b64decode(
        "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDACgcHiMeGSgjISMtKygwPGRBPDc3PHtYXUlkkYCZlo+AjIqgtObDoKrarYqMyP/L2u71////"
        "m8H////6/+b9//j/2wBDASstLTw1PHZBQXb4pYyl+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4"
        "+Pj/wAARCAAlAEQDASEAAhEBAxEB/8QAGQABAQEBAQEAAAAAAAAAAAAABAECAAMF/8QAKBAAAQQBBAEDBQEBAAAAAAAAAQACESEDEhMx"
        "QVEiIzIEQmFxgWKR/8QAFgEBAQEAAAAAAAAAAAAAAAAAAAEC/8QAHBEBAAIDAQEBAAAAAAAAAAAAAAFBETFRIRJh/90ABAAB/9oADAMB"
        "AAIRAxEAPwBX07C10uECO1chnNLbbIvpB//QZlGvTpuPHSryHYdINwK7SyOy/9FuEhrDqOm+1jECHy4aRHaR03L/0mERl1RIkX0s5pyl"
        "pFx46Sh//9P6LNIYASAQPK5B/9RmV+63Rju7VYA3HoNOjhB//9VbXaCQ6gePyuawtfuO+PMponj/1l5AcrgW20UtZHDI2G3BmErBPIf/"
        "12A+jQadEQrjIwA66nhLwaf/0Pd2N+RxdEgmRa5Mj//RYxmydTrHFKOnI7cFM5jukjo//9JukZRIoN5lZc/cG0BBFf8AENP/02tIwNh9"
        "k3Sy0HEdT7HEBLI6/9RhBJ3ft5julHDfMio8pWSOv//VcMzGANIMilyYTL//1l6t/wBAGkC1QQz2uep/aTw1D//XWScZ8g/xaDBjG8T+"
        "Y/aD/9BcH6g6vjFRyrIyDTEdpRt//9FerSdsiTxKp9j/AEXfxPwn3yH/0l7Gv1F3yvhcr9Q1h//TYWjENTf1akB43DyLjqlbI9l//9Rr"
        "Pd+XXhY1HI/bPx4SNFv/1Wzs02xE2sEbfqHJq0H/1m6QWbv3C46WW+9buR4SNkeRl//XXuFvpqqXLLL/2Q=="),
    "idx/images": idx(2, 3, 4),
    "idx/images.gz": packed(idx(2, 3, 4)),
    "idx/labels": idx(5),
    "idx/labels.gz": packed(idx(5)),
    "idx/members.gz": packed(idx(300)[:6]) + packed(idx(300)[6:]),
    "safetensors/nothing": safetensors({}, 0),
    "safetensors/one": safetensors({"a": tensor("F32", [2], 0, 8)}, 8),
    "safetensors/many": safetensors({
        "__metadata__": {"model": "mlp", "step": "3"},
        "linear.weight": tensor("F32", [2, 1, 3], 0, 24),
        "scalar": tensor("F64", [], 24, 32),
        "empty": tensor("BF16", [0, 7], 32, 32),
        "labels": tensor("U8", [3], 32, 35),
    }, 35),
    "safetensors/overlap": safetensors({"a": tensor("F32", [2], 0, 8),
                                        "b": tensor("F32", [2], 4, 12)}, 12),
    "safetensors/gap": safetensors({"a": tensor("U8", [2], 0, 2), "b": tensor("U8", [2], 3, 5)}, 5),
}

for name, data in SEEDS.items():
    path = CORPUS / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
