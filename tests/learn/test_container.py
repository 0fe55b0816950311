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
import zlib

import numpy as np
import pytest

from driftree import ModelFileError
from driftree.learn.storage import atomic, container, zips

KIND = "driftree model"
CONTENTS = {"text": "\ud800 ü", "number": 0.1, "list": [1, None, {"a": True}]}
ARRAYS = {
    "ids": np.array([3, -1, 2], dtype=np.int32),
    "empty": np.empty(0),
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
            np.testing.assert_array_equal(array, ARRAYS[name])


def test_the_order_in_which_arrays_come_does_not_matter():
    turned = dict(reversed(ARRAYS.items()))
    assert container.to_bytes(KIND, dict(reversed(CONTENTS.items())), turned) == SAVED


def test_other_tools_read_it():
    archive = zipfile.ZipFile(io.BytesIO(SAVED))
    assert archive.testzip() is None
    assert archive.namelist() == ["manifest.json", *(f"{name}.npy" for name in sorted(ARRAYS))]
    assert {info.compress_type for info in archive.infolist()} == {zipfile.ZIP_STORED}
    assert {info.date_time for info in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
    loaded = np.load(io.BytesIO(SAVED), allow_pickle=False)
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(loaded[name], array)
    assert json.loads(archive.read("manifest.json"))["format_version"] == 1


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("objects", np.array([None])),
        ("texts", np.array(["a"])),
        ("cube", np.zeros((1, 1, 1))),
        ("big", np.zeros(1, dtype=">f8")),
        ("../up", np.zeros(1)),
        ("Upper", np.zeros(1)),
    ],
)
def test_what_has_no_place_in_a_file_is_refused_when_it_is_written(name, array):
    with pytest.raises(TypeError, match="does not go into a file"):
        container.to_bytes(KIND, {}, {name: array})


def test_a_manifest_has_a_limit():
    with pytest.raises(ValueError, match="shorter names"):
        container.to_bytes(KIND, {"text": "a" * container.MAX_MANIFEST}, {})


# ---------------------------------------------------------------------- what is refused
def with_manifest(manifest, arrays=ARRAYS):
    """A file that is right in all but its manifest, which may be any text."""
    text = (
        manifest if isinstance(manifest, bytes) else json.dumps(manifest, sort_keys=True).encode()
    )
    first = zips.Member(container.MANIFEST, len(text), zlib.crc32(text))
    chunks, members = [first.local_header(), text], [first]
    for name in sorted(arrays):
        header = zips.npy_header_of(arrays[name].dtype.str, arrays[name].shape)
        data = header + arrays[name].tobytes()
        members.append(zips.Member(f"{name}.npy", len(data), zlib.crc32(data)))
        chunks += [members[-1].local_header(), data]
    return b"".join([*chunks, zips.directory_of(members)])


def manifest_of(data=SAVED):
    return json.loads(zipfile.ZipFile(io.BytesIO(data)).read("manifest.json"))


def changed(**changes):
    return with_manifest({**manifest_of(), **changes})


def changed_array(**changes):
    manifest = manifest_of()
    manifest["arrays"]["ids"].update(changes)
    return with_manifest(manifest)


def packed_anew(compression):
    """The same members as another tool would write them."""
    out, source = io.BytesIO(), zipfile.ZipFile(io.BytesIO(SAVED))
    with zipfile.ZipFile(out, "w", compression) as archive:
        for name in source.namelist():
            archive.writestr(zipfile.ZipInfo(name), source.read(name), compression)
    return out.getvalue()


