// StoredArrays: the arrays of a model file or a pickle as they lie in its bytes. Nothing is copied, and nothing is made
// for an array before somebody asks for it: a small model has a hundred of them.
#pragma once
#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace driftree {

namespace nb = nanobind;

enum class Type : std::uint8_t { kF32, kF64, kI32, kI64, kU8, kNone };

template <class T>
constexpr Type type_of() {
    if (std::is_same_v<T, float>) return Type::kF32;
    if (std::is_same_v<T, double>) return Type::kF64;
    if (std::is_same_v<T, std::int32_t>) return Type::kI32;
    if (std::is_same_v<T, std::int64_t>) return Type::kI64;
    return std::is_same_v<T, std::uint8_t> ? Type::kU8 : Type::kNone;
}

// The numbers of an array, by the buffer protocol: nanobind would ask for DLPack, which calls Python for each array.
class View {
public:
    explicit View(PyObject* array) : is_held_(PyObject_GetBuffer(array, &buffer_, PyBUF_ND | PyBUF_FORMAT) == 0) {
        if (!is_held_) PyErr_Clear();
    }
    ~View() {
        if (is_held_) PyBuffer_Release(&buffer_);
    }
    View(const View&) = delete;
    View& operator=(const View&) = delete;
    // Whether it is one row of such numbers, in the byte order of this machine.
    template <class T>
    bool holds() const {
        if (!is_held_ || buffer_.ndim != 1 || buffer_.itemsize != sizeof(T)) return false;
        const std::string_view format = buffer_.format ? buffer_.format : "B";
        const std::string_view kinds = std::is_same_v<T, bool>       ? "?"
                                       : std::is_floating_point_v<T> ? "fd"
                                       : std::is_signed_v<T>         ? "bhilq"
                                                                     : "BHILQ";
        return format.size() == 1 && kinds.find(format[0]) != std::string_view::npos;
    }
    template <class T>
    const T* data() const {
        return static_cast<const T*>(buffer_.buf);
    }
    std::size_t size() const { return static_cast<std::size_t>(buffer_.shape[0]); }

private:
    Py_buffer buffer_;
    bool is_held_;
};

class StoredArrays {
public:
    struct Entry {
        std::string_view name;
        Type type = Type::kNone;
        const void* data = nullptr;
        std::size_t n = 0;
        std::size_t n_bytes() const;
    };
    StoredArrays() = default;
    StoredArrays(const StoredArrays&) = delete;
    StoredArrays& operator=(const StoredArrays&) = delete;

    // Reads what a header says of tensors, from `begin` to `end` of a file. The tensors "short.f64", ... are arrays of one
    // number each, whose names are in `singles`, {type: [name]}; those in `empty` have none. Says whether all is as we
    // write it: one dimension each, one behind the other until the end of the file, under different and plain names.
    // Whatever is not, Python looks at, and has words for.
    bool read(nb::bytes file, std::size_t begin, std::size_t end, nb::handle singles, nb::handle empty);

    // Reads what `pack_arrays` returned; says whether these are such bytes.
    bool unpack(nb::bytes packed);

    // Becomes those of others whose names do not begin with any of these; `owner` keeps the others. Says whether some do.
    bool take_without(const StoredArrays& others, const nb::list& starts, nb::object owner);

    // Becomes those of others whose names begin so, by the rest of their names.
    void take_under(const StoredArrays& others, std::string_view start, nb::object owner);

    const Entry* find(std::string_view name) const;
    std::size_t size() const { return entries_.size(); }
    std::size_t n_bytes() const;
    nb::list names() const;

private:
    bool read_tensors(std::string_view header, std::string_view body);
    bool add_singles(Type type, std::string_view tensor, nb::handle names);
    bool add_names(nb::handle names, Entry entry, std::size_t step);
    bool index();  // makes them known by name; false if two have the same

    nb::object owner_;                  // whose bytes the tensors and their names are
    std::string names_;                 // of the others, one behind the other
    std::vector<Entry> entries_;        // in any order
    std::vector<std::uint16_t> slots_;  // a hash table: their places plus one, 0 is none
};

void bind_stored_arrays(nb::module_& m);

}  // namespace driftree
