// RowReader: from a dict of features to a row of doubles, without calling Python for anything already known.
#pragma once
#include <nanobind/nanobind.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "sparse.hpp"
#include "sparse_names.hpp"
#include "table.hpp"
#include "target.hpp"

namespace driftree {

namespace nb = nanobind;

// The names of features, levels and labels. Never changed, only replaced by a larger one.
struct Vocabulary {
    nb::dict names;   // {name: feature}
    nb::list levels;  // per feature {value: code}, or None for a numeric one
    nb::dict labels;  // {label: code}
};

class RowReader {
public:
    explicit RowReader(Vocabulary vocabulary) { learn_words(vocabulary); }
    // Replaces the vocabulary by one that includes the old one. It cannot fail.
    void learn_words(Vocabulary& vocabulary) noexcept {
        std::swap(names, vocabulary.names);
        std::swap(levels, vocabulary.levels);
        std::swap(labels, vocabulary.labels);
    }

    // Fills in the row, and adds its sparse features to `held`; returns false if Python must read it: a new feature or
    // level, a value of a wrong type, infinity, a time, or a row to predict without any known feature. The first `n_own`
    // features are the model's own, and no row may have them.
    bool read(nb::handle x, const std::vector<double>& absent, int n_own, bool is_learning, double* row, SparseBatch& held) {
        if (!PyDict_Check(x.ptr())) return false;
        const int n_features = static_cast<int>(absent.size());
        std::copy_n(absent.data(), n_features, row);
        PyObject *key, *value;
        Py_ssize_t position = 0;
        bool knows_any = is_learning || PyDict_GET_SIZE(x.ptr()) == 0;
        for (std::size_t i = 0; PyDict_Next(x.ptr(), &position, &key, &value); i++) {
            const Py_ssize_t j = feature_of(key, i);
            if (j < 0 || j >= n_features) {
                const int id = sparse.n() > 0 ? sparse.find(key) : -1;
                double number = std::numeric_limits<double>::quiet_NaN();
                if (id >= 0 && !read_number(value, number)) return false;
                if (id < 0 && (is_learning ? value != Py_None : !is_plain(value))) return false;
                knows_any |= id >= 0;
                if (std::isnan(number)) continue;
                held.ids.push_back(id);
                held.values.push_back(number);
                continue;
            }
            if (j < n_own) return false;
            knows_any = true;
            PyObject* codes = PyList_GET_ITEM(levels.ptr(), j);
            if (!(codes == Py_None ? read_number(value, row[j]) : read_level(codes, value, is_learning, row[j])))
                return false;
        }
        held.end_row();
        return knows_any;
    }
    // Adds the sparse features of a row. New ones are listed in `fresh`, and get their id later. Returns false if Python
    // must check a value. Each level of a text is a feature of its own.
    struct NewFeature {
        nb::object name;
        std::size_t place;  // index in the batch
    };
    bool read_sparse(nb::handle x, bool is_learning, const SparseTable& table, SparseBatch& out,
                     std::vector<NewFeature>& fresh) {
        if (!PyDict_Check(x.ptr())) return false;
        const bool repeats = repeats_last(x.ptr());
        const Pairs read = repeats ? Pairs::known : find_pairs(x.ptr());
        if (read == Pairs::wrong) return false;
        if (read == Pairs::odd) return read_odd(x, is_learning, table, out, fresh);
        const std::size_t first = out.ids.size();
        out.ids.resize(first + n_last_);
        out.values.resize(first + n_last_);
        std::size_t place = first;
        for (std::size_t i = 0; i < n_last_; i++) {
            const Pair& pair = last_[i];
            const double number = pair.number;
            const std::int32_t id = pair.id;
            if (id >= 0) {
                if (!repeats) table.fetch(id);
                if (std::isnan(number) || (number == 0.0 && !table.is_centred[id])) continue;
            } else {
                if (!is_learning || std::isnan(number) || number == 0.0) continue;
                nb::object name = name_of(pair.key.ptr(), pair.value.ptr());
                if (is_too_long(name)) return false;
                fresh.push_back({std::move(name), place});
            }
            out.ids[place] = id;
            out.values[place++] = number;
        }
        out.ids.resize(place);
        out.values.resize(place);
        out.end_row();
        return true;
    }
    // The label's code, or -1 if it is new.
    int code_of(nb::handle label) {
        if (PyLong_CheckExact(label.ptr())) {
            look_up_labels();
            const std::int32_t code = small_code(small_number(label.ptr()));
            if (code >= 0) return code;
        }
        PyObject* code = PyDict_GetItemWithError(labels.ptr(), label.ptr());
        if (!code) {
            PyErr_Clear();
            return -1;
        }
        return static_cast<int>(PyLong_AsLong(code));
    }
    // Reads a numeric target; returns false if Python must check it.
    static bool read_target(nb::handle y, double& out) {
        if (PyBool_Check(y.ptr()) || y.is_none()) return false;
        return read_number(y.ptr(), out) && std::abs(out) <= kLargestNumber;
    }
    nb::object label_of(int code) {
        look_up_labels();
        return label_of_.at(code);
    }
    // Codes of n integer labels; returns false if one is unknown or too large.
    bool codes_of(const std::int64_t* y, std::size_t n, std::int32_t* codes) {
        look_up_labels();
        for (std::size_t i = 0; i < n; i++) {
            codes[i] = small_code(y[i]);
            if (codes[i] < 0) return false;
        }
        return true;
    }

