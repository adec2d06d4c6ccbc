"""A tokenizer for the tiny model, with a vocabulary made from the training texts."""

import re

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

SPECIAL = {
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}


def new_tokenizer(texts, vocab_size):
    """Returns a WordPiece tokenizer, lower case, with a vocabulary made from the texts.

    It is like BERT's: Devlin et al. 2019, https://arxiv.org/abs/1810.04805, section 3.
    """
    # The time that a word takes grows with the square of its length. Words of more than 100 letters
    # become [UNK] anyway.
    texts = [re.sub(r"[^\W_]{1000,}", "", text).lower() for text in texts]
    # Letters inside of words are numbered as they come out of a hash map, differently each time,
    # and the rest of the vocabulary depends on that: so they are named here.
    inside = [f"##{letter}" for letter in sorted(set("".join(texts)) - set(" "))]
    core = _wordpiece(models.WordPiece(unk_token=SPECIAL["unk_token"]))
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        special_tokens=[*SPECIAL.values(), *inside],
        show_progress=False,
    )
    core.train_from_iterator(texts, trainer)
    core = _wordpiece(models.WordPiece(core.get_vocab(), unk_token=SPECIAL["unk_token"]))
    sep, cls = (SPECIAL[name] for name in ("sep_token", "cls_token"))
    core.post_processor = processors.BertProcessing(
        (sep, core.token_to_id(sep)), (cls, core.token_to_id(cls))
    )
    return PreTrainedTokenizerFast(tokenizer_object=core, model_max_length=512, **SPECIAL)


def _wordpiece(model):
    core = Tokenizer(model)
    core.normalizer = normalizers.BertNormalizer()
    core.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return core
