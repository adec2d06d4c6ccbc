"""Promise: workspaces of kernels and libraries are counted, by formulas checked here by hand."""

import pytest
import torch
from shared.predict.recorder import Recorder
from shared.predict.simulation import predict
from shared.predict.workspaces import CUBLASLT, Workspaces

from shared.emulator import cards
from shared.predict import gpu
from shared.predict.jobs import Wanted, run_jobs

A100, H100, L4, T4, B200 = (cards.CARDS[name] for name in ("a100", "h100", "l4", "t4", "b200"))
aten = torch.ops.aten
LATER, BEFORE = (2, 15), (2, 11)


def empty(*shape, dtype=torch.float32):
    return torch.empty(*shape, dtype=dtype, device="meta")


def at_once(card, operation, *args, version=LATER):
    return Workspaces(card, version).of(operation, args, None, "forward")[0]


def test_cublas():
    for card in (A100, L4):
        assert Workspaces(card, LATER).cublas() == 8_519_680  # 4096 x 1024 x 2 + 16 x 1024 x 8
    assert Workspaces(B200, BEFORE).cublas() == 8_519_680
    for card, version in ((H100, LATER), (H100, BEFORE), (B200, LATER)):
        assert Workspaces(card, version).cublas() == 33_554_432


def test_until_when_cublas_keeps_its_workspaces():
    a, b = empty(4, 4), empty(4, 4)
    now = Workspaces(A100, (2, 15))
    for thread in ("forward", "forward", "backward"):
        assert now.of(aten.mm.default, (a, b), None, thread) == ([[8_519_680]], ())
        with_bias = now.of(aten.addmm.default, (empty(4), a, b), None, thread)
        assert with_bias == ([[CUBLASLT]], ())
        assert now.of(aten.addmm.default, (a, a, b), None, thread) == ([[8_519_680]], ())
    # Version 2.13 and before: cuBLASLt has one of its own, which is kept, too, or freed at once.
    for version, brief, further in (
        ((2, 14), (), []),
        ((2, 11), (), [CUBLASLT]),
        ((2, 6), [[CUBLASLT]], []),
    ):
        then = Workspaces(A100, version)
        for thread in ("forward", "backward"):
            assert then.of(aten.mm.default, (a, b), None, thread) == ((), [8_519_680])
            assert then.of(aten.mm.default, (a, b), None, thread) == ((), [])
            with_bias = then.of(aten.addmm.default, (empty(4), a, b), None, thread)
            assert with_bias == (brief, further)
        then.forget()
        assert then.of(aten.mm.default, (a, b), None, "forward") == ((), [8_519_680])
    before = Workspaces(A100, (1, 11))  # allocated outside the caching allocator
    assert before.of(aten.mm.default, (a, b), None, "forward") == ((), ())


def attention(batch, dtype, heads=16, length=197, width=64, key_heads=None):
    query = empty(batch, heads, length, width, dtype=dtype)
    key = empty(batch, key_heads or heads, length, width, dtype=dtype)
    return query, query, key, key  # the gradient of the output, and the inputs


def summed(rows, columns):
    return empty(rows, columns, dtype=torch.bfloat16), [0], True


HALF, FP16 = torch.bfloat16, torch.float16
SUM = aten.sum.dim_IntList
FLASH_FORWARD = aten._scaled_dot_product_flash_attention.default
FLASH, EFFICIENT, CUDNN = (
    getattr(aten, f"_scaled_dot_product_{name}_attention_backward").default
    for name in ("flash", "efficient", "cudnn")
)
EMBEDDING, NORM = aten.embedding_dense_backward.default, aten.native_layer_norm_backward.default
GROUPED = attention(1, HALF, 32, 128, 128, key_heads=8)
FEW, MANY = (3 * [empty(batch, 16, 512, 128, dtype=HALF)] for batch in (1, 2))
TEXTS, SHORT = (empty(n, 512, dtype=torch.long) for n in (12, 6))
ROWS = empty(70_000, 1024)