    // Labels are only ever added, so their number shows whether there are new ones.
    void look_up_labels() {
        if (static_cast<Py_ssize_t>(label_of_.size()) == PyDict_GET_SIZE(labels.ptr())) return;
        small_codes_.assign(kMostCoded, -1);
        label_of_.clear();
        PyObject *label, *code;
        Py_ssize_t position = 0;
        label_of_.reserve(PyDict_GET_SIZE(labels.ptr()));  // all of them, or none
        while (PyDict_Next(labels.ptr(), &position, &label, &code)) {
            label_of_.push_back(nb::borrow(label));
            if (!PyLong_Check(label)) continue;
            const std::int64_t number = small_number(label);
            if (static_cast<std::uint64_t>(number) < kMostCoded)
                small_codes_[number] = static_cast<std::int32_t>(PyLong_AsLong(code));
        }
    }

    nb::dict names;
    nb::list levels;
    nb::dict labels;
    SparseNames sparse;
    nb::object declared;  // set of sparse features that are categorical, whatever their values; null if there are none

private:
    static constexpr std::size_t kMostCoded = 256;
    static std::int64_t small_number(PyObject* number) {
        int overflow = 0;
        const long long value = PyLong_AsLongLongAndOverflow(number, &overflow);
        return overflow == 0 ? value : -1;
    }
    std::int32_t small_code(std::int64_t label) const {
        return static_cast<std::uint64_t>(label) < kMostCoded ? small_codes_[label] : -1;
    }
    std::vector<nb::object> label_of_;       // by code
    std::vector<std::int32_t> small_codes_;  // of labels that are small integers; -1: unknown

