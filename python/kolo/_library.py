"""Loads libkolo-comm and declares its functions and structures.

The structures mirror include/kolo/*.h; tests/python/test_layout.py compares them with the headers.
"""

import ctypes
import os
from ctypes import (CFUNCTYPE, POINTER, Structure, c_bool, c_char_p, c_double, c_float, c_int,
                    c_int64, c_size_t, c_uint32, c_uint64, c_void_p)

NAME = "libkolo-comm.so.0"


def _paths():
    """Candidate paths: KOLO_LIBRARY, the folder of an installed module, the system's search path."""
    if os.environ.get("KOLO_LIBRARY"):
        yield os.environ["KOLO_LIBRARY"]
        return
    here = os.path.dirname(os.path.abspath(__file__))
    try:
        with open(os.path.join(here, "library_folder.txt"), encoding="utf-8") as file:
            yield os.path.join(here, file.read().strip(), NAME)
    except FileNotFoundError:
        yield os.path.join(here, "..", "..", "build", "release", NAME)  # a source tree
    yield NAME


def _load():
    tried = []
    for path in _paths():
        try:
            return ctypes.CDLL(path)
        except OSError as error:
            tried.append(str(error))
    raise ImportError(f"cannot load {NAME}: {'; '.join(tried)}; "
                      "set KOLO_LIBRARY to its path")


class Codec(Structure):
    _fields_ = [("kind", c_int), ("ratio", c_double)]
    header, c_name = "kolo/codec.h", "kolo_codec"


class Part(Structure):
    _fields_ = [("tree_node", c_uint32), ("data", c_void_p), ("count", c_size_t)]
    header, c_name = "kolo/comm.h", "kolo_part"


InterruptedFunction = CFUNCTYPE(c_bool, c_void_p)


class CommOpts(Structure):
    _fields_ = [("rank", c_int), ("world", c_int), ("local_rank", c_int), ("local_world", c_int),
                ("master_addr", c_char_p), ("master_port", c_int), ("secret_file", c_char_p),
                ("timeout_ms", c_int64), ("algorithm", c_int), ("segment_bytes", c_int64),
                ("transport", c_int), ("interface", c_char_p), ("heartbeat_ms", c_int64),
                ("insecure", c_bool), ("generation", c_uint32), ("report_signal", c_int),
                ("report_fd", c_int), ("max_in_flight", c_int), ("progress_thread", c_bool),
                ("interrupted", InterruptedFunction), ("interrupted_arg", c_void_p)]
    header, c_name = "kolo/comm.h", "kolo_comm_opts"


class RequestOpts(Structure):
    _fields_ = [("kind", c_int), ("dtype", c_int), ("op", c_int), ("input", c_void_p),
                ("output", c_void_p), ("count", c_size_t), ("counts", POINTER(c_size_t)),
                ("output_counts", POINTER(c_size_t)), ("parts", POINTER(Part)), ("n_parts", c_int),
                ("root", c_int), ("tag", c_int), ("prescale", c_double), ("postscale", c_double),
                ("shards", c_int), ("algorithm", c_int), ("priority", c_int), ("site", c_char_p)]
    header, c_name = "kolo/comm.h", "kolo_request_opts"


StallFunction = CFUNCTYPE(None, c_void_p, c_char_p)


class NamedOpts(Structure):
    _fields_ = [("fusion_bytes", c_size_t), ("cycle_us", c_int64), ("stall_ms", c_int64),
                ("on_stall", StallFunction), ("arg", c_void_p)]
    header, c_name = "kolo/named.h", "kolo_named_opts"


class ReducerOpts(Structure):
    _fields_ = [("bucket_bytes", c_size_t), ("sum", c_bool), ("codec", Codec)]
    header, c_name = "kolo/reducer.h", "kolo_reducer_opts"


class PeerTraffic(Structure):
    _fields_ = [("sent_bytes", c_uint64), ("received_bytes", c_uint64), ("sends", c_uint64),
                ("receives", c_uint64)]
    header, c_name = "kolo/comm.h", "kolo_peer_traffic"


class Message(Structure):
    _fields_ = [("from", c_int), ("tag", c_int), ("dtype", c_int), ("count", c_size_t)]
    header, c_name = "kolo/comm.h", "kolo_message"


STRUCTURES = (Codec, Part, CommOpts, RequestOpts, NamedOpts, ReducerOpts, PeerTraffic, Message)