def twice():
    """A second member of a name that is there, and in the directory, but not in the manifest."""
    data = io.BytesIO(SAVED)
    with zipfile.ZipFile(data, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("ids.npy", b"other")
    return data.getvalue()


def patched(old, new):
    assert old in SAVED
    return SAVED.replace(old, new)


def patched_member(offset, new):
    """Other bytes in the local header of a member."""
    at = SAVED.index(b"ids.npy") - zips.LOCAL.size + offset
    return SAVED[:at] + new + SAVED[at + len(new) :]


def ids(second):
    return struct.pack("<3i", 3, second, 2)


def mode(kind):
    return struct.pack("<I", (kind | 0o644) << 16)


REFUSED = {
    "nothing": (lambda: b"", "the file is empty"),
    "text": (lambda: b"age,car\n31,van\n", "no model file: it does not begin like a zip"),
    "pickle": (lambda: b"\x80\x04K\x01.", "no model file"),
    "a cut header": (lambda: SAVED[:40], "cut off"),
    "a cut manifest": (lambda: SAVED[:100], "cut off in member 'manifest.json'"),
    "a cut member": (lambda: SAVED[: len(SAVED) // 2], "cut off or too long"),
    "a cut end": (lambda: SAVED[:-1], "cut off or too long"),
    "more at the end": (lambda: SAVED + b"\0", "cut off or too long"),
    "more at the start": (lambda: b"\0" + SAVED, "does not begin like a zip"),
    "two files": (lambda: SAVED + SAVED, "cut off or too long"),
    "another zip": (lambda: zipped({"a.txt": b"a" * 200}), "first member is not 'manifest.json'"),
    "packed anew": (lambda: packed_anew(zipfile.ZIP_STORED), "was it packed anew"),
    "compressed": (lambda: packed_anew(zipfile.ZIP_DEFLATED), "was it packed anew"),
    "a link": (lambda: patched(mode(stat.S_IFREG), mode(stat.S_IFLNK)), "directory"),
    "a directory": (lambda: patched(mode(stat.S_IFREG), mode(stat.S_IFDIR)), "directory"),
    "a path": (lambda: patched(b"ids.npy", b"../.npy"), "'ids.npy' is damaged"),
    "a compressed member": (lambda: patched_member(8, b"\10"), "'ids.npy' is damaged"),
    "an encrypted member": (lambda: patched_member(6, b"\1"), "'ids.npy' is damaged"),
    "a member twice": (twice, "cut off or too long"),
    "other disks": (lambda: patched(b"PK\6\7\0\0\0\0", b"PK\6\7\1\0\0\0"), "directory"),
    "another directory": (lambda: SAVED[:-1] + b"\1", "directory"),
    "other data": (lambda: patched(ids(-1), ids(-2)), "'ids.npy' is damaged"),
    "bad data, good sum": (lambda: with_manifest(manifest_of(), other_ids()), "SHA-256"),
    "no JSON": (lambda: with_manifest(b"{"), "no JSON"),
    "a list": (lambda: with_manifest(b"[]"), "must hold an object"),
    "deep": (lambda: with_manifest(b"[" * 10**5), "nested too deeply"),
    "NaN": (lambda: with_manifest(b'{"format": NaN}'), "NaN is no JSON"),
    "a key twice": (lambda: with_manifest(b'{"a": 1, "a": 2}'), "same key twice"),
    "a long number": (lambda: with_manifest(b"1" * 10**5), "no JSON"),
    "no ASCII": (lambda: with_manifest('{"ü": 1}'.encode()), "no JSON"),
    "another format": (lambda: changed(format="numpy"), "no file of driftree's"),
    "another kind": (lambda: changed(format="driftree checkpoint"), "is a 'driftree checkpoint'"),
    "version 0": (lambda: changed(format_version=0), "whole number from 1, got 0"),
    "no version": (lambda: changed(format_version="1"), "whole number from 1, got '1'"),
    "more keys": (lambda: changed(more=1), "other keys"),
    "no contents": (lambda: changed(contents=[]), "as objects"),
    "objects": (lambda: changed_array(dtype="|O"), "must be one of <f4"),
    "a big end": (lambda: changed_array(dtype=">f8"), "must be one of <f4"),
    "a cube": (lambda: changed_array(shape=[1, 1, 3]), "one or two dimensions"),
    "a number": (lambda: changed_array(shape=[]), "one or two dimensions"),
    "a huge shape": (lambda: changed_array(shape=[2**60]), "out of range"),
    "a large shape": (lambda: changed_array(shape=[2**39, 2**39]), "cut off or too long"),
    "a negative shape": (lambda: changed_array(shape=[-3]), "out of range"),
    "a true shape": (lambda: changed_array(shape=[True]), "out of range"),
    "another shape": (lambda: changed_array(shape=[3, 1]), "cut off or too long|damaged"),
    "another dtype": (lambda: changed_array(dtype="<f4"), "damaged"),
    "another sum": (lambda: changed_array(sha256="0" * 64), "SHA-256"),
    "a wrong entry": (lambda: changed(arrays={"ids": 1}), "a dtype, a shape and a sha256"),
    "a wrong name": (lambda: changed(arrays={"../ids": 1}), "must not be named"),
    "a huge manifest": (lambda: huge_manifest(2**60), "more than the"),
}


def zipped(members):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return out.getvalue()


def other_ids():
    return ARRAYS | {"ids": np.array([3, -1, 7], dtype=np.int32)}


def huge_manifest(size):
    """A header that promises more than comes."""
    return zips.Member(container.MANIFEST, size, 0).local_header() + b"{}"


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
    data = with_manifest({"format": KIND, "format_version": 7, "news": {}}, {})
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
        with pytest.raises(ModelFileError, match="no file"):
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
    with pytest.raises(FileNotFoundError, match="no such directory, make it"):
        container.write(tmp_path / "none" / "model.dmt", KIND, {}, {})
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError):
        container.write(tmp_path / "file" / "model.dmt", KIND, {}, {})
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileExistsError, match="no file"):
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
