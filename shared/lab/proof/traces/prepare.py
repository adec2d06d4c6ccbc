"""Prepare files that a third-party script needs, and that cannot be downloaded.

python prepare.py notebook NOTEBOOK SCRIPT    # the notebook's cells, one after another
python prepare.py tinyllama FOLDER            # TinyLlama 1.1B, its weights without values
"""

import json
import struct
import sys
from pathlib import Path

# As the model's config.json says.
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


def notebook(source, script):
    """Write the code cells of a notebook into a script."""
    cells = json.loads(Path(source).read_text("utf-8"))["cells"]
    code = ("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    Path(script).write_text("\n\n".join(code) + "\n", "utf-8")


def tinyllama(folder):
    """Write the configuration, and a sparse file of weights in bf16, into a folder."""
    path, c = Path(folder), TINYLLAMA
    width, hidden = c["hidden_size"], c["intermediate_size"]
    keys = width // c["num_attention_heads"] * c["num_key_value_heads"]
    shapes = dict.fromkeys(("lm_head", "model.embed_tokens"), [c["vocab_size"], width])
    shapes["model.norm"] = [width]
    for n in range(c["num_hidden_layers"]):
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
        shapes |= {f"model.layers.{n}.{name}": shape for name, shape in layer.items()}
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in sorted(shapes.items()):
        # 2 bytes for each number in bf16.
        start, end = end, end + 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        tensor = {"dtype": "BF16", "shape": shape, "data_offsets": [start, end]}
        header[f"{name}.weight"] = tensor
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # safetensors aligns what follows to 8 bytes
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps(c))
    with (path / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + end)  # a sparse file, which takes no disk


if __name__ == "__main__":
    {"notebook": notebook, "tinyllama": tinyllama}[sys.argv[1]](*sys.argv[2:])
