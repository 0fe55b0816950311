"""The paper's data sets: found in the right order, converted, checked, and made ready."""

import gzip
import hashlib
import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import loopback
from driftree.streams import catalogue, datasets
from driftree.streams.catalogue import ByHand, Counts, CSVFile, DataSet, OpenMLFile
from driftree.streams.data_files import convert
from driftree.streams.datasets import (
    DataSetUnavailable,
    cache_folder,
    list_data_sets,
    load_data_set,
)

ROOT = Path(__file__).parents[2]
ARFF = """% made up
@RELATION tiny
@ATTRIBUTE class {yes, 'not yet'}
@attribute 'size in m' REAL
@attribute colour {red, 'dark blue', "it\\'s"}
@attribute	day {1,2,7}
@attribute constant NUMERIC

@DATA
'not yet', 1.5,red, 2,5
% a remark
yes,-3,"dark blue" ,7,5

yes,0.25,red,1,5
yes,1e1,'it\\'s',2,5
"""
FRAME = pd.DataFrame(
    {
        "size in m": [1.5, -3, 0.25, 10],
        "colour": ["red", "dark blue", "red", "it's"],
        "day": [2, 7, 1, 2],
        "constant": [5] * 4,
        "target": ["not yet", "yes", "yes", "yes"],
    }
)
COUNTS = Counts(4, 4, 2, 3)


