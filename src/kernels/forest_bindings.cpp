// The typed face of what a forest needs: see src/driftree/learn/_kernels.pyi.
#include "binding_rows.hpp"
#include "stack.hpp"

namespace driftree {

namespace {

// Probabilities or numbers of all members, of one shape.
struct Members {
    Members(const Stack& stack, const std::vector<Matrix>& given) {
        if (std::ssize(given) != stack.n_members) throw nb::value_error("there must be one array for each member");
        n = given[0].shape(0);
        width = given[0].shape(1);
        for (const Matrix& one : given) {
            if (one.shape(0) != n || one.shape(1) != width) throw nb::value_error("the arrays must have the same shape");
            data.push_back(one.data());
        }
    }
    std::vector<const double*> data;
    std::size_t n, width;
};

// Log-odds of all together [rows, classes], or probabilities.
nb::object log_odds(const Stack& stack, const std::vector<Matrix>& given, bool as_probabilities) {
    const Members members(stack, given);
    const int n_classes = static_cast<int>(members.width);
    std::vector<double> out(members.n * members.width), links(stack.n_members * members.width);
    for (std::size_t i = 0; i < members.n; i++) {
        for (int m = 0; m < stack.n_members; m++)
            stack.links_of(members.data[m] + i * members.width, n_classes, &links[m * members.width]);
        stack.add_up(links.data(), n_classes, &out[i * members.width]);
        if (as_probabilities) Stack::to_probabilities(&out[i * members.width], n_classes);
    }
    return new_array(std::move(out), {members.n, members.width});
}

void check_rows_of(const Members& members, const Doubles& targets, const Doubles& weights) {
    if (targets.shape(0) != members.n || weights.shape(0) != members.n)
        throw nb::value_error("rows, targets and weights must have the same length");
}

// Rows of a member: the features in the order of `sources`, and where these are negative the hinge -1 - source.
nb::object with_pairs(Matrix X, Codes sources, Codes ends, Doubles slopes, Doubles scale) {
    const std::size_t n = X.shape(0), m = X.shape(1), width = sources.shape(0), n_pairs = ends.shape(0) / 2;
    if (slopes.shape(0) != 3 * n_pairs || scale.shape(0) % 2) throw nb::value_error("a pair has two ends and three slopes");
    const std::size_t n_scaled = scale.shape(0) / 2;
    for (std::size_t i = 0; i < 2 * n_pairs; i++)
        if (ends.data()[i] < 0 || static_cast<std::size_t>(ends.data()[i]) >= std::min(m, n_scaled))
            throw nb::value_error("there is no such end of a pair");
    for (std::size_t c = 0; c < width; c++) {
        const int source = sources.data()[c];
        if (source >= static_cast<int>(m) || -1 - source >= static_cast<int>(n_pairs))
            throw nb::value_error("there is no such source");
    }
    std::vector<double> out(n * width), hinges(n_pairs);
    const double most = 3.0;
    for (std::size_t i = 0; i < n; i++) {
        const double* x = X.data() + i * m;
        const auto scaled = [&](int j) {
            const double z = (x[j] - scale.data()[2 * j]) * scale.data()[2 * j + 1];
            return std::isnan(z) ? 0.0 : std::clamp(z, -most, most);
        };
        for (std::size_t p = 0; p < n_pairs; p++) {
            const double* slope = slopes.data() + 3 * p;
            const std::int32_t* end = ends.data() + 2 * p;
            hinges[p] = std::max(0.0, slope[0] * scaled(end[0]) + slope[1] * scaled(end[1]) + slope[2]);
        }
        for (std::size_t c = 0; c < width; c++) {
            const int source = sources.data()[c];
            out[i * width + c] = source >= 0 ? x[source] : hinges[-1 - source];
        }
    }
    return new_array(std::move(out), {n, width});
}

}  // namespace

void bind_forest(nb::module_& m) {
    nb::class_<Stack>(m, "Stack")
        .def(
            "__init__",
            [](Stack* self, int n_members, double window, double prior, double most_step, double mixed, double clear) {
                if (n_members < 1) throw nb::value_error("there must be a member");
                new (self) Stack(n_members, {window, prior, most_step, mixed, clear});
            },
            "n_members"_a, nb::kw_only(), "window"_a, "prior"_a, "most_step"_a, "mixed"_a, "clear"_a)
        .def(
            "log_odds", [](const Stack& s, const std::vector<Matrix>& members) { return log_odds(s, members, false); },
            "members"_a)
        .def(
            "probabilities", [](const Stack& s, const std::vector<Matrix>& members) { return log_odds(s, members, true); },
            "members"_a)
        .def(
            "links",
            [](const Stack& s, Matrix one) {
                std::vector<double> out(one.size());
                for (std::size_t i = 0; i < one.shape(0); i++)
                    s.links_of(one.data() + i * one.shape(1), static_cast<int>(one.shape(1)), &out[i * one.shape(1)]);
                return new_array(std::move(out), {one.shape(0), one.shape(1)});
            },
            "probabilities"_a)
        .def(
            "learn_labels",
            [](Stack& s, const std::vector<Matrix>& given, Doubles codes, Doubles weights) {
                const Members members(s, given);
                check_rows_of(members, codes, weights);
                for (std::size_t i = 0; i < members.n; i++)
                    if (!(codes.data()[i] >= 0.0 && codes.data()[i] < static_cast<double>(members.width)))
                        throw nb::value_error("a label code is out of range");
                s.learn_labels(members.data, codes.data(), weights.data(), static_cast<int>(members.n),
                               static_cast<int>(members.width));
            },
            "members"_a, "codes"_a, "weights"_a)
        .def(
            "learn_numbers",
            [](Stack& s, const std::vector<Matrix>& given, Doubles targets, Doubles weights) {
                const Members members(s, given);
                check_rows_of(members, targets, weights);
                if (members.width != 1) throw nb::value_error("a member must tell one number for each row");
                s.learn_numbers(members.data, targets.data(), weights.data(), static_cast<int>(members.n));
            },
            "members"_a, "targets"_a, "weights"_a)
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
        .def_ro("rows", &Stack::rows);
    m.def("with_pairs", &with_pairs, "X"_a, "sources"_a, "ends"_a, "slopes"_a, "scale"_a);
}

}  // namespace driftree
