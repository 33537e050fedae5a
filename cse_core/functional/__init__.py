"""Pure functions of tensors: contrast, rank vectors, whitening."""
