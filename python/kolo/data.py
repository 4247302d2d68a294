"""Data sets: samples with labels, in random access."""

from __future__ import annotations

import ctypes
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from . import _arrays, _errors
from ._arrays import Array
from ._bindings import NotCopied, c, finalize
from ._bindings import lib as _comm
from ._bindings import training as _lib
from ._options import code_of
from .graph import DTYPES, read_shape

_ERR_ARG = 1

# Mean and standard deviation of u8 samples, which become (x / 255 - mean) / deviation: numbers, or one
# for each channel.
Normalize = Mapping[str, Tuple[Any, Any]]


class Dataset(NotCopied):
    """Samples of named fields; field "x" fills the input "x" of a model.

        Dataset({"x": images, "y": labels})

    ``arrays`` are numpy arrays or tensors with DLPack, [samples, ...]. Data of type float32, int32 and
    uint8 that is contiguous is not copied and must not change; other numbers are converted to float32
    or int32. uint8 fills float inputs: see ``normalize``. ``classes``: labels "y" are checked to be
    below it.
    """

    def __init__(self, arrays: Mapping[str, Any], normalize: Optional[Normalize] = None,
                 classes: int = 0, name: str = "data of the program") -> None:
        source = _arrays.Fields(c.kolo_source, arrays, normalize)
        source.value.name, source.value.classes = name.encode(), classes
        self._create(source.value, source)

    def _create(self, source: Any, owner: Any) -> None:
        handle = ctypes.c_void_p()
        _lib.kolo_dataset_create(ctypes.byref(source), ctypes.byref(handle))
        self._adopt(handle, owner)

    def _adopt(self, handle: ctypes.c_void_p, owner: Any) -> None:
        self.handle = handle
        self._info = _lib.kolo_dataset_describe(handle).contents
        self._failures: List[BaseException] = getattr(owner, "failures", [])
        finalize(self, _lib.kolo_dataset_close, handle, owner)

    @classmethod
    def open(cls, spec: str, split: str = "train", context: int = 0, vocabulary: int = 0,
             numbers: int = 0, categories: int = 0, rows: int = 0,
             features: int = 0) -> Dataset:
        """A data set of the command, such as "fashion-mnist", "mnist:DIR" or "text:FILE" (kolo help
        data); ``split`` is "train" or "test". Text and tokens need the length of a window,
        ``context``, and the ``vocabulary`` of the model; click logs need the ``numbers`` and
        ``categories`` of a sample and the ``rows`` of a category, labelled texts the ``features`` of
        a sample and the ``rows`` of their table: kolo.Model.open sets them."""
        opts = c.kolo_dataset_opts(context=context, vocabulary=vocabulary, numbers=numbers,
                                   categories=categories, rows=rows, features=features)
        return cls._open(spec, split, opts)

    @classmethod
    def _open(cls, spec: str, split: str, opts: Any) -> Dataset:
        handle = ctypes.c_void_p()
        _lib.kolo_dataset_open_for(spec.encode(), code_of("kolo_split", "split", split),
                                   ctypes.byref(opts), ctypes.byref(handle))
        dataset = cls.__new__(cls)
        dataset._adopt(handle, None)
        return dataset

    @classmethod
    def from_function(cls, count: int, fields: Mapping[str, Tuple[str, Sequence[int]]],
                      gather: Callable[[Array], Mapping[str, Any]],
                      normalize: Optional[Normalize] = None,
                      name: str = "data of the program") -> Dataset:
        """``count`` samples that ``gather(indices)`` returns: for each field an array
        [len(indices), ...]. ``fields`` are type and shape of a sample: {"x": ("u8", (3, 32, 32)),
        "y": ("i32", ())}; other numbers are converted, where integers fit. ``gather`` runs in threads of
        loaders, and must not use the session that waits for them; its exception ends a run."""
        source = _Callback(count, fields, gather, normalize, name)
        dataset = cls.__new__(cls)
        dataset._create(source.value, source)
        return dataset

    def raise_failure(self) -> None:
        """Raises the exception of a ``gather`` function, if any."""
        if self._failures:
            failure = self._failures[0]
            self._failures.clear()
            raise failure

    def __len__(self) -> int:
        return int(self._info.count)

    @property
    def name(self) -> str:
        """Its name in messages."""
        return str(self._info.name.decode())

    @property
    def classes(self) -> int:
        """Labels are below this; 0: unknown."""
        return int(self._info.classes)

    @property
    def fields(self) -> Dict[str, Tuple[str, Tuple[int, ...]]]:
        """Type and shape of the fields of a sample."""
        return {f.name.decode(): (DTYPES[f.dtype], read_shape(f.shape))
                for f in self._info.fields[:self._info.n_fields]}

    def gather(self, indices: Union[int, Sequence[int], Array]) -> Dict[str, Array]:
        """Copies of samples: an array [len(indices), ...] for each field."""
        np = _arrays.numpy()
        given = np.atleast_1d(np.asarray(indices))
        if given.dtype.kind == "b":
            raise TypeError("indices of type bool: give numbers, as of numpy.flatnonzero")
        wanted = _arrays.as_type("the list of indices", given, np.int64) if given.size else given.astype(np.int64)
        result = {n: _arrays.empty(dtype, (len(wanted), *shape))
                  for n, (dtype, shape) in self.fields.items()}
        to = (ctypes.c_void_p * len(result))(*map(_arrays.address, result.values()))
        try:
            _lib.kolo_dataset_gather(
                self.handle, wanted.ctypes.data_as(ctypes.POINTER(ctypes.c_int64)), len(wanted),
                ctypes.cast(to, ctypes.POINTER(ctypes.c_void_p)))
        except Exception:
            self.raise_failure()
            raise
        return result


