// Python bindings of FIMT-DD's engine: see src/driftree/learn/_kernels.pyi.
#include "binding_rows.hpp"
#include "fimtdd.hpp"

namespace driftree {

namespace {

int checked_leaf(const FimtddTree& engine, int node) {
    if (!engine.nodes[checked_node(engine, node)].is_leaf()) throw nb::index_error("the node is no leaf");
    return node;
}

nb::list best_splits(const FimtddTree& engine, int leaf) {
    const Reading lock(engine);
    nb::list out;
    for (const SplitPoint& p : engine.best_splits(checked_leaf(engine, leaf)))
        out.append(nb::make_tuple(p.reduction, p.condition.feature, p.condition.threshold, p.condition.equality != 0,
                                  p.condition.missing_left != 0));
    return out;
}

nb::tuple split_points(const FimtddTree& engine, int leaf, int feature) {
    const Reading lock(engine);
    if (feature < 0 || feature >= engine.table->n_features()) throw nb::index_error("there is no such feature");
    const SplitPoints& points = engine.split_points[checked_leaf(engine, leaf)];
    std::vector<double> keys, counts;
    points.walk(feature, [&](double key, const double* left) {
        keys.push_back(key);
        counts.insert(counts.end(), left, left + points.n_classes);
    });
    const std::size_t n = keys.size(), classes = points.n_classes;
    return nb::make_tuple(new_array(std::move(keys), {n}), new_array(std::move(counts), {n, classes}));
}

void split(FimtddTree& engine, int leaf, int feature, double threshold, bool equality, bool missing_left) {
    const Writing lock(engine);
    if (feature < 0 || feature >= engine.table->n_features()) throw nb::index_error("there is no such feature");
    engine.split(checked_leaf(engine, leaf), {feature, threshold, equality, missing_left});
}

void delete_branch(FimtddTree& engine, int node) {
    const Writing lock(engine);
    engine.delete_branch(checked_node(engine, node));
}

nb::object page_hinkley(Doubles errors, double tolerance) {
    double n = 0.0, mean = 0.0, sum = 0.0, least = 0.0;
    std::vector<double> out(errors.shape(0));
    for (std::size_t i = 0; i < out.size(); i++) {
        page_hinkley_step(errors.data()[i], 1.0, tolerance, n, mean, sum, least);
        out[i] = sum - least;
    }
    const std::size_t size = out.size();
    return new_array(std::move(out), {size});
}

}  // namespace

void bind_fimtdd(nb::module_& m) {
    using Engine = FimtddTree;
    m.attr("MAX_KEYS") = static_cast<int>(SplitPoints::kMaxKeys);
    m.def("page_hinkley", &page_hinkley, "errors"_a, "tolerance"_a);
    auto engine = nb::class_<Engine>(m, "FimtddEngine");
    engine
        .def(
            "__init__",
            [](Engine* self, int n_classes, double learning_rate, double grace_period, double drift_tolerance,
               double drift_threshold, double drift_rows, int max_nodes, bool has_labels) {
                new (self) Engine(
                    {{learning_rate}, grace_period, drift_tolerance, drift_threshold, drift_rows, max_nodes, has_labels},
                    n_classes);
            },
            "n_classes"_a, nb::kw_only(), "learning_rate"_a, "grace_period"_a, "drift_tolerance"_a, "drift_threshold"_a,
            "drift_rows"_a, "max_nodes"_a, "has_labels"_a = true)
        .def("numbers", &numbers<Engine>, "X"_a, "sparse"_a = nullptr)
        .def_prop_ro("has_log_link", reading<Engine>([](const Engine& e) { return e.target.has_log_link; }))
        .def_prop_ro("target_shift", reading<Engine>([](const Engine& e) { return e.target.shift; }))
        .def_prop_ro("has_level", reading<Engine>([](const Engine& e) { return e.target.has_level != 0; }))
        .def_prop_ro("level", reading<Engine>([](const Engine& e) { return copied_array(e.target.level, 0); }))
        .def_prop_ro("target_scale", reading<Engine>([](const Engine& e) { return e.target.told_scale(); }))
        .def("best_splits", &best_splits, "leaf"_a)
        .def("split_points", &split_points, "leaf"_a, "feature"_a)
        .def("split", &split, "leaf"_a, "feature"_a, "threshold"_a, "equality"_a, "missing_left"_a)
        .def("delete_branch", &delete_branch, "node"_a)
        // clang-format off
        RECORD_COLUMN("error_mean", error_mean) RECORD_COLUMN("error_sum", error_sum) RECORD_COLUMN("least_sum", least_sum);
    // clang-format on
    bind_common(engine);
    bind_row_face<Engine>(m, "FimtddRowFace");
}

}  // namespace driftree
