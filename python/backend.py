"""Builds the wheel (PEP 517) with nothing but the standard library and CMake.

The wheel holds the module, libkolo, libkolo-comm, the command, and the libraries that these need, except
those that every Linux with this glibc has. It uses the build in the folder KOLO_BUILD, or build/release as
it is; without one it makes a build in build/wheel. The modules for MPI and UCX are left out: they need the
MPI or UCX of the system.
"""

import base64
import hashlib
import os
import re
import shutil
import struct
import subprocess
import sys
import sysconfig
import tempfile
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
NAMES = ("libkolo.so.0", "libkolo-comm.so.0")

# Libraries that stay outside: glibc, and what PEP 600 lets wheels expect of the system.
SYSTEM = re.compile(r"(ld-linux.*|linux-vdso|lib(c|m|mvec|dl|rt|pthread|util|resolv|gcc_s|stdc\+\+|z))"
                    r"\.so(\.\d+)*$")

METADATA = """Metadata-Version: 2.1
Name: kolo
Version: {version}
Summary: Trains neural networks on many workers, and communicates between them
Requires-Python: >=3.8
Requires-Dist: numpy>=1.22
"""


def _version():
    with open(os.path.join(ROOT, "CMakeLists.txt"), encoding="utf-8") as file:
        return re.search(r"project\(kolo VERSION ([\d.]+)", file.read()).group(1)


def _tag():
    """The platform: any Linux with this glibc or a later one, on this processor."""
    machine = sysconfig.get_platform().split("-", 1)[1].replace("-", "_").replace(".", "_")
    glibc = os.confstr("CS_GNU_LIBC_VERSION").split()[1].split(".")
    return f"py3-none-manylinux_{glibc[0]}_{glibc[1]}_{machine}"


# ---- libraries ----


def _run(*command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}")
    return done.stdout


def _installed(folder):
    """Installs a build to `folder`."""
    build = os.environ.get("KOLO_BUILD")
    release = os.path.join(ROOT, "build", "release")
    if not build and os.path.exists(os.path.join(release, NAMES[0])):
        build = release
    if not build:
        build = os.path.join(ROOT, "build", "wheel")
        _run("cmake", "-S", ROOT, "-B", build, "-DCMAKE_BUILD_TYPE=Release", "-DKOLO_TESTS=OFF")
        _run("cmake", "--build", build, "--parallel", str(os.cpu_count() or 1))
    _run("cmake", "--install", build, "--prefix", folder, "--strip")


def _needed(path):
    """The libraries that a file needs and a wheel must hold: name, path."""
    for line in _run("ldd", path).splitlines():
        name, _, place = line.strip().partition(" => ")
        if not place or SYSTEM.match(name):
            continue
        if not place.startswith("/"):
            sys.exit(f"{path} needs {name}, which is not found")
        yield name, place.split(" (")[0]


def _search_beside(data):
    """Turns the RUNPATH of an ELF file into an RPATH, which the libraries of the libraries are found by
    too."""
    if data[:6] != b"\x7fELF\x02\x01":
        sys.exit("only 64-bit little-endian ELF files can be packed")
    file = bytearray(data)
    table, = struct.unpack_from("<Q", file, 32)
    size, count = struct.unpack_from("<HH", file, 54)
    for i in range(count):
        kind, = struct.unpack_from("<I", file, table + i * size)
        offset, = struct.unpack_from("<Q", file, table + i * size + 8)
        while kind == 2:  # PT_DYNAMIC
            tag, = struct.unpack_from("<Q", file, offset)
            if tag == 29:  # DT_RUNPATH
                struct.pack_into("<Q", file, offset, 15)  # DT_RPATH
            if tag == 0:
                break
            offset += 16
    return bytes(file)


def _licence(path):
    """Debian's copyright file of the package of a library, or None."""
    if not shutil.which("dpkg"):
        return None
    for name in (path, os.path.realpath(path), os.path.realpath(path).replace("/usr/lib", "/lib", 1)):
        done = subprocess.run(["dpkg", "-S", name], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True, check=False)
        copyright_file = f"/usr/share/doc/{done.stdout.split(':')[0]}/copyright"
        if done.returncode == 0 and os.path.exists(copyright_file):
            return copyright_file
    return None


# ---- the wheel ----


def _files(prefix):
    """The files of the wheel: name, contents."""
    def read(path):
        with open(path, "rb") as file:
            return file.read()

    for name in sorted(os.listdir(os.path.join(HERE, "kolo"))):
        if name.endswith(".py") or name == "py.typed":
            yield f"kolo/{name}", read(os.path.join(HERE, "kolo", name))
    libraries = {}
    for folder, _, names in os.walk(prefix):
        for name in names:
            path, inside = os.path.join(folder, name), os.path.relpath(folder, prefix)
            if name not in NAMES and (inside, name) != ("bin", "kolo"):
                continue
            if name == NAMES[0]:
                beside = inside
            yield f"kolo/{inside}/{name}", _search_beside(read(path))
            libraries.update(n for n in _needed(path) if n[0] not in NAMES)
    yield "kolo/library_folder.txt", beside.encode() + b"\n"
    for name, path in sorted(libraries.items()):
        yield f"kolo/{beside}/{name}", read(path)
        licence = _licence(path)
        if licence:
            yield f"{_info()}/licenses/{name}.txt", read(licence)
    yield f"{_info()}/METADATA", METADATA.format(version=_version()).encode()
    yield (f"{_info()}/WHEEL", f"Wheel-Version: 1.0\nGenerator: kolo\nRoot-Is-Purelib: false\n"
                               f"Tag: {_tag()}\n".encode())
    yield f"{_info()}/entry_points.txt", b"[console_scripts]\nkolo = kolo.__main__:main\n"


def _info():
    return f"kolo-{_version()}.dist-info"


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """PEP 517: makes the wheel and returns its name."""
    name = f"kolo-{_version()}-{_tag()}.whl"
    record = []
    with tempfile.TemporaryDirectory() as prefix, \
            zipfile.ZipFile(os.path.join(wheel_directory, name), "w", zipfile.ZIP_DEFLATED) as wheel:
        _installed(prefix)

        def add(place, data):
            entry = zipfile.ZipInfo(place, (2020, 1, 1, 0, 0, 0))
            entry.external_attr = (0o100755 if place == "kolo/bin/kolo" else 0o100644) << 16
            wheel.writestr(entry, data, zipfile.ZIP_DEFLATED, 6)

        for place, data in _files(prefix):
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{place},sha256={digest},{len(data)}\n")
            add(place, data)
        record.append(f"{_info()}/RECORD,,\n")
        add(f"{_info()}/RECORD", "".join(record).encode())
    return name


def build_sdist(sdist_directory, config_settings=None):
    """PEP 517: not supported."""
    raise NotImplementedError("the wheel is made in a clone: pip install ./python")
