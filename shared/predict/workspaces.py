"""Workspaces: memory that CUDA's kernels and libraries allocate besides the tensors they return.

It comes from PyTorch's caching allocator, so PyTorch's counters include it, but no tensor owns it.
Most of it is freed before the operation returns. The formulas are those of PyTorch's sources, which
its packages contain in part: reductions in `ATen/native/cuda/Reduce.cuh`, memory-efficient
attention in `ATen/native/transformers/cuda/mem_eff_attention/`. Of cuDNN, only what its front end
requests is known, and of its convolutions nothing.
"""

import math

import torch

from shared.memory import torch_private
from shared.predict import gpu

aten = torch.ops.aten
MIB = 2**20
# cuBLAS's workspace: https://docs.pytorch.org/docs/stable/notes/cuda.html#cublas-workspaces
CUBLAS = 4096 * 1024 * 2 + 16 * 1024 * 8
CUBLAS_HOPPER = 32 * MIB
CUBLASLT = MIB
# Before PyTorch 2.0, cuBLAS allocated its own memory: https://github.com/pytorch/pytorch/pull/85447
COUNTED = (2, 0)
# Up to PyTorch 2.6, cuBLASLt's was freed at once: https://github.com/pytorch/pytorch/pull/145130
LT_KEPT = (2, 7)
# Since PyTorch 2.15, both are freed at once: https://github.com/pytorch/pytorch/pull/194311
FREED_AT_ONCE = (2, 15)
# Since PyTorch 2.14, more architectures get cuBLAS's large one, and cuBLASLt shares it.
SHARED = (2, 14)
# aten/src/ATen/native/cuda/Embedding.cu: up to this many indices are not sorted.
UNSORTED_INDICES = 3072
# aten/src/ATen/native/cuda/layer_norm_kernel.cu: with more rows, a reduction in two steps.
MANY_ROWS = 65_536


class Workspaces:
    """The workspaces of one card and version of PyTorch, (major, minor)."""

    def __init__(self, card, version):
        self.card, self.version = card, version
        self._kept = set()  # the workspaces of cuBLAS that exist already

    def of(self, operation, args, results, thread):
        """Return what an operation of aten on the GPU allocates besides its results.

        `thread` is "forward" or "backward", which PyTorch runs in a thread of its own. Return lists
        of sizes in bytes, each list allocated together and freed before the next; and a list of
        sizes that stay allocated.
        """
        function = TABLE.get(operation)
        if function is None:
            return (), ()
        found = function(self, args, results)
        if function not in (gemm, addmm) or self.version >= FREED_AT_ONCE:
            return found, ()
        if self.version < COUNTED:
            return (), ()
        # Up to 2.14, a thread keeps its workspaces; cuBLASLt needs cuBLAS's, too.
        lt = found == [[CUBLASLT]]
        sizes = [self.cublas(), CUBLASLT] if lt and LT_KEPT <= self.version < SHARED else []
        new = [(thread, n) for n in sizes or [self.cublas()] if (thread, n) not in self._kept]
        self._kept.update(new)
        return found if lt and self.version < LT_KEPT else (), [n for _, n in new]

    def forget(self):
        """Forget the kept workspaces, as in a new process."""
        self._kept.clear()

    def of_gpu(self, operation, args, results):
        """Return of() for an operation on the simulated GPU, nothing for any other."""
        if operation not in TABLE or args[0].device.type != gpu.DEVICE:
            return (), ()
        thread = "backward" if torch_private.in_backward() else "forward"
        return self.of(operation, args, results, thread)

    def cublas(self):
        major, minor = self.card.capability
        large = major >= 9 if self.version >= SHARED else (major, minor) == (9, 0)
        return CUBLAS_HOPPER if large else CUBLAS


def gemm(here, args, results):
    """A matrix product: one workspace of cuBLAS."""
    return [[here.cublas()]]


