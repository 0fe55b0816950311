"""Reads what callgrind counted, and says which kernel every instruction belongs to.

Kernels are inlined into one another, so the names of the compiled functions say little. The debug
information knows for every instruction the chain of source functions that it was inlined from:
the innermost of them that `KERNELS` names gets it. What a kernel calls that has no name there (the
exponential, sorting, memory) is its own cost, too. Nothing is compiled otherwise than in a release
but for `-g`.
"""

import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

# The kernels as they are printed, and the functions of src/kernels they are made of. A function
# that is not here counts for the one that it is inlined into, or else as the rest.
KERNELS: dict[str, tuple[str, ...]] = {
    "forward": (
        "forward_lanes<>",
        "forward_joint<>",
        "blend_forward<>",
        "sgd_forward<>",
        "SomeRows<>::finish",
    ),
    "links": (
        "Logit::Lanes::slopes",
        "Softmax::slope",
        "Gaussian::Lanes::slopes",
        "Slopes::loss",
        "newton_share",
    ),
    "Adagrad": ("adagrad_row", "adagrad_pass<>"),
    "Newton": (
        "newton_row",
        "newton_pass<>",
        "newton_step<>",
        "subtract_waiting",
        "subtract_square_and_mirror",
        "subtract_square_and_times_upper",
        "times",
        "subtract_square",
        "subtract_square_and_times",
        "fold_scale",
        "limit_diagonal",
        "reset_matrix",
    ),
    "opinions": (
        "Group<>::ask<>",
        "ask<>",
        "Group<>::add",
        "blend_learn<>",
        "blend_follow<>",
        "learn_side_by_side<>",
        "learn_sureness",
        "learn_preference<>",
        "learn_loss<>",
        "Logit::learn",
        "Gaussian::learn",
    ),
    "target": (
        "NumberTarget::add",
        "NumberTarget::learn_reach",
        "ModelTree<>::learn_target",
        "ModelTree<>::learn_reaches",
        "ModelTree<>::update_table",
        "ModelTree<>::hold_scale",
        "ModelTree<>::scale_targets",
    ),
    "bends": ("Step::fill_bends<>", "Table::fill_bends"),
    "SGD": ("sgd_learn<>", "sgd_learn_lanes<>", "sgd_learn_joint<>", "sgd_step"),
    "gradients": ("gradients_single",),
    "grid sums": (
        "Grid::accumulate",
        "Grid::absorb",
        "Grid::fade",
        "Trials::accumulate_grid",
        "Trials::absorb_grid",
        "Trials::learn_grid",
    ),
    "slots": ("Grid::slots_of",),
    "proposals": ("Grid::best", "Grid::implied_gradient", "Trials::proposals"),
    "candidate sums": (
        "CandidateStep::begin",
        "CandidateStep::accumulate",
        "CandidateStep::sum_left",
        "CandidateStep::sum_left_of_all<>",
        "CandidateStep::sum_equal_to_all<>",
        "CandidateStep::admit",
        "CandidateStep::into",
        "CandidateStore::absorb",
        "sum_buckets",
        "measure",
        "weigh",
    ),
    "candidate bounds": (
        "CandidateStep::propose_row",
        "CandidateStep::find_worse",
        "Candidates::add_waiting",
        "Candidates::next_waiting",
        "Candidates::best_gain",
        "add_row",
    ),
    "candidate scan": (
        "CandidateStep::propose",
        "CandidateStep::propose_values",
        "CandidateStep::propose_borders",
        "CandidateStep::propose_levels",
        "CandidateStep::find_worst",
    ),
    "settling": (
        "Candidates::settle",
        "Candidates::settle_with",
        "Candidates::settle_all",
        "settle",
    ),
    "buckets": ("Column::fill", "Column::sort", "codes"),
    "row order": ("Chunk::fill", "Chunk::choose_order", "row_keys"),
    "scaling": (
        "update_scale",
        "take_moments<>",
        "merge_moments<>",
        "scale_row",
        "Scaler::update",
        "Scaler::apply",
        "Chunk::scale",
        "Table::fill_inputs",
        "Table::fill_row",
        "ModelTree<>::scale",
    ),
    "routing": (
        "Step::route",
        "Step::add_pupil",
        "ModelTree<>::read",
        "ModelTree<>::read_for_leaf",
        "ModelTree<>::enlist",
        "ModelTree<>::prepare_to_settle",
        "Trials::look",
        "Trials::rests_now",
        "Trials::enlist_renewed",
        "Trials::enlist",
        "Trials::enlist_last",
        "Trials::choose_rows",
        "Trials::fade_after",
        "Nodes::leaf_of",
    ),
    "node sums": (
        "ModelTree<>::accumulate",
        "ModelTree<>::absorb",
        "ModelTree<>::absorb_leaf",
        "ModelTree<>::absorb_rows",
        "Trials::find_lessons",
        "LessonRows::read<>",
        "ModelTree<>::keep_finite",
        "Trials::accumulate",
        "Trials::accumulate_last",
        "Trials::absorb",
        "Trials::absorb_last",
        "Trials::is_due",
        "CandidateStore::is_due",
    ),
    "prediction": (
        "Tree<>::predictors_of",
        "Sgd::Predicting::operator",
        "Blend::Predicting::operator",
        "Blend::Predicting::by",
        "Tree<>::class_of",
        "Tree<>::probabilities_of",
        "Logit::read",
        "Softmax::read",
    ),
    "rest of step": (
        "ModelTree<>::learn",
        "ModelTree<>::take_step",
        "ModelTree<>::judge",
        "ModelTree<>::train",
        "ModelTree<>::finish_waiting",
        "ModelTree<>::catch_up",
        "ModelTree<>::wait_on",
        "learn_reach",
    ),
    "reading rows": (
        "RowReader::read",
        "RowReader::code_of",
        "RowReader::codes_of",
        "RowReader::label_of",
        "RowReader::look_up_labels",
        "RowFace<>::learn",
        "RowFace<>::predict",
    ),
}
Function = tuple[str, str]  # object, name
OUR_NAME = re.compile(r"(?:\w+[&*]* )?driftree::")
SOURCES = Path(__file__).parent.parent / "src" / "kernels"
# callgrind counts an instruction that repeats itself (rep stos, rep movs) once per repetition, so
# the C library is told to clear and copy large blocks by vectors as it does with small ones.
ENVIRONMENT = {
    "GLIBC_TUNABLES": "glibc.cpu.x86_rep_stosb_threshold=1000000000"
    ":glibc.cpu.x86_rep_movsb_threshold=1000000000"
}
REST = "rest of kernels"
OUTSIDE = "outside"