class _Callback:
    """A kolo_source whose samples a Python function returns. It does not refer to the data set, which
    thus is freed when it is not in use."""

    def __init__(self, count: int, fields: Mapping[str, Tuple[str, Sequence[int]]],
                 gather: Callable[[Array], Mapping[str, Any]], normalize: Optional[Normalize],
                 name: str) -> None:
        self.failures: List[BaseException] = []
        self._gather, self._fields = gather, {n: (t, tuple(s)) for n, (t, s) in fields.items()}
        pairs = _arrays.check_normalize(normalize, fields)
        self._array = (c.kolo_field * max(len(fields), 1))(
            *(_arrays.make_field(n, t, s, pairs.get(n, ((), ())))
              for n, (t, s) in self._fields.items()))
        self.value = c.kolo_source(name=name.encode(), count=count, n_fields=len(fields),
                                   fields=ctypes.cast(self._array, ctypes.POINTER(c.kolo_field)),
                                   gather=c.kolo_read_samples(self._read))

    def _read(self, _arg: Any, indices: Any, n: int, to: Any) -> int:
        try:
            np = _arrays.numpy()
            wanted = np.array(indices[:n], np.int64)
            found = self._gather(wanted)
            for i, (name, (dtype, shape)) in enumerate(self._fields.items()):
                target = _arrays.view(to[i], dtype, (n, *shape), None)
                what = f"field {name!r}"
                array = _arrays.as_array(what, found[name])
                if array.shape != target.shape:
                    raise ValueError(f"{what} of {n} samples has shape "
                                     f"{list(array.shape)}, not {list(target.shape)}")
                target[...] = _arrays.as_type(what, array, target.dtype)
            return 0
        except BaseException as failure:  # pylint: disable=broad-except
            self.failures.append(failure)
            return int(_comm.kolo_error_set(_ERR_ARG, b"%s", _errors.text_of(failure)))


def as_dataset(data: Union[Dataset, Mapping[str, Any]]) -> Dataset:
    """A data set, or one of arrays."""
    return data if isinstance(data, Dataset) else Dataset(data)
