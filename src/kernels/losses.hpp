// Losses: from the linear predictors and the target of a row, the loss, its slope and its curvature; how a prediction is
// computed from the predictors, and how many predictors there are.
//
// A loss is a header and an entry in this list. A loss with a single predictor has `Lanes`, eight rows at a time; one whose
// predictors depend on each other has `slope`, one row at a time (`kIsJoint`). Its own learnt state is in LossState.
#pragma once
#include "asked.hpp"
#include "gaussian.hpp"
#include "logit.hpp"
#include "poisson.hpp"
#include "quantile.hpp"
#include "softmax.hpp"
#include "student.hpp"

#define DRIFTREE_LOSSES(each) \
    each(Logit) each(Softmax) each(Gaussian) each(Student) each(Poisson) each(Quantile) each(Asked) each(AskedLog)

namespace driftree {

#define DRIFTREE_KIND(Loss) k##Loss,
enum LossKind { DRIFTREE_LOSSES(DRIFTREE_KIND) kLosses };
#undef DRIFTREE_KIND

namespace {

// The functions of a loss outside the hot loops, compiled once for every machine.
struct LossRules {
    const char* name;
    bool has_labels;    // the target is a label; otherwise a number
    bool has_log_link;  // the predictor is the logarithm of a number
    bool is_asked;      // a custom loss in Python
    int (*outputs)(int n_classes);
    void (*read)(const LossState&, const double* predictors, int n_classes, double* probabilities);
    int (*clear_choice)(const LossState&, const double* predictors, int n_classes);
    double (*loss)(const LossState&, double* predictors, int n, double target, const double* levels);
    // For losses with intervals: the two ends at a reach, and the error of a row as a reach. nullptr: the loss has no
    // intervals, or the error follows from `interval`.
    void (*interval)(const LossState&, const double* predictors, double reach, double* out);
    double (*error)(const LearntRow&);
};
// The loss of a row. Overwrites the predictors [n, padded to whole vectors].
template <class Loss>
double loss_of(const LossState& state, double* predictors, int n, double target, const double* levels) {
    if constexpr (Loss::kIsAsked) {
        return 0.0;  // only the user's functions know it
    } else if constexpr (requires { Loss::loss_of(state, predictors[0], target); }) {
        return Loss::loss_of(state, predictors[0], target);
    } else if constexpr (Loss::kIsJoint) {
        const auto slope = Loss::slope(predictors, n, target, state, levels);
        return std::log(slope.ratio) + slope.hinge;
    } else {
        typename Loss::Lanes lanes;
        lanes.set_state(0, state);
        return lanes.slopes(all(predictors[0]), all(target)).loss()[0];
    }
}
template <class Loss>
constexpr auto interval_of() -> decltype(LossRules::interval) {
    if constexpr (requires { &Loss::interval; }) return Loss::interval;
    return nullptr;
}
template <class Loss>
constexpr auto error_of() -> decltype(LossRules::error) {
    if constexpr (requires { &Loss::error; }) return Loss::error;
    return nullptr;
}
template <class Loss>
constexpr LossRules rules_of = {Loss::kName, Loss::kHasLabels,   Loss::kHasLogLink, Loss::kIsAsked,      Loss::outputs,
                                Loss::read,  Loss::clear_choice, loss_of<Loss>,     interval_of<Loss>(), error_of<Loss>()};

inline const LossRules& rules(LossKind kind) {
#define DRIFTREE_RULES(Loss) rules_of<Loss>,
    static constexpr LossRules all_rules[] = {DRIFTREE_LOSSES(DRIFTREE_RULES)};
#undef DRIFTREE_RULES
    return all_rules[kind];
}

// Two labels have a logit, more a softmax.
inline LossKind loss_of_classes(int n_classes) { return n_classes > 2 ? kSoftmax : kLogit; }

}  // namespace
}  // namespace driftree
