"""Runs of `driftree run --resume` that are killed, in processes forked from one that knows all.

As a script it reads a plan from standard input and writes what became of it to standard output.
"""

import contextlib
import io
import json
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
import traceback
import warnings
from pathlib import Path

CALLS = ("fsync", "replace", "unlink")
SOON = 0.1  # of a run, within which it is killed again after it was started again
N_BYTES = 12  # places in a file that is being saved


class Killer:
    """Ends this process at a point; without a point it only counts what it sees.

    A point is a pair of a kind and a number. The kinds: a call of `os`, before or after it is done;
    a byte in the middle of a file that is being saved; a record of which half is written.
    """

    def __init__(self, point=None):
        self.point = point
        self.seen = {}

    def pass_by(self, kind, n=1):
        """Count, and tell whether the point is reached."""
        before = self.seen.get(kind, 0)
        self.seen[kind] = before + n
        return self.point is not None and self.point[0] == kind and self.point[1] <= before + n

    def arm(self):
        """Put itself between the run and the system."""
        from driftree.evaluate.records import RecordFile
        from driftree.learn.storage import atomic

        for name in CALLS:
            setattr(os, name, self._around(getattr(os, name), name))
        atomic.open = self._open
        write = RecordFile.write

        def write_half(file, record):
            if self.pass_by("record"):
                write(file, record)
                file._file.truncate(file._file.tell() - 7)
                kill_self()
            write(file, record)

        RecordFile.write = write_half

    def _around(self, call, name):
        def do(*arguments, **options):
            if self.pass_by(f"before {name}"):
                kill_self()
            result = call(*arguments, **options)
            if self.pass_by(f"after {name}"):
                kill_self()
            return result

        return do

    def _open(self, *arguments, **options):
        file = open(*arguments, **options)  # noqa: SIM115 (`Torn` closes it)
        killer = self

        class Torn:
            def __enter__(self):
                return self

            def __exit__(self, *_):
                file.close()

            def __getattr__(self, name):
                return getattr(file, name)

            def writelines(self, chunks):
                self.write(b"".join(chunks))

            def write(self, data):
                data = bytes(data)
                rest = (killer.point or ("", 0))[1] - killer.seen.get("byte", 0)
                if killer.pass_by("byte", len(data)):
                    file.write(data[:rest])
                    file.flush()
                    kill_self()
                return file.write(data)

        return Torn()


def kill_self():
    os.kill(os.getpid(), signal.SIGKILL)


def in_child(work, killer, folder, seconds=None, ends=(0, -signal.SIGKILL)):
    """Work in a process of its own; return how it ended, negative if by a signal."""
    process = os.fork()
    if process == 0:
        with open(folder / "words.txt", "wb") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        killer.arm()
        code = 1
        try:
            work()
            code = 0
        except SystemExit as end:
            code = end.code or 0
        except Exception:  # noqa: BLE001 (of whatever kind, it must not reach the fork's parent)
            traceback.print_exc()
        finally:
            (folder / "seen.json").write_text(json.dumps(killer.seen))
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    timer = threading.Timer(seconds or 0, os.kill, (process, signal.SIGKILL))
    if seconds is not None:
        timer.start()
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    timer.cancel()
    if code not in ends:
        raise RuntimeError(f"{killer.point}: {code}: {(folder / 'words.txt').read_text()}")
    return code


# ---------------------------------------------------------------------- runs
def run_in(folder, options):
    """Return the work of a run in a folder, which becomes the present one."""
    from driftree.cli import app

    folder.mkdir(parents=True, exist_ok=True)
    os.chdir(folder)
    return lambda: app(["run", *options, "--resume", "--out", "out"])


def run_chain(options, folder, points=()):
    """Kill a run at each point, then let it end; return where it was killed."""
    work, killed = run_in(folder, options), []
    for point in [*points, None]:
        seconds = point[1] if point and point[0] == "seconds" else None
        if in_child(work, Killer(None if seconds else point), folder, seconds) == 0:
            break
        killed.append(point)
    return killed


def warm_up(plan, options):
    """Run here once, so that each process need not import and load all by itself."""
    from driftree.cli import results

    if not plan.get("plots"):
        results.find_spec = lambda _: None
    work = run_in(Path(plan["folder"], "warm"), options)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        work()