@dataclass
class Part:
    """One dump: what was counted between two requests of the program."""

    name: str
    total: int = 0
    own: Counter[tuple[str, str, int]] = field(default_factory=Counter)
    """Instructions by (object, function, address)."""
    calls: Counter[tuple[str, str, int, str, str]] = field(default_factory=Counter)
    """Instructions below a call, by (object, function, address, called object, called function)."""


class _Names:
    """Names that stand in full once, and then as a number."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], str] = {}

    def read(self, kind: str, text: str) -> str:
        number, _, name = text.partition(" ")
        if name:
            self._known[kind, number] = name
        return self._known[kind, number]


def read_part(file: Path) -> Part:
    """Read one file of callgrind's, written with --dump-instr=yes."""
    names, part = _Names(), Part("")
    here = called = ("", "")
    address, below = 0, False
    for line in file.read_text().splitlines():
        if line.startswith("desc: Trigger: Client Request: "):
            part.name = line.rpartition(": ")[2]
        elif line.startswith("summary: "):
            part.total = int(line.split()[1])
        elif line.startswith("ob="):
            here = (names.read("ob", line[3:]), "")
        elif line.startswith("fn="):
            here = (here[0], names.read("fn", line[3:]))
            called = (here[0], "")
        elif line.startswith("cob="):
            called = (names.read("ob", line[4:]), "")
        elif line.startswith("cfn="):
            called = (called[0], names.read("fn", line[4:]))
        elif line.startswith("calls="):
            below = True
        elif line[:1] in tuple("0+-*"):
            place, _, count = line.split()
            address = _next_address(address, place)
            if below:
                part.calls[*here, address, *called] += int(count)
                called, below = (here[0], ""), False
            else:
                part.own[*here, address] += int(count)
        else:
            _keep_name(names, line)
    return part


def _next_address(address: int, place: str) -> int:
    if place == "*":
        return address
    return address + int(place) if place[0] in "+-" else int(place, 16)


def _keep_name(names: _Names, line: str) -> None:
    """Remember the file names of a line, which are not used but share nothing with the others."""
    kind, _, text = line.partition("=")
    if kind in {"fl", "fi", "fe", "cfi", "cfl"}:
        names.read("fl", text)


