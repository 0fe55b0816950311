"""The container: one form, all or nothing, and no mercy with what has another form."""

import errno
import io
import json
import os
import stat
import struct
import subprocess
import sys
import zipfile

import numpy as np
import pytest
import safetensors.numpy

from driftree import ModelFileError
from driftree.learn.storage import atomic, container
from driftree.learn.storage.manifest import MAX_LENGTH
from signing import begun, manifest_of, sign, split, with_header, with_manifest

KIND = "driftree model"
CONTENTS = {"text": "\ud800 ü", "number": 0.1, "list": [1, None, {"a": True}]}
ARRAYS = {
    "ids": np.array([3, -1, 2], dtype=np.int32),
    "empty": np.empty(0),
    "none.at.all": np.empty(0, dtype=np.float32),
    "one": np.array([0.1]),
    "minus_zero": np.array([-0.0]),
    "infinite": np.array([-np.inf]),
    "least": np.array([-(2**63)]),
    "one.single": np.array([0.1], dtype=np.float32),
    "one.flag": np.array([255], dtype=np.uint8),
    "no_rows": np.empty((0, 3)),
    "table": np.arange(6, dtype=np.float32).reshape(2, 3),
    "part.flags": np.array([0, 255], dtype=np.uint8),
    "part.lengths": np.array([2**40], dtype=np.int64),
}
SAVED = container.to_bytes(KIND, CONTENTS, ARRAYS)


# ---------------------------------------------------------------------- there and back
def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "model.dmt"
    container.write(path, KIND, CONTENTS, ARRAYS)
    assert path.read_bytes() == SAVED
    for contents, arrays in (container.read(path, KIND), container.from_bytes(SAVED, KIND)):
        assert contents == CONTENTS
        assert arrays.keys() == ARRAYS.keys()
        for name, array in arrays.items():
            assert array.dtype == ARRAYS[name].dtype
            assert array.flags.aligned
            assert array.flags.writeable
            assert array.shape == ARRAYS[name].shape
            assert array.tobytes() == ARRAYS[name].tobytes()


def test_the_order_in_which_arrays_come_does_not_matter():
    turned = dict(reversed(ARRAYS.items()))
    assert container.to_bytes(KIND, dict(reversed(CONTENTS.items())), turned) == SAVED


def test_the_layout_of_arrays_in_memory_does_not_matter():
    turned = ARRAYS | {
        "table": np.asfortranarray(ARRAYS["table"]),
        "ids": np.array([3, 0, -1, 0, 2, 0], dtype=np.int32)[::2],
    }
    assert container.to_bytes(KIND, CONTENTS, turned) == SAVED


def test_other_tools_read_it(tmp_path):
    path = tmp_path / "model.dmt"
    path.write_bytes(SAVED)
    loaded = safetensors.numpy.load(SAVED)
    short = {name for name, array in ARRAYS.items() if array.shape in ((0,), (1,))}
    types = {"short.f32", "short.f64", "short.i64", "short.u8"}
    assert loaded.keys() == ARRAYS.keys() - short | types
    for name in loaded.keys() - types:
        np.testing.assert_array_equal(loaded[name], ARRAYS[name])
    np.testing.assert_array_equal(loaded["short.f64"], [-np.inf, -0.0, 0.1])
    with safetensors.safe_open(path, "numpy") as file:
        manifest = json.loads(file.metadata()["driftree"])
        assert manifest["format_version"] == 1
        assert manifest["contents"] == CONTENTS
        assert manifest["short"]["F64"] == ["infinite", "minus_zero", "one"]
        assert manifest["empty"] == {"F32": ["none.at.all"], "F64": ["empty"]}
        assert file.get_slice("table")[1:].tolist() == [[3, 4, 5]]


def test_little_is_said_beside_the_arrays():
    arrays = {f"array_{i}": np.full(1, i, dtype=np.int32) for i in range(100)}
    arrays |= {f"empty_{i}": np.empty(0) for i in range(100)}
    size = len(container.to_bytes(KIND, {}, arrays))
    assert size < 250 + 100 * 20 + 100 * 20
    more = {f"long_{i}": np.zeros(100) for i in range(100)}
    assert len(container.to_bytes(KIND, {}, arrays | more)) < size + 100 * 75 + 100 * 800


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("objects", np.array([None])),
        ("texts", np.array(["a"])),
        ("cube", np.zeros((1, 1, 1))),
        ("big", np.zeros(1, dtype=">f8")),
        ("../up", np.zeros(1)),
        ("Upper", np.zeros(1)),
        ("short.f64", np.zeros(1)),
    ],
)
def test_what_has_no_place_in_a_file_is_refused_when_it_is_written(name, array):
    with pytest.raises(TypeError, match="cannot be stored in a file"):
        container.to_bytes(KIND, {}, {name: array})


