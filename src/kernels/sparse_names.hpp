// SparseNames: the names of sparse features. Names in rows are new objects each time, and there are more of them than a
// cache holds: a Python dict goes to memory four times per name, one after the other. Here it is once for a short text, and
// for all names of a row at the same time.
#pragma once
#include <nanobind/nanobind.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

namespace driftree {

namespace nb = nanobind;

constexpr Py_ssize_t kMostNameLength = 1000;

class SparseNames {
public:
    nb::list names;  // by id; None if free

    int n() const { return n_; }
    int n_places_with(int n_more) const { return std::max(n_places(), n() + n_more); }
    int n_places() const { return static_cast<int>(PyList_GET_SIZE(names.ptr())); }
    int find(PyObject* name) const {
        const Py_hash_t hash = PyObject_Hash(name);
        if (hash == -1) PyErr_Clear();
        return hash == -1 ? -1 : find(name, hash);
    }
    int find(PyObject* name, Py_hash_t hash) const {
        const Place* place = place_of(name, hash);
        return place ? place->id : -1;
    }
    // Prefetches the place of a name.
    void fetch(Py_hash_t hash) const {
        if (!places_.empty()) __builtin_prefetch(places_.data() + first(hash));
    }
    // Whether comparing a name runs no code of its own: text, integers, and tuples of text.
    static bool is_plain(PyObject* name) {
        if (PyUnicode_CheckExact(name) || PyLong_CheckExact(name)) return true;
        if (!PyTuple_CheckExact(name)) return false;
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(name); i++)
            if (!PyUnicode_CheckExact(PyTuple_GET_ITEM(name, i))) return false;
        return true;
    }
    bool are_plain() const { return are_plain_; }
    bool leaves_new() const { return leaves_new_; }
    void leave_new(bool leaves_new) { leaves_new_ = leaves_new; }
    std::int64_t n_changes() const { return n_changes_; }  // names added and removed
    int add(PyObject* name) {
        const int id = free_.empty() ? n_places() : free_.back();
        if (free_.empty()) names.append(nb::none());
        put(name, id);
        names[id] = nb::handle(name);
        if (!free_.empty()) free_.pop_back();
        n_changes_++;
        return id;
    }
    void remove(int id) {
        free_.reserve(free_.size() + 1);
        const nb::object name = names[id];
        names[id] = nb::none();
        const Py_hash_t hash = PyObject_Hash(name.ptr());
        if (hash == -1) PyErr_Clear();
        for (std::size_t at = first(hash); hash != -1 && places_[at].id != kFree; at = (at + 1) & (places_.size() - 1)) {
            if (places_[at].id != id) continue;
            places_[at].id = kRemoved;
            n_--;
            break;
        }
        free_.push_back(id);
        n_changes_++;
    }
    // The free ones of n ids, the next one last.
    std::vector<std::int32_t> free_of(int n) const {
        std::vector<std::int32_t> found;
        for (int id = n - 1; id >= n_places(); id--) found.push_back(id);
        found.insert(found.end(), free_.begin(), free_.end());
        return found;
    }
    // Adopts the names of another model: a list by id, with None for free ids, and the order of these.
    void restore(const nb::list& given, const std::vector<std::int32_t>& order) {
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
        std::vector<std::int32_t> sorted = order;
        std::sort(sorted.begin(), sorted.end());
        if (sorted != fresh.free_) throw nb::value_error("the free places are not those without a name");
        fresh.free_ = order;
        fresh.n_changes_ = n_changes_ + 1;
        fresh.leaves_new_ = leaves_new_;
        std::swap(*this, fresh);
    }

private:
    struct Text {                 // short ASCII text
        std::uint8_t length = 0;  // 0: not such a text
        char characters[19];
        Text() = default;
        explicit Text(PyObject* name) {
            if (!PyUnicode_CheckExact(name) || !PyUnicode_IS_COMPACT_ASCII(name)) return;
            const Py_ssize_t n = PyUnicode_GET_LENGTH(name);
            if (n > static_cast<Py_ssize_t>(sizeof characters)) return;
            length = static_cast<std::uint8_t>(n);
            std::copy_n(static_cast<const char*>(PyUnicode_DATA(name)), n, characters);
        }
        bool is(PyObject* name) const {
            return length > 0 && PyUnicode_CheckExact(name) && PyUnicode_GET_LENGTH(name) == length &&
                   PyUnicode_IS_COMPACT_ASCII(name) && std::memcmp(PyUnicode_DATA(name), characters, length) == 0;
        }
    };
    static constexpr std::int32_t kFree = -1, kRemoved = -2;
    struct alignas(32) Place {  // within one cache line
        Py_hash_t hash = 0;
        std::int32_t id = kFree;
        Text text;
    };
    std::size_t first(Py_hash_t hash) const {
        return (static_cast<std::uint64_t>(hash) * factor_ >> 32) & (places_.size() - 1);
    }
    // A comparison may run code of a name. The caller holds the model's lock, and places change only under a closed turn,
    // inside which nothing can be learnt (turns.hpp).
    const Place* place_of(PyObject* name, Py_hash_t hash) const {
        if (places_.empty()) return nullptr;
        for (std::size_t at = first(hash);; at = at + 1) {
            const Place& place = places_[at & (places_.size() - 1)];
            if (place.id == kFree) return nullptr;
            if (place.hash != hash || place.id == kRemoved) continue;
            if (place.text.is(name)) return &place;
            const int is_equal = PyObject_RichCompareBool(PyList_GET_ITEM(names.ptr(), place.id), name, Py_EQ);
            if (is_equal == 1) return &place;
            if (is_equal < 0) nb::raise_python_error();
        }
    }
    void put(PyObject* name, int id) {
        const Py_hash_t hash = PyObject_Hash(name);
        if (hash == -1) nb::raise_python_error();
        if (2 * (n_used_ + 1) > places_.size()) make_places(std::bit_ceil(std::max<std::size_t>(4 * (n_ + 1), 16)));
        std::size_t at = first(hash);
        while (places_[at].id != kFree) at = (at + 1) & (places_.size() - 1);
        places_[at] = {hash, id, Text(name)};
        are_plain_ = are_plain_ && is_plain(name);
        n_used_++;
        n_++;
    }
    // Makes room for more, and drops the places of removed names.
    void make_places(std::size_t size) {
        if (factor_ == 0) factor_ = static_cast<std::uint64_t>(PyObject_Hash(nb::str("secret").ptr())) | 1;
        std::vector<Place> old(size);
        old.swap(places_);
        n_used_ = 0;
        for (const Place& place : old) {
            if (place.id < 0) continue;
            std::size_t at = first(place.hash);
            while (places_[at].id != kFree) at = (at + 1) & (size - 1);
            places_[at] = place;
            n_used_++;
        }
    }
    std::vector<Place> places_;  // the size is a power of two, at most half used
    std::size_t n_used_ = 0;     // places of present and removed names
    std::uint64_t factor_ = 0;   // as random as Python's hashes of text: nobody can choose numbers with the same place
    int n_ = 0;
    std::int64_t n_changes_ = 0;
    bool are_plain_ = true;    // all that ever were
    bool leaves_new_ = false;  // whether Python adds new names of dicts
    std::vector<std::int32_t> free_;
};

}  // namespace driftree
