// SparseNames: what sparse features are called. Rows bring names that are other objects each time, and there are more of them than
// a cache holds: a dict of Python's goes to memory four times for each, one after the other. Here it is once for a short text, and
// for all names of a row at the same time.
#pragma once
#include <nanobind/nanobind.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace driftree {

namespace nb = nanobind;

constexpr Py_ssize_t kMostNameLength = 1000;

class SparseNames {
public:
    nb::list names;  // by id; None: free

    int n() const { return n_; }
    int n_places_with(int n_more) const { return std::max(n_places(), n() + n_more); }
    int n_places() const { return static_cast<int>(PyList_GET_SIZE(names.ptr())); }
    int find(PyObject* name) const {
        const Place* place = place_of(name);
        return place ? place->id : -1;
    }
    // The same for the i-th name of a row. Who predicts a row mostly learns it next: a name that is the same object as in the
    // row before is not looked for again.
    int find(PyObject* name, std::size_t i) {
        if (is_last(name, i)) return last_[i].second;
        const int id = find(name);
        if (id < 0 || i > last_.size()) return id;
        if (i == last_.size()) last_.emplace_back();
        // What was there goes last: its end may run code that asks for names.
        const auto before = std::exchange(last_[i], {nb::borrow(name), id});
        return id;
    }
    // Lets the place of a text come from memory that will be looked for, while other names are read; false: it will not.
    bool fetch(PyObject* name, std::size_t i) const {
        if (places_.empty() || is_last(name, i)) return false;
        if (PyUnicode_CheckExact(name)) __builtin_prefetch(places_.data() + first(PyObject_Hash(name)));
        return true;
    }
    int add(PyObject* name) {
        const int id = free_.empty() ? n_places() : free_.back();
        if (free_.empty()) names.append(nb::none());
        put(name, id);
        names[id] = nb::handle(name);
        if (!free_.empty()) free_.pop_back();
        return id;
    }
    void remove(int id) {
        free_.reserve(free_.size() + 1);
        const auto before = std::exchange(last_, {});
        const nb::object name = names[id];
        names[id] = nb::none();
        if (Place* place = const_cast<Place*>(place_of(name.ptr()))) place->name = nullptr, n_--;
        free_.push_back(id);
    }
    // Takes over those of another model: a list by id, in which None is free.
    void restore(const nb::list& given) {
        SparseNames fresh;
        for (const nb::handle name : given) {
            const int id = fresh.n_places();
            fresh.names.append(name);
            if (name.is_none()) {
                fresh.free_.push_back(id);
            } else if (fresh.find(name.ptr()) >= 0) {
                throw nb::value_error("two sparse features have the same name");
            } else {
                fresh.put(name.ptr(), id);
            }
        }
        std::reverse(fresh.free_.begin(), fresh.free_.end());
        std::swap(*this, fresh);
    }

private:
    struct Text {                 // short, and in ASCII
        std::uint8_t length = 0;  // 0: it is not
        char characters[19];
        Text() = default;
        explicit Text(PyObject* name) {
            if (!PyUnicode_CheckExact(name) || !PyUnicode_IS_COMPACT_ASCII(name)) return;
            const Py_ssize_t n = PyUnicode_GET_LENGTH(name);
            if (n > static_cast<Py_ssize_t>(sizeof characters)) return;
            length = static_cast<std::uint8_t>(n);
            std::copy_n(static_cast<const char*>(PyUnicode_DATA(name)), n, characters);
        }
        bool operator==(const Text& other) const {
            return length == other.length && std::equal(characters, characters + length, other.characters);
        }
    };
    struct Place {
        Py_hash_t hash = 0;
        PyObject* name = nullptr;  // that `names` holds; none, but with an id: one that was removed
        std::int32_t id = -1;
        Text text;
    };
    std::size_t first(Py_hash_t hash) const {
        return (static_cast<std::uint64_t>(hash) * 0x9E3779B97F4A7C15ull >> 32) & (places_.size() - 1);
    }
    bool is_last(PyObject* name, std::size_t i) const { return i < last_.size() && last_[i].first.ptr() == name; }
    // A comparison may run code of a name. Whoever asks has the model's turn, and places change only in a turn of their own:
    // a closed one inside of which nobody can learn (turns.hpp).
    const Place* place_of(PyObject* name) const {
        const Py_hash_t hash = PyObject_Hash(name);
        if (hash == -1) PyErr_Clear();
        if (hash == -1 || places_.empty()) return nullptr;
        const Text text(name);
        for (std::size_t at = first(hash);; at = at + 1) {
            const Place& place = places_[at & (places_.size() - 1)];
            if (place.id < 0) return nullptr;
            if (place.hash != hash || !place.name) continue;
            if (place.name == name || (text.length > 0 && text == place.text)) return &place;
            const int is_equal = PyObject_RichCompareBool(place.name, name, Py_EQ);
            if (is_equal == 1) return &place;
            if (is_equal < 0) nb::raise_python_error();
        }
    }
    void put(PyObject* name, int id) {
        const Py_hash_t hash = PyObject_Hash(name);
        if (hash == -1) nb::raise_python_error();
        if (2 * (n_used_ + 1) > places_.size()) make_places(std::bit_ceil(std::max<std::size_t>(4 * (n_ + 1), 16)));
        std::size_t at = first(hash);
        while (places_[at].id >= 0) at = (at + 1) & (places_.size() - 1);
        places_[at] = {hash, name, id, Text(name)};
        n_used_++;
        n_++;
    }
    // Makes places for more, and forgets those of names that were removed.
    void make_places(std::size_t size) {
        std::vector<Place> old(size);
        old.swap(places_);
        n_used_ = 0;
        for (const Place& place : old) {
            if (!place.name) continue;
            std::size_t at = first(place.hash);
            while (places_[at].id >= 0) at = (at + 1) & (size - 1);
            places_[at] = place;
            n_used_++;
        }
    }
    std::vector<Place> places_;  // a power of two, at most half of them used
    std::size_t n_used_ = 0;     // by names that are there, or were
    int n_ = 0;
    std::vector<std::int32_t> free_;
    std::vector<std::pair<nb::object, std::int32_t>> last_;  // names of the row before, as far as they are known, and ids
};

}  // namespace driftree