def test_a_manifest_has_a_limit():
    with pytest.raises(ValueError, match="shorter names"):
        container.to_bytes(KIND, {"text": "a" * MAX_LENGTH}, {})


# ---------------------------------------------------------------------- what is refused
def changed(**changes):
    return with_manifest({**manifest_of(SAVED), **changes}, SAVED)


def named(dtype, names):
    """Other names of the arrays of one number."""
    return changed(short=manifest_of(SAVED)["short"] | {dtype: names})


def changed_array(**changes):
    header, body = split(SAVED)
    header = json.loads(header)
    header["ids"].update(changes)
    return with_header(header, body)


def patched(old, new):
    assert old in SAVED
    return SAVED.replace(old, new)


def patched_header(old, new):
    header, body = split(SAVED)
    assert old in header
    return with_header(header.replace(old, new), body)


def ids(second):
    return struct.pack("<3i", 3, second, 2)


def zipped(members):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return out.getvalue()


def promised(length):
    """A header that promises more than comes."""
    return struct.pack("<Q", length) + container.START + b"0" * 64


def of_others():
    return safetensors.numpy.save({"weight": np.zeros(3)}, {"format": "pt"})


MAX_ARRAYS = container.MAX_ARRAYS
REFUSED = {
    "nothing": (lambda: b"", "the file is empty"),
    "a byte": (lambda: b"a", "truncated, or is not a model file"),
    "text": (lambda: b"age,car\n31,van\n", "not a model file"),
    "pickle": (lambda: b"\x80\x04K\x01.", "not a model file"),
    "a zip": (lambda: zipped({"manifest.json": b"{}"}), "a zip: .* before the first release"),
    "no tensors of ours": (of_others, "not a model file: it has no manifest of driftree's"),
    "a cut length": (lambda: SAVED[:5], "truncated"),
    "a cut start": (lambda: SAVED[:40], "truncated"),
    "a cut header": (lambda: SAVED[:200], "truncated in its header"),
    "a cut array": (lambda: SAVED[:-20], "truncated or too long"),
    "a cut end": (lambda: SAVED[:-1], "truncated or too long"),
    "more at the end": (lambda: SAVED + b"\0", "truncated or too long"),
    "more at the start": (lambda: b"\0" + SAVED, "not a model file"),
    "two files": (lambda: SAVED + SAVED, "truncated or too long"),
    "other data": (lambda: patched(ids(-1), ids(-2)), "damaged: its SHA-256"),
    "another sum": (lambda: patched(SAVED[container.DIGEST], b"f" * 64), "damaged: its SHA-256"),
    "another name": (lambda: patched(b'"ids"', b'"odd"'), "damaged: its SHA-256"),
    "another text": (lambda: patched(b"number", b"lumber"), "damaged: its SHA-256"),
    "another space": (lambda: patched(b"} ", b"}\t"), "damaged: its SHA-256"),
    "no JSON": (lambda: with_manifest(begun("")), "not JSON"),
    "no JSON in the header": (lambda: patched_header(b'"ids":', b'"ids";'), "header is damaged"),
    "no text": (lambda: patched_header(b"text", b"\xfc\xfc\xfc\xfc"), "not JSON"),
    "deep": (lambda: with_manifest(begun('"a":' + "[" * 10**5)), "nested too deeply"),
    "NaN": (lambda: with_manifest(begun('"format":NaN}')), "NaN is not JSON"),
    "a key twice": (lambda: with_manifest(begun('"a":1,"a":2}')), "same key twice"),
    "a long number": (lambda: with_manifest(begun('"a":' + "1" * 10**5 + "}")), "not JSON"),
    "another format": (lambda: changed(format="numpy"), "not a file of driftree"),
    "another kind": (lambda: changed(format="driftree checkpoint"), "is a 'driftree checkpoint'"),
    "version 0": (lambda: changed(format_version=0), "whole number from 1, got 0"),
    "no version": (lambda: changed(format_version="1"), "whole number from 1, got '1'"),
    "more keys": (lambda: changed(more=1), "does not have the keys"),
    "no contents": (lambda: changed(contents=[]), "contents as an object"),
    "short is no object": (lambda: changed(short=[]), "short and empty arrays by type"),
    "empty is no object": (lambda: changed(empty=None), "short and empty arrays by type"),
    "short of no type": (lambda: changed(short={"F65": ["a"]}), "by type"),
    "short is no list": (lambda: named("F64", {"one": 0.1}), "F64 must be a list of names"),
    "short is no text": (lambda: named("F64", ["infinite", 1, "one"]), "a list of names"),
    "empty is no text": (lambda: changed(empty={"F64": [["a"]]}), "a list of names"),
    "short of no number": (lambda: named("I32", ["a"]), "'short.i32' must have a number for each"),
    "short of another type": (lambda: named("F64", ["a"]), "'short.f64' must have a number"),
    "fewer names": (lambda: named("F64", ["infinite", "one"]), "for each of 2 names"),
    "more names": (lambda: named("U8", ["one.flag", "a"]), "for each of 2 names"),
    "short twice": (lambda: named("F64", ["infinite", "one", "one"]), "occurs twice"),
    "short and not": (lambda: named("F64", ["infinite", "ids", "one"]), "occurs twice"),
    "short and empty": (lambda: named("F64", ["infinite", "empty", "one"]), "occurs twice"),
    "empty twice": (lambda: changed(empty={"F64": ["a"], "U8": ["a"]}), "occurs twice"),
    "a wrong short name": (lambda: named("U8", ["A"]), "must not be named 'A'"),
    "a wrong empty name": (lambda: changed(empty={"U8": ["a" * 101]}), "must not be named"),
    "too many arrays": (
        lambda: changed(empty={"F64": [f"a{i}" for i in range(MAX_ARRAYS)]}),
        "more than the 10,000",
    ),
    "no type": (lambda: changed_array(dtype="O"), "header is damaged"),
    "truth values": (lambda: changed_array(dtype="BOOL"), "header is damaged|one of F32"),
    "half floats": (lambda: changed_array(dtype="F16", shape=[6]), "'ids' is F16: .* one of F32"),
    "a cube": (lambda: changed_array(shape=[1, 1, 3]), "one or two dimensions"),
    "a number": (lambda: changed_array(shape=[], dtype="I32"), "header is damaged"),
    "a huge shape": (lambda: changed_array(shape=[2**60]), "header is damaged"),
    "a large shape": (lambda: changed_array(shape=[2**39, 2**39]), "header is damaged"),
    "a negative shape": (lambda: changed_array(shape=[-3]), "header is damaged"),
    "a true shape": (lambda: changed_array(shape=[True]), "header is damaged"),
    "a longer shape": (lambda: changed_array(shape=[4]), "header is damaged"),
    "another type": (lambda: changed_array(dtype="F64"), "header is damaged"),
    "other offsets": (lambda: changed_array(data_offsets=[0, 12]), "header is damaged"),
    "no offsets": (lambda: changed_array(data_offsets=None), "header is damaged"),
    "a wrong name": (lambda: patched_header(b'"ids"', b'"../s"'), "must not be named '../s'"),
    "a long name": (lambda: patched_header(b'"ids"', b'"%s"' % (b"a" * 101)), "must not be named"),
    "a huge header": (lambda: promised(2**60), "more than the"),
    "a long header": (lambda: promised(container.MAX_HEADER), "truncated in its header"),
}


