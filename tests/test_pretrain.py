"""Promise: the tiny model's weights are made from fonts alone, by shared/images/pretrain.py."""

import types

import torch

from shared.images import data, models, pretrain


def test_characters_look_as_the_digits_do():
    pictures, labels = pretrain.characters(50, seed=3)
    again, _ = pretrain.characters(50, seed=3)
    assert pictures.shape == (50, 8, 8) and torch.equal(pictures, again)
    assert 0 <= pictures.min() < pictures.max() <= 1
    assert set((pictures * 16 % 1).flatten().tolist()) == {0.0}  # counts of 16 pixels
    assert len(labels.unique()) > 20


def test_committed_weights_recognise_fresh_characters():
    assert models.TINY_WEIGHTS.stat().st_size < 2e6
    sizes = {"image_px": models.TINY_PX, "num_classes": len(pretrain.CHARACTERS)}
    model = models.vit(types.SimpleNamespace(model="vit_tiny", **sizes))
    model.load_state_dict(torch.load(models.TINY_WEIGHTS, weights_only=True))
    pictures, labels = pretrain.characters(500, seed=99)
    with torch.no_grad():
        predicted = model(data.enlarge(pictures, models.TINY_PX)).argmax(1)
    assert (predicted == labels).float().mean() > 0.9


def test_pretraining_runs():
    state, accuracy = pretrain.pretrain(pictures=128, epochs=1)
    assert state.keys() == torch.load(models.TINY_WEIGHTS, weights_only=True).keys()
    assert 0 <= accuracy < 0.5
