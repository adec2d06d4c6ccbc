"""A tokenizer for the tiny model, trained on the training texts."""

import re

from tokenizers import BertWordPieceTokenizer, Tokenizer
from transformers import PreTrainedTokenizerFast

SPECIAL = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}


def new_tokenizer(texts, vocab_size):
    """Return a lower-case WordPiece tokenizer, like BERT's, trained on the texts.

    Source: Devlin et al. 2019, https://arxiv.org/abs/1810.04805, section 3.
    """
    # The time per word grows with the square of its length. Words of more than 100 letters become
    # [UNK] anyway.
    texts = [re.sub(r"[^\W_]{1000,}", "", text).lower() for text in texts]
    # The trainer numbers letters inside words in the order of a hash map, which varies from run to
    # run, and the rest of the vocabulary depends on it. So they are listed here.
    letters = sorted(set("".join(texts)) - set(" "))
    made = BertWordPieceTokenizer()
    made.train_from_iterator(
        texts,
        vocab_size=vocab_size,
        min_frequency=0,
        limit_alphabet=len(letters),
        special_tokens=[*SPECIAL.values(), *(f"##{letter}" for letter in letters)],
        show_progress=False,
    )
    core = Tokenizer.from_str(BertWordPieceTokenizer(made.get_vocab()).to_str())
    return PreTrainedTokenizerFast(tokenizer_object=core, model_max_length=512, **SPECIAL)