def test_signing_by_hand_is_signing():
    assert sign(SAVED) == SAVED
    assert with_manifest(manifest_of(SAVED), SAVED) != SAVED  # without spaces at its end,
    assert container.from_bytes(with_manifest(manifest_of(SAVED), SAVED), KIND)[0] == CONTENTS


@pytest.mark.parametrize(("make", "words"), REFUSED.values(), ids=REFUSED)
def test_what_is_not_as_it_was_written_is_refused(make, words, tmp_path):
    path = tmp_path / "model.dmt"
    path.write_bytes(make())
    with pytest.raises(ModelFileError, match=words) as caught:
        container.read(path, KIND)
    assert str(caught.value).startswith(f"{path}: ")
    assert len(str(caught.value)) < 400


def test_a_newer_file_asks_for_an_upgrade():
    """Whatever else it holds: only the beginning of the manifest is promised to stay."""
    data = with_manifest({"format": KIND, "format_version": 7, "news": {}}, SAVED)
    with pytest.raises(ModelFileError) as caught:
        container.from_bytes(data, KIND)
    assert str(caught.value) == (
        "the file was written by a newer driftree (format 7; this one reads 1): upgrade driftree"
    )


def test_what_is_no_file_is_not_read(tmp_path):
    with pytest.raises(FileNotFoundError):
        container.read(tmp_path / "none.dmt", KIND)
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", "/dev/zero"):
        with pytest.raises(ModelFileError, match="not a regular file"):
            container.read(path, KIND)


# ---------------------------------------------------------------------- all or nothing
@pytest.mark.parametrize("name", ["fsync", "replace", "fchmod"])
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "full"), KeyboardInterrupt()])
def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, name, error):
    path = tmp_path / "model.dmt"
    path.write_bytes(b"old")

    def fail(*_arguments, **_options):
        raise error

    monkeypatch.setattr(atomic.os, name, fail)
    with pytest.raises(type(error)):
        container.write(path, KIND, CONTENTS, ARRAYS)
    monkeypatch.undo()
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["model.dmt"]


