"""Model files by hand: any header, any manifest, any bytes, with the sum that belongs to them."""

import json

from driftree.learn.storage import container


def split(data):
    """The header of a file as bytes, and what follows it."""
    end = 8 + int.from_bytes(data[:8], "little")
    return data[8:end], data[end:]


def manifest_of(data):
    """The manifest of a file, as a dict."""
    return json.loads(json.loads(split(data)[0])["__metadata__"][container.KEY])


def sign(data):
    """The same file with the sum that belongs to it."""
    return data[: container.DIGEST.start] + container._digest(data) + data[container.DIGEST.stop :]


def with_header(header, body=b""):
    """A file with this header, as bytes or as what JSON holds, and these bytes of arrays."""
    if not isinstance(header, bytes):
        header = json.dumps(header, separators=(",", ":")).encode("ascii")
    return sign(len(header).to_bytes(8, "little") + header + body)


def with_manifest(manifest, like=None):
    """A file with another manifest, as text or as what JSON holds; its arrays are those of `like`.

    As text it must begin as all do, for otherwise it is no model file at all.
    """
    header, body = ({}, b"") if like is None else split(like)
    header = {} if like is None else json.loads(header)
    if not isinstance(manifest, str):
        manifest = {"sha256": container.NO_DIGEST} | manifest
        manifest = json.dumps(manifest, separators=(",", ":"))
    header["__metadata__"] = {container.KEY: manifest}
    first = {"__metadata__": header.pop("__metadata__")}
    return with_header(first | header, body)


def begun(text):
    """A manifest that goes on with this text."""
    return f'{{"sha256":"{container.NO_DIGEST}",{text}'
