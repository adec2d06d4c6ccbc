"""Which attention kernel CUDA takes, for the simulated GPU.

In 16 bit without a mask, that is FlashAttention (or cuDNN's kernel, which keeps as much). Otherwise
it is the memory-efficient kernel, which needs keys for every head and the mask as numbers, (batch,
1, length, length). What neither kernel takes is computed step by step, with all attention weights
in memory. Source:
https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html
"""

import torch


def of_cuda(device):
    """Returns a wrapper of scaled_dot_product_attention that takes CUDA's kernels on a device.

    Without it, a simulation would take the CPU's kernels, which keep other tensors for the backward
    pass, and with dropout all attention weights.

    Args:
        device: type of the simulated GPU.
    """
    aten = torch.ops.aten

    def attention(
        original,
        query,
        key,
        value,
        attn_mask=None,
        dropout_p=0.0,
        is_causal=False,
        scale=None,
        enable_gqa=False,
    ):
        same = {"scale": scale, "enable_gqa": enable_gqa}
        if query.device.type != device:
            return original(query, key, value, attn_mask, dropout_p, is_causal, **same)
        if attn_mask is None and query.dtype in (torch.float16, torch.bfloat16):
            flash = aten._scaled_dot_product_flash_attention
            return flash(query, key, value, dropout_p, is_causal, scale=scale)[0]
        if key.shape[1] != query.shape[1]:
            math = aten._scaled_dot_product_attention_math
            return math(query, key, value, attn_mask, dropout_p, is_causal, **same)[0]
        if attn_mask is not None:
            if attn_mask.dtype == torch.bool:
                attn_mask = torch.where(attn_mask, 0.0, float("-inf")).to(query.dtype)
            attn_mask = attn_mask.expand(*query.shape[:3], key.shape[2])
        training = torch.is_grad_enabled() and any(t.requires_grad for t in (query, key, value))
        efficient = aten._scaled_dot_product_efficient_attention
        arguments = (query, key, value, attn_mask, training, dropout_p, is_causal)
        return efficient(*arguments, scale=scale)[0]

    return attention
