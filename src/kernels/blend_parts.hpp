// Layout of a blend: two weights and a sum of squared gradients per input and output, and Newton's matrix.
#pragma once
#include <cstddef>

#include "simple_models.hpp"

namespace driftree {

struct BlendParts {
    BlendState* state;
    double *adagrad, *squares, *newton;  // [outputs, stride]
    double* matrix;                      // [stride, stride]
    BlendParts() = default;
    BlendParts(const Shape& s, const ModelMemory& model)
        : state(model.blend), adagrad(model.numbers), squares(adagrad + s.size()), newton(squares + s.size()),
          matrix(newton + s.size()) {}
    static std::size_t size(const Shape& s) {
        return 3 * static_cast<std::size_t>(s.size()) + static_cast<std::size_t>(s.stride) * s.stride;
    }
};

}  // namespace driftree
