"""Predictions beside measurements that others have published."""
