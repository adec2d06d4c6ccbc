"""Stand-ins for tokenizers that cannot be downloaded; texts get about as many tokens."""

from emulated_gpu.stand_ins.notes import note

# An English token has about four characters:
# https://help.openai.com/en/articles/4936856-what-are-tokens-and-how-to-count-them
PIECE = r"\s?\S{1,4}"
UNLIMITED = 1e12  # transformers says 1e30 of a tokenizer whose longest text is not known
SPECIAL = {f"{n}_token": f"[{n.upper()}]" for n in "pad unk bos eos cls sep mask".split()}
# Of a chat, the roles and the texts.
CHAT = "{% for m in messages %}{{ m['role'] }} {{ m['content'] }} {% endfor %}"


def in_base(module):
    """Let from_pretrained() of transformers.tokenization_utils_base give a stand-in."""
    _replace(module.PreTrainedTokenizerBase)


def in_auto(module):
    """Let AutoTokenizer of transformers.models.auto.tokenization_auto do so, too."""
    _replace(module.AutoTokenizer)


def _replace(cls):
    """Replace from_pretrained() of a class."""
    original = cls.from_pretrained.__func__

    # The argument has transformers' name for it, since some give it by name.
    def from_pretrained(cls, pretrained_model_name_or_path, *args, **kwargs):
        model = pretrained_model_name_or_path
        problem = None
        try:
            tokenizer = original(cls, model, *args, **kwargs)
        # Each kind of tokenizer raises another error without its files: OSError, ValueError, ...
        except Exception as error:
            problem = error
        # ... or is empty.
        if not problem and (getattr(tokenizer, "is_stand_in", False) or not _is_empty(tokenizer)):
            return tokenizer
        found = _config(model, kwargs)
        if found is None:
            raise problem or OSError(f"there are no files of a tokenizer for {model}")
        note("the tokenizer is missing; in its place, four characters are a token")
        return _stand_in(found)

    cls.from_pretrained = classmethod(from_pretrained)


def _is_empty(tokenizer):
    """Return whether a tokenizer has no words besides special tokens."""
    return not set(tokenizer.get_vocab()) - set(tokenizer.all_special_tokens)


def _config(model, options):
    """Return the configuration of a model, None if that is missing, too."""
    from transformers import AutoConfig

    shared = {k: options[k] for k in ("trust_remote_code", "revision") if k in options}
    folder = options.get("subfolder", "")
    # In a pipeline of diffusers, that of tokenizer_2 is beside it, in text_encoder_2.
    for subfolder in dict.fromkeys((folder, folder.replace("tokenizer", "text_encoder"))):
        try:
            found = AutoConfig.from_pretrained(model, subfolder=subfolder, **shared)
            return found.get_text_config()
        except Exception:  # whatever it is, the tokenizer's own error says more
            pass
    return None


def _stand_in(config):
    """Return a tokenizer with as many words as a configuration says, all but a few of them unused.

    Scripts give their model as many embeddings as the tokenizer has words.
    """
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = [*SPECIAL.values()]
    words += (f"<{i}>" for i in range(len(words), config.vocab_size))
    vocabulary = {word: i for i, word in enumerate(words)}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token=SPECIAL["unk_token"]))
    inner.pre_tokenizer = pre_tokenizers.Split(Regex(PIECE), "isolated")
    longest = getattr(config, "max_position_embeddings", None)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, model_max_length=longest or int(UNLIMITED), **SPECIAL
    )
    tokenizer.chat_template = CHAT
    tokenizer.is_stand_in = True
    return tokenizer
