"""Build the library that replaces CUDA's, once for each PyTorch, in a cache folder of the user.

It consists of the C files of this package, and of stubs, generated for all other functions that
PyTorch's libraries import. The headers are those of the wheels that PyTorch was installed with, so
structures have the layout of its version of CUDA.
"""

import hashlib
import importlib.util
import os
import platform
import re
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

SOURCES = Path(__file__).with_name("c")
NAME = "libcuda.so.1"  # that of CUDA's driver, which PyTorch and Triton load by name
OTHER_NAMES = ("libcuda.so", "libnvidia-ml.so.1")  # -lcuda, with which Triton links; NVML
WARNINGS = ["-Wall", "-Wextra", "-Wno-unused-parameter", "-Wno-deprecated-declarations"]
FLAGS = ["-std=gnu11", "-O1", "-fPIC", "-shared", f"-Wl,-soname,{NAME}", *WARNINGS]
LIBRARIES = ["-lm", "-lpthread", "-lrt", "-ldl"]

# Functions that PyTorch imports from CUDA. NVRTC and CUPTI stay NVIDIA's own: they need no driver.
CUDA = re.compile(r"(__cuda|cuda[A-Z]|cublas|cudnn|nccl|cusparse|cufft|cusolver|nvshmem|cu[A-Z])")
# Functions that return a workspace's size, with the type of their result.
SIZES = re.compile(r"(?P<library>cusolver|cusparse|cudnn).*(bufferSize|[Ss]paceSize)")
# Functions of these libraries compute, set or destroy something, except for those of NOT_ONLY.
COMPUTES = re.compile(r"(cublas|cudnn|cufft|cusolver|cusparse(?!Lt))")
NOT_ONLY = re.compile(
    r"Get(?!rf|rs|ri)|Create|Find|[Nn]nz|Query|Init|Size|zeroPivot|I[a-z]am|dot|nrm2|asum"
)
# Functions among these that launch no kernel; most of them take another object than a handle.
WITHOUT_KERNEL = re.compile(r"Set|Destroy|Dropout|cudnnBackend|cublasLt|cufft(?!Exec)")


class BuildError(Exception):
    """An error for a machine that lacks something; the text, one line, names it and the remedy."""


def lacking():
    """Return a line on what this machine lacks to emulate GPUs, or an empty text.

    Raises:
        BuildError: the emulator's own files do not compile: it is broken, nothing is lacking.
    """
    try:
        library()
    except BuildError as error:
        if "/c/" in str(error):
            raise
        return str(error)
    return ""


def library():
    """Return the path of the library for the installed PyTorch, built if it is not there yet.

    Raises:
        BuildError: this is not Linux, or a compiler or a CUDA build of PyTorch is missing.
    """
    if platform.system() != "Linux":
        elsewhere = "a container or WSL 2 has it"
        raise BuildError(f"the emulated GPU needs Linux, not {platform.system()}; {elsewhere}")
    torch = torch_folder()
    # CC may be more than a name, such as "ccache gcc".
    try:
        compiler = shlex.split(os.environ.get("CC", "")) or ["cc"]
    except ValueError as error:
        raise BuildError(f"CC={os.environ['CC']}: {error}") from None
    if not shutil.which(compiler[0]) or not shutil.which("nm"):
        install = "install gcc and libc6-dev (apt-get install gcc libc6-dev)"
        raise BuildError(f"the emulated GPU needs a C compiler and nm, and here is none; {install}")
    folder = _cache() / _fingerprint(torch, compiler)
    if not (folder / NAME).exists():
        _build(torch, compiler, folder)
    return folder / NAME


def torch_folder():
    """Return the folder of the installed PyTorch, without importing it."""
    spec = importlib.util.find_spec("torch")
    if not spec or not spec.origin:  # the latter for a folder of that name, without a package
        raise BuildError("PyTorch is not installed; pip install torch")
    folder = Path(spec.origin).parent
    if not (folder / "lib/libtorch_cuda.so").exists():
        builds = "pip install torch takes a CUDA build on Linux, unless an index of others is named"
        raise BuildError(f"the emulated GPU needs a CUDA build of PyTorch, not {folder}; {builds}")
    return folder


def _cache():
    """Return the cache folder of libraries. Only the user may write there: the code is run.

    Raises:
        BuildError: it cannot be made, others may write there, or LD_PRELOAD cannot hold its path.
    """
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "emulated-gpu"
    try:
        folder.mkdir(0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except OSError as error:
        raise BuildError(
            f"{folder}: {error.strerror}; XDG_CACHE_HOME names another place"
        ) from None
    if status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise BuildError(f"{folder} is writable for others; chmod 700 it, or set XDG_CACHE_HOME")
    if re.search(r"[\s:]", str(folder)):  # which separate the names in LD_PRELOAD
        raise BuildError(f"{folder} has a space or a colon in its name; set XDG_CACHE_HOME")
    return folder


def _fingerprint(torch, compiler):
    """Return a hash of all that the library depends on: PyTorch, compiler, and this package."""
    # Size and time stand for the contents: to read half a gigabyte would delay every run.
    status = (torch / "lib/libtorch_cuda.so").stat()
    version = subprocess.run([*compiler, "--version"], capture_output=True, text=True).stdout
    parts = [str(torch), status.st_size, status.st_mtime_ns, platform.machine(), version]
    files = [Path(__file__), *sorted(SOURCES.glob("**/*.[ch]"))]
    code = repr(parts).encode() + b"".join(file.read_bytes() for file in files)
    return hashlib.sha256(code).hexdigest()[:16]


def headers(torch):
    """Return the folders of CUDA's headers: those of PyTorch's wheels, then a toolkit's, if any."""
    wheels = sorted(torch.parent.glob("nvidia/*/include"))
    toolkit = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "include")
    return [*wheels, *([toolkit] if toolkit.exists() else [])]


