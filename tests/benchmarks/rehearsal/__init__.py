"""The published scale on stand-ins: encoders of the papers' exact shapes with random weights."""