# The codes of kolo/status.h, kolo/dtype.h and kolo/comm.h, in their order.
STATUSES = ("KOLO_OK", "KOLO_ERR_ARG", "KOLO_ERR_NOMEM", "KOLO_ERR_IO", "KOLO_ERR_FORMAT",
            "KOLO_ERR_UNSUPPORTED", "KOLO_ERR_TIMEOUT", "KOLO_ERR_PEER",
            "KOLO_ERR_DIVERGED")
DTYPES = ("f32", "f64", "f16", "bf16", "i8", "u8", "i32", "i64")
OPS = ("sum", "min", "max", "prod", "mean", "and", "or", "xor")
COLLECTIVES = ("allreduce", "broadcast", "barrier", "reduce", "reduce_scatter", "allgather",
               "gather", "scatter", "alltoall", "send", "recv")

_P = c_void_p
_SIGNATURES = {
    "kolo_comm_create": (c_int, [POINTER(CommOpts), POINTER(_P)]),
    "kolo_comm_destroy": (None, [_P]),
    "kolo_comm_rank": (c_int, [_P]),
    "kolo_comm_size": (c_int, [_P]),
    "kolo_comm_local_rank": (c_int, [_P]),
    "kolo_comm_local_size": (c_int, [_P]),
    "kolo_comm_transport": (c_char_p, [_P]),
    "kolo_comm_host_count": (c_int, [_P]),
    "kolo_comm_host": (c_int, [_P, c_int]),
    "kolo_comm_split": (c_int, [_P, c_int, c_int, POINTER(_P)]),
    "kolo_comm_load_costs": (c_int, [_P, c_char_p]),
    "kolo_comm_report": (None, [_P, c_char_p, c_size_t]),
    "kolo_comm_peer_traffic": (c_int, [_P, c_int, POINTER(PeerTraffic)]),
    "kolo_comm_alloc": (c_int, [_P, c_size_t, POINTER(_P)]),
    "kolo_comm_progress": (c_int, [_P]),
    "kolo_algorithm_parse": (c_int, [c_char_p, POINTER(c_int)]),
    "kolo_transport_parse": (c_int, [c_char_p, POINTER(c_int)]),
    "kolo_tree_nodes": (c_int, [c_int, c_int, c_int, POINTER(c_uint32)]),
    "kolo_combine": (c_int, [_P, _P, c_size_t, c_int, c_int]),
    "kolo_request_create": (c_int, [_P, POINTER(RequestOpts), POINTER(_P)]),
    "kolo_request_start": (c_int, [_P]),
    "kolo_request_test": (c_int, [_P, POINTER(c_bool)]),
    "kolo_request_wait": (c_int, [_P, c_int64]),
    "kolo_request_destroy": (None, [_P]),
    "kolo_request_run": (c_int, [_P, POINTER(RequestOpts), c_int64]),
    "kolo_barrier": (c_int, [_P]),
    "kolo_probe": (c_int, [_P, c_int, c_int, POINTER(c_bool), POINTER(Message)]),
    "kolo_named_create": (c_int, [_P, POINTER(NamedOpts), POINTER(_P)]),
    "kolo_named_destroy": (None, [_P]),
    "kolo_named_post": (c_int, [_P, c_char_p, _P, c_size_t, c_int, c_int, POINTER(c_int)]),
    "kolo_named_test": (c_int, [_P, c_int, POINTER(c_bool)]),
    "kolo_named_wait": (c_int, [_P, c_int, c_int64]),
    "kolo_reducer_create": (c_int, [_P, POINTER(Part), c_int, c_int, POINTER(ReducerOpts),
                                    POINTER(_P)]),
    "kolo_reducer_ready": (c_int, [_P, c_int]),
    "kolo_reducer_wait": (c_int, [_P]),
    "kolo_reducer_destroy": (None, [_P]),
    "kolo_codec_parse": (c_int, [c_char_p, POINTER(Codec)]),
    "kolo_codec_bytes": (c_size_t, [POINTER(Codec), c_size_t]),
    "kolo_codec_encode": (c_int, [POINTER(Codec), _P, c_size_t, _P, _P, c_size_t]),
    "kolo_codec_decode": (c_int, [POINTER(Codec), _P, c_size_t, _P, c_size_t]),
    "kolo_codec_add": (c_int, [POINTER(Codec), _P, c_size_t, _P, c_size_t, c_float]),
    "kolo_last_error": (c_char_p, []),
    "kolo_status_text": (c_char_p, [c_int]),
    "kolo_version": (c_char_p, []),
}

lib = _load()
for _name, (_result, _arguments) in _SIGNATURES.items():
    _function = getattr(lib, _name)
    _function.restype = _result
    _function.argtypes = _arguments
