"""A tokenizer for the tiny model, with a vocabulary made from the training texts."""

import re

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from shared.text.configs import TINY_OPTIONS

SPECIAL = {
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}


def new_tokenizer(texts):
    """Returns a WordPiece tokenizer, lower case, with a vocabulary made from the texts.

    It is like BERT's: Devlin et al. 2019, https://arxiv.org/abs/1810.04805, section 3.
    """
    core = Tokenizer(models.WordPiece(unk_token=SPECIAL["unk_token"]))
    core.normalizer = normalizers.BertNormalizer()
    core.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=TINY_OPTIONS["vocab_size"],
        special_tokens=list(SPECIAL.values()),
        show_progress=False,
    )
    # The time that a word takes grows with the square of its length. Words of more than 100 letters
    # become [UNK] anyway.
    core.train_from_iterator((re.sub(r"[^\W_]{1000,}", "", text) for text in texts), trainer)
    sep, cls = (SPECIAL[name] for name in ("sep_token", "cls_token"))
    core.post_processor = processors.BertProcessing(
        (sep, core.token_to_id(sep)), (cls, core.token_to_id(cls))
    )
    return PreTrainedTokenizerFast(tokenizer_object=core, model_max_length=512, **SPECIAL)
