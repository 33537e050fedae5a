"""The published scale on the embedded backbones, with changes to fields that these do not allow."""

from experiments.schema.scales import RESCALED
from tests.benchmarks.rehearsal.rehearsed_runs import Limits, stand_in_scale
from tests.benchmarks.rehearsal.stand_ins import StandIn

EMBEDDED = {"bert-base-uncased": StandIn("wiki-tiny", "bert"), "bert-large-uncased": StandIn("wiki-mini", "bert")}
SCALE = stand_in_scale(EMBEDDED, "synthetic", rescaled=RESCALED)
LIMITS = Limits(steps=3, batch=4, precision="fp32", fitted=64, parser=False)
