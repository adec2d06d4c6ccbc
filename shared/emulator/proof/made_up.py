"""Data for third-party scripts: made up, so that nothing is downloaded.

Each function takes the folder of a repository, and further words; the tables name them.
"""

import base64
import json
import math
import shutil
import struct

# Of TinyLlama 1.1B, as the model's config.json says.
TINYLLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "num_hidden_layers": 22,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "vocab_size": 32000,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-05,
    "torch_dtype": "bfloat16",
}


def books(repository):
    """Write two short books for *Build a Large Language Model*."""
    # Long enough for a few updates; the texts decide nothing about memory.
    for name in ("10_llm-training-speed/middlemarch", "01_main-chapter-code/the-verdict"):
        file = repository / "ch05" / f"{name}.txt"
        file.write_text("Miss Brooke had that kind of beauty. " * 20_000)


def wikitext(repository):
    """Copy the validation texts of PyTorch's examples in place of the larger training texts."""
    texts = repository / "word_language_model/data/wikitext-2"
    shutil.copy(texts / "valid.txt", texts / "train.txt")


def openwebtext(repository):
    """Write tokens for nanoGPT, all of them 0."""
    import numpy

    for part in ("train", "val"):
        tokens = numpy.zeros(2_000_000, "uint16")
        tokens.tofile(repository / f"data/openwebtext/{part}.bin")


def fineweb(repository):
    """Write tokens, all of them 0, and a question of HellaSwag for build-nanogpt."""
    import numpy

    tokens = repository / "edu_fineweb10B"
    questions = repository / "hellaswag"
    tokens.mkdir(exist_ok=True)
    for part in ("train", "val"):
        file = tokens / f"edufineweb_{part}_000001.npy"
        numpy.save(file, numpy.zeros(3_000_000, "uint16"))
    questions.mkdir(exist_ok=True)
    # The script reads HellaSwag as well; one question is enough.
    question = {"ctx": "A man", "label": 0, "endings": ["runs.", "eats.", "reads.", "sings."]}
    (questions / "hellaswag_val.jsonl").write_text(json.dumps(question))


def gpt2(repository):
    """Write gpt2, without weights, and texts into the folder that the repository is in."""
    from tokenizers import BertWordPieceTokenizer, Tokenizer
    from transformers import GPT2Config, PreTrainedTokenizerFast

    sentences = [f"the quick brown fox jumps over the lazy dog {n} " for n in range(2000)]
    lines = [sentence * 60 for sentence in sentences]
    model = repository.parent / "gpt2"
    names = ("pad", "unk", "cls", "sep", "mask")
    special = {f"{name}_token": f"[{name.upper()}]" for name in names}
    # The trainer numbers letters inside words in an order that varies, so they are listed here.
    letters = sorted(set("".join(lines)) - {" "})
    tokens = [*special.values(), *(f"##{letter}" for letter in letters)]
    options = {"vocab_size": 2000, "min_frequency": 0, "limit_alphabet": len(letters)}
    core = BertWordPieceTokenizer()
    core.train_from_iterator(lines, special_tokens=tokens, show_progress=False, **options)
    # Without letters as special tokens.
    core = Tokenizer.from_str(BertWordPieceTokenizer(core.get_vocab()).to_str())
    special["eos_token"] = special["sep_token"]
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, model_max_length=512, **special)
    tokenizer.save_pretrained(model)
    GPT2Config(architectures=["GPT2LMHeadModel"]).save_pretrained(model)
    texts = repository.parent / "texts"
    texts.mkdir(exist_ok=True)
    (texts / "train.jsonl").write_text("\n".join(json.dumps({"text": x}) for x in lines))


def llama3(repository):
    """Write a tokenizer with as many tokens as Llama 3's: bytes, then pairs and triples of them."""
    # The number of tokens decides the size of the embedding; which tokens they are does not matter.
    sizes = ((1, 256), (2, 65_536), (3, 128_000 - 65_536 - 256))
    tokens = (n.to_bytes(size, "big") for size, count in sizes for n in range(count))
    lines = (f"{base64.b64encode(token).decode()} {rank}" for rank, token in enumerate(tokens))
    (repository / "tokenizer.model").write_text("\n".join(lines))


def notebook(repository, source, script):
    """Write the code cells of a notebook into a script."""
    cells = json.loads((repository / source).read_text("utf-8"))["cells"]
    code = ("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    (repository / script).write_text("\n\n".join(code) + "\n", "utf-8")


def tinyllama(repository, folder):
    """Write TinyLlama's configuration, and a sparse file of weights in bf16, into a folder."""
    c = TINYLLAMA
    width, hidden = c["hidden_size"], c["intermediate_size"]
    keys = width // c["num_attention_heads"] * c["num_key_value_heads"]
    shapes = dict.fromkeys(("lm_head", "model.embed_tokens"), [c["vocab_size"], width])
    shapes["model.norm"] = [width]
    layer = {
        "input_layernorm": [width],
        "post_attention_layernorm": [width],
        "mlp.down_proj": [width, hidden],
        "mlp.gate_proj": [hidden, width],
        "mlp.up_proj": [hidden, width],
        "self_attn.q_proj": [width, width],
        "self_attn.k_proj": [keys, width],
        "self_attn.v_proj": [keys, width],
        "self_attn.o_proj": [width, width],
    }
    for n in range(c["num_hidden_layers"]):
        shapes |= {f"model.layers.{n}.{name}": shape for name, shape in layer.items()}
    header = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, shape in sorted(shapes.items()):
        start = end
        end += 2 * math.prod(shape)  # 2 bytes for each number in bf16
        tensor = {"dtype": "BF16", "shape": shape, "data_offsets": [start, end]}
        header[f"{name}.weight"] = tensor
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # safetensors aligns what follows to 8 bytes
    (repository / folder).mkdir(parents=True, exist_ok=True)
    (repository / folder / "config.json").write_text(json.dumps(c))
    with (repository / folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + end)  # a sparse file, which takes no disk
