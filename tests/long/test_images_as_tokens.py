"""Promise: an image becomes pixels / (patch × merge)² tokens, and only captions are learned."""

import math
from types import SimpleNamespace

import pytest
import torch
from helpers.single_process import one_update
from helpers.small_models import LLAMA
from transformers import AutoModelForImageTextToText, Qwen2_5_VLConfig, Qwen2VLConfig

from shared.lab.records import stored
from shared.text.roads import captions

ROAD = "11_llm/images"
MARKS = {"vision_start_token_id": 196, "vision_end_token_id": 197}
MARKS |= {"image_token_id": 198, "video_token_id": 199}
VISION = {"depth": 2, "num_heads": 2, "patch_size": 4}
SIZES = {  # of the encoder, by names that differ
    Qwen2VLConfig: {"embed_dim": 32, "hidden_size": 32, "mlp_ratio": 2},
    Qwen2_5_VLConfig: {"hidden_size": 32, "out_hidden_size": 32, "intermediate_size": 64}
    | {"window_size": 16, "fullatt_block_indexes": [1]},
}


def small(make_config):
    rope = {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 10_000.0}
    text = {**LLAMA, "num_key_value_heads": 2, "rope_parameters": rope, "pad_token_id": 0}
    return make_config(text_config=text, vision_config=VISION | SIZES[make_config], **MARKS)


def examples(px):
    """Return three images with captions of different lengths."""
    generator = torch.Generator().manual_seed(2)
    images = torch.randn(3, 3, px, px, generator=generator)
    return [*zip(images, ([5, 6, 7, 3], [8, 3], [9, 10, 3]))]


@pytest.mark.parametrize("make_config", SIZES)
def test_the_loss_is_that_of_hugging_face(make_config):
    torch.manual_seed(1)
    config = small(make_config)
    model = AutoModelForImageTextToText.from_config(config).double()
    tokens, labels = captions.batch(config, examples(24))
    tokens["pixel_values"] = tokens["pixel_values"].double()
    theirs = model(**tokens, labels=labels, shift_labels=labels).loss
    theirs.backward()
    grads = [p.grad for p in model.parameters()]
    model.zero_grad()
    ours = one_update(ROAD, model, tokens, labels)
    torch.testing.assert_close(ours.loss.float(), theirs.detach().float(), rtol=1e-5, atol=0)
    torch.testing.assert_close(ours.grads, grads, rtol=1e-4, atol=1e-6)
    names = [name for name, _ in model.named_parameters()]
    of_encoder = [grad for name, grad in zip(names, grads, strict=True) if "visual" in name]
    assert of_encoder and all(grad.abs().max() > 0 for grad in of_encoder)


@pytest.mark.parametrize("px", [8, 24, 40])
def test_an_image_becomes_so_many_tokens(px):
    config = small(Qwen2VLConfig)
    tokens, labels = captions.batch(config, examples(px))
    n = (px // (4 * 2)) ** 2
    assert ((tokens["input_ids"] == 198).sum(1) == n).all()
    assert len(tokens["pixel_values"]) == 3 * 4 * n  # patches, of which four are merged
    learned = [row[row != captions.NO_TARGET].tolist() for row in labels]
    assert learned == [[5, 6, 7, 3], [8, 3], [9, 10, 3]]
    assert tokens["input_ids"].shape == labels.shape == (3, 2 + n + 3)
    for row, of_caption, caption in zip(tokens["input_ids"], labels, learned):
        whole = [196, *[198] * n, 197, *caption]
        assert row[: len(whole) - 1].tolist() == whole[:-1]
        assert of_caption[n + 1 : len(whole) - 1].tolist() == caption


def test_the_perplexity_is_that_of_captions():
    config = small(Qwen2VLConfig)
    model = AutoModelForImageTextToText.from_config(config).eval()
    tokens, labels = captions.batch(config, examples(16))
    losses, _ = captions.TASK.outputs(model, tokens, labels)
    loss = model(**tokens, labels=labels, shift_labels=labels).loss
    whole, single = captions.TASK.new_metric(), captions.TASK.new_metric()
    whole.update(losses, None, labels)
    single.update(loss, None, labels)
    assert whole.compute().item() == pytest.approx(single.compute().item(), rel=1e-5)
    assert whole.compute().item() == pytest.approx(math.exp(loss.item()), rel=1e-5)


def test_images_are_as_large_as_the_length_allows():
    for length, side in ((17, 1), (19, 1), (20, 2), (512, 22), (1040, 32)):
        args = SimpleNamespace(model="Qwen/Qwen2-VL-2B-Instruct", pretrained=False)
        vars(args).update(trust_remote_code=False, task=captions.TASK, max_length=length, notes=[])
        captions.TASK.choose(args)
        assert args.image_px == side * 28


def test_digits_are_read():
    """Without images, five tokens of which one is one of ten digits: the fifth root of 10."""
    record = stored.measurements(stored.TINY_SIDE_ROADS)[ROAD]
    assert 1 < record["test_perplexity"] < 1.3 < 10 ** (1 / 5)
