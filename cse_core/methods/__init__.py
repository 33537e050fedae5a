"""The methods, one paper a file. To add one: write its file, add its line here."""

from cse_core.method import Method
from cse_core.methods.baselines.arccse import ArcCSE
from cse_core.methods.baselines.consert import ConSERT
from cse_core.methods.baselines.ct import CT
from cse_core.methods.baselines.dclr import DCLR
from cse_core.methods.baselines.esimcse import ESimCSE
from cse_core.methods.baselines.isbert import ISBERT
from cse_core.methods.baselines.l2pcsr import L2PCSR
from cse_core.methods.baselines.mixcse import MixCSE
from cse_core.methods.baselines.mocose import MoCoSE
from cse_core.methods.baselines.pcl import PCL
from cse_core.methods.compcse import CompCSE
from cse_core.methods.diffcse import DiffCSE
from cse_core.methods.mlm import MLM
from cse_core.methods.promptbert import PromptBERT
from cse_core.methods.rankcse import RankCSE
from cse_core.methods.rankencoder import RankEncoder
from cse_core.methods.simcse import SimCSE
from cse_core.methods.sncse import SNCSE
from cse_core.methods.whitenedcse import WhitenedCSE

METHODS: dict[str, type[Method]] = {
    "simcse": SimCSE,
    "rankcse": RankCSE,
    "rankencoder": RankEncoder,
    "whitenedcse": WhitenedCSE,
    "compcse": CompCSE,
    "promptbert": PromptBERT,
    "sncse": SNCSE,
    "diffcse": DiffCSE,
    "mlm": MLM,
    "esimcse": ESimCSE,
    "mocose": MoCoSE,
    "consert": ConSERT,
    "ct": CT,
    "dclr": DCLR,
    "mixcse": MixCSE,
    "pcl": PCL,
    "arccse": ArcCSE,
    "l2pcsr": L2PCSR,
    "isbert": ISBERT,
}