def addmm(here, args, results):
    """A product with a bias: cuBLASLt if the bias has one dimension, otherwise cuBLAS."""
    return [[CUBLASLT]] if args[0].ndim == 1 else gemm(here, args, results)


def column_sums(here, args, results):
    """A sum over rows, as for the gradient of a bias, in several steps if there are many rows."""
    x, dims = args[0], args[1] if len(args) > 1 else None
    dims = {d % x.ndim for d in dims} if dims and x.ndim else set(range(x.ndim))
    if x.ndim - 1 in dims or not x.numel() or x.stride(-1) != 1:
        return ()  # a sum along a row needs only a few bytes
    rows = math.prod(n for d, n in enumerate(x.shape) if d in dims)
    size = 8 if x.dtype in (torch.float64, torch.int64) else 4
    return staged(rows, x.numel() // rows, here.card, size)


def staged(rows, columns, card, size=4):
    """Return the buffers of a sum over the rows of a matrix, as Workspaces.of() returns them.

    An element of the sum has `size` bytes. The buffer is 128 times as large as what its kernel
    writes. Source: setReduceConfig() and global_memory_size() in `ATen/native/cuda/Reduce.cuh`.
    """
    vector = next(n for n in (4, 2, 1) if columns % n == 0)  # columns that a thread adds up at once
    most = 512 // vector  # threads of a block
    columns_at_once, rows_at_once = (_power_of_two(min(n, most)) for n in (columns // vector, rows))
    width = min(columns_at_once, 32)
    height = min(rows_at_once, most // width)
    width = min(columns_at_once, most // height)
    if rows < min(height * 16, 256):  # each thread adds up whole columns
        return ()
    per_thread, grid = -(-rows // height), -(-(columns // vector) // width)
    target = card.multiprocessors * (card.threads // (width * height))
    if per_thread < 256 or grid > target:
        return ()
    parts = min(max(-(-target // grid), -(-per_thread // 256)), -(-per_thread // 16))
    if parts == 1:
        return ()
    return [[size * columns * parts * width * vector, 4 * grid]]


def _power_of_two(n):
    return 1 << max(n, 1).bit_length() - 1


def flash_forward(here, args, results):
    """FlashAttention's partial results: it splits the keys if queries are too few for the card.

    Source: num_splits_heuristic() in `flash_api.cpp`.
    """
    query, key, dropout = args[0], args[1], args[3] if len(args) > 3 else 0.0
    batch, heads, queries, width = query.shape
    keys = -(-key.shape[2] // (256 if width <= 64 else 128 if width <= 128 else 64))
    blocks, processors = batch * heads * -(-queries // 64), 2 * here.card.multiprocessors
    if dropout or blocks >= 0.8 * processors:
        return ()
    shares = [1] + [
        n for n in range(2, min(128, processors, keys) + 1) if -(-keys // n) != -(-keys // (n - 1))
    ]
    waves = {n: blocks * n / processors for n in shares}
    efficiency = {n: w / math.ceil(w) for n, w in waves.items()}
    parts = next(n for n in shares if efficiency[n] >= 0.85 * max(efficiency.values()))
    if parts == 1:
        return ()
    width = 32 * -(-width // 32)
    return [[4 * parts * batch * heads * queries, 4 * parts * batch * heads * queries * width]]


def flash_backward(here, args, results):
    """FlashAttention: the sums of its softmax, and the gradient of the queries in fp32.

    Gradients of keys that several heads share are first computed for each head.
    """
    query, key = args[1], args[2]
    batch, heads, queries, width = query.shape
    sums = 4 * batch * heads * 128 * -(-queries // 128)
    found = [sums, sums * (32 * -(-width // 32))]
    if key.shape[1] != heads:
        found += 2 * [key.element_size() * batch * heads * key.shape[2] * width]
    return [found]


def efficient_backward(here, args, results):
    """Memory-efficient attention: rows of sums, and gradients of the queries in tiles, in fp32.

    In fp32, the rows are computed from a product of two tensors, which is freed before the tiles.
    """
    gradient, query, keys = args[0], args[1], args[2].shape[2]
    batch, heads, queries, width = query.shape
    sums, half = 4 * batch * heads * queries, query.element_size() == 2
    rows, columns = _tile(here.card, half, width)
    elements = -(-queries // rows) * -(-width // columns) * (rows * columns + 4)
    if half and width > rows:  # gradients of keys and values do not fit into the registers either
        shares = max(1, min(-(-keys // columns), 200 // (batch * heads)))  # of the keys
        elements += 2 * shares * columns * rows * -(-width // rows)
    found = [[sums, 4 * batch * heads * (4 * -(-elements // 4))]]
    return found if half else [[sums, 4 * gradient.numel(), sums], *found]


def _tile(card, half, width):
    """Return the numbers of queries and keys that a thread block processes at once.

    Source: `kernels/cutlassB.h`, whose first suitable kernel is used; for older cards, the first
    that is suitable for certain.
    """
    if width <= 64:
        return 64, 64
    # Where a block has 160 KB of shared memory or more, by the table of compute capabilities in
    # NVIDIA's CUDA C++ Programming Guide.
    if card.capability == (8, 0) or card.capability[0] in (9, 10):
        return (128, 128) if half and width <= 128 else (128, 64)
    return (128, 64) if half and width <= 96 and card.capability in ((8, 6), (8, 9)) else (64, 64)


def cudnn_backward(here, args, results):
    """cuDNN's attention: what its front end requests. What its kernels add is not known."""
    batch, heads, queries, width = args[1].shape
    return [[4 * batch * heads * queries * width + 4 * batch * heads * queries]]


def embedding_backward(here, args, results):
    """The gradient of an embedding: many indices are sorted, and rows of equal ones summed in fp32.

    Each sum is made of parts of 10 rows. Source: `EmbeddingBackwardKernel.cu`.
    """
    gradient, indices, weights = args[0], args[1], args[2]
    n = indices.numel()
    if n <= UNSORTED_INDICES:
        return ()
    rows = n // 10 + min(n, weights)
    return [[2 * indices.element_size() * n, 4 * 4 * n, 4 * rows * gradient.shape[-1]]]


def layer_norm_backward(here, args, results):
    """The gradients of a layer norm's weight and bias, in two steps if there are many rows."""
    x, columns = args[1], math.prod(args[2])
    rows = x.numel() // columns
    if rows <= MANY_ROWS or columns / 32 >= here.card.multiprocessors / 2:
        return ()
    parts = min(32_768 // -(-columns // 32), -(-rows // 32))
    return [2 * [x.element_size() * parts * columns]]


def rms_norm_backward(here, args, results):
    """The gradient of an RMS norm's weight: like a layer norm's, but without a bias."""
    return [step[:1] for step in layer_norm_backward(here, args, results)]


# For every operation with a workspace of more than a few KB: a function of Workspaces, the
# operation's arguments and its results, which returns lists as the first of Workspaces.of(). They
# are allocated after the results.
TABLE = {
    aten.mm.default: gemm,
    aten.bmm.default: gemm,
    aten.baddbmm.default: gemm,
    aten.addmm.default: addmm,
    aten.sum.dim_IntList: column_sums,
    aten.mean.dim: column_sums,
    aten._scaled_dot_product_flash_attention.default: flash_forward,
    aten._scaled_dot_product_flash_attention_backward.default: flash_backward,
    aten._scaled_dot_product_efficient_attention_backward.default: efficient_backward,
    aten._scaled_dot_product_cudnn_attention_backward.default: cudnn_backward,
    aten.embedding_dense_backward.default: embedding_backward,
    aten.native_layer_norm_backward.default: layer_norm_backward,
    aten._fused_rms_norm_backward.default: rms_norm_backward,
}
