"""Keep what URLs hold secret off screens and out of logs."""

import re

URL = re.compile(r"(?<=://)[^/\s]\S*@")  # user and password; a password may hold slashes and at signs itself
QUERY = re.compile(r"(?<=[?&;])([^\s=&;?]+)=[^\s&;]+")  # tokens and signatures travel as values of a query


def redact_credentials(text: object) -> str:
    """Return a text for screens and logs with users, passwords and query values of its URLs masked."""
    return QUERY.sub(r"\1=***", URL.sub("***@", str(text)))
