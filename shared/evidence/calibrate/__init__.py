"""`python -m shared.evidence.calibrate`: compare measurements on a GPU with predictions."""
