"""Unsupervised sentence embeddings: methods, training and evaluation, without sweeps, tracking or plots.

Axis letters, the same everywhere: n batch, d embedding, t tokens, k list, v views, g groups, p positives, N corpus.
Similarities are cosines unless said otherwise; losses are means over the batch; scores lie in [0, 1].
"""
