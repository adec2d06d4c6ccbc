"""The emulator's proof: what GPUs of others have done, beside the same on an emulated one."""
