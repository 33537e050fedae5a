"""Encoders: how they are loaded, pooled, run and cached."""
