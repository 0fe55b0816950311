// Chooses among the instruction sets that were built.
#include <cstdlib>
#include <stdexcept>
#include <string_view>

#include "tree.hpp"

namespace driftree {

std::vector<const Functions*> all_functions() {
    std::vector<const Functions*> found = {&baseline_functions};
#ifdef DRIFTREE_X86
    __builtin_cpu_init();
    if (__builtin_cpu_supports("x86-64-v3")) found.push_back(&avx2_functions);
    if (__builtin_cpu_supports("x86-64-v4")) found.push_back(&avx512_functions);
#endif
    return found;
}

const Functions& choose_functions() {
    const char* wish = std::getenv("DRIFTREE_ISA");
    const std::vector<const Functions*> found = all_functions();
    if (!wish || !*wish) return *found.back();
    for (const Functions* functions : found)
        if (std::string_view(functions->name) == wish) return *functions;
    throw std::invalid_argument("DRIFTREE_ISA must be baseline, avx2 or avx512, and this machine must have it");
}

}  // namespace driftree