def choose_points(rng, seen, seconds):
    """Choose points of all kinds: soon after a start, but for the last one."""
    kinds = [*seen, "seconds"]
    rng.shuffle(kinds)
    points = []
    for i, kind in enumerate(kinds):
        share = 1 if i == len(kinds) - 1 else SOON
        if kind == "seconds":
            points.append((kind, rng.uniform(0, seconds * share)))
        else:
            points.append((kind, rng.randint(1, int(seen[kind] * share) + 1)))
    return points


def kill_runs(plan):
    warm_up(plan, plan["runs"][0])
    rng, told = random.Random(plan["seed"]), []
    for i, options in enumerate(plan["runs"]):
        whole = Path(plan["folder"], f"run{i}", "whole")
        began = time.monotonic()
        run_chain(options, whole)
        seconds = time.monotonic() - began
        seen = json.loads((whole / "seen.json").read_text())
        for j in range(plan["chains"]):
            folder = whole.with_name(f"chain{j}")
            killed = run_chain(options, folder, choose_points(rng, seen, seconds))
            told.append({"folder": str(folder), "whole": str(whole), "killed": killed})
    return told


# ---------------------------------------------------------------------- no room
class Limit:
    """Lets no file grow beyond some bytes."""

    point, seen = "limit", {}

    def __init__(self, n_bytes):
        self.n_bytes = n_bytes

    def arm(self):
        if self.n_bytes is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (self.n_bytes, self.n_bytes))


def run_out_of_room(plan):
    """Run until there is no room, look at what is left, make room, and let it end."""
    from driftree import Checkpointer

    warm_up(plan, plan["options"])
    whole, full = Path(plan["folder"], "whole"), Path(plan["disk"])
    run_chain(plan["options"], whole)
    sizes = [path.stat().st_size for path in (whole / "out" / "checkpoints").glob("*.dmt")]
    if plan["is_disk"]:  # no room for a fourth checkpoint before the first one goes
        subprocess.run(["mount", "-o", f"remount,size={sum(sizes)}", full], check=True)
    work = run_in(full, plan["options"])
    limit = Limit(None if plan["is_disk"] else max(sizes) - 1)
    code = in_child(work, limit, whole, ends=(0, 2))
    words = (whole / "words.txt").read_text().splitlines()[-1]
    left = sorted(path.name for path in (full / "out" / "checkpoints").iterdir())
    if plan["is_disk"]:
        subprocess.run(["mount", "-o", "remount,size=50m", full], check=True)
    with Checkpointer(full / "out" / "checkpoints") as checkpointer:
        position = checkpointer.resume().position
    in_child(work, Limit(None), whole)
    return {"code": code, "words": words, "left": left, "position": position}


# ---------------------------------------------------------------------- saves
def kill_saves(plan):
    """Kill a process at every point of two saves, and let another one go on."""
    from driftree import Checkpointer, DynamicModelTreeClassifier
    from driftree.streams import sea

    batches = list(sea(400, batch_rows=100))

    def learn(last):
        warnings.simplefilter("error")  # a save that was killed must not leave a damaged file
        with Checkpointer("kept", keep=2) as checkpointer:
            found = checkpointer.resume()
            model, position, _ = found or (DynamicModelTreeClassifier(), 0, None)
            for n in range(position // 100, last):
                model.partial_fit(*batches[n])
                checkpointer.commit(model, 100 * (n + 1), {"n": n + 1})
        return model

    def try_at(point, name):
        folder = Path(plan["folder"], name)
        folder.mkdir(parents=True)
        os.chdir(folder)
        in_child(lambda: learn(2), Killer(), folder)
        code = in_child(lambda: learn(4), Killer(point), folder)
        seen = (folder / "seen.json").read_text()
        left = sorted(path.name for path in (folder / "kept").iterdir())
        in_child(lambda: learn(4).save("model.dmt"), Killer(), folder)
        told = {"folder": str(folder), "point": point, "code": code, "left": left}
        return told, json.loads(seen)

    warm = Path(plan["folder"], "warm")
    warm.mkdir()
    os.chdir(warm)
    with warnings.catch_warnings():
        learn(4).save("model.dmt")
    whole, seen = try_at(None, "whole")
    points = []
    for kind, n in seen.items():
        step = max(1, n // N_BYTES) if kind == "byte" else 1
        points += [(kind, place) for place in range(1, n + 1, step)]
    return [whole, *(try_at(point, f"kill{i}")[0] for i, point in enumerate(points))]


if __name__ == "__main__":
    plan = json.load(sys.stdin)
    ways = {"runs": kill_runs, "saves": kill_saves, "room": run_out_of_room}
    json.dump(ways[plan["what"]](plan), sys.stdout)
