"""Stored evidence: published figures, calibration, and the experiments behind the pages."""
