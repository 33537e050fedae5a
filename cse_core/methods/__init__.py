"""The methods, one paper a file. To add one: write its file, add its line here."""

from cse_core.method import Method
from cse_core.methods.rankcse import RankCSE
from cse_core.methods.simcse import SimCSE

METHODS: dict[str, type[Method]] = {
    "simcse": SimCSE,
    "rankcse": RankCSE,
}