    // ---- sparse rows
    // A row that is predicted is mostly learnt next: its pairs are kept with their objects, and not looked up again. Their
    // types run no code of their own, so nothing else can happen while a row is read.
    struct Pair {
        nb::object key, value;
        Py_hash_t hash;
        std::int32_t id;  // -1: unknown
        double number;    // NaN: missing
    };
    enum class Pairs { known, odd, wrong };
    bool repeats_last(PyObject* x) const {
        if (n_last_ != static_cast<std::size_t>(PyDict_GET_SIZE(x)) || n_changes_ != sparse.n_changes()) return false;
        PyObject *key, *value;
        Py_ssize_t position = 0;
        for (const Pair* pair = last_.data(); PyDict_Next(x, &position, &key, &value); pair++)
            if (pair->key.ptr() != key || pair->value.ptr() != value) return false;
        return true;
    }
    // Reads all pairs, prefetching the places of the names, and then looks up the names.
    Pairs find_pairs(PyObject* x) {
        n_last_ = 0;
        if (!sparse.are_plain()) return Pairs::odd;
        const auto n = static_cast<std::size_t>(PyDict_GET_SIZE(x));
        if (last_.size() < n) last_.resize(n);
        PyObject *key, *value;
        Py_ssize_t position = 0;
        Pair* pair = last_.data();
        const Pair* before = nullptr;
        for (; PyDict_Next(x, &position, &key, &value); pair++) {
            if (!SparseNames::is_plain(key)) return Pairs::odd;
            if (is_declared_number(key, value)) return Pairs::wrong;
            if (before && before->value.ptr() == value) {  // often 1
                pair->number = before->number;
            } else if (PyFloat_CheckExact(value) || PyLong_CheckExact(value)) {
                if (!read_number(value, pair->number)) return Pairs::wrong;
            } else if (value == Py_None) {
                pair->number = std::numeric_limits<double>::quiet_NaN();
            } else if (PyUnicode_CheckExact(value) && PyUnicode_CheckExact(key)) {
                pair->number = 1.0;
            } else {
                return Pairs::odd;
            }
            if (pair->key.ptr() != key) pair->key = nb::borrow(key);
            if (pair->value.ptr() != value) pair->value = nb::borrow(value);
            pair->hash = PyUnicode_CheckExact(value) ? 0 : hash_of(key);
            sparse.fetch(pair->hash);
            before = pair;
        }
        TextNames texts(x);
        for (Pair* one = last_.data(); one < pair; one++) {
            if (!PyUnicode_CheckExact(one->value.ptr())) {
                one->id = sparse.find(one->key.ptr(), one->hash);
                continue;
            }
            const nb::object name = name_of(one->key.ptr(), one->value.ptr());
            if (!texts.add(name.ptr())) return Pairs::wrong;
            one->id = sparse.find(name.ptr());
        }
        n_last_ = n;
        n_changes_ = sparse.n_changes();
        return Pairs::known;
    }
    static Py_hash_t hash_of(PyObject* key) {  // cannot fail for a plain name
        const Py_hash_t known = PyUnicode_CheckExact(key) ? reinterpret_cast<PyASCIIObject*>(key)->hash : -1;
        return known != -1 ? known : PyObject_Hash(key);
    }
    // Whether a value is a level, though not a text, since the user has declared the feature categorical: Python names it.
    bool is_declared_number(PyObject* key, PyObject* value) const {
        if (!declared.is_valid() || PyUnicode_Check(value)) return false;
        const int found = PySet_Contains(declared.ptr(), key);
        if (found < 0) nb::raise_python_error();
        return found == 1;
    }
    static bool is_no_name(PyObject* key) {
        return key == Py_None || (PyFloat_Check(key) && std::isnan(PyFloat_AS_DOUBLE(key)));
    }
    static nb::object name_of(PyObject* key, PyObject* value) {
        if (!PyUnicode_Check(value)) return nb::borrow(key);
        nb::object name = nb::steal(PyUnicode_FromFormat("%S == %U", key, value));
        if (!name.is_valid()) nb::raise_python_error();
        return name;
    }
    // The names that texts of a row give it: no other feature of the row may have one of them, as in {"a": "b", "a == b": 1}.
    class TextNames {
    public:
        explicit TextNames(PyObject* x) : x_(x) {}
        // Returns false if there is such a feature.
        bool add(PyObject* name) {
            if (!names_.is_valid()) names_ = nb::steal(PySet_New(nullptr));
            if (!names_.is_valid()) nb::raise_python_error();
            const bool is_new = PyDict_Contains(x_, name) == 0 && PySet_Contains(names_.ptr(), name) == 0;
            if (PyErr_Occurred() || PySet_Add(names_.ptr(), name) < 0) nb::raise_python_error();
            return is_new;
        }

