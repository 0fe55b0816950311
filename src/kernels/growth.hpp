// Growth: what is new in a batch: features, levels, missing values, classes. It is added completely or not at all.
#pragma once
#include <cstddef>
#include <stdexcept>
#include <utility>
#include <vector>

#include "table.hpp"

namespace driftree {

struct Growth {
    std::vector<std::pair<bool, bool>> features;    // whether it is categorical; whether it has an input for its value
    std::vector<std::pair<int, bool>> categorical;  // numeric features that turn categorical; whether they keep the input
    std::vector<std::pair<int, int>> levels;        // feature, code
    std::vector<int> missing;                       // features
    int n_classes = 0;
};

template <class Engine>
void grow(Engine& engine, const Growth& growth) {
    const Schema& schema = engine.schema();
    const int n_features = schema.n_features + static_cast<int>(growth.features.size());
    const auto check = [&](int feature) {
        if (feature < 0 || feature >= n_features) throw std::invalid_argument("there is no such feature");
    };
    for (const auto& [feature, keeps] : growth.categorical) check(feature);
    for (const int feature : growth.missing) check(feature);
    for (const auto& [feature, code] : growth.levels) {
        check(feature);
        if (code < 0 || code >= kLevels) throw std::invalid_argument("there is no such level");
    }
    std::size_t n_columns = growth.levels.size() + growth.missing.size();
    for (const auto& [is_categorical, has_value] : growth.features) n_columns += has_value;
    engine.prepare(static_cast<int>(growth.features.size()), static_cast<int>(n_columns), growth.n_classes);
    // From here on nothing can fail.
    engine.set_classes(growth.n_classes);
    for (const auto& [is_categorical, has_value] : growth.features) engine.add_feature(is_categorical, has_value);
    for (const auto& [feature, keeps] : growth.categorical) engine.make_categorical(feature, keeps);
    for (const auto& [feature, code] : growth.levels)
        if (schema.level_column[static_cast<std::size_t>(feature) * kLevels + code] < 0) engine.add_level(feature, code);
    for (const int feature : growth.missing)
        if (schema.missing_column[feature] < 0) engine.add_missing(feature);
}

}  // namespace driftree
