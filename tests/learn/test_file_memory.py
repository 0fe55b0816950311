"""Files that are larger than they look: refused before memory is made for them."""

import json
import os
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest

import stored
from driftree import ModelFileError, load
from driftree.learn.storage import bounds, container, models
from driftree.learn.storage.manifest import ROOM, STRING
from signing import begun, split, with_header, with_manifest

KIND = models.KIND


# ---------------------------------------------------------------------- manifests
def manifest(text):
    """A file with nothing but a manifest that goes on with this text."""
    return with_manifest(begun(text))


MANY = {
    "small objects": '{"a":0},',
    "lists": "[],",
    "short lists": "[0],",
    "texts": '"%d",',
}


@pytest.mark.parametrize("item", MANY.values(), ids=MANY)
def test_a_manifest_takes_a_small_multiple_of_its_size(item):
    size = 2**22
    items = (item % i if "%d" in item else item for i in range(size // len(item)))
    data = manifest('"a":[' + "".join(items) + "0]}")
    tracemalloc.start()
    try:
        with pytest.raises(ModelFileError, match=r"too many values for its|not a file of driftree"):
            container.from_bytes(data, KIND)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < ROOM + 10 * len(data)


def test_signs_in_names_are_no_values():
    contents = {"names": ["{[," * 100_000, '"\\' * 100_000, "{" * 10]}
    data = container.to_bytes(KIND, contents, {})
    assert container.from_bytes(data, KIND)[0] == contents


def test_a_header_takes_a_small_multiple_of_its_size():
    """Many small arrays, of which there are not so many."""
    entry = b'"a%07d":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},'
    header = manifest('"format":1}')[8:-1] + b"," + b"".join(entry % i for i in range(50_000))
    tracemalloc.start()
    try:
        with pytest.raises(ModelFileError, match=r"not a file of driftree|too many values"):
            container.from_bytes(with_header(header[:-1] + b"}"), KIND)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < ROOM + 10 * len(header)


@pytest.mark.parametrize("text", [b'{"' + b'\\"' * 10**6, b'"\\' * 10**6, b"{" * 10**6 + b'"\\'])
def test_a_string_without_an_end_is_looked_for_once(text):
    n_found = 0
    for _ in STRING.finditer(text):
        n_found += 1
    assert n_found == 1
    with pytest.raises(ModelFileError):
        container.from_bytes(manifest(text.decode("ascii")), KIND)


def test_what_could_not_be_read_is_not_written():
    with pytest.raises(ValueError, match="too many values"):
        container.to_bytes(KIND, {"a": [{}] * 10**6}, {})


# ---------------------------------------------------------------------- arrays
def write_sparse(path, contents, arrays, stretched):
    """Write a file in which some arrays are longer, by holes; its sum is that of no file."""
    small = dict(arrays)
    for name in stretched.keys() & arrays.keys():  # so that it is a tensor
        small[name] = np.resize(arrays[name] if len(arrays[name]) else [0], 2 + len(arrays[name]))
        small[name] = small[name].astype(arrays[name].dtype)
    data = container.to_bytes(KIND, contents, small)
    header, body = split(data)
    header = json.loads(header)
    metadata = {"__metadata__": header.pop("__metadata__")}
    offset, places = 0, []
    for name in sorted(header, key=lambda name: header[name]["data_offsets"]):
        begin, end = header[name]["data_offsets"]
        (n,) = header[name]["shape"]
        length = stretched.get(name, n)
        n_bytes = length * (end - begin) // n
        places.append((offset, body[begin:end]))
        header[name] |= {"shape": [length], "data_offsets": [offset, offset + n_bytes]}
        offset += n_bytes
    start = json.dumps(metadata | header, separators=(",", ":")).encode("ascii")
    start += b" " * (-len(start) % 8)
    with open(path, "wb") as file:
        file.write(len(start).to_bytes(8, "little") + start)
        for place, numbers in places:
            file.seek(8 + len(start) + place)
            file.write(numbers)
        file.truncate(8 + len(start) + offset)


def parts(name, **parameters):
    model = stored.MAKERS[name](**parameters)
    stored.learn_batches(model, *stored.draw(1630, n_labels=3))
    contents, arrays = container.from_bytes(stored.to_bytes(model), KIND)
    return contents, {key: np.ascontiguousarray(array) for key, array in arrays.items()}


LARGE = 2**25  # numbers: all such files are large ones


@pytest.mark.parametrize("name", stored.MAKERS)
def test_an_array_that_is_too_long_is_refused_before_it_is_read(tmp_path, monkeypatch, name):
    """Whichever it is, and whether or not the lengths of its parts say the same."""
    contents, arrays = parts(name)
    path = tmp_path / "model.dmt"
    monkeypatch.setattr(container, "from_bytes", lambda *_: pytest.fail("all of it was read"))
    for long in [*arrays, "short.f64"]:
        changed = dict(arrays)
        if f"{long}.lengths" in arrays:
            changed[f"{long}.lengths"] = arrays[f"{long}.lengths"].copy()
            changed[f"{long}.lengths"][-1] += LARGE - len(arrays[long])
        for some in (arrays, changed):
            write_sparse(path, contents, some, {long: LARGE})
            tracemalloc.start()
            with pytest.raises(ModelFileError):
                load(path)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert peak < 2**22, long


@pytest.mark.parametrize("name", stored.MAKERS)
@pytest.mark.parametrize("parameters", [{}, {"max_nodes": 1}, {"max_nodes": 300}])
def test_every_model_is_within_its_bounds(name, parameters):
    model = stored.MAKERS[name](**parameters)
    stored.learn_batches(model, *stored.draw(4000, n_labels=3))
    contents, arrays = models.pack(model)
    bounds.check(contents, arrays, arrays.__getitem__)


def test_models_that_grow_stay_within_their_bounds():
    """Inputs and labels come one by one: the stride is ahead of them."""
    for make in stored.MAKERS.values():
        model = make()
        for n in range(1, 60):
            model.learn_one({f"x{j}": float(j % n) for j in range(n)}, n % 23)
            models.pack(model)


CHILD = """
import resource, sys
from driftree import ModelFileError
from driftree.learn.storage import container
resource.setrlimit(resource.RLIMIT_AS, (2**31, 2**31))
for look in (None, lambda *_: None):
    try:
        container.read(sys.argv[1], "driftree model", look)
    except ModelFileError as error:
        print(error)
"""


@pytest.mark.skipif(
    "libasan" in os.environ.get("LD_PRELOAD", ""),
    reason="the sanitizer's allocator ends the process where there is no memory",
)
def test_more_than_there_is_is_an_error_of_the_file(tmp_path):
    path = tmp_path / "model.dmt"
    write_sparse(path, {}, {"a": np.zeros(1)}, {"a": 2**30})
    done = subprocess.run(
        [sys.executable, "-c", CHILD, path], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{path}: the file takes 8.0 GiB, more than the memory available\n" * 2


ENTRIES = {
    "no object": 1,
    "no type": {"shape": [1], "data_offsets": [0, 8]},
    "another type": {"dtype": "F16", "shape": [4], "data_offsets": [0, 8]},
    "a list as type": {"dtype": ["F64"], "shape": [1], "data_offsets": [0, 8]},
    "no shape": {"dtype": "F64", "data_offsets": [0, 8]},
    "a number": {"dtype": "F64", "shape": [], "data_offsets": [0, 8]},
    "a cube": {"dtype": "F64", "shape": [1, 1, 1], "data_offsets": [0, 8]},
    "a text": {"dtype": "F64", "shape": [1, "1"], "data_offsets": [0, 8]},
    "true": {"dtype": "F64", "shape": [True], "data_offsets": [0, 8]},
    "negative": {"dtype": "F64", "shape": [-1, -1], "data_offsets": [0, 8]},
    "longer": {"dtype": "F64", "shape": [2**60], "data_offsets": [0, 8]},
    "offsets of text": {"dtype": "F64", "shape": [1], "data_offsets": ["0", "8"]},
    "three offsets": {"dtype": "F64", "shape": [1], "data_offsets": [0, 8, 16]},
    "negative offsets": {"dtype": "F64", "shape": [1], "data_offsets": [-8, 0]},
    "floats": {"dtype": "F64", "shape": [1], "data_offsets": [0.0, 8.0]},
}


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES)
def test_a_large_file_that_says_nonsense_of_an_array_is_refused(tmp_path, monkeypatch, entry):
    monkeypatch.setattr(container, "SMALL", 0)
    header, _ = split(container.to_bytes(KIND, {}, {}))
    path = tmp_path / "model.dmt"
    path.write_bytes(with_header(json.loads(header) | {"ids": entry}, b"\0" * 8))
    with pytest.raises(ModelFileError, match=r"array 'ids'"):
        container.read(path, KIND)
    path.write_bytes(with_header(header.rstrip()[:-1] + b',"ids":', b"\0" * 8))
    with pytest.raises(ModelFileError, match="the header is damaged"):
        container.read(path, KIND)


def test_arrays_beyond_the_end_of_a_large_file_are_not_looked_for(tmp_path, monkeypatch):
    monkeypatch.setattr(container, "SMALL", 0)
    header, _ = split(container.to_bytes(KIND, {}, {}))
    entry = {"dtype": "F64", "shape": [1], "data_offsets": [2**50, 2**50 + 8]}
    path = tmp_path / "model.dmt"
    path.write_bytes(with_header(json.loads(header) | {"ids": entry}))
    with pytest.raises(ModelFileError, match="truncated: it ends before array 'ids' does"):
        container.read(path, KIND, lambda _, __, read: read("ids"))


@pytest.mark.parametrize("is_large", [False, True])
def test_small_and_large_files_are_read_alike(tmp_path, monkeypatch, is_large):
    contents, arrays = parts("measured")
    path = tmp_path / "model.dmt"
    container.write(path, KIND, contents, arrays)
    monkeypatch.setattr(container, "SMALL", 0 if is_large else 2**24)
    looks = []

    def look(*arguments):
        looks.append(arguments)
        bounds.check(*arguments)

    found = container.read(path, KIND, look)
    assert len(looks) == 1 + is_large
    assert found[0] == contents
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[1][name], array)
        for _, known, _ in looks:
            assert (known[name].shape, known[name].nbytes) == (array.shape, array.nbytes)
    path.write_bytes(container.to_bytes(KIND, contents, arrays) + b"[]")
    with pytest.raises(ModelFileError, match="truncated or too long"):
        container.read(path, KIND, bounds.check)
