// StoredArrays: the arrays of a model file or a pickle, in place. Nothing is copied, and no object is created for an array
// before it is used: a small model has a hundred of them.
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

// The numbers of an array, by the buffer protocol: nanobind would use DLPack, which calls Python for each array.
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
    // Whether it is one-dimensional, of this type, in the byte order of this machine.
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

    // Reads the header of the tensors in `begin` to `end` of a file. The tensors "short.f64", ... hold arrays of one number
    // each, whose names are in `singles`, {type: [name]}; the arrays in `empty` have no numbers. Returns whether all is as
    // we write it: one dimension each, contiguous up to the end of the file, with distinct plain names. Everything else is
    // left to Python, which has error messages for it.
    bool read(nb::bytes file, std::size_t begin, std::size_t end, nb::handle singles, nb::handle empty);

    // Reads what `pack_arrays` returned; returns whether it is valid.
    bool unpack(nb::bytes packed);

    // Becomes the arrays of `others` whose names have none of these prefixes; `owner` keeps them alive. Returns whether any
    // name has one.
    bool take_without(const StoredArrays& others, const nb::list& starts, nb::object owner);

    // Becomes the arrays of `others` whose names have this prefix, without the prefix.
    void take_under(const StoredArrays& others, std::string_view start, nb::object owner);

    const Entry* find(std::string_view name) const;
    std::size_t size() const { return entries_.size(); }
    std::size_t n_bytes() const;
    nb::list names() const;

private:
    bool read_tensors(std::string_view header, std::string_view body);
    bool add_singles(Type type, std::string_view tensor, nb::handle names);
    bool add_names(nb::handle names, Entry entry, std::size_t step);
    bool index();  // builds the hash table; false if two names are equal

    nb::object owner_;                  // keeps the bytes of tensors and names alive
    std::string names_;                 // names of the other arrays, concatenated
    std::vector<Entry> entries_;        // in any order
    std::vector<std::uint16_t> slots_;  // hash table: index plus one; 0 is empty
};

void bind_stored_arrays(nb::module_& m);

}  // namespace driftree
