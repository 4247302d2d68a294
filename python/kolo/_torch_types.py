"""Kolo's names of PyTorch's element types."""

from __future__ import annotations

from typing import Dict

import torch

TYPES: Dict[torch.dtype, str] = {
    torch.float32: "f32", torch.float64: "f64", torch.float16: "f16", torch.bfloat16: "bf16",
    torch.int8: "i8", torch.uint8: "u8", torch.bool: "u8", torch.int16: "i16", torch.int32: "i32",
    torch.int64: "i64", torch.complex64: "c64", torch.complex128: "c128"}
for _bits in (16, 32, 64):  # since PyTorch 2.3
    if hasattr(torch, f"uint{_bits}"):
        TYPES[getattr(torch, f"uint{_bits}")] = f"u{_bits}"