@pytest.fixture
def places(tmp_path, monkeypatch):
    """A cache and a data folder of our own; the second is not set."""
    monkeypatch.setattr(import_module("driftree.streams.download"), "BACKOFF_SECONDS", 0.001)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("DRIFTREE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("DRIFTREE_DATA", raising=False)
    (tmp_path / "data").mkdir()
    return tmp_path


@pytest.fixture
def site(places):
    with loopback.serve() as site:
        publish(site, ARFF)
        yield site


def publish(site, arff):
    description = {
        "url": f"{site.address}/tiny.arff",
        "md5_checksum": hashlib.md5(arff.encode()).hexdigest(),
        "default_target_attribute": "class",
    }
    site.files["/tiny.arff"] = arff.encode()
    site.files["/json/7"] = json.dumps({"data_set_description": description}).encode()


def tiny(site=None, **changes):
    origin = OpenMLFile(f"{site.address}/json/7") if site else ByHand("draw it")
    return replace(DataSet("tiny", "Tiny", COUNTS, "nowhere", origin), **changes)


def write(folder, frame=FRAME):
    folder.mkdir(exist_ok=True)
    frame.to_csv(folder / "tiny.csv.gz", index=False)


def paper_by_pandas(frame):
    X, y = frame.drop(columns="target"), pd.factorize(frame["target"])[0]
    for name in X.select_dtypes(exclude="number"):
        X[name] = pd.factorize(X[name])[0]
    X = X.to_numpy(dtype=np.float64)
    spread = np.ptp(X, axis=0)
    return (X - X.min(axis=0)) / np.where(spread == 0, 1, spread), y


def found(record):
    return list_data_sets([record])[0].found


def test_from_arff_to_arrays(site, places):
    record, seen = tiny(site), []
    assert found(record) == "not here: download"
    data = load_data_set(record, progress=lambda *n: seen.append(n))
    X, y = paper_by_pandas(FRAME)
    assert (data.X.tobytes(), data.X.shape, data.y.tolist()) == (X.tobytes(), X.shape, y.tolist())
    assert data.feature_names == ("size in m", "colour", "day", "constant")
    assert (data.classes.tolist(), data.text_features, data.n_rows) == (["not yet", "yes"], (1,), 4)
    assert seen[-1] == (len(ARFF), len(ARFF))
    status = list_data_sets([record])[0]
    assert (status.found, status.path) == ("cache", places / "cache" / "tiny.csv.gz")
    pd.testing.assert_frame_equal(pd.read_csv(status.path), FRAME)
    assert list((places / "cache" / "downloads").glob("tiny*")) == []
    load_data_set(record)
    assert len(site.requests) == 2  # description and file, once


def test_as_it_is(places):
    write(places / "cache", FRAME.assign(colour=["red", None, "red", "blue"], day=[1, None, 3, 4]))
    data = load_data_set(tiny(), preprocess="none", max_rows=3)
    assert [column.dtype.kind for column in data.X.values()] == list("fOff")
    np.testing.assert_array_equal(data.X["day"], [1, np.nan, 3])
    assert data.X["colour"].tolist() == ["red", None, "red"]
    assert data.y.tolist() == ["not yet", "yes", "yes"]
    with pytest.raises(ValueError, match=r"missing cells, but colour, day has"):
        load_data_set(tiny())


@pytest.mark.parametrize(
    ("dtype", "labels"),
    [
        (np.int64, [3, 1, 1, 1]),
        (np.float64, [0.5, -1, -1, -1]),
        (object, ["b", "a", "a", "a"]),
    ],
)
def test_labels_keep_their_kind(places, dtype, labels):
    write(places / "cache", FRAME.assign(target=labels))
    data = load_data_set(tiny(), preprocess="none")
    assert (data.y.dtype, data.y.tolist(), data.classes.tolist()) == (dtype, labels, labels[:2])
    codes = load_data_set(tiny()).y
    assert (codes.dtype, codes.tolist()) == (np.int64, [0, 1, 1, 1])


def test_a_large_table_equals_pandas(places, monkeypatch):
    monkeypatch.setattr(import_module("driftree.streams.data_files"), "ROWS_AT_ONCE", 64)
    generator = np.random.default_rng(1)
    n_rows = 1000
    frame = pd.DataFrame(
        {
            "real": generator.normal(size=n_rows) * 10.0 ** generator.integers(-9, 9, n_rows),
            "text": generator.choice(["b", "a", "ü", 'with "quotes", and\na line'], n_rows),
            "small": generator.integers(-100, 100, n_rows),
            "target": generator.integers(3, 6, n_rows),
        }
    )
    n_majority = int(frame["target"].value_counts().max())
    record = tiny(counts=Counts(n_rows, 3, 3, n_majority), shuffle_seed=112)
    write(places / "cache", frame)
    order = np.random.default_rng(112).permutation(n_rows)
    X, y = paper_by_pandas(frame)
    for _ in range(2):  # from text, then from the arrays that were kept
        data = load_data_set(record)
        assert data.X.tobytes() == X[order].tobytes()
        np.testing.assert_array_equal(data.y, y[order])
        plain = load_data_set(record, preprocess="none", max_rows=10)
        assert plain.X["text"].tolist() == frame["text"][order[:10]].tolist()


def test_columns_can_share_levels(places):
    frame = FRAME.assign(colour=list("abca"), day=list("dbbe"))
    write(places / "cache", frame)
    data = load_data_set(tiny(shared_levels=((1, 2),)))
    codes = pd.factorize(np.append(frame["colour"], frame["day"]))[0] / 4
    np.testing.assert_array_equal(data.X[:, 1:3], codes.reshape(2, 4).T)


def test_the_data_folder_comes_before_the_cache_and_is_only_read(site, places, monkeypatch):
    record = tiny(site)
    write(places / "cache")
    write(places / "data", FRAME.assign(constant=[5, 6, 7, 9]))
    assert load_data_set(record).X[:, 3].max() == 0
    monkeypatch.setenv("DRIFTREE_DATA", str(places / "data"))
    assert found(record) == "DRIFTREE_DATA"
    for _ in range(2):
        assert load_data_set(record).X[:, 3].tolist() == [0, 0.25, 0.5, 1]
    assert os.listdir(places / "data") == ["tiny.csv.gz"]
    (places / "data" / "tiny.csv.gz").unlink()
    assert found(record) == "cache"
    assert load_data_set(record).X[:, 3].max() == 0
    assert site.requests == []
    monkeypatch.setenv("DRIFTREE_DATA", str(places / "nowhere"))
    with pytest.raises(NotADirectoryError, match="nowhere, which is not a folder"):
        load_data_set(record)


def test_a_changed_file_is_read_again(places, monkeypatch):
    monkeypatch.setenv("DRIFTREE_DATA", str(places / "data"))
    for low in (1, 2):
        write(places / "data", FRAME.assign(constant=[low, 5, 6, 9]))
        assert load_data_set(tiny(), preprocess="none").X["constant"][0] == low


def test_a_damaged_file_in_the_cache_does_not_load(places):
    write(places / "cache")
    load_data_set(tiny())
    write(places / "cache", FRAME.assign(constant=1))
    with pytest.raises(ValueError, match=r"has changed since .*tiny\.csv\.gz\.sha256"):
        load_data_set(tiny())
    (places / "cache" / "tiny.csv.gz.sha256").unlink()
    assert load_data_set(tiny(), preprocess="none").X["constant"][0] == 1


@pytest.mark.parametrize("damage", [lambda b: b[:-20], lambda b: b[20:], lambda b: b[:50] + b])
def test_a_file_cut_short_does_not_load(places, damage):
    write(places / "cache")
    path = places / "cache" / "tiny.csv.gz"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises((OSError, ValueError), match=r"tiny\.csv\.gz is (truncated|not UTF-8 text)"):
        load_data_set(tiny())


@pytest.mark.parametrize("content", [b"", b"no archive"])
def test_damaged_arrays_are_made_again(places, content):
    write(places / "cache")
    expected = load_data_set(tiny()).X
    (places / "cache" / "arrays" / "tiny.npz").write_bytes(content)
    np.testing.assert_array_equal(load_data_set(tiny()).X, expected)


def test_a_cache_that_cannot_be_written_only_costs_time(places, monkeypatch):
    monkeypatch.setenv("DRIFTREE_DATA", str(places / "data"))
    write(places / "data")
    (places / "cache").write_text("not a folder")
    drawn = catalogue.Generated(lambda: (np.zeros((4, 1)), np.zeros(4, dtype=np.int64)), ("a",))
    for record in (tiny(), tiny(origin=drawn)):
        with pytest.warns(UserWarning, match="set DRIFTREE_CACHE to a folder") as caught:
            assert load_data_set(record).n_rows == 4
        assert caught[0].filename == __file__


def test_a_download_into_a_cache_that_cannot_be_written(site, places):
    (places / "cache").write_text("not a folder")
    with pytest.raises(DataSetUnavailable, match=r"written into the cache .*; set DRIFTREE_CACHE"):
        load_data_set(tiny(site))
    assert site.requests == []


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (FRAME[:3], r"3 rows instead of 4, 2 rows of the most frequent class instead of 3"),
        (FRAME.drop(columns="day"), r"3 features instead of 4"),
        (FRAME.assign(target=list("aabc")), r"3 classes instead of 2"),
        (
            FRAME.rename(columns={"target": "y"}),
            r"has no column 'target'; its columns",
        ),
        (FRAME[:0], "but no rows"),
    ],
)
def test_another_table_does_not_pass(places, monkeypatch, frame, words):
    write(places / "cache", frame)
    with pytest.raises(ValueError, match=words):
        load_data_set(tiny())
    assert not (places / "cache" / "tiny.csv.gz.sha256").exists()


