"""The exercises: what to predict, the command that prints the answer, and why it is so. The figures are in no text here."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Exercise:
    """Args:
    stage: the folder.
    number: from 1 on, in each folder.
    question: Markdown, without the answer.
    command: what the reader types; the last run that it prints is what the question is about.
    against: what to compare that with: a run, in the same output or else in the committed record; or another command.
    why: Markdown, without figures that change with versions and machines.
    phase: "load" or "train".
    memory: which peaks are compared: "device", "host" or both.
    """

    stage: str
    number: int
    question: str
    command: str
    against: str
    why: str
    phase: str = "train"
    memory: tuple = ("device",)


EXERCISES = [
    Exercise(
        "01_baseline", 1,
        "`--data fake` replaces the pictures by noise of the same shape. Predict: does the training peak change? Does any part of it?",
        "python 01_baseline/train.py --preset tiny --data fake --max-steps 4", "01_baseline",
        "Memory depends on shapes and types, not on what the numbers say. So the memory of a model can be measured without data. "
        "The test accuracy, on the other hand, now means nothing. On a machine with a GPU leave out `--preset tiny` to see the full size.",
    ),
    Exercise(
        "01_baseline", 2,
        "Twice the images in a batch, at full size. Predict for each category: does it double, or stay? And the sum?",
        "python -m shared.predict 01 --batch-size 128", "01_baseline",
        "Activations, inputs and temporaries belong to the images, and follow the batch. Parameters and Adam's states belong to the model, and stay; so does what there is of gradients, at the beginning of the backward pass. "
        "The sum does not quite double: the model's share is in it once, before and after.",
    ),
    Exercise(
        "02_mixed_precision", 1,
        "Predict for each of parameters, optimizer states, activations and inputs: will it halve, stay, or grow?",
        "python 02_mixed_precision/train.py --preset tiny --max-steps 4", "01_baseline",
        "Weights and Adam's states stay in fp32; what is computed from them is in 16 bit. Activations remain somewhat above half, since the copies of weights in 16 bit are counted among them, and some operations keep fp32. "
        "Inputs grow, because the pictures are there twice, in 4 bytes per value and in 2. The line that names the model tells whether fp16 or bf16 was used.",
    ),
    Exercise(
        "02_mixed_precision", 2,
        "Two images per update, at full size. Predict: how much does mixed precision still save?",
        "python -m shared.predict 01 02 --batch-size 2", "01_baseline",
        "With so few images the peak is no longer in the backward pass but in Adam's step, when the activations are gone. What is there then, weights, gradients, states and the step's own temporaries, mixed precision leaves in fp32. "
        "It is a technique for activations, and helps where they are most of the memory.",
    ),
    Exercise(
        "03_bf16", 1,
        "The model is now half as large. Predict: is the peak while *loading* half as large, too?",
        "python 03_bf16/train.py --preset tiny --max-steps 4", "02_mixed_precision",
        "The model is created in fp32, and so is the copy that is read from the file. The conversion comes after both. 07_init_module closes the gap.",
        phase="load",
    ),
    Exercise(
        "03_bf16", 2,
        "Again two images per update, where mixed precision had its difficulty. Predict: how much does bf16 for everything save?",
        "python -m shared.predict 02 03 --batch-size 2", "02_mixed_precision",
        "The peak is in Adam's step. All that is there is of the size of the weights, and all of it is now in 16 bit: the weights, their gradients, both states, and the temporaries of the step. "
        "Only the inputs stay: pictures arrive in fp32.",
    ),
    Exercise(
        "04_batchsize", 1,
        "Take what 03 holds at its measured peak (on its page under *Measured*; on the workshop page, its bar among the measurements). Predict the training peak with 16 images: divide activations, inputs and temporaries by four, leave parameters and optimizer states, and add up.",
        "python 04_batchsize/train.py --preset tiny --max-steps 4", "03_bf16",
        "What belongs to the images shrinks with the batch; what belongs to the model stays. Use the same sum backwards: which batch would fill the memory of your own device?",
    ),
    Exercise(
        "04_batchsize", 2,
        "A single image per update instead of 16, at full size. Predict: does the peak fall to a sixteenth? What holds the memory then?",
        "python -m shared.predict 04 --batch-size 1", "04_batchsize",
        "The peak has moved to the optimizer's step, where no activations are left. There all gradients are present, and Adam's grouped operations need temporaries as large as the weights. "
        "No batch is small enough to get below that: from here on, it is the model that must shrink.",
    ),
    Exercise(
        "05_grad_accum", 1,
        "Training ends after a single update. Predict which categories are there at its peak, and which one is missing that is there otherwise.",
        "python 05_grad_accum/train.py --preset tiny --max-steps 1", "05_grad_accum",
        "Gradients are there in full size, although only one update was made: they come from the micro-batch before. Optimizer states are missing, because Adam creates them in its first step, after the last backward pass. "
        "A script that runs out of memory in its second update, and not in its first, is most likely short of these.",
    ),
    Exercise(
        "05_grad_accum", 2,
        "Twice the images per update, at full size, in micro-batches as before. Predict: what does the larger batch cost in memory?",
        "python -m shared.predict 05 --batch-size 32", "05_grad_accum",
        "Only the pictures themselves are there for the whole batch. Activations are those of one micro-batch, and gradients add up in place, however many micro-batches there are. "
        "So the size of a batch can be chosen for the training, and that of a micro-batch for the memory.",
    ),
    Exercise(
        "06_sgd", 1,
        "Start from random weights instead of pretrained ones. Predict: does the training peak change? And what will the test accuracy be after six updates, if guessing gives one in ten?",
        "python 06_sgd/train.py --preset tiny --no-pretrained --max-steps 6", "python 06_sgd/train.py --preset tiny --max-steps 6",
        "What the weights say does not matter to the memory. It matters to the accuracy: from random weights six updates of this kind are far too few. It is fine-tuning that allows so few, and so simple ones.",
    ),
    Exercise(
        "06_sgd", 2,
        "Spend what SGD saves: twice the images per micro-batch, at full size. Predict: is the peak above or below that of 05, with Adam and the smaller micro-batch?",
        "python -m shared.predict 06 --micro-batch-size 8", "05_grad_accum",
        "Adam's states take twice the memory of the weights, which is more than the activations of another micro-batch. So the same card holds a larger micro-batch without them.",
    ),
    Exercise(
        "07_init_module", 1,
        "How many bytes per parameter are in memory at the peak while loading, in 06 and now? Predict from that how far the peak falls, and which category goes.",
        "python 07_init_module/train.py --preset tiny --max-steps 1", "06_sgd",
        "Before, the model was created in fp32 and the file read into a copy in fp32: 4 + 4 bytes. Now the weights are created as they are needed, in 2 bytes, and filled from a file that is mapped. One update is enough here: loading is over before it starts. "
        "Next question: what is there to load with `--no-pretrained`? Still a file. Random weights are written once and read by every stage, so that all stages start from the same ones.",
        phase="load",
    ),
    Exercise(
        "07_init_module", 2,
        "ViT-H/14 has about twice the parameters of ViT-L/16. Predict what loading it takes on the host, in 06 and in 07.",
        "python -m shared.predict 06 07 --model vit_h_14", "06_sgd",
        "In 06 the host holds the model and the copy read from the file, both in fp32, and that grows with the model. In 07 the weights are created on the device. The file is mapped, not read: its pages are the operating system's to drop, and count for nobody.",
        phase="load", memory=("host",),
    ),
    Exercise(
        "08_fsdp", 1,
        "Two devices instead of four. Predict for parameters, gradients and activations: do they double, stay, or appear?",
        "python 08_fsdp/train.py --preset tiny --devices 2 --max-steps 4", "08_fsdp",
        "Each device keeps a half of the weights instead of a quarter. That is not quite twice as much, since a tensor with a single row cannot be divided: one process has all of it. Activations stay: each process now has twice the images, but takes as many at a time as before; only the inputs are there for all of them. "
        "And all gradients of its shard are there at the peak, because the second micro-batch runs beside the gradients of the first.",
    ),
    Exercise(
        "08_fsdp", 2,
        "Sixteen devices instead of four, at full size: one image for each. Predict which categories fall to a quarter, and which one does not fall.",
        "python -m shared.predict 08 --devices 16", "08_fsdp",
        "Shards get smaller with every device, and activations with the images that each one has. But every device gathers whole blocks to compute with, and a block is as large as before. "
        "More of it is gathered at the new peak, because that is at another moment of the pass. So gathered weights are a floor that more devices do not lower.",
    ),
    Exercise(
        "09_act_ckpt", 1,
        "Checkpointing does not need several devices. Predict what happens on a single one: is the peak above or below that of 06, which also runs on one device, with all weights and gradients in place?",
        "python 09_act_ckpt/train.py --preset tiny --devices 1 --max-steps 4", "06_sgd",
        "Parameters and gradients are whole on a single device. Activations have shrunk to the inputs of the blocks; *recomputed* is what one block computes again. "
        "*Gathered* are the blocks at work, which FSDP copies also where nobody shares them. If you have one GPU only, this is the part of 08 to 10 to take along first.",
    ),
    Exercise(
        "09_act_ckpt", 2,
        "Pictures of twice the edge, which are four times the tokens. Predict: does checkpointing save a larger or a smaller part of the peak than at 224 px, the size that this lesson's prediction is for?",
        "python -m shared.predict 08 09 --image-px 448", "08_fsdp",
        "Shards and blocks of weights are about as large as before. Activations have grown with the tokens, so they are a larger part of the peak, and they are what checkpointing takes away. "
        "The inputs of the blocks and what one block computes again grow as well, but they were small.",
    ),
    Exercise(
        "10_offload", 1,
        "Predict for the machine in front of you, if it has no GPU: does the training peak fall against 09? Does any category disappear?",
        "python 10_offload/train.py --preset tiny --max-steps 4", "09_act_ckpt",
        "*Parameters* is still listed: the host plays the device here. What a figure means depends on where it was counted, and this is the one stage that a CPU cannot show. "
        "`python -m shared.predict 09 10 --preset tiny` simulates a device apart from the host: there *parameters* and *gradients* do disappear from the device, and turn up in a row for the host.",
    ),
    Exercise(
        "10_offload", 2,
        "A larger model, ViT-H/14. Predict: which categories leave the device, and do they take as much on the host as they took there?",
        "python -m shared.predict 09 10 --model vit_h_14", "09_act_ckpt",
        "Parameters take on the host what they took on the device. Gradients take much more: the device had its peak at the beginning of the backward pass, when hardly any were there; the host has its own at the end, when all are. "
        "What remains on the device belongs to the images and to the blocks at work, and offloading does not change it.",
        memory=("device", "host"),
    ),
    Exercise(
        "11_llm", 1,
        "Predict: which category falls by the most MB, and which one is new? How far do the optimizer states fall, and which two techniques are in it?",
        "python 11_llm/train.py --preset tiny --max-steps 4", "11_llm/before",
        "The optimizer states fall by the most, and twice: bf16 leaves a half of them, and sharding over four processes a quarter of that. New is *gathered*, and it is most of what remains: the embedding, for a moment twice, which in this small model is most of the weights.",
    ),
    Exercise(
        "11_llm", 2,
        "Texts of at most 128 tokens instead of 512, at full size. Predict: does the peak fall to a quarter? Which category does not follow the tokens?",
        "python -m shared.predict 11 --max-length 128", "11_llm/train",
        "With short texts the peak has moved from the backward pass to the beginning of the forward pass, where hardly any activations are there yet. What is there is the gathered embedding, which is as large for a short text as for a long one. "
        "So the tokens decide the peak only as long as the activations do.",
    ),
]
