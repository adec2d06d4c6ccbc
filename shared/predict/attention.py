"""The choice of CUDA's attention kernels, for the simulated GPU.

In 16 bits, data center GPUs since Hopper use cuDNN's kernel (from PyTorch 2.11 on, whose packages
contain a recent enough cuDNN), and other GPUs since Ampere use FlashAttention if there is no mask.
Otherwise it is the memory-efficient kernel, which needs keys for every head and a floating-point
mask, (batch, 1, length, length). Where no kernel applies, attention is computed step by step, with
all attention weights in memory. Sources:
https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html
and `sdp_utils.cpp` in PyTorch.
"""

import torch


def of_cuda(device, card, version):
    """Return a wrapper of scaled_dot_product_attention that uses CUDA's kernels on a device.

    Without it, a simulation would use the CPU's kernels, which save other tensors for the backward
    pass and, with dropout, all attention weights.
    """
    aten = torch.ops.aten
    with_cudnn = card.capability[0] in (9, 10) and version >= (2, 11)

    def attention(
        original, query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, **same
    ):
        if query.device.type != device:
            return original(query, key, value, attn_mask, dropout_p, is_causal, **same)
        scale = same.get("scale")
        half, width = query.dtype in (torch.float16, torch.bfloat16), query.shape[-1]
        cudnn = with_cudnn and half and width % 8 == 0 and key.shape[2] > 1
        cudnn = cudnn and width <= (256 if card.capability[0] == 9 else 128)
        if attn_mask is None and half and card.bf16 and width <= 256 and not cudnn:
            flash = aten._scaled_dot_product_flash_attention
            return flash(query, key, value, dropout_p, is_causal, scale=scale)[0]
        efficient = key.shape[1] == query.shape[1]
        efficient = efficient and (card.bf16 or query.dtype != torch.bfloat16)
        if not cudnn and not efficient:
            math = aten._scaled_dot_product_attention_math
            return math(query, key, value, attn_mask, dropout_p, is_causal, **same)[0]
        if attn_mask is not None:
            if attn_mask.dtype == torch.bool:
                attn_mask = torch.where(attn_mask, 0.0, float("-inf")).to(query.dtype)
            attn_mask = attn_mask.expand(*query.shape[:3], key.shape[2])
        training = torch.is_grad_enabled() and any(t.requires_grad for t in (query, key, value))
        arguments = (query, key, value, attn_mask, training, dropout_p, is_causal)
        if cudnn:
            return aten._scaled_dot_product_cudnn_attention(*arguments, scale=scale)[0]
        return aten._scaled_dot_product_efficient_attention(*arguments, scale=scale)[0]

    return attention