def test_other_copies_in_circulation_pass(places):
    write(places / "cache")
    record = tiny(counts=Counts(5, 4, 2, 3), other_counts=(COUNTS,))
    assert load_data_set(record).n_rows == 4


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: text.rsplit("yes", 1)[0], "3 rows instead of 4"),
        (lambda text: text.replace("1e1,", ""), "row 4 has 4 cells, but there are 5 columns"),
        (lambda text: text.split("@DATA")[0], "must have a line @data"),
        (lambda text: text + "{0 1}\n", "sparse"),
        (lambda text: text.replace("class", "label"), "no column class for the labels, only label"),
        (lambda text: text.replace("@attribute 'size in m' REAL", "@attribute"), "no attribute"),
    ],
)
def test_a_wrong_source_leaves_nothing_that_loads(site, places, change, words):
    publish(site, change(ARFF))
    with pytest.raises(DataSetUnavailable, match=rf"{words}.*Put tiny\.csv\.gz"):
        load_data_set(tiny(site))
    assert found(tiny(site)) == "not here: download"
    publish(site, ARFF)  # mended at its source
    assert load_data_set(tiny(site)).n_rows == 4


def test_a_wrong_checksum_at_openml(site):
    site.files["/tiny.arff"] = ARFF.replace("1.5", "2.5").encode()
    with pytest.raises(DataSetUnavailable, match="checksum"):
        load_data_set(tiny(site))
    assert found(tiny(site)) == "not here: download"


def test_two_loads_at_once_share_one_download(site):
    site.pause = 0.1
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(load_data_set, [tiny(site)] * 2)
    assert first.X.tobytes() == second.X.tobytes()
    assert [path for path, _ in site.requests] == ["/json/7", "/tiny.arff"]


KILLED = """
import os, signal
from importlib import import_module
from driftree.streams.catalogue import Counts, DataSet, OpenMLFile
from driftree.streams.datasets import load_data_set

def kill(*_): os.kill(os.getpid(), signal.SIGKILL)

{patch}
record = DataSet("tiny", "Tiny", Counts(4, 4, 2, 3), "nowhere", OpenMLFile("{address}/json/7"))
load_data_set(record, progress={progress})
"""


@pytest.mark.parametrize(
    ("patch", "progress"),
    [
        ("", "kill"),
        ("import_module('driftree.streams.data_files')._note_checksum = kill", "None"),
        ("import_module('driftree.learn.storage.atomic').Unfinished.put_in_place = kill", "None"),
    ],
    ids=["downloading", "converting", "converted"],
)
def test_a_killed_load_leaves_nothing_that_is_half(site, patch, progress):
    script = KILLED.format(patch=patch, progress=progress, address=site.address)
    child = subprocess.run([sys.executable, "-c", script], check=False)
    assert child.returncode == -signal.SIGKILL
    assert found(tiny(site)) == "not here: download"
    data = load_data_set(tiny(site))
    assert data.X.tobytes() == paper_by_pandas(FRAME)[0].tobytes()