def _build(torch, compiler, folder):
    """Compile in a temporary folder, and rename it, so that the final one is never incomplete."""
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="part-") as part:
        include = []
        # Headers in wheels include some that no wheel has; this package replaces those.
        for path in (SOURCES, SOURCES / "headers", *headers(torch)):
            include += ["-I", path]
        sources = sorted(SOURCES.glob("**/*.c"))
        # First without stubs, to see which names the C files define.
        _compile([*compiler, *FLAGS, *include, *sources, "-o", f"{part}/first.so", *LIBRARIES])
        defined = _names(f"{part}/first.so", "--defined-only")
        missing = sorted(imported(torch) - defined)
        stubs = Path(part, "stubs.c")
        stubs.write_text(stub_code(missing, headers(torch)))
        sources = [*sources, stubs]
        _compile([*compiler, *FLAGS, *include, *sources, "-o", f"{part}/{NAME}", *LIBRARIES])
        Path(part, "first.so").unlink()
        for other in OTHER_NAMES:
            Path(part, other).symlink_to(NAME)
        try:
            os.rename(part, folder)
            Path(part).mkdir()  # for TemporaryDirectory to remove
        except OSError:
            if not (folder / NAME).exists():  # else another process was faster
                raise


def _compile(command):
    """Run the compiler; raise a BuildError with its first error."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        lines = done.stderr.splitlines()
        ended = f"{command[0]} ended with exit code {done.returncode}"
        first = next((line for line in lines if "error" in line), "".join(lines[-1:]) or ended)
        hint = "; libc6-dev has it" if "No such file" in first and "cuda" not in first else ""
        raise BuildError(f"the emulated GPU cannot be compiled: {first.strip()}{hint}")


def _names(file, kind):
    """Return the names of functions that a library defines, or imports, without versions."""
    command = ["nm", "-D", kind, str(file)]
    lines = subprocess.run(command, capture_output=True, text=True).stdout.splitlines()
    return {line.split()[-1].partition("@")[0] for line in lines if line}


def imported(torch):
    """Return the names of CUDA's functions that PyTorch's libraries use."""
    files = (
        file
        for glob in ("libtorch*.so", "libc10*.so", "libcaffe2*.so")
        for file in torch.glob(f"lib/{glob}")
    )
    names = set().union(*(_names(file, "--undefined-only") for file in files))
    by_name = torch / "include/c10/cuda/driver_api.h"  # functions that PyTorch looks up by name
    if by_name.exists():
        names.update(re.findall(r"_\((cu[A-Z]\w+)", by_name.read_text()))
    return {name for name in names if CUDA.match(name)}


def stub_code(names, folders):
    """Return C code with a function for each name.

    Functions that only compute do nothing. Functions that return a workspace size return a
    plausible value. The run's report lists them, and all functions known by name only.
    """
    prototypes = "".join(
        file.read_text(errors="replace")
        for folder in folders
        for glob in ("cusolverDn.h", "cusparse.h", "cudnn_*.h")
        for file in sorted(folder.glob(glob))
    )
    sized = ["#include <cusolverDn.h>", "#include <cusparse.h>", "#include <cudnn.h>"]
    # All of these libraries have 0 for success.
    others = []
    for name in names:
        sizes = _sizes(name, prototypes) if SIZES.match(name) else None
        if sizes:
            sized.append(sizes)
        elif COMPUTES.match(name) and not NOT_ONLY.search(name):
            # A computation launches at least one kernel, on the stream of its handle.
            # Plans of cuFFT are numbers.
            handle = "0" if name.startswith("cufft") else "handle"
            works = "" if WITHOUT_KERNEL.search(name) else f"library_work({handle}); "
            others.append(f"STUB int {name}(const void *handle) {{ {works}return 0; }}")
        else:
            others.append(f'STUB int {name}(void) {{ called_by_name("{name}"); return 0; }}')
    # Weak, and hidden from the prototypes in the headers, which have other arguments.
    stub = '#define STUB __attribute__((visibility("default"), weak))'
    return "\n".join(['#include "emulator.h"', *sized, stub, *_hidden(others), ""])


def _hidden(functions):
    """Yield functions whose names in C differ from those in the library: no prototype conflicts."""
    for i, text in enumerate(functions):
        name, arguments = re.search(r"int (\w+)\((.*?)\)", text).groups()
        yield f'int stub_{i}({arguments}) __asm__("{name}");'
        yield text.replace(f"int {name}(", f"int stub_{i}(", 1)


def _sizes(name, prototypes):
    """Return C code of a function that sets its results, sizes, or None without a prototype."""
    prototype = re.search(rf"\b{name}\s*\(([^;{{]*?)\)\s*;", prototypes)
    if not prototype:
        return None
    text = " ".join(re.sub(r"/\*.*?\*/", "", prototype[1], flags=re.DOTALL).split())
    results = re.findall(r"(?:^|,) ?(int|size_t|int64_t) ?\* ?(\w+)(?=,|$)", text)
    if not results:
        return None
    matrix = all(re.search(rf"\bint(?:64_t)? {size}\b", text) for size in "mn")
    elements = "(size_t)m * n" if matrix else "0"
    lines = []
    for kind, result in results:
        # A size_t counts bytes, at most 8 for each element of an m x n matrix; an int, elements.
        size = f"{elements} * 8" if kind == "size_t" else elements
        lines.append(f"  *{result} = {size};")
    status = f"{SIZES.match(name)['library']}Status_t"
    note = f'  called_by_name("{name}(its workspace is an assumption)");'
    return "\n".join([f"ENTRY {status} {name}({text}) {{", *lines, note, "  return 0;", "}"])
