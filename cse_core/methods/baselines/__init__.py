"""Methods that the papers' tables compare with, and MixCSE."""