@pytest.mark.parametrize("delimiter", [",", ";"])
def test_from_csv_without_a_header(site, delimiter):
    rows = [[1, 0.5, "x"], [2, 0.25, "y"], [3, 1, "x"]]
    text = "".join(delimiter.join(map(str, row)) + "\n" for row in rows)
    site.files["/plain"] = text.encode()
    checksum = f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
    origin = CSVFile(f"{site.address}/plain", ("a", "b"), checksum)
    data = load_data_set(tiny(origin=origin, counts=Counts(3, 2, 2, 2)), preprocess="none")
    assert {name: column.tolist() for name, column in data.X.items()} == {
        "a": [1, 2, 3],
        "b": [0.5, 0.25, 1],
    }
    assert data.y.tolist() == ["x", "y", "x"]


@pytest.mark.parametrize("address", ["http://no-such-host.invalid", "http://127.0.0.1:9"])
def test_offline_one_error_says_what_to_put_where(places, address):
    record = tiny(origin=OpenMLFile(f"{address}/7"))
    with pytest.raises(DataSetUnavailable) as caught:
        load_data_set(record)
    said = str(caught.value)
    for words in (address, "tiny.csv.gz", "4 rows", str(places / "cache"), "DRIFTREE_DATA"):
        assert words in said
    assert said.endswith("source: nowhere")


def test_by_hand_the_error_says_how(places):
    assert found(tiny()) == "not here: by hand"
    with pytest.raises(DataSetUnavailable, match=r"by hand: draw it\. Put tiny\.csv\.gz"):
        load_data_set(tiny())


def test_a_page_that_is_no_description(site):
    site.files["/json/7"] = b"<html>come back later</html>"
    with pytest.raises(DataSetUnavailable, match="does not describe a data set"):
        load_data_set(tiny(site))


@pytest.mark.parametrize("change", [{"url": "ftp://nowhere/tiny.arff"}, {"md5_checksum": None}])
def test_a_description_that_cannot_be_used(site, change):
    description = {"url": f"{site.address}/tiny.arff", "md5_checksum": 32 * "0", **change}
    site.files["/json/7"] = json.dumps({"data_set_description": description}).encode()
    with pytest.raises(DataSetUnavailable, match=r"not ftp://nowhere|not md5:None"):
        load_data_set(tiny(site))


def test_synthetic_streams_are_drawn_once(places):
    draws = []

    def little():
        draws.append(1)
        return np.arange(6.0).reshape(3, 2) / 5, np.array([1, 0, 1])

    origin = catalogue.Generated(little, ("a", "b"))
    record = tiny(origin=origin, counts=Counts(3, 2, 2, None))
    nothing_yet = datasets.DataSetStatus("tiny", "Tiny", "generated", None, 0)
    assert list_data_sets([record]) == [nothing_yet]
    for _ in range(2):
        data = load_data_set(record, max_rows=2)
        assert (data.X.tolist(), data.y.tolist()) == ([[0, 0.2], [0.4, 0.6]], [1, 0])
    assert load_data_set(record, preprocess="none").X["b"].tolist() == [0.2, 0.6, 1]
    assert len(draws) == 1
    path = places / "cache" / "little.npz"
    assert list_data_sets([record])[0].path == path
    path.write_bytes(path.read_bytes()[:99])  # damaged
    assert load_data_set(record).y.tolist() == [1, 0, 1]
    assert len(draws) == 2


@pytest.mark.parametrize("change", [{"preprocess": "scale"}, {"max_rows": 0}])
def test_wrong_parameters(change):
    with pytest.raises(ValueError, match=next(iter(change))):
        load_data_set("sea", **change)


def test_conversion_gives_the_same_bytes(places):
    source = places / "tiny.arff"
    source.write_text(ARFF)
    files = [places / str(i) / "tiny.csv.gz" for i in range(2)]
    for file in files:
        file.parent.mkdir()
    packed = [convert(source, tiny(), file, target="class").read_bytes() for file in files]
    assert packed[0] == packed[1]
    header, first, *_ = gzip.decompress(packed[0]).splitlines()
    assert header == b"size in m,colour,day,constant,target"
    assert first == b"1.5,red,2,5,not yet"


@pytest.mark.parametrize(
    ("platform", "variables", "folder"),
    [
        ("linux", {}, "home/.cache/driftree"),
        ("linux", {"XDG_CACHE_HOME": "/x"}, "/x/driftree"),
        ("linux", {"XDG_CACHE_HOME": "relative"}, "home/.cache/driftree"),
        ("darwin", {}, "home/Library/Caches/driftree"),
        ("win32", {"LOCALAPPDATA": "/local"}, "/local/driftree"),
        ("linux", {"DRIFTREE_CACHE": "~/c"}, "home/c"),
    ],
)
def test_the_cache_is_where_the_platform_has_it(monkeypatch, tmp_path, platform, variables, folder):
    for name in ("DRIFTREE_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(sys, "platform", platform)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert cache_folder() == tmp_path / folder
