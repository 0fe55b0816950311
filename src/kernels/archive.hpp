// Archives: one walk over the engine's state (Engine::visit) serves copying out, copying in and measuring.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

namespace driftree {

namespace nb = nanobind;

template <class T>
nb::object copied_array(const T* data, std::size_t n) {
    T* copy = new T[n];
    std::copy_n(data, n, copy);
    nb::capsule owner(copy, [](void* memory) noexcept { delete[] static_cast<T*>(memory); });
    return nb::cast(nb::ndarray<nb::numpy, T, nb::ndim<1>>(copy, {n}, owner));
}

// Engine -> {name: array}
class Saver {
public:
    nb::dict arrays;
    template <class T, class Allocator>
    void operator()(const std::string& name, std::vector<T, Allocator>& values) {
        arrays[(prefix_ + name).c_str()] = copied_array(values.data(), values.size());
    }
    template <class T>
        requires std::is_arithmetic_v<T>
    void operator()(const std::string& name, T& value) {
        arrays[(prefix_ + name).c_str()] = copied_array(&value, 1);
    }
    void fixed(bool) {}
    template <class T, class Each>
    void each(const std::string& name, std::vector<T>& items, Each&& each) {
        std::int64_t n = static_cast<std::int64_t>(items.size());
        (*this)("n_" + name, n);
        for (std::size_t i = 0; i < items.size(); i++) {
            prefix_ = name + "/" + std::to_string(i) + "/";
            each(*this, items[i]);
        }
        prefix_.clear();
    }

private:
    std::string prefix_;
};

// {name: array} -> Engine
class Loader {
public:
    explicit Loader(nb::dict arrays) : arrays_(std::move(arrays)) {}
    template <class T, class Allocator>
    void operator()(const std::string& name, std::vector<T, Allocator>& values) {
        const auto array = nb::cast<nb::ndarray<nb::numpy, const T, nb::ndim<1>, nb::c_contig>>(find(prefix_ + name));
        if (is_fixed_ && array.shape(0) != values.size()) throw std::invalid_argument("'" + name + "' has a wrong length");
        values.assign(array.data(), array.data() + array.shape(0));
    }
    template <class T>
        requires std::is_arithmetic_v<T>
    void operator()(const std::string& name, T& value) {
        const auto array = nb::cast<nb::ndarray<nb::numpy, const T, nb::ndim<1>, nb::c_contig>>(find(prefix_ + name));
        if (array.shape(0) != 1) throw std::invalid_argument("'" + name + "' must hold one value");
        value = array.data()[0];
    }
    // Python holds views of the arrays visited meanwhile: they must keep their length, and so their place.
    void fixed(bool is_fixed) { is_fixed_ = is_fixed; }
    template <class T, class Each>
    void each(const std::string& name, std::vector<T>& items, Each&& each) {
        std::int64_t n = 0;
        (*this)("n_" + name, n);
        items.resize(static_cast<std::size_t>(n));
        for (std::size_t i = 0; i < items.size(); i++) {
            prefix_ = name + "/" + std::to_string(i) + "/";
            each(*this, items[i]);
        }
        prefix_.clear();
    }

private:
    nb::handle find(const std::string& name) const {
        PyObject* found = PyDict_GetItemString(arrays_.ptr(), name.c_str());
        if (!found) throw std::invalid_argument("the state lacks '" + name + "'");
        return found;
    }
    nb::dict arrays_;
    std::string prefix_;
    bool is_fixed_ = false;
};

// Bytes held.
class Sizer {
public:
    std::size_t bytes = 0;
    template <class T, class Allocator>
    void operator()(const std::string&, std::vector<T, Allocator>& values) {
        bytes += values.capacity() * sizeof(T);
    }
    template <class T>
        requires std::is_arithmetic_v<T>
    void operator()(const std::string&, T&) {
        bytes += sizeof(T);
    }
    void fixed(bool) {}
    template <class T, class Each>
    void each(const std::string&, std::vector<T>& items, Each&& each) {
        bytes += items.capacity() * sizeof(T);
        for (T& item : items) each(*this, item);
    }
};

}  // namespace driftree