def test_file_and_directory_are_made_durable_in_this_order(tmp_path, monkeypatch):
    calls = []
    fsync, replace = os.fsync, os.replace

    def note_fsync(fd):
        calls.append("directory" if stat.S_ISDIR(os.fstat(fd).st_mode) else "file")
        fsync(fd)

    def note_replace(*arguments, **options):
        calls.append("replace")
        replace(*arguments, **options)

    monkeypatch.setattr(atomic.os, "fsync", note_fsync)
    monkeypatch.setattr(atomic.os, "replace", note_replace)
    container.write(tmp_path / "model.dmt", KIND, {}, {})
    assert calls == ["file", "replace", "directory"]


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "models").mkdir()
    link = tmp_path / "now.dmt"
    link.symlink_to("models/one.dmt")  # which is not there yet
    for contents in ({}, CONTENTS):
        container.write(link, KIND, contents, {})
        assert link.is_symlink()
        assert container.read(tmp_path / "models" / "one.dmt", KIND)[0] == contents
        assert os.listdir(tmp_path / "models") == ["one.dmt"]


def test_permissions_follow_the_umask_or_the_old_file(tmp_path):
    path = tmp_path / "model.dmt"
    before = os.umask(0o027)
    try:
        container.write(path, KIND, {}, {})
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        path.chmod(0o600)
        container.write(path, KIND, {}, {})
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    finally:
        os.umask(before)


def test_where_no_file_can_be(tmp_path):
    with pytest.raises(IsADirectoryError, match="the name of a file in it"):
        container.write(tmp_path, KIND, {}, {})
    with pytest.raises(FileNotFoundError, match="no such directory: create it"):
        container.write(tmp_path / "none" / "model.dmt", KIND, {}, {})
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError):
        container.write(tmp_path / "file" / "model.dmt", KIND, {}, {})
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileExistsError, match="not a regular file"):
        container.write(tmp_path / "pipe", KIND, {}, {})
    assert sorted(os.listdir(tmp_path)) == ["file", "pipe"]


KILLED = """
import os, random, resource, signal, sys, time
import numpy as np
from driftree.learn.storage import atomic, container

path, n = sys.argv[1], int(sys.argv[2])
folder = os.path.dirname(path)
versions = [({"n": i}, {"a": np.full(1000 + 300_000 * i, i, dtype=np.float64)}) for i in range(2)]
kind = "driftree model"

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def deadly(function, countdown):
    def call(*arguments, **options):
        countdown.append(0)
        return die() if len(countdown) == step else function(*arguments, **options)
    return call

def half():
    data = container.to_bytes(kind, *versions[1])
    yield data[: len(data) // 2]
    die()

def in_child(work):
    container.write(path, kind, *versions[0])
    child = os.fork()
    if child == 0:
        work()
        os._exit(0)
    return child

def kill_in_call():
    countdown = []
    for name in ("open", "fchmod", "fsync", "replace"):
        setattr(atomic.os, name, deadly(getattr(os, name), countdown))
    container.write(path, kind, *versions[1])

def write_for_ever():
    while True:
        for version in versions:
            container.write(path, kind, *version)

def found():
    contents, arrays = container.read(path, kind)
    assert (arrays["a"] == contents["n"]).all()
    assert len(arrays["a"]) == 1000 + 300_000 * contents["n"]
    return contents["n"]

outcomes = []
for step in range(1, 8):  # two directories and files opened, permissions, three acts, and no kill
    os.waitpid(in_child(kill_in_call), 0)
    outcomes.append(found())
os.waitpid(in_child(lambda: atomic.replace_file(path, half())), 0)
outcomes.append(found())
print(*outcomes)

random.seed(1)
for _ in range(n):
    child = in_child(write_for_ever)
    time.sleep(random.uniform(0.001, 0.02))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    found()
assert {name[-4:] for name in os.listdir(folder)} <= {".dmt", ".tmp"}

container.write(path, kind, *versions[0])
names = set(os.listdir(folder))
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))  # as if the disk were full
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
try:
    container.write(path, kind, *versions[1])
except OSError as error:
    print(type(error).__name__)
assert found() == 0 and set(os.listdir(folder)) == names
"""


def test_a_killed_process_or_a_full_disk_leaves_a_whole_file(tmp_path):
    """Killed before each call that matters, in the middle of the data, and anywhere."""
    command = [sys.executable, "-c", KILLED, str(tmp_path / "model.dmt"), "40"]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert run.stdout.splitlines() == ["0 0 0 0 0 1 1 0", "OSError"], run.stderr
