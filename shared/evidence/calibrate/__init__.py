"""`python -m shared.evidence.calibrate`: compares measurements on a GPU with what was predicted."""
