"""The emulator's proof: published figures and traces of real GPUs, beside emulated GPUs."""
