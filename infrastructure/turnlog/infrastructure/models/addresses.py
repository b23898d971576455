"""Base URLs as people write them, and the addresses of APIs behind them."""

from __future__ import annotations

import re
from urllib.parse import SplitResult, urlsplit

from turnlog.domain.errors import InvalidSettingError

_VERSION = re.compile(r"v\d+(?:alpha|beta)?\d*")


def base(url: str) -> str:
    """The URL without white space, a fragment and slashes at its end.

    Raises `InvalidSettingError` for what is no address of a web server.
    """
    found = _split(url.strip())
    return found._replace(path=found.path.rstrip("/"), fragment="").geturl()


def endpoint(base_url: str, path: str) -> str:
    """The address of an API, `path` being `/chat/completions` or the like.

    `/v1` is put in front of it unless the base URL names a version (`/v1`, `/v1beta/openai` …) or a
    deployment. A base URL that ends with the path is the address itself. A query stays.
    """
    found = _split(base_url)
    start = found.path.rstrip("/")
    if start.endswith(path):
        return found._replace(path=start).geturl()
    segments = start.split("/")
    has_version = any(_VERSION.fullmatch(one) for one in segments) or "deployments" in segments
    return found._replace(path=f"{start}{'' if has_version else '/v1'}{path}").geturl()


def of_ollama(host: str) -> str:
    """The base URL that a value of `OLLAMA_HOST` means: a host, `host:port`, `:port`, or a URL.

    The port is 11434 where neither a port nor a scheme is given. A server's own "any address" becomes the
    loopback.
    """
    text = host.strip().strip("\"'").rstrip("/")
    is_bare = "://" not in text
    found = _split(f"http://{_bracketed(text)}" if is_bare else text, default_host="127.0.0.1")
    name = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "": "127.0.0.1"}.get(found.hostname or "")  # noqa: S104 - replaced
    netloc = found.netloc
    if name is not None:
        user, at, _ = netloc.rpartition("@")
        netloc = f"{user}{at}{name}{'' if found.port is None else f':{found.port}'}"
    if is_bare and found.port is None:
        netloc += ":11434"
    return found._replace(netloc=netloc).geturl()


def host(url: str) -> str:
    """The name of the host, in lower case."""
    return _split(url).hostname or ""


def is_at(url: str, provider: str) -> bool:
    """Whether the URL is at the host of a provider's own."""
    return host(url) == host(provider)


def shown(url: str) -> str:
    """The URL without a user, a password and a query, which may hold a key."""
    found = urlsplit(url)
    return found._replace(netloc=found.netloc.rpartition("@")[2], query="", fragment="").geturl()


def _bracketed(text: str) -> str:
    """An IPv6 address without brackets gets them."""
    return f"[{text}]" if text.count(":") > 1 and not text.startswith("[") and "/" not in text else text


def _split(url: str, default_host: str | None = None) -> SplitResult:
    try:
        found = urlsplit(url)
        _ = found.port
    except ValueError:
        found = SplitResult("", "", "", "", "")
    is_clean = not re.search(r"[\s\x00-\x1f\x7f]", url)
    if found.scheme not in ("http", "https") or not is_clean or not (found.hostname or default_host):
        raise InvalidSettingError(
            f"The base URL {shown(url) if '@' not in url else '(not shown)'!r} is no address of a server. "
            "It begins with http:// or https://, as in http://localhost:8080/v1."
        )
    return found
