"""Files that are larger than they look: refused before memory is made for them."""

import json
import os
import subprocess
import sys
import tracemalloc
import zlib

import numpy as np
import pytest

import stored
from driftree import ModelFileError, load
from driftree.learn.storage import bounds, container, models, zips

KIND = models.KIND


# ---------------------------------------------------------------------- manifests
def manifest(text):
    """A file with nothing but a manifest."""
    first = zips.Member(container.MANIFEST, len(text), zlib.crc32(text))
    return b"".join([first.local_header(), text, zips.directory_of([first])])


MANY = {
    "small objects": b'{"a":0},',
    "lists": b"[],",
    "short lists": b"[0],",
    "texts": b'"%d",',
}


@pytest.mark.parametrize("item", MANY.values(), ids=MANY)
def test_a_manifest_takes_a_small_multiple_of_its_size(item):
    size = 2**22
    items = (item % i if b"%d" in item else item for i in range(size // len(item)))
    data = manifest(b'{"a":[' + b"".join(items) + b"0]}")
    tracemalloc.start()
    try:
        with pytest.raises(ModelFileError, match=r"too many values for its|no file of driftree's"):
            container.from_bytes(data, KIND)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < container.MANIFEST_ROOM + 10 * len(data)


def test_signs_in_names_are_no_values():
    contents = {"names": ["{[," * 100_000, '"\\' * 100_000, "{" * 10]}
    data = container.to_bytes(KIND, contents, {})
    assert container.from_bytes(data, KIND)[0] == contents


@pytest.mark.parametrize("text", [b'{"' + b'\\"' * 10**6, b'"\\' * 10**6, b"{" * 10**6 + b'"\\'])
def test_a_string_without_an_end_is_looked_for_once(text):
    n_found = 0
    for _ in container.STRING.finditer(text):
        n_found += 1
    assert n_found == 1
    with pytest.raises(ModelFileError):
        container.from_bytes(manifest(text), KIND)


def test_what_could_not_be_read_is_not_written():
    with pytest.raises(ValueError, match="too many values"):
        container.to_bytes(KIND, {"a": [{}] * 10**6}, {})


# ---------------------------------------------------------------------- arrays
def write_sparse(path, contents, arrays, stretched):
    """Write a file in which some arrays are longer, by holes; its sums are those of no array."""
    shapes = {name: (stretched.get(name, len(array)),) for name, array in arrays.items()}
    entries = {
        name: container.Entry(arrays[name].dtype.str, shapes[name], "0" * 64)
        for name in sorted(arrays)
    }
    for name in entries.keys() - stretched.keys():
        header = zips.npy_header_of(arrays[name].dtype.str, shapes[name])
        entries[name] = entries[name]._replace(
            sha256=container._sha256(header, container._bytes_of(arrays[name]))
        )
    said = {
        "format": KIND,
        "format_version": 1,
        "library_version": "0",
        "contents": contents,
        "arrays": {
            name: {"dtype": entry.dtype, "shape": list(entry.shape), "sha256": entry.sha256}
            for name, entry in entries.items()
        },
    }
    text = json.dumps(said, sort_keys=True).encode()
    first = zips.Member(container.MANIFEST, len(text), zlib.crc32(text))
    members = [first]
    with open(path, "wb") as file:
        file.write(first.local_header() + text)
        for name, entry in entries.items():
            header, data = zips.npy_header_of(entry.dtype, entry.shape), arrays[name].tobytes()
            size = len(header) + entry.n_bytes
            members.append(zips.Member(f"{name}.npy", size, zlib.crc32(header + data)))
            file.write(members[-1].local_header() + header + data)
            file.seek(entry.n_bytes - len(data), os.SEEK_CUR)
        file.write(zips.directory_of(members))


def parts(name, **parameters):
    model = stored.MAKERS[name](**parameters)
    stored.learn_batches(model, *stored.draw(1630, n_labels=3))
    contents, arrays = container.from_bytes(stored.to_bytes(model), KIND)
    return contents, {key: np.ascontiguousarray(array) for key, array in arrays.items()}


LARGE = 2**24  # numbers


@pytest.mark.parametrize("name", stored.MAKERS)
def test_an_array_that_is_too_long_is_refused_before_it_is_read(tmp_path, monkeypatch, name):
    """Whichever it is, and whether or not the lengths of its parts say the same."""
    contents, arrays = parts(name)
    n_made = []
    empty = np.empty

    def note(shape, dtype=float):
        n_made.append(int(np.prod(shape)))
        return empty(shape, dtype)

    path = tmp_path / "model.dmt"
    monkeypatch.setattr(container.np, "empty", note)
    for long in arrays:
        changed = dict(arrays)
        if f"{long}.lengths" in arrays:
            changed[f"{long}.lengths"] = arrays[f"{long}.lengths"].copy()
            changed[f"{long}.lengths"][-1] += LARGE - len(arrays[long])
        for some in (arrays, changed):
            write_sparse(path, contents, some, {long: LARGE})
            with pytest.raises(ModelFileError):
                load(path)
            assert max(n_made, default=0) < LARGE, long


@pytest.mark.parametrize("name", stored.MAKERS)
@pytest.mark.parametrize("parameters", [{}, {"max_nodes": 1}, {"max_nodes": 300}])
def test_every_model_is_within_its_bounds(name, parameters):
    model = stored.MAKERS[name](**parameters)
    stored.learn_batches(model, *stored.draw(4000, n_labels=3))
    contents, arrays = models.pack(model)
    bounds.check(contents, container.entries_of(arrays), arrays.__getitem__)


def test_models_that_grow_stay_within_their_bounds():
    """Inputs and labels come one by one: the stride is ahead of them."""
    for make in stored.MAKERS.values():
        model = make()
        for n in range(1, 60):
            model.learn_one({f"x{j}": float(j % n) for j in range(n)}, n % 23)
            models.pack(model)


CHILD = """
import resource, sys
from driftree.learn.storage import container
resource.setrlimit(resource.RLIMIT_AS, (2**31, 2**31))
try:
    container.read(sys.argv[1], "driftree model")
except container.ModelFileError as error:
    print(error)
"""


def test_more_than_there_is_is_an_error_of_the_file(tmp_path):
    path = tmp_path / "model.dmt"
    write_sparse(path, {}, {"a": np.zeros(1)}, {"a": 2**30})
    done = subprocess.run(
        [sys.executable, "-c", CHILD, path], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{path}: array 'a' takes 8.0 GiB, more than there is\n"
