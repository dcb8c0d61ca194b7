from collections.abc import Mapping
from typing import Any


def rendered(document: Mapping[str, Any]) -> str:
    return ""