@pytest.mark.parametrize(
    "operation, card, args, groups",
    [
        # 128 threads of a block, 32 columns of 4 by 4 rows, so that 8 blocks are as wide as 1024
        # columns. An A100 takes 108 x 2048 / 128 = 1728 blocks at once: 216 for the rows, but each
        # thread is to add up 16 of its 3152 rows at least: 197. 1024 x 197 fp32 numbers, and 128
        # times as many; and 4 bytes for each of the 8.
        (SUM, A100, summed(64 * 197, 1024), [[4 * 1024 * 197 * 128, 32]]),
        (SUM, A100, summed(64 * 197, 3072), [[4 * 3072 * (1728 // 24) * 128, 96]]),
        (SUM, H100, summed(64 * 197, 3072), [[4 * 3072 * (132 * 16 // 24) * 128, 96]]),
        (SUM, T4, summed(64 * 197, 1024), [[4 * 1024 * (40 * 8 // 8) * 128, 32]]),
        # 788 rows for each thread: 50 x 16
        (SUM, A100, summed(16 * 197, 4096), [[4 * 4096 * 50 * 128, 128]]),
        # 510 columns are not a multiple of 4: 255 pairs, 256 threads with 32 x 8, 8 blocks wide
        (SUM, A100, summed(64 * 197, 510), [[4 * 510 * min(108 * 8 // 8, 99) * 64, 32]]),
        # Leading dimensions are rows.
        (SUM, A100, (empty(64, 197, 1024), [0, 1]), [[4 * 1024 * 197 * 128, 32]]),
        (SUM, A100, summed(4 * 197, 1024), ()),  # 197 rows for each thread, fewer than 256
        (SUM, A100, (empty(12608, 1024), [1]), ()),
        (SUM, A100, (empty(12608, 1024).t(), [0]), ()),
        # 1024 heads of 256 rows (197 rounded up to 128s), 4 bytes; and for each row 64 numbers
        (FLASH, A100, attention(64, HALF), [[1_048_576, 67_108_864]]),
        (FLASH, A100, attention(4, HALF), [[65_536, 4_194_304]]),
        # gradients of keys and values for each of 32 heads, not only 8
        (FLASH, A100, GROUPED, [[16_384, 2_097_152, 1_048_576, 1_048_576]]),
        # 1024 x 197 x 4; four tiles of 64 x 64 numbers and 4 more; a product like the output
        (
            *(EFFICIENT, A100, attention(64, torch.float32)),
            [[806_912, 51_642_368, 806_912], [806_912, 67_174_400]],
        ),
        (EFFICIENT, T4, attention(64, FP16), [[806_912, 67_174_400]]),
        # 128 x 128 on a card with large blocks; else 64 x 64, and keys' and values' gradients too
        (EFFICIENT, A100, attention(1, FP16, 1, 128, 128), [[512, 65_552]]),
        # times two, as the 128 keys are divided between two blocks of threads
        (EFFICIENT, L4, attention(1, FP16, 1, 128, 128), [[512, 65_600 + 2 * 65_536]]),
        (CUDNN, H100, attention(64, HALF), [[51_642_368 + 806_912]]),
        # 16 x 8 blocks for 216 places: 59 %. Keys in two parts fill 1.19 rounds, 59 %; in four 2.37
        # rounds, 79 %. (Three parts would leave the third empty.)
        (FLASH_FORWARD, A100, FEW, [[4 * 4 * 16 * 512, 4 * 4 * 16 * 512 * 128]]),
        (FLASH_FORWARD, A100, [*FEW, 0.1], ()),  # with dropout
        (FLASH_FORWARD, A100, MANY, ()),  # 256 blocks are enough
        # 6144 indices, 614 parts of ten, and at most as many sums as indices, or as weights
        (EMBEDDING, A100, (empty(6144, 1024), TEXTS, 30_522), [[98_304, 98_304, 6758 * 4096]]),
        (EMBEDDING, A100, (empty(6144, 1024), TEXTS, 2), [[98_304, 98_304, 616 * 4096]]),
        (EMBEDDING, A100, (empty(3072, 1024), SHORT, 9), ()),
        (NORM, A100, (ROWS, ROWS, [1024]), [[4 * 1024 * 1024, 4 * 1024 * 1024]]),
        (NORM, A100, (ROWS[:12_608], ROWS[:12_608], [1024]), ()),
        (aten._fused_rms_norm_backward.default, A100, (ROWS, ROWS, [1024]), [[4 * 1024 * 1024]]),
    ],
)
def test_by_hand(operation, card, args, groups):
    assert at_once(card, operation, *args) == groups


def test_predictions_contain_workspaces():
    """For any requested version, under any installed version."""
    options = {"none": {"tensors_only": True}, "a100": {}, "h100": {"card": H100}}
    options |= {"2.11": {"torch": BEFORE}, "2.14": {"torch": (2, 14)}}
    wanted = [Wanted("gpu", "tiny", **its) for its in options.values()]
    by = dict(zip(options, run_jobs([(predict, "05_grad_accum/train", its) for its in wanted])))
    train = {kind: record["train"] for kind, record in by.items()}
    peaks = [train[kind]["device_peak_gb"] for kind in ("none", "a100", "h100")]
    assert peaks == sorted(set(peaks))
    assert "workspaces" not in train["none"]["breakdown_gb"]
    # Kept by two threads, they are in memory at any peak.
    kept = {kind: train[kind]["breakdown_gb"]["workspaces"] * 1e9 for kind in ("2.11", "2.14")}
    assert kept["2.14"] >= 2 * 8_519_680
    assert kept["2.11"] - kept["2.14"] == pytest.approx(CUBLASLT)  # of the forward pass
    assert by["a100"]["device"] == "simulated A100 80 GB" and by["2.11"]["as_torch"] == "2.11"


def taken(card, version, dtype, masked):
    """Return the attention that an operation took; run it in a process of its own."""
    gpu.register()
    seen = []
    ledger = Recorder(hidden=lambda operation, *_: (seen.append(operation), ((), ()))[1])
    with gpu.tensors_without_memory(card, version), ledger:
        x = torch.empty(1, 2, 8, 64, device=gpu.DEVICE, dtype=dtype)
        mask = torch.ones(1, 1, 1, 8, device=gpu.DEVICE, dtype=torch.bool) if masked else None
        torch.nn.functional.scaled_dot_product_attention(x, x, x, mask)
    names = [operation._schema.name for operation in seen if operation in KERNELS]
    return names[0].removeprefix("aten::_scaled_dot_product_") if names else "step by step"


KERNELS = {
    getattr(aten, f"_scaled_dot_product_{name}_attention").default
    for name in ("flash", "efficient", "cudnn")
}


def test_which_attention():
    half, full, fp16 = torch.bfloat16, torch.float32, torch.float16
    cases = [
        ((A100, LATER, half, False), "flash_attention"),
        ((A100, LATER, half, True), "efficient_attention"),
        ((A100, LATER, full, False), "efficient_attention"),
        ((H100, LATER, half, True), "cudnn_attention"),
        ((H100, LATER, full, True), "efficient_attention"),
        ((H100, (2, 1), half, False), "flash_attention"),
        ((T4, LATER, fp16, False), "efficient_attention"),
        ((T4, LATER, half, False), "step by step"),
    ]
    found = run_jobs([(taken, *case) for case, _ in cases])
    assert found == [kernel for _, kernel in cases]


def taken_backward():
    """Return the operations of the backward pass of three layers; run it in such a process."""
    gpu.register()
    seen = set()
    ledger = Recorder(hidden=lambda operation, *_: (seen.add(operation), ((), ()))[1])
    with gpu.tensors_without_memory(A100, LATER):
        norm = torch.nn.RMSNorm(8, device=gpu.DEVICE)
        for layer in (torch.nn.functional.silu, torch.nn.functional.mish, norm):
            made = layer(torch.empty(2, 8, device=gpu.DEVICE, requires_grad=True))
            with ledger:
                made.backward(made)
    return {operation._schema.name.removeprefix("aten::") for operation in seen}


def test_what_has_a_kernel_is_not_composed():
    """As on CUDA; elsewhere it is composed of operations that hold several tensors at once."""
    names = {"silu_backward", "mish_backward", "_fused_rms_norm_backward"}
    assert run_jobs([(taken_backward,)]) == [{*names, "detach"}]
