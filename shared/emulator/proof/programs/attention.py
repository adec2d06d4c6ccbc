"""Attention: written out, with PyTorch's kernels, with masks, over texts of unequal length."""

import contextlib
import math

import torch
import torch.nn.functional as F
from torch import nn

from proof.programs.counters import asked, peak, reset


def by_hand(width=16, tokens=4096):
    """Write attention out in fp32; return the peak of a later forward pass, beside gradients."""

    def softmax(scores):
        lowered = scores - scores.max(dim=-1, keepdim=True)[0]
        powers = torch.exp(lowered)  # both names live on, as in the course's own function
        return powers / powers.sum(dim=-1, keepdim=True)

    def attention(q, k, v):
        scores = torch.einsum("bqd,bkd->bqk", q, k) / math.sqrt(width)
        weights = softmax(scores)
        return torch.einsum("bqk,bkd->bqd", weights, v)

    shape = 8, tokens, width
    q, k, v = (torch.randn(shape, requires_grad=True, device="cuda") for _ in range(3))
    for step in range(7):
        for x in (q, k, v):
            if x.grad is not None and step >= 5:
                x.grad.zero_()
        torch.cuda.reset_peak_memory_stats()
        total = attention(q, k, v).sum()
        of_forward = peak()
        total.backward()
    return of_forward


def grouped_with_mask():
    """Return what a call with grouped queries and a mask of floats adds at its peak.

    No fused kernel took both, and the fallback held scores in fp32. With 8,000 tokens, the report
    has 15.48 GiB; with keys repeated 0.03 and 0.05.
    """
    from torch.nn.attention import SDPBackend, sdpa_kernel

    tokens, options = 4000, {"dtype": torch.float16, "device": "cuda"}
    queries = torch.randn(1, 28, tokens, 128, **options)
    keys = torch.randn(1, 4, tokens, 128, **options)
    values = torch.randn(1, 4, tokens, 128, **options)
    mask = torch.full((tokens, tokens), float("-inf"), **options).triu(1)[None, None]
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    # As in the report: without cuDNN's kernel, which takes both where it is allowed.
    kernels = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
    with contextlib.suppress(torch.OutOfMemoryError), torch.no_grad(), sdpa_kernel(kernels):
        F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask, enable_gqa=True)
    return peak() - before


def kernels(chosen="math"):
    """Call causal attention in fp16 with two kernels in turn; return the peak of one, `chosen`.

    With 1,024 and 2,048 tokens, the report has 127.13 and 462.14 MiB, and of flash attention 12.13
    and 16.13.
    """
    from torch.nn.attention import SDPBackend, sdpa_kernel

    backends = {"math": SDPBackend.MATH, "flash": SDPBackend.FLASH_ATTENTION}

    def call(tokens, kernel):
        q, k, v = (torch.randn(1, 8, tokens, 64, device="cuda", dtype=torch.half) for _ in range(3))
        reset()
        with sdpa_kernel(kernel):
            for _ in range(12):
                F.scaled_dot_product_attention(q, k, v, is_causal=True)  # no result is kept
        return peak()

    for tokens in (1024, 2048, 4096):  # one after the other, as in the report
        peaks = {name: call(tokens, kernel) for name, kernel in backends.items()}
    return peaks[chosen]


def flex_without_compile():
    """Call flex_attention without torch.compile, which computes every score."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    tokens = 25_000
    q, k, v = (torch.randn(16, 3, tokens, 32, device="cuda") for _ in range(3))

    def near(batch, head, query, key):
        return (query - key).abs() <= 5

    window = create_block_mask(near, None, None, tokens, tokens, device="cuda")
    return asked(lambda: flex_attention(q, k, v, block_mask=window))


def pythia(batch=1, tokens=2048, attention="sdpa"):
    """Train Pythia-410M in fp16 without an optimizer, as optimum's benchmark does.

    For 4 x 512 tokens, the report has 3877.29 MB, and written out ("eager") 6290.58.
    """
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

    sizes = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16}
    config = GPTNeoXConfig(vocab_size=50_304, **sizes)
    config.intermediate_size = 4096
    config._attn_implementation = attention
    torch.set_default_dtype(torch.float16)
    with torch.device("cuda"):
        model = GPTNeoXForCausalLM(config).train()
        tokens = torch.randint(config.vocab_size - 1, (batch, tokens))
    inputs = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
    for step in range(10):
        if step == 5:
            reset()
        if step >= 5:
            model.zero_grad()
        output = model(**inputs)
        output.logits.sum().backward()
    return peak()


class SelfAttention(nn.Module):
    """Causal attention of 8 heads, for nested tensors."""

    def __init__(self):
        super().__init__()
        self.packed = nn.Linear(512, 1536, device="cuda")
        self.out = nn.Linear(512, 512, device="cuda")

    def forward(self, x):
        q, k, v = (
            t.unflatten(-1, [8, 64]).transpose(1, 2) for t in self.packed(x).chunk(3, dim=-1)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).flatten(-2))


def nested():
    """Return the peaks of compiled attention over 512 sentences, nested (jagged) and padded.

    The longest has 128 words. The lengths are random there; here they add up to the same.
    """
    lengths = [128] + [21] * 88 + [20] * 423
    batches = []
    for _ in range(3):
        parts = (torch.randn(n, 512, device="cuda") for n in lengths)
        batches.append(torch.nested.nested_tensor(list(parts), layout=torch.jagged))
    padded = [t.to_padded_tensor(0.0) for t in batches]
    ours = SelfAttention()
    theirs = nn.MultiheadAttention(512, 8, batch_first=True, device="cuda")
    peaks = {}

    def measured(name, work):
        torch.cuda.reset_peak_memory_stats()
        result = work()
        peaks[name] = peak()
        return result

    compiled = torch.compile(ours)
    kept = [compiled(batches[0])]  # until the end, as in the tutorial
    result = measured("nested", lambda: compiled(batches[0]))
    result = result.to_padded_tensor(0.0)
    ignore = torch.where(padded[0] == 0.0, -torch.inf, 0)[:, :, 0]
    causal = torch.full((512, 128, 128), -torch.inf, device="cuda")
    causal = causal.unsqueeze(1).expand(512, 8, 128, 128).reshape(-1, 128, 128)
    compiled_2 = torch.compile(theirs)
    options = dict(attn_mask=causal, key_padding_mask=ignore, need_weights=False, is_causal=True)
    kept.append(compiled_2(*[padded[0]] * 3, **options))
    answer = measured("padded", lambda: compiled_2(*[padded[0]] * 3, **options)[0])
    measured("padded, backward", lambda: answer.sum().backward())
    measured("nested, backward", lambda: result.sum().backward())
    return peaks
