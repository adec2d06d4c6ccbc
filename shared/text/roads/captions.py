"""Captions of images: a vision-language model reads an image as tokens, and predicts its caption.

A caption names the class of a picture. The pictures are those of stages 01 to 10: digits, CIFAR-10,
noise, or a folder with a folder for each class.
"""

import functools
import math

import torch
import torch.nn.functional as F
from torch.utils.data import Dataset
from torchmetrics import MeanMetric
from transformers import AutoModelForImageTextToText, Qwen2VLImageProcessor

from shared.images.cli import Images
from shared.images.data import NORMALIZE, image_sets
from shared.run import cli
from shared.run.errors import UserError
from shared.run.loading import SPLIT_SEED
from shared.text import data, models
from shared.text.roads.causal import Causal, Perplexity, new_tokenizer

CAPTION = 16  # tokens of a caption at most, including the marks around the image
TINY_LENGTH = 20  # tokens: 4 of the image beside the caption
KINDS = ("qwen2_vl", "qwen2_5_vl")  # types of models that cut images into the same patches
NO_TARGET = -100  # a label that cross_entropy() leaves out


class CaptionPerplexity(Perplexity):
    """The perplexity of captions alone."""

    def update(self, loss, logits, labels):
        n = (labels != NO_TARGET).sum()
        loss = loss.detach()
        MeanMetric.update(self, loss.sum() / n if loss.ndim else loss, n)


class Captions(Causal):
    """The task of captioning images: next-token prediction, of captions alone."""

    auto, tiny = AutoModelForImageTextToText, models.TINY_VLM
    does, such_as = "caption images", "Qwen/Qwen2-VL-2B-Instruct"
    presets = {
        "tiny": {"model": models.TINY_VLM, "data": "digits"},
        "full": {"model": such_as, "data": "cifar10"},
    }
    new_metric = functools.partial(CaptionPerplexity, nan_strategy="disable")  # keeps a NaN loss
    use = "from_pretrained({!r}) of transformers reads it"
    model_help = f"{tiny}, or folder or Hugging Face id of a model that can {does}"
    data_help = Images.data_help

    def choose(self, args):
        """Set args.image_px, too: the largest square whose tokens leave room for a caption."""
        if args.model == self.tiny:
            args.max_length = args.max_length or TINY_LENGTH
        super().choose(args)
        if args.config.model_type not in KINDS:
            other = f"{args.config.model_type} models read images in another way"
            raise UserError(f"--model {args.model}: {other}; choose, such as {self.such_as}")
        if args.max_length <= CAPTION:
            room = f"an image has one token or more, and its caption up to {CAPTION}"
            raise UserError(f"--max-length {args.max_length}: {room}")
        side = math.isqrt(args.max_length - CAPTION)  # in tokens
        args.image_px = side * pixels_per_token(args.config)
        pixels = f"{args.image_px} x {args.image_px} pixels"
        args.notes.append(f"an image has {pixels}, and so {side**2} tokens")

    def prepared(self, args):
        """Return {part: Captioned}, None (no classes), and the tokenizer, None for noise."""
        sets, classes = image_sets(args)
        captions, tokenizer = caption_tokens(args, classes)
        parts = zip(data.PARTS, (Captioned(images, captions, args.limit) for images in sets))
        return dict(parts), None, tokenizer

    def collate(self, args, config):
        return functools.partial(batch, config)

    def outputs(self, model, tokens, labels):
        """Return the loss of each token, (batch, tokens), 0 where none is predicted, and None."""
        logits = model(**tokens).logits
        return F.cross_entropy(logits.float().mT, labels, reduction="none"), None


class Captioned(Dataset):
    """Images of a data set, (3, px, px), with the tokens of their captions, a list."""

    def __init__(self, images, captions, limit):
        self.images, self.captions = images, captions
        self.size = min(limit or len(images), len(images))

    def __len__(self):
        return self.size

    def __getitem__(self, position):
        image, label = self.images[position]
        return image, self.captions[int(label)]


def pixels_per_token(config):
    """Return the edge, in pixels, of the square of merged patches that becomes a token."""
    return config.vision_config.patch_size * config.vision_config.spatial_merge_size


def caption_tokens(args, classes):
    """Return the caption's tokens for each class, and the tokenizer, None for noise."""
    most = CAPTION - 2  # beside the marks
    if args.data == "fake":
        generator = torch.Generator().manual_seed(SPLIT_SEED)
        size = args.config.get_text_config().vocab_size
        usual = min(size, args.config.vision_start_token_id)  # marks of images come after words
        return torch.randint(usual, (len(classes), most), generator=generator).tolist(), None
    captions = [f"a picture of {name.replace('_', ' ')}" for name in classes]
    if args.model == args.task.tiny:
        tokenizer = new_tokenizer(captions, args.config.vision_start_token_id)
    else:
        tokenizer = models.tokenizer(args)
    ids = tokenizer(captions, add_special_tokens=False)["input_ids"]
    return [[*some[: most - 1], tokenizer.eos_token_id] for some in ids], tokenizer


def batch(config, examples):
    """Collate images and captions into a model's inputs, and labels.

    A text is a mark, the image's tokens, a mark, and the caption, padded at its end. The label of a
    token is the next token if that is of the caption, else NO_TARGET. All image tokens have the
    number `image_token_id`; the model replaces their embeddings by the encoder's outputs.
    """
    vision = config.vision_config
    sizes = {"patch_size": vision.patch_size, "merge_size": vision.spatial_merge_size}
    sizes["temporal_patch_size"] = vision.temporal_patch_size  # each image twice, as two frames
    processor = Qwen2VLImageProcessor(**sizes, do_resize=False, do_rescale=False)
    mean, std = (torch.tensor(values)[:, None, None] for values in (NORMALIZE.mean, NORMALIZE.std))
    images = [image * std + mean for image, _ in examples]  # normalized for other models
    pictures = processor(images, return_tensors="pt")
    counts = pictures["image_grid_thw"].prod(1) // vision.spatial_merge_size**2
    length = max(2 + int(n) + len(caption) for n, (_, caption) in zip(counts, examples))
    ids = torch.full((len(examples), length), config.get_text_config().pad_token_id)
    labels = torch.full_like(ids, NO_TARGET)
    for row, of_caption, n, (_, caption) in zip(ids, labels, counts, examples):
        start, end = config.vision_start_token_id, config.vision_end_token_id
        text = torch.tensor([start, *[config.image_token_id] * n, end, *caption])
        row[: len(text)] = text
        of_caption[n + 2 : len(text)] = text[n + 2 :]
    tokens = {"input_ids": ids[:, :-1].contiguous()}  # (batch, tokens)
    tokens["mm_token_type_ids"] = (tokens["input_ids"] == config.image_token_id).int()
    tokens["pixel_values"] = pictures["pixel_values"]  # (patches of all images, values)
    tokens["image_grid_thw"] = pictures["image_grid_thw"]  # (images, 3): frames, rows, columns
    return tokens, labels[:, 1:].contiguous()


TASK = Captions()
parse = functools.partial(cli.parse, TASK)
