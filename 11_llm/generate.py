"""Continue texts with a fine-tuned model: python 11_llm/generate.py DIR "a text" ..."""

import os
import sys
from pathlib import Path

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer

sys.path.append(str(Path(__file__).resolve().parents[1]))  # for shared/, from any folder
from shared.run import errors
from shared.run.cli import Parser, positive
from shared.run.errors import UserError

transformers.logging.disable_progress_bar()
transformers.logging.set_verbosity_error()
LIKELIEST = 50  # tokens to sample from (top-k sampling), as in GPT-2's demonstrations


def generate(folder, texts, tokens):
    """Return each text with its continuation.

    Args:
        folder: what --save of causal.py wrote, or any folder with a causal language model and its
            tokenizer in the format of Hugging Face.
        texts: list of str.
        tokens: number of tokens to add at most; a model may end earlier.

    Raises:
        UserError: there is no such model, or a text is empty.
    """
    if not os.path.isfile(Path(folder) / "config.json"):
        raise UserError(
            f"{folder} holds no model; pass a folder that 11_llm/causal.py --save has written"
        )
    found = []
    try:
        model = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=False).eval()
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        most = getattr(model.config, "max_position_embeddings", None) or tokens + 1
        for text in texts:
            ids = tokenizer(text, return_tensors="pt")["input_ids"][:, : most - 1]
            if not ids.numel():
                raise UserError("a text is empty; pass a beginning, such as 'The film'")
            options = {"max_new_tokens": min(tokens, most - ids.shape[1]), "do_sample": True}
            options |= {"top_k": LIKELIEST, "attention_mask": torch.ones_like(ids)}
            options |= {"pad_token_id": tokenizer.eos_token_id}
            with torch.no_grad():
                out = model.generate(ids, **options)[0]  # (tokens, those of the text first,)
            found.append(tokenizer.decode(out, skip_special_tokens=True))
    except UserError:
        raise
    except Exception as error:  # damaged files raise those of json, safetensors or tokenizers
        raise UserError(
            f"{folder} holds no usable language model"
            f" ({(str(error).strip() or type(error).__name__).splitlines()[0]})"
        ) from None
    return found


def main(argv=None):
    errors.install()
    parser = Parser(description=__doc__.split(":")[0] + ".")
    saved = "a model that 11_llm/causal.py or causal_chunked.py has saved with --save DIR"
    drawn = "seed for sampling tokens (default: 123)"
    parser.add_argument("folder", metavar="DIR", help=saved)
    parser.add_argument("texts", metavar="TEXT", nargs="+", help="what to continue")
    most = "add at most N tokens (default: 40)"
    parser.add_argument("--tokens", type=positive, default=40, metavar="N", help=most)
    parser.add_argument("--seed", type=int, default=123, help=drawn)
    args = parser.parse_args(argv)
    if not 0 <= args.seed < 2**32:
        parser.error(f"--seed {args.seed} is not from 0 to {2**32 - 1}")
    torch.manual_seed(args.seed)
    print("\n".join(generate(args.folder, args.texts, args.tokens)))


if __name__ == "__main__":
    main()
