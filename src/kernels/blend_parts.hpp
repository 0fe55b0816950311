// Layout of a blend: two weights and a sum of squared gradients per input and output, and Newton's matrix.
#pragma once
#include <cstddef>

#include "simple_models.hpp"

namespace driftree {

struct BlendParts {
    BlendState* state;
    double *adagrad, *squares, *newton;  // [outputs, stride]
    double* matrix;                      // [stride, stride]; nullptr if
    float* single_matrix;                // it is in single precision
    BlendParts() = default;
    BlendParts(const Shape& s, const ModelMemory& model)
        : state(model.blend), adagrad(model.numbers), squares(adagrad + s.size()), newton(squares + s.size()),
          matrix(model.singles ? nullptr : newton + s.size()), single_matrix(model.singles) {}
    // Calls use(matrix) with the matrix that there is.
    template <class Use>
    auto with_matrix(Use&& use) const {
        return single_matrix ? use(single_matrix) : use(matrix);
    }
    double cell(const Shape& s, int row, int column) const {
        const long place = static_cast<long>(row) * s.stride + column;
        return single_matrix ? static_cast<double>(single_matrix[place]) : matrix[place];
    }
    static std::size_t weights(const Shape& s) { return 3 * static_cast<std::size_t>(s.size()); }
    static std::size_t cells(const Shape& s) { return static_cast<std::size_t>(s.stride) * s.stride; }
};

}  // namespace driftree
