"""Operations on images [N,C,H,W]. Sizes are one number or (height, width)."""

from __future__ import annotations

from typing import Any, Optional, Tuple, Union

from ._bindings import c
from ._options import code_of
from .graph import Value, call

Pair = Union[int, Tuple[int, int]]
Triple = Union[int, Tuple[int, int, int]]


def _pair(size: Pair) -> Tuple[int, int]:
    return (size, size) if isinstance(size, int) else size


def _pairs(**sizes: Pair) -> Any:
    """stride=(1, 2) as stride_h=1, stride_w=2."""
    found = {}
    for name, size in sizes.items():
        found[name + "_h"], found[name + "_w"] = _pair(size)
    return found


def _triple(size: Triple) -> Tuple[int, int, int]:
    return (size, size, size) if isinstance(size, int) else size


def conv2d(x: Value, w: Value, stride: Pair = 1, pad: Pair = 0, dilation: Pair = 1,
           groups: int = 1) -> Value:
    """Convolution of x [N,C,H,W] with w [O,C/groups,KH,KW] -> [N,O,H',W']."""
    opts = c.kolo_conv2d_opts(groups=groups, **_pairs(stride=stride, pad=pad, dilation=dilation))
    return call("conv2d", x, w, opts)


def conv_transpose2d(x: Value, w: Value, stride: Pair = 1, pad: Pair = 0, dilation: Pair = 1,
                     groups: int = 1, output_pad: Pair = 0) -> Value:
    """Transposed convolution of x [N,C,H,W] with w [C,O/groups,KH,KW], as PyTorch's."""
    opts = c.kolo_conv_transpose2d_opts(groups=groups,
                                        **_pairs(stride=stride, pad=pad, dilation=dilation,
                                                 output_pad=output_pad))
    return call("conv_transpose2d", x, w, opts)


def conv1d(x: Value, w: Value, stride: int = 1, pad: int = 0, dilation: int = 1,
           groups: int = 1) -> Value:
    """Convolution of x [N,C,W] with w [O,C/groups,K] -> [N,O,W']."""
    return call("conv1d", x, w, c.kolo_conv1d_opts(stride, pad, dilation, groups))


def conv3d(x: Value, w: Value, stride: Triple = 1, pad: Triple = 0, dilation: Triple = 1,
           groups: int = 1) -> Value:
    """Convolution of x [N,C,D,H,W] with w [O,C/groups,KD,KH,KW] -> [N,O,D',H',W']."""
    sizes = [_triple(n) for n in (stride, pad, dilation)]
    return call("conv3d", x, w, c.kolo_conv3d_opts(*[n for size in sizes for n in size], groups))


def _pool(name: str, x: Value, kernel: Pair, stride: Optional[Pair], pad: Pair, ceil: bool,
          exclude_padding: bool = False) -> Value:
    opts = c.kolo_pool2d_opts(ceil=ceil, exclude_padding=exclude_padding,
                              **_pairs(kernel=kernel, pad=pad,
                                       stride=kernel if stride is None else stride))
    return call(name, x, opts)


def max_pool2d(x: Value, kernel: Pair, stride: Optional[Pair] = None, pad: Pair = 0,
               ceil: bool = False) -> Value:
    """The maximum of each window; stride: the kernel."""
    return _pool("max_pool2d", x, kernel, stride, pad, ceil)


def avg_pool2d(x: Value, kernel: Pair, stride: Optional[Pair] = None, pad: Pair = 0,
               ceil: bool = False, exclude_padding: bool = False) -> Value:
    """The mean of each window; stride: the kernel."""
    return _pool("avg_pool2d", x, kernel, stride, pad, ceil, exclude_padding)


def _pool3d(name: str, x: Value, kernel: Triple, stride: Optional[Triple], pad: Triple, ceil: bool,
            exclude_padding: bool = False) -> Value:
    sizes = [_triple(n) for n in (kernel, kernel if stride is None else stride, pad)]
    return call(name, x, c.kolo_pool3d_opts(*[n for size in sizes for n in size], ceil, exclude_padding))


def max_pool3d(x: Value, kernel: Triple, stride: Optional[Triple] = None, pad: Triple = 0,
               ceil: bool = False) -> Value:
    """The maximum of each window of x [N,C,D,H,W]; stride: the kernel."""
    return _pool3d("max_pool3d", x, kernel, stride, pad, ceil)


def avg_pool3d(x: Value, kernel: Triple, stride: Optional[Triple] = None, pad: Triple = 0,
               ceil: bool = False, exclude_padding: bool = False) -> Value:
    """The mean of each window of x [N,C,D,H,W]; stride: the kernel."""
    return _pool3d("avg_pool3d", x, kernel, stride, pad, ceil, exclude_padding)


def global_avg_pool2d(x: Value) -> Value:
    """The mean of each channel -> [N,C,1,1]."""
    return call("global_avg_pool2d", x)


def adaptive_avg_pool2d(x: Value, size: Pair) -> Value:
    """Adaptive average pooling -> [N,C,h,w], as in PyTorch."""
    return call("adaptive_avg_pool2d", x, *_pair(size))


def resize(x: Value, size: Pair, align_corners: bool = False) -> Value:
    """Bilinear interpolation -> [N,C,h,w], as in PyTorch."""
    return call("resize", x, *_pair(size), align_corners)


def resize_nearest(x: Value, size: Pair) -> Value:
    """The nearest pixels -> [N,C,h,w], as PyTorch's interpolate(mode="nearest")."""
    return call("resize_nearest", x, *_pair(size))


def grid_sample(x: Value, grid: Value, mode: str = "bilinear", padding: str = "zeros",
                align_corners: bool = False) -> Value:
    """Values of x [N,C,H,W] at the places of grid [N,h,w,2], as PyTorch's grid_sample -> [N,C,h,w].
    mode: "bilinear", "nearest" or "bicubic"; padding: "zeros", "border" or "reflection"."""
    opts = c.kolo_grid_sample_opts(code_of("kolo_grid_mode", "mode", mode),
                                   code_of("kolo_grid_padding", "padding", padding), align_corners)
    return call("grid_sample", x, grid, opts)


def pixel_shuffle(x: Value, factor: int) -> Value:
    """[N,C factor^2,H,W] -> [N,C,H factor,W factor]."""
    return call("pixel_shuffle", x, factor)


def repeat_pixels(x: Value, factor: int) -> Value:
    """Nearest-neighbour enlargement -> [N,C,H factor,W factor]."""
    return call("repeat_pixels", x, factor)


def lrn(x: Value, size: int = 5, alpha: float = 1e-4, beta: float = 0.75, k: float = 1) -> Value:
    """Local response normalization across channels."""
    return call("lrn", x, c.kolo_lrn_opts(size, alpha, beta, k))
