// PythonLoss: calls the functions of a custom loss (learn/losses.py), in the user's units and holding the GIL.
#pragma once
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "asked.hpp"
#include "binding_rows.hpp"
#include "target.hpp"

namespace driftree {

class PythonLoss final : public AskedLoss {
public:
    PythonLoss(nb::object loss, const NumberTarget& target)
        : ask_(loss.attr("ask")), refuse_(loss.attr("refuse")), target_(target) {}
    ~PythonLoss() {
        const nb::gil_scoped_acquire lock;
        ask_.reset();
        refuse_.reset();
    }
    Columns room(int n) override {
        if (numbers_.size() < kColumns * static_cast<std::size_t>(n))
            numbers_.resize(kColumns * static_cast<std::size_t>(n));
        const auto column = [&](int k) { return numbers_.data() + static_cast<long>(k) * n; };
        return {column(0), column(1), column(2), column(3), column(4), column(5)};
    }
    // With a log link, the curvature is the larger of those here and at the target itself: otherwise steps would be too
    // long.
    void ask(int n) override {
        const nb::gil_scoped_acquire lock;
        const Columns rows = room(n);
        const bool is_log = target_.has_log_link;
        const std::size_t size = n;
        std::vector<double> y(size), predictors(size), perfect(is_log ? size : 0);
        for (std::size_t i = 0; i < size; i++) {
            y[i] = target_.unscaled(rows.target[i]);
            predictors[i] = predictor_of(rows.predictor[i]);
            if (is_log) perfect[i] = predictor_of(rows.target[i] > 0.0 ? std::log(rows.target[i]) : -Poisson::kMost);
        }
        const nb::object targets = new_array(std::move(y), {size}), given = new_array(std::move(predictors), {size});
        const nb::object answers =
            ask_(targets, given, is_log ? new_array(std::move(perfect), {size}) : nb::object(nb::none()));
        const auto found = nb::cast<Matrix>(answers);
        const double* loss = found.data();
        const double *slope = loss + size, *curvature = slope + size,
                     *there = found.shape(0) > 3 ? curvature + size : nullptr;
        const double unit = target_.unit, step = is_log ? 1.0 : target_.scale;
        for (std::size_t i = 0; i < size; i++) {
            const double here = curvature[i], most = there ? std::max(here, there[i]) : here;
            const bool is_sound = loss[i] >= -1e-6 * unit && std::isfinite(loss[i]) && std::isfinite(slope[i]) &&
                                  here > 0.0 && std::isfinite(most);
            if (!is_sound) refuse_(targets, given, answers, i);
            rows.loss[i] = loss[i] / unit;
            rows.slope[i] = slope[i] * step / unit;
            rows.curvature[i] = most * step * step / unit;
            rows.spread[i] = slope[i] * slope[i] / here / unit;
        }
    }
    double variance_power() const override { return target_.power; }

private:
    static constexpr int kColumns = 6;
    double predictor_of(double p) const {
        if (!target_.has_log_link) return target_.unscaled(p);
        return std::log(target_.scale) + std::clamp(p, -Poisson::kMost, Poisson::kMost);
    }
    nb::object ask_, refuse_;
    const NumberTarget& target_;
    std::vector<double> numbers_;
};

}  // namespace driftree
