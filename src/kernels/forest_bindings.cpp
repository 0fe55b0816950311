// Python bindings of forests: see src/driftree/learn/_kernels.pyi.
#include "binding_rows.hpp"
#include "forest.hpp"

namespace driftree {

namespace {

using Face = RowFace<MeasuredTree>;

// A forest that keeps its members' engines alive.
struct BoundForest : Forest {
    using Forest::Forest;
    std::vector<nb::object> owners = std::vector<nb::object>(members.size());
    bool is_whole() const {
        return std::all_of(members.begin(), members.end(), [](const Member& member) { return member.engine; });
    }
    int checked(int place) const {
        if (place < 0 || place >= stack.n_members) throw nb::index_error("there is no such member");
        return place;
    }
};

void set_member(BoundForest& forest, int place, nb::handle_t<MeasuredTree> engine, Codes sources, Codes ends,
                Doubles slopes) {
    forest.checked(place);
    if (place > 0 && !forest.members[0].engine) throw nb::value_error("the first member must come first");
    Hinges hinges({sources.data(), sources.data() + sources.size()}, {ends.data(), ends.data() + ends.size()},
                  {slopes.data(), slopes.data() + slopes.size()});
    MeasuredTree& own = *nb::inst_ptr<MeasuredTree>(engine);
    const bool fits = sources.size() == 0 || hinges.width() == own.table->n_features();
    if (!fits) throw nb::value_error("each feature of the tree must have a source");
    if (hinges.n() > 0 && place == 0) throw nb::value_error("the first member sees no pairs");
    forest.set_member(place, own, std::move(hinges));
    forest.owners[place] = nb::borrow(engine);
}

// Rows from Python, with a sparse part for each member or none.
ForestRows checked_rows(const BoundForest& forest, const Matrix& X, const std::vector<const SparseBatch*>& sparse) {
    if (!forest.is_whole()) throw nb::value_error("the forest lacks a member");
    if (!sparse.empty() && std::ssize(sparse) != forest.stack.n_members)
        throw nb::value_error("there must be a sparse part for each member");
    ForestRows rows = {X.data(), static_cast<int>(X.shape(1)), {}};
    for (std::size_t i = 0; i < sparse.size(); i++) {
        check_rows(*forest.members[i].engine, {X, sparse[i]});
        rows.sparse.push_back(sparse[i]->held());
    }
    if (sparse.empty()) check_rows(forest.leader(), {X, nullptr});
    const int n_features = forest.leader().table->n_features();
    for (const auto& member : forest.members) {
        if (member.engine->n_classes != forest.leader().n_classes ||
            member.engine->n_outputs() != forest.leader().n_outputs())
            throw nb::value_error("the members must know the same labels");
        if (!sparse.empty()) continue;
        const Hinges& hinges = member.hinges;
        if (hinges.n_features > n_features || forest.n_scaled() < hinges.n_ends)
            throw nb::value_error("an end of a hinge has no feature, or no scale");
        if ((hinges.n() > 0 ? hinges.width() : n_features) != member.engine->table->n_features())
            throw nb::value_error("a member must know the features of the first one");
    }
    check_levels(forest.leader(), X);
    return rows;
}

std::vector<const SparseBatch*> parts_of(nb::object sparse) {
    std::vector<const SparseBatch*> parts;
    if (!sparse.is_none())
        for (const nb::handle part : nb::cast<nb::list>(sparse)) parts.push_back(nb::cast<const SparseBatch*>(part));
    return parts;
}

// decide(place) is called of members that are due while others learn; of the others it is for the caller to ask. If it raises,
// all members learn the rows nevertheless.
void learn_rows(BoundForest& forest, Matrix X, Doubles targets, Doubles weights, nb::object sparse,
                const std::optional<Doubles>& wholes, nb::callable decide) {
    const Writing turn(forest);
    const auto parts = parts_of(sparse);
    const ForestRows rows = checked_rows(forest, X, parts);
    check_step(forest.leader(), {X, parts.empty() ? nullptr : parts[0]}, targets, weights, wholes);
    std::exception_ptr error;
    {
        nb::gil_scoped_release release;
        const double* whole = wholes ? wholes->data() : nullptr;
        forest.learn(rows, targets.data(), weights.data(), whole, static_cast<int>(X.shape(0)), [&](int place) {
            if (error) return;
            const nb::gil_scoped_acquire acquire;
            try {
                decide(place);
            } catch (...) {
                error = std::current_exception();
            }
        });
    }
    if (error) std::rethrow_exception(error);
}

// [members, rows, classes] predictions for the rows of the last step, before these were learnt; [members, rows, 1] for
// numbers
nb::object said_by_members(const BoundForest& forest) {
    const Reading turn(forest);
    const std::size_t n = forest.n_said, wide = forest.said_width;
    std::vector<double> all;
    for (const auto& member : forest.members)
        all.insert(all.end(), member.said.begin(), member.said.begin() + static_cast<std::ptrdiff_t>(n * wide));
    return new_array(std::move(all), {forest.members.size(), n, wide});
}

template <Forest::Kind kind>
nb::object predict_rows(const BoundForest& forest, Matrix X, nb::object sparse) {
    std::unique_ptr<double[]> out;
    std::size_t wide = 0;
    {
        Reading turn(forest);
        const ForestRows rows = checked_rows(forest, X, parts_of(sparse));
        nb::gil_scoped_release release;
        wide = forest.width();
        out.reset(new double[X.shape(0) * wide]);
        Threads::all().run_ranges(forest.n_threads, X.shape(0), kRowsTogether, forest.predicting_work(),
                                  [&](std::size_t begin, std::size_t end, int) {
                                      forest.predict(rows, begin, end, kind, out.get() + begin * wide);
                                  });
        turn.end();  // before waiting for the GIL
    }
    return new_array(std::move(out), {X.shape(0), wide});
}

nb::object rows_of(const BoundForest& forest, int place, Matrix X) {
    const Reading turn(forest);
    forest.checked(place);
    const ForestRows rows = checked_rows(forest, X, {});
    const std::size_t n = X.shape(0), m = forest.members[place].engine->table->n_features();
    std::vector<double> room(n * m), whole(n * forest.n_features()), scaled(n * forest.n_ends());
    const Forest::Shared shared = forest.share(rows, 0, static_cast<int>(n), whole.data(), scaled.data());
    const double* seen = forest.see(place, shared, {}, static_cast<int>(n), room.data());
    if (seen != room.data()) std::copy_n(seen, n * m, room.data());
    return new_array(std::move(room), {n, m});
}

// ---------------------------------------------------------------- single rows
// Like RowFace::learn: returns None, NotImplemented, or the lock under which Python decides.
nb::object learn_row(nb::handle_t<BoundForest> self, Face& face, nb::handle x, nb::handle y, double weight) {
    BoundForest& forest = *nb::inst_ptr<BoundForest>(self);
    Learning lock(forest);
    double target;
    Room row(forest.leader().table->n_features());
    if (!face.read(y, target) || !face.read(x, true, row.data())) return nb::borrow(Py_NotImplemented);
    {
        // Whoever reads one of the trees may hold its lock while waiting for the GIL.
        nb::gil_scoped_release release;
        forest.learn({row.data(), forest.leader().table->n_features(), {}}, &target, &weight, nullptr, 1, [](int) {});
        forest.show_level();
    }
    if (!forest.has_due()) return nb::none();
    return nb::cast(new Held(nb::borrow(self), forest, lock), nb::rv_policy::take_ownership);
}

// Predicts [width()] numbers of the forest; returns false if Python must read the row.
bool predict_row(const BoundForest& forest, Face& face, nb::handle x, double* out) {
    Room row(forest.leader().table->n_features());
    if (!face.read(x, false, row.data())) return false;
    const ForestRows rows = {row.data(), forest.leader().table->n_features(), {}};
    forest.predict(rows, 0, 1, forest.has_labels() ? Forest::Kind::probabilities : Forest::Kind::numbers, out);
    return true;
}

nb::object predict_one(const BoundForest& forest, Face& face, nb::handle x) {
    const Reading lock(forest);
    const int n = forest.width();
    Room found(n);
    const double* all = found.data();
    if (!predict_row(forest, face, x, found.data())) return nb::borrow(Py_NotImplemented);
    if (!forest.has_labels()) return nb::float_(all[n / 2]);
    return face.reader().label_of(static_cast<std::int32_t>(std::max_element(all, all + n) - all));
}

nb::object probabilities_one(const BoundForest& forest, Face& face, nb::handle x) {
    const Reading lock(forest);
    Room found(forest.width());
    if (!predict_row(forest, face, x, found.data())) return nb::none();
    nb::dict out;
    for (int code = 0; code < forest.n_classes(); code++) out[face.reader().label_of(code)] = found.data()[code];
    return out;
}

using Said = nb::ndarray<nb::numpy, const double, nb::ndim<3>, nb::c_contig, nb::device::cpu>;

// Takes one step with predictions of members elsewhere: [members, rows, classes], or [members, rows, 1] for numbers.
void learn_said(Stack& stack, Said said, Doubles targets, Doubles weights, bool has_labels) {
    const std::size_t n = said.shape(1), wide = said.shape(2);
    if (std::ssize(stack.weights) != static_cast<std::ptrdiff_t>(said.shape(0)) || targets.size() != n ||
        weights.size() != n)
        throw nb::value_error("each member must have said something of each row");
    if (has_labels ? wide < 1 : wide != 1) throw nb::value_error("a member says one number, or one of each label");
    for (std::size_t i = 0; i < n && has_labels; i++)
        if (!(targets.data()[i] >= 0.0 && targets.data()[i] < static_cast<double>(wide)))
            throw nb::value_error("there is no such label");
    std::vector<const double*> members;
    members.reserve(said.shape(0));
    for (std::size_t m = 0; m < said.shape(0); m++) members.push_back(said.data() + m * n * wide);
    if (has_labels) {
        stack.learn_labels(members, targets.data(), weights.data(), static_cast<int>(n), static_cast<int>(wide));
    } else {
        stack.learn_numbers(members, targets.data(), weights.data(), static_cast<int>(n));
    }
}

void bind_stack(nb::module_& m) {
    nb::class_<Stack>(m, "Stack")
        .def("learn", &learn_said, "said"_a, "targets"_a, "weights"_a, nb::kw_only(), "has_labels"_a)
        .def(
            "links",
            [](const Stack& s, Matrix one) {
                std::vector<double> out(one.size());
                for (std::size_t i = 0; i < one.shape(0); i++)
                    s.links_of(one.data() + i * one.shape(1), static_cast<int>(one.shape(1)), &out[i * one.shape(1)]);
                return new_array(std::move(out), {one.shape(0), one.shape(1)});
            },
            "probabilities"_a)
        .def("restart", &Stack::restart, "member"_a)
        .def("arrays",
             [](Stack& s) {
                 Saver saver;
                 s.visit(saver);
                 return saver.arrays;
             })
        .def(
            "restore",
            [](Stack& s, nb::dict arrays) {
                Loader loader(arrays);
                Stack loaded(s.n_members, s.rates);
                loaded.visit(loader);
                loader.finish();
                if (!loaded.is_sound()) throw nb::value_error("the weights of the members are not sound");
                std::swap(s, loaded);
            },
            "arrays"_a)
        .def_prop_ro("weights", [](const Stack& s) { return copied_array(s.weights.data(), s.weights.size()); })
        .def_prop_ro("shares",
                     [](const Stack& s) {
                         std::vector<double> shares = s.shares();
                         const std::size_t n = shares.size();
                         return new_array(std::move(shares), {n});
                     })
        .def_prop_ro("losses", [](const Stack& s) { return copied_array(s.losses.data(), s.losses.size()); })
        .def_prop_ro("agreement", [](const Stack& s) { return copied_array(s.agreement.data(), s.agreement.size()); })
        .def_prop_ro("rows", [](const Stack& s) { return copied_array(s.rows.data(), s.rows.size()); });
}

}  // namespace

void bind_forest(nb::module_& m) {
    using Kind = Forest::Kind;
    bind_stack(m);
    nb::class_<BoundForest>(m, "Forest")
        .def(
            "__init__",
            [](BoundForest* self, int n_members, double window, double prior, double most_step, double mixed, double clear,
               double most_deviations) {
                if (n_members < 1) throw nb::value_error("there must be a member");
                new (self) BoundForest(n_members, Stack::Rates{window, prior, most_step, mixed, clear}, most_deviations);
            },
            "n_members"_a, nb::kw_only(), "window"_a, "prior"_a, "most_step"_a, "mixed"_a, "clear"_a, "most_deviations"_a)
        .def("set_member", &set_member, "place"_a, "engine"_a, "sources"_a, "ends"_a, "slopes"_a)
        .def("reading", &hold<BoundForest, false>, nb::rv_policy::take_ownership)
        .def("writing", &hold<BoundForest, true>, nb::rv_policy::take_ownership)
        .def("learn", &learn_rows, "X"_a, "targets"_a, "weights"_a, "sparse"_a.none(), "wholes"_a.none(), "decide"_a)
        .def_prop_ro("said", &said_by_members)
        .def("log_odds", &predict_rows<Kind::log_odds>, "X"_a, "sparse"_a.none() = nb::none())
        .def("probabilities", &predict_rows<Kind::probabilities>, "X"_a, "sparse"_a.none() = nb::none())
        .def("numbers", &predict_rows<Kind::numbers>, "X"_a, "sparse"_a.none() = nb::none())
        .def("rows_of", &rows_of, "member"_a, "X"_a)
        .def("learn_row", &learn_row, nb::arg(), nb::arg().none(), nb::arg().none(), nb::arg() = 1.0)
        .def("predict_row", &predict_one, nb::arg(), nb::arg().none())
        .def("probabilities_row", &probabilities_one, nb::arg(), nb::arg().none())
        .def_prop_ro(
            "stack", [](BoundForest& f) -> Stack& { return f.stack; }, nb::rv_policy::reference_internal)
        .def_prop_ro("has_due", reading<BoundForest>([](const BoundForest& f) { return f.has_due(); }))
        .def_prop_rw(
            "scale",
            [](const BoundForest& f) {
                std::vector<double> scale = f.scale();
                const std::size_t n = scale.size();
                return new_array(std::move(scale), {n});
            },
            [](BoundForest& f, Doubles scale) {
                const Writing turn(f);
                f.set_scale(scale.data(), scale.size() / 2);
            })
        .def_rw("wake_at", &BoundForest::wake_at)
        .def_prop_rw(
            "n_threads", [](const BoundForest& f) { return f.n_threads.load(); },
            [](BoundForest& f, int n) { f.n_threads = n; })
        .def("memory_usage", &BoundForest::scratch_bytes);
}

}  // namespace driftree
