"""What lies in an exported page, read with none of tenscope's own code."""

from __future__ import annotations

import base64
import gzip
import json
import re
import struct
from typing import Any


def answers(page: str) -> dict[str, Any]:
    """Every answer by its target: JSON as plain data, tiles as bytes."""
    text = re.search(r'id="tenscope-answers">([A-Za-z0-9+/=\s]*)</script>', page)[1]
    unpacked = gzip.decompress(base64.b64decode(text, validate=True))
    (length,) = struct.unpack_from("<I", unpacked)
    index = json.loads(unpacked[4 : 4 + length])
    bodies = unpacked[4 + length :]
    found = {target: bodies[place[0] : place[0] + place[1]] for target, place in index.items()}
    return {target: body if body.startswith(b"TST1") else json.loads(body) for target, body in found.items()}


def fetched(page: str) -> list[str]:
    """Addresses that the page's markup would fetch: there must be none."""
    markup = re.sub(r"<(style|script)\b[^>]*>.*?</\1>", "", page, flags=re.S)
    return [address for address in re.findall(r"""(?:src|href)\s*=\s*["']([^"']*)""", markup) if address != "data:,"]
