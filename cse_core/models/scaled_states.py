"""Apply `Tokens.kept` and `Tokens.factors` to the lowest states of a pass, packed or padded."""

from dataclasses import dataclass

from jaxtyping import Bool, Float, Int
from torch import Tensor

from cse_core.method import Tokens


@dataclass(frozen=True)
class Scaling:
    """Multiplies state 0, the embedding output, by `kept`, and the k lowest states by their factors.

    A factor is (tokens + features) / 2. Factors are not expanded to every token and feature of all states at once.
    """

    kept: Bool[Tensor, "*places #d"] | None
    tokens: Float[Tensor, "*places k"] | None
    features: Float[Tensor, "k d"] | None

    @classmethod
    def of(cls, tokens: Tokens) -> "Scaling | None":
        """Return the scaling of padded tokens' states; None if there is none."""
        if tokens.kept is None and tokens.factors is None:
            return None
        kept = tokens.kept if tokens.kept is None else tokens.kept.expand(-1, tokens.ids.shape[1], -1)
        if tokens.factors is None:
            return cls(kept, None, None)
        return cls(kept, tokens.factors.tokens.transpose(1, 2), tokens.factors.features)

    def pack(self, places: Int[Tensor, " some"], length: int) -> "Scaling":
        """Return the same scaling for packed tokens, given their places in rows of `length`."""
        rows, columns = places // length, places % length
        picked = (part if part is None else part[rows, columns] for part in (self.kept, self.tokens))
        return Scaling(*picked, self.features)

    def __call__(
        self, state: Float[Tensor, "*some d"], level: int, only: Int[Tensor, " n"] | None = None
    ) -> Float[Tensor, "*some d"]:
        """Return a scaled state; level 0 is the embedding output. `only` says which tokens it has, if not all."""
        if level == 0 and self.kept is not None:
            state = state * self.kept
        if self.features is None or self.tokens is None or level >= len(self.features):
            return state
        tokens = self.tokens[..., level, None]
        tokens = tokens if only is None else tokens[only]
        # Adding the factors first would keep a number for every token and feature for the backward pass.
        return (state * tokens.to(state.dtype) + state * self.features[level].to(state.dtype)) / 2

    def check(self, layers: int) -> None:
        """Refuse factors for more states than a model of this many layers has."""
        if self.features is not None and len(self.features) > layers + 1:
            raise ValueError(
                f"factors must be for at most {layers + 1} states of {layers} layers, got {len(self.features)}"
            )
