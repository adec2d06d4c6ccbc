"""Evidence, made once: published figures, calibration, the experiments behind the pages."""
