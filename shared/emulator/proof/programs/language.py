"""Training of language models: whole, in parts, and with LoRA."""

import contextlib
import functools

import torch
import torch.nn.functional as F
from torch import nn

from proof.programs.counters import peak, reset, update


def gpt2(checkpointing=False):
    """Train GPT-2; return the peak without what was there before, as in a recording."""
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config()).cuda().train()
    if checkpointing:
        model.gradient_checkpointing_enable()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    before = torch.cuda.memory_allocated()
    for _ in range(3):
        tokens = torch.zeros(4, 512, dtype=torch.long, device="cuda")
        outputs = model(input_ids=tokens, labels=tokens)
        update(outputs.loss, optimizer)
    return peak() - before


def roberta():
    """Train RoBERTa to classify 2 texts of 16 tokens as the Trainer does."""
    from transformers import RobertaConfig, RobertaForSequenceClassification

    model = RobertaForSequenceClassification(RobertaConfig()).cuda().train()
    reset()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5)
    for _ in range(3):
        tokens, mask = torch.zeros(2, 2, 16, dtype=torch.long, device="cuda")
        labels = torch.zeros(2, dtype=torch.long, device="cuda")
        model(input_ids=tokens, attention_mask=mask, labels=labels).loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        model.zero_grad()


def distilbert(precision):
    """Train DistilBERT to classify 12 texts of 512 tokens; the precision is Fabric's, or tf32.

    Attention is not fused, as in transformers of 2023. Gradients are freed before the backward
    pass.
    """
    from transformers import DistilBertConfig, DistilBertForSequenceClassification

    is_fp16 = "16-" in precision and not precision.startswith("b")
    half = torch.float16 if is_fp16 else torch.bfloat16
    if precision == "tf32":
        torch.set_float32_matmul_precision("high")
    config = DistilBertConfig(attn_implementation="eager")
    model = DistilBertForSequenceClassification(config).cuda()
    if precision.endswith("true"):
        model = model.to(half)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-5)
    for _ in range(3):
        tokens = torch.ones(12, 512, dtype=torch.long, device="cuda")
        labels = torch.zeros(12, dtype=torch.long, device="cuda")
        with torch.autocast("cuda", half, enabled=precision.endswith("mixed")):
            outputs = model(tokens, attention_mask=tokens, labels=labels)
        optimizer.zero_grad()
        outputs["loss"].backward()
        optimizer.step()


def qwen3(length):
    """Train Qwen3-0.6B with 2 texts of some tokens, one after the other, in mixed precision."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        vocab_size=151_936,
        hidden_size=1024,
        intermediate_size=3072,
        num_hidden_layers=28,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=128,
        max_position_embeddings=length,
        tie_word_embeddings=True,
        use_cache=False,
    )
    with torch.device("cuda"):
        model = Qwen3ForCausalLM(config)
    optimizer = compiled(model, lr=1e-5)
    tokens = torch.zeros(1, length, dtype=torch.long, device="cuda")
    train(model, optimizer, tokens, 2, torch.autocast("cuda", torch.bfloat16))


def llama3():
    """Train Llama 3 with 8 billion parameters in bf16: 4 times 2 texts of 4,096 tokens."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=128_256,
        hidden_size=4096,
        intermediate_size=14_336,
        num_hidden_layers=32,
        num_attention_heads=32,
        num_key_value_heads=8,
        max_position_embeddings=4096,
        use_cache=False,
    )
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = LlamaForCausalLM(config)
    optimizer = compiled(model, lr=3e-4, fused=True)
    tokens = torch.zeros(2, 4096, dtype=torch.long, device="cuda")
    train(model, optimizer, tokens, 4, contextlib.nullcontext())


def compiled(model, **options):
    """Compile and checkpoint the blocks of a model; return AdamW with these options."""
    model.gradient_checkpointing_enable({"use_reentrant": False})
    for block in model.model.layers:
        block.compile()
    return torch.optim.AdamW(model.parameters(), **options)


def train(model, optimizer, tokens, micro_batches, precision):
    """Train a language model with some micro-batches, in a context for its precision."""
    for _ in range(3):
        for _ in range(micro_batches):
            with precision:
                logits = model(tokens).logits
            loss = F.cross_entropy(logits.flatten(0, 1), tokens.flatten())
            (loss / micro_batches).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1)
        optimizer.step()
        optimizer.zero_grad()