# ---------------------------------------------------------------------- names of kernels
def simple_name(name: str) -> str:
    """Return a C++ name without our namespaces and arguments; <> says that it is a template.

    >>> simple_name("driftree::(anonymous namespace)::times(driftree::Shape const&, double)")
    'times'
    >>> simple_name("driftree::Step::route()::{lambda(int)#1}::operator()(int) const")
    'Step::route'
    >>> simple_name("void driftree::(anonymous namespace)::fill<float>(float*)")
    'fill<>'
    >>> simple_name("driftree::ModelTree<driftree::Trials>::learn(double const*, int)")
    'ModelTree<>::learn'
    """
    name = name.replace("(anonymous namespace)::", "")
    while (shorter := re.sub(r"<[^<>\0]*(?:\0[^<>\0]*)*>", "\0", name)) != name:
        name = shorter
    name = name.partition("(")[0].rpartition(" ")[2]
    return name.replace("driftree::", "").replace("\0", "<>")


def chains_of(program: Path, addresses: Iterable[int]) -> Iterator[tuple[int, list[str]]]:
    """Yield for every address the functions it was inlined from, innermost first."""
    wanted = sorted(set(addresses))
    if shutil.which("addr2line") is None:
        raise SystemExit(
            "addr2line is missing: install binutils (Debian/Ubuntu: apt install binutils)"
        )
    text = subprocess.run(
        ["addr2line", "-aifC", "-e", str(program)],
        input="\n".join(map(hex, wanted)),
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for block in re.split(r"^0x", text, flags=re.MULTILINE)[1:]:
        address, *lines = block.splitlines()
        yield int(address, 16), [simple_name(name) for name in lines[::2]]


def check_names() -> None:
    """Stop if a function of `KERNELS` is no longer in the sources."""
    text = "".join(file.read_text() for file in SOURCES.glob("*.[ch]pp"))
    for kernel, names in KERNELS.items():
        for name in names:
            word = name.removesuffix("<>").rpartition(":")[2]
            if not re.search(rf"\b{word}\(", text):
                raise SystemExit(
                    f"'{kernel}' names {name}, which is not in src/kernels any more: "
                    f"name its successor in KERNELS in benchmarks/{Path(__file__).name}"
                )


def count_by_kernel(part: Part, program: Path) -> dict[str, int]:
    """Return the instructions of every kernel, of the rest of `program`, and outside of it."""
    kernel_of = {name: kernel for kernel, names in KERNELS.items() for name in names}
    named = {function for function in functions_of(part) if is_named(function, program, kernel_of)}
    carriers = callers_of(part, named)  # not named, but named ones run below them
    counted = named | {function for function in carriers if is_ours(function, program)}
    places = [key[:3] for key in (*part.own, *part.calls) if key[:2] in counted]
    kernel_at = {
        address: next((kernel_of[name] for name in chain if name in kernel_of), REST)
        for address, chain in chains_of(program, (address for _, _, address in places))
    }
    counts: Counter[str] = Counter()
    for (*function, address), count in part.own.items():
        if tuple(function) in counted:
            counts[kernel_at[address]] += count
    for (*function, address, called_object, called), count in part.calls.items():
        is_charged = (called_object, called) not in named | carriers
        if tuple(function) in counted and is_charged:
            counts[kernel_at[address]] += count
    counts[OUTSIDE] = part.total - sum(counts.values())
    return dict(counts)


def functions_of(part: Part) -> set[Function]:
    """Return all functions that ran."""
    return {key[:2] for key in part.own} | {key[:2] for key in part.calls}


def is_ours(function: Function, program: Path) -> bool:
    """Is it one of the functions in src/kernels, compiled on its own?"""
    return Path(function[0]).name == program.name and OUR_NAME.match(function[1]) is not None


def is_named(function: Function, program: Path, kernel_of: dict[str, str]) -> bool:
    """Is it one of ours that a kernel names?"""
    return is_ours(function, program) and simple_name(function[1]) in kernel_of


def callers_of(part: Part, called: set[Function]) -> set[Function]:
    """Return the other functions below which one of `called` runs."""
    callers: dict[Function, set[Function]] = {}
    for *caller, _, called_object, called_name in part.calls:
        callers.setdefault((called_object, called_name), set()).add((caller[0], caller[1]))
    found, rest = set(called), list(called)
    while rest:
        for caller in callers.get(rest.pop(), set()) - found:
            found.add(caller)
            rest.append(caller)
    return found - called