    private:
        PyObject* x_;
        nb::object names_;
    };
    static bool is_too_long(const nb::object& name) {
        return PyUnicode_Check(name.ptr()) && PyUnicode_GET_LENGTH(name.ptr()) > kMostNameLength;
    }
    // A row with keys or values that may run code: its names are looked up one by one.
    bool read_odd(nb::handle x, bool is_learning, const SparseTable& table, SparseBatch& out,
                  std::vector<NewFeature>& fresh) {
        PyObject *key, *value;
        Py_ssize_t position = 0;
        TextNames texts(x.ptr());
        while (PyDict_Next(x.ptr(), &position, &key, &value)) {
            double number = 1.0;
            if (value == Py_None) continue;
            if (is_learning && is_no_name(key)) return false;
            if (is_declared_number(key, value)) return false;
            nb::object name = name_of(key, value);
            if (PyUnicode_Check(value) && !texts.add(name.ptr())) return false;
            if (!PyUnicode_Check(value) && !read_number(value, number)) return false;
            if (std::isnan(number)) continue;
            if (is_learning && is_too_long(name)) return false;
            const int id = sparse.find(name.ptr());
            if (id < 0 && !is_learning) continue;
            if (number == 0.0 && (id < 0 || !table.is_centred[id])) continue;
            if (id < 0) fresh.push_back({std::move(name), out.ids.size()});
            out.ids.push_back(id);
            out.values.push_back(number);
        }
        out.end_row();
        return true;
    }

    // Rows mostly have the same keys in the same order: the i-th key is compared with the i-th of the row before.
    Py_ssize_t feature_of(PyObject* key, std::size_t i) {
        if (i < last_keys_.size() && last_keys_[i].first.ptr() == key) return last_keys_[i].second;
        return look_up(key, i);
    }
    [[gnu::noinline]] Py_ssize_t look_up(PyObject* key, std::size_t i) {
        nb::object own = nb::borrow(key);  // code of a name may remove it from the row
        PyObject* place = PyDict_GetItemWithError(names.ptr(), key);
        if (!place) PyErr_Clear();
        const Py_ssize_t j = place ? PyLong_AsSsize_t(place) : -1;
        if (j < 0 || i > last_keys_.size()) return j;
        if (i == last_keys_.size()) last_keys_.emplace_back();
        const auto before = std::exchange(last_keys_[i], {std::move(own), j});
        return j;
    }
    static bool is_plain(PyObject* value) {
        return value == Py_None || PyFloat_Check(value) || PyLong_Check(value) || PyUnicode_Check(value);
    }
    static bool read_number(PyObject* value, double& out) {
        if (PyFloat_Check(value)) {
            out = PyFloat_AS_DOUBLE(value);
        } else if (value == Py_None) {
            return true;
        } else if (PyLong_CheckExact(value)) {  // mostly small, without a float object
            int overflow = 0;
            const long long whole = PyLong_AsLongLongAndOverflow(value, &overflow);
            if (overflow != 0) return read_any_number(value, out);
            out = static_cast<double>(whole);
        } else {
            return !PyUnicode_Check(value) && !PyBytes_Check(value) && read_any_number(value, out);
        }
        return !std::isinf(out);
    }
    // NumPy's datetime64, timedelta64, complex numbers and masked cells are none, though they may be converted.
    static bool may_be_number(PyObject* value) {
        const std::string_view type = Py_TYPE(value)->tp_name;
        return !(type.starts_with("numpy.d") || type.starts_with("numpy.t") || type.starts_with("numpy.c") ||
                 type == "MaskedConstant");
    }
    static bool read_any_number(PyObject* value, double& out) {
        if (!may_be_number(value)) return false;
        out = PyFloat_AsDouble(value);
        if (out == -1.0 && PyErr_Occurred()) {
            PyErr_Clear();
            return false;
        }
        return !std::isinf(out);
    }
    static bool read_level(PyObject* codes, PyObject* value, bool is_learning, double& out) {
        if (value == Py_None || (PyFloat_Check(value) && std::isnan(PyFloat_AS_DOUBLE(value)))) return true;
        PyObject* code = PyDict_GetItemWithError(codes, value);
        if (code) {
            out = static_cast<double>(PyLong_AsLong(code));
            return true;
        }
        if (PyErr_Occurred()) {
            PyErr_Clear();
            return false;
        }
        if (!PyUnicode_Check(value) && !PyLong_Check(value) && !PyFloat_Check(value)) return false;  // maybe a missing value
        if (is_learning && PyDict_GET_SIZE(codes) < kLevels - 1) return false;
        out = kLevels - 1;
        return true;
    }

    std::vector<std::pair<nb::object, Py_ssize_t>> last_keys_;
    std::vector<Pair> last_;  // what the last row held: the first n_last_
    std::size_t n_last_ = 0;
    std::int64_t n_changes_ = 0;  // of the names, then
};

}  // namespace driftree