def mistral_lora(quantized=False):
    """Train Mistral-7B with LoRA or QLoRA in fp16, and checkpoints around every layer.

    The scenario: rank 16 on q, k, v, o, dropout 0.1, AdamW, flash attention. Texts are packed;
    4,096 tokens are assumed, the default of the benchmark then.
    """
    from peft import LoraConfig, get_peft_model
    from transformers import MistralConfig, MistralForCausalLM

    config = MistralConfig(sliding_window=None)
    config._attn_implementation = "sdpa"
    with torch.device("meta"):
        model = MistralForCausalLM(config).half()
    model.to_empty(device="cpu")
    if quantized:
        quantize(model)
    model.cuda()
    lora = LoraConfig(r=16, lora_alpha=16, lora_dropout=0.1, task_type="CAUSAL_LM")
    lora.target_modules = {"q_proj", "k_proj", "v_proj", "o_proj"}
    model = get_peft_model(model, lora)
    model.gradient_checkpointing_enable({"use_reentrant": True})
    model.enable_input_require_grads()
    model.train()
    print("after loading", torch.cuda.memory_allocated() / 2**30, "GiB")
    optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=2e-4)
    scaler = torch.amp.GradScaler("cuda")
    for _ in range(3):
        text = torch.randint(0, 32_000, (4, 4096)).cuda()
        with torch.autocast("cuda", dtype=torch.float16):
            logits = model(input_ids=text, use_cache=False).logits.float()
            shifted = logits[:, :-1].contiguous()  # so did transformers in 2024
            loss = F.cross_entropy(shifted.view(-1, 32_000), text[:, 1:].flatten())
            del logits, shifted
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    return peak()


def quantize(model):
    """Give the linear layers of a model weights of 4 bits, but for the last layer."""
    import bitsandbytes as bnb

    kind = {"quant_type": "nf4", "compress_statistics": True}
    for name, old in list(model.named_modules()):
        if isinstance(old, nn.Linear) and name != "lm_head":
            sizes = old.in_features, old.out_features
            new = bnb.nn.Linear4bit(*sizes, bias=False, compute_dtype=torch.float16, **kind)
            new.weight = bnb.nn.Params4bit(old.weight.data, requires_grad=False, **kind)
            model.set_submodule(name, new)


def llama2_lora(what):
    """Train Llama-2-7B with LoRA under FSDP1, all in bf16, as llama-recipes did in July 2023.

    By the defaults there: 4 texts of 2,048 tokens, blocks checkpointed, trainable leaves in units
    of their own, AdamW, and the keys and values of all blocks are returned.

    Args:
        what: "ahead" gathers as far ahead as the host runs, "limited" with the limiter; with "loss"
            the logits are not kept until the end of the backward pass, either.
    """
    import torch.distributed as dist
    from peft import LoraConfig, get_peft_model
    from torch.distributed.algorithms._checkpoint import checkpoint_wrapper as ac
    from torch.distributed.fsdp import FullyShardedDataParallel, wrap
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.models.llama.modeling_llama import LlamaDecoderLayer

    torch.cuda.set_device(0)
    dist.init_process_group("nccl")
    nn.init.kaiming_uniform_ = nn.init.normal_ = lambda tensor, *_, **__: tensor
    torch.set_default_dtype(torch.bfloat16)
    model = LlamaForCausalLM(LlamaConfig()).train()
    lora = LoraConfig(r=8, lora_alpha=32, lora_dropout=0.05, target_modules=["q_proj", "v_proj"])
    model = get_peft_model(model, lora).to(torch.bfloat16)
    torch.set_default_dtype(torch.float32)

    def is_trained_leaf(module):
        weight = getattr(module, "weight", None)
        return not [*module.children()] and weight is not None and weight.requires_grad

    policies = [
        functools.partial(wrap.lambda_auto_wrap_policy, lambda_fn=is_trained_leaf),
        functools.partial(
            wrap.transformer_auto_wrap_policy, transformer_layer_cls={LlamaDecoderLayer}
        ),
    ]
    model = FullyShardedDataParallel(
        model,
        auto_wrap_policy=functools.partial(wrap._or_policy, policies=policies),
        device_id=torch.cuda.current_device(),
        limit_all_gathers=what != "ahead",
    )
    ac.apply_activation_checkpointing(
        model,
        checkpoint_wrapper_fn=functools.partial(
            ac.checkpoint_wrapper, checkpoint_impl=ac.CheckpointImpl.NO_REENTRANT
        ),
        check_fn=lambda module: isinstance(module, LlamaDecoderLayer),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    torch.cuda.reset_peak_memory_stats()
    for _ in range(4):
        names = "input_ids", "labels", "attention_mask"
        batch = {name: torch.ones(4, 2048, dtype=torch.int64).cuda() for name in names}
        if what == "loss":
            loss = model(**batch).loss
        else:
            outputs = model(**batch)
            loss = outputs.loss
        update(loss, optimizer)
