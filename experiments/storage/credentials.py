"""Mask passwords and tokens in URLs before they are printed or logged."""

import re

URL = re.compile(r"(?<=://)[^/\s]\S*@")  # user and password; a password may contain slashes and at signs
QUERY = re.compile(r"(?<=[?&;])([^\s=&;?]+)=[^\s&;]+")  # tokens and signatures are values in a query


def redact_credentials(text: object) -> str:
    """Return a text with the users, passwords and query values of its URLs masked."""
    return QUERY.sub(r"\1=***", URL.sub("***@", str(text)))
