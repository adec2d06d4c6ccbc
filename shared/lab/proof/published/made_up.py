"""Data for third-party scripts: made up, so that nothing is downloaded.

Each function takes the folder of a repository; sources.toml names them.
"""

import base64
import json
import shutil

import numpy
from transformers import GPT2Config

from shared.text.tokenizer import new_tokenizer


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
    for part in ("train", "val"):
        tokens = numpy.zeros(2_000_000, "uint16")
        tokens.tofile(repository / f"data/openwebtext/{part}.bin")


def fineweb(repository):
    """Write tokens, all of them 0, and a question of HellaSwag for build-nanogpt."""
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
    sentences = [f"the quick brown fox jumps over the lazy dog {n} " for n in range(2000)]
    lines = [sentence * 60 for sentence in sentences]
    model = repository.parent / "gpt2"
    tokenizer = new_tokenizer(lines, 2000)
    tokenizer.eos_token = tokenizer.sep_token
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
