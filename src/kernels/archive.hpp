// Archives: one traversal of a tree's state (visit) serves saving, loading, exchanging, checking and measuring.
//
// The fields of list items (models, grids, ...) are packed: one array per field, with the values of all items concatenated,
// and one array of their lengths. State that follows from the rest is `derived`: it is measured but not copied. So is memory
// that is only kept for reuse between steps (visit_scratch).
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "stored_arrays.hpp"

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
    static constexpr bool kReads = true, kMeasures = false;
    nb::dict arrays;
    // If false, nothing of it is saved.
    bool has_sparse = true, has_watch = true, has_renewed = true, has_block = true, has_border = true, has_weights = true,
         has_hidden = true;
    template <class T, class Allocator>
    void operator()(const std::string& name, std::vector<T, Allocator>& values) {
        if (is_left_out(name)) return;
        save(name, values.data(), values.size());
        if (in_list_) parts_[name].lengths.push_back(static_cast<std::int64_t>(values.size()));
    }
    template <class T>
        requires std::is_arithmetic_v<T>
    void operator()(const std::string& name, T& value) {
        if (!is_left_out(name)) save(name, &value, 1);
    }
    // Numbers of a list item, of which the last may be in single precision: they are saved as one array of doubles.
    template <class Doubles, class Floats>
    void numbers(const std::string& name, const Doubles& numbers, const Floats& singles) {
        const std::vector<double> wide(singles.begin(), singles.end());
        save(name, numbers.data(), numbers.size());
        save(name, wide.data(), wide.size());
        parts_[name].lengths.push_back(static_cast<std::int64_t>(numbers.size() + singles.size()));
    }
    template <class T>
    void derived(T&) {}
    // One field of all items of a list.
    template <class T, class Field>
    void records(const std::string& name, std::vector<T>& items, Field T::* field) {
        std::vector<Field> values;
        values.reserve(items.size());
        for (const T& item : items) values.push_back(item.*field);
        (*this)(name, values);
    }
    template <class T, class Each>
    void each(const std::string& name, std::vector<T>& items, Each&& each) {
        in_list_ = true;
        for (T& item : items) each(*this, item);
        in_list_ = false;
        for (const auto& [part, packed] : parts_) {
            arrays[(name + "." + part).c_str()] = packed.to_array(packed.bytes);
            if (packed.lengths.empty()) continue;  // one number per item
            const auto& lengths = packed.lengths;
            arrays[(name + "." + part + ".lengths").c_str()] = copied_array(lengths.data(), lengths.size());
        }
        parts_.clear();
    }

private:
    bool is_left_out(const std::string& name) const {
        return (!has_sparse && name.starts_with("sparse_")) || (!has_watch && name.starts_with("watch_")) ||
               (!has_renewed && name.starts_with("renewed_")) || (!has_block && name.starts_with("block_")) ||
               (!has_border && name.starts_with("border_")) || (!has_weights && name.starts_with("target_weight_")) ||
               (!has_hidden && name == "target_hides_level");
    }
    using Bytes = std::vector<char>;
    struct Packed {
        Bytes bytes;
        std::vector<std::int64_t> lengths;
        nb::object (*to_array)(const Bytes&);
    };
    template <class T>
    void save(const std::string& name, const T* data, std::size_t n) {
        if (!in_list_) {
            arrays[name.c_str()] = copied_array(data, n);
            return;
        }
        Packed& packed = parts_[name];
        const char* begin = reinterpret_cast<const char*>(data);
        packed.bytes.insert(packed.bytes.end(), begin, begin + n * sizeof(T));
        packed.to_array = [](const Bytes& bytes) {
            return copied_array(reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T));
        };
    }
    bool in_list_ = false;
    std::map<std::string, Packed> parts_;
};

// {name: array}, or the arrays of a file -> Engine. Lengths and types are not trusted; soundness.cpp checks the values.
class Loader {
public:
    static constexpr bool kReads = false, kMeasures = false;
    explicit Loader(nb::dict arrays) : arrays_(std::move(arrays)) {}
    explicit Loader(const StoredArrays& stored) : stored_(&stored) {}
    template <class T, class Allocator>
    void operator()(std::string_view name, std::vector<T, Allocator>& values) {
        if (is_lacking(name)) return;
        const Part<T> part = next<T>(name, true);
        values.assign(part.data, part.data + part.n);
    }
    template <class T>
        requires std::is_arithmetic_v<T>
    void operator()(std::string_view name, T& value) {
        if (is_lacking(name)) return;
        const Part<T> part = next<T>(name, false);
        if (part.n != 1) refuse(name, "must hold one number");
        value = *part.data;
    }
    template <class Doubles, class Floats>
    void numbers(std::string_view name, Doubles& numbers, Floats& singles) {
        (*this)(name, numbers);
        singles.clear();  // derived from them
    }
    template <class T>
    void derived(T&) {}
    template <class T, class Field>
    void records(std::string_view name, std::vector<T>& items, Field T::* field) {
        const Part<Field> part = next<Field>(name, true);
        items.resize(part.n);
        for (std::size_t i = 0; i < part.n; i++) items[i].*field = part.data[i];
    }
    template <class T, class Each>
    void each(std::string_view name, std::vector<T>& items, Each&& each) {
        list_.assign(name).push_back('.');
        in_list_ = true;
        n_items_ = -1;
        items.clear();
        items.resize(1);  // its fields tell how many there are
        each(*this, items[0]);
        items.resize(static_cast<std::size_t>(std::max<std::ptrdiff_t>(n_items_, 1)));
        for (std::size_t i = 1; i < items.size(); i++) each(*this, items[i]);
        for (const auto& [part, packed] : parts_)
            if (packed.next != packed.n || packed.item != packed.n_items) refuse(part, "has parts of no item");
        parts_.clear();
        list_.clear();
        in_list_ = false;
    }
    void finish() const {
        if (n_found_ == (stored_ ? stored_->size() : nb::len(arrays_))) return;
        throw std::invalid_argument("the state has arrays that this engine does not know");
    }

private:
    template <class T>
    struct Part {
        const T* data;
        std::size_t n;
    };
    struct Packed {
        const void* data = nullptr;
        std::size_t n = 0, next = 0, n_items = 0, item = 0;
        const std::int64_t* lengths = nullptr;
    };
    // Older files have nothing on sparse features, renewed models, borders, drift detection and sets of labels; others may
    // have been saved outside a block, before a row had a weight, or where the level is not hidden.
    bool is_lacking(std::string_view name) const {
        if (!name.starts_with("sparse_") && !name.starts_with("renewed_") && !name.starts_with("watch_") &&
            !name.starts_with("block_") && !name.starts_with("border_") && !name.starts_with("target_weight_") &&
            name != "target_hides_level" && name != "label_reach")
            return false;
        return stored_ ? !stored_->find(key(name)) : !PyDict_GetItemString(arrays_.ptr(), key(name).c_str());
    }
    const std::string& key(std::string_view name, const char* ending = "") const {
        return key_.assign(list_).append(name).append(ending);
    }
    [[noreturn]] void lack(std::string_view name, const char* ending = "") const {
        throw std::invalid_argument("the state lacks '" + key(name, ending) + "'");
    }
    [[noreturn]] void refuse(std::string_view name, const char* what, const char* ending = "") const {
        throw std::invalid_argument("'" + key(name, ending) + "' " + what);
    }
    template <class T>
    Part<T> find(std::string_view name, const char* ending = "") {
        const Part<T> found = stored_ ? find_stored<T>(name, ending) : find_in_dict<T>(name, ending);
        n_found_++;
        return found;
    }
    template <class T>
    Part<T> find_stored(std::string_view name, const char* ending) const {
        static_assert(type_of<T>() != Type::kNone);
        const StoredArrays::Entry* found = stored_->find(key(name, ending));
        if (!found) lack(name, ending);
        if (found->type != type_of<T>()) refuse(name, "is of a wrong type", ending);
        return {static_cast<const T*>(found->data), found->n};
    }
    template <class T>
    Part<T> find_in_dict(std::string_view name, const char* ending) const {
        PyObject* found = PyDict_GetItemString(arrays_.ptr(), key(name, ending).c_str());
        if (!found) lack(name, ending);
        const View array(found);
        if (!array.holds<T>()) refuse(name, "is of a wrong type", ending);
        return {array.data<T>(), array.size()};  // the dict keeps it alive
    }
    // All items have their fields in the same order, so this is nearly always the next one.
    Packed& part_named(std::string_view name, bool& is_new) {
        is_new = false;
        for (std::size_t i = 0; i < parts_.size(); i++) {
            if (next_part_ >= parts_.size()) next_part_ = 0;
            auto& [known, packed] = parts_[next_part_++];
            if (known == name) return packed;
        }
        is_new = true;
        next_part_ = parts_.size() + 1;
        return parts_.emplace_back(name, Packed()).second;
    }
    template <class T>
    Part<T> next(std::string_view name, bool has_length) {
        if (!in_list_) return find<T>(name);
        bool is_new;
        Packed& packed = part_named(name, is_new);
        if (is_new) {
            const Part<T> all = find<T>(name);
            packed.data = all.data;
            packed.n = packed.n_items = all.n;
            if (has_length) {
                const Part<std::int64_t> lengths = find<std::int64_t>(name, ".lengths");
                packed.lengths = lengths.data;
                packed.n_items = lengths.n;
            }
            if (n_items_ < 0) n_items_ = static_cast<std::ptrdiff_t>(packed.n_items);
            if (static_cast<std::ptrdiff_t>(packed.n_items) != n_items_)
                refuse(name, has_length ? "has a wrong number of items" : "has a wrong length");
        }
        if (packed.item == packed.n_items) refuse(name, "has a wrong number of items");
        const std::int64_t length = has_length ? packed.lengths[packed.item] : 1;
        const std::size_t rest = packed.n - packed.next;
        if (length < 0 || static_cast<std::uint64_t>(length) > rest) refuse(name, "has wrong lengths");
        const Part<T> part = {static_cast<const T*>(packed.data) + packed.next, static_cast<std::size_t>(length)};
        packed.next += part.n;
        packed.item++;
        return part;
    }
    nb::dict arrays_;
    const StoredArrays* stored_ = nullptr;
    std::string list_;
    bool in_list_ = false;
    std::ptrdiff_t n_items_ = -1;
    std::size_t n_found_ = 0;
    mutable std::string key_;
    std::vector<std::pair<std::string_view, Packed>> parts_;  // names are literals
    std::size_t next_part_ = 0;
};

// Tree <-> another with the same settings. The other's fields are collected first; exchanging them needs no memory and so
// cannot fail.
class Collector {
public:
    static constexpr bool kReads = false, kMeasures = false;
    std::vector<void*> fields;
    template <class T>
    void operator()(const char*, T& value) {
        fields.push_back(&value);
    }
    template <class T>
    void derived(T& value) {
        fields.push_back(&value);
    }
    template <class T, class Each>
    void each(const char*, std::vector<T>& items, Each&&) {
        fields.push_back(&items);
    }
};

class Exchanger {
public:
    static constexpr bool kReads = false, kMeasures = false;
    explicit Exchanger(Collector&& collected) : fields_(std::move(collected.fields)) {}
    template <class T>
    void operator()(const char*, T& value) {
        std::swap(value, *static_cast<T*>(fields_[next_++]));
    }
    template <class T>
    void derived(T& value) {
        (*this)("", value);
    }
    template <class T, class Each>
    void each(const char*, std::vector<T>& items, Each&&) {
        items.swap(*static_cast<std::vector<T>*>(fields_[next_++]));
    }

private:
    std::vector<void*> fields_;
    std::size_t next_ = 0;
};

// Numbers that are only summed and compared may have any finite value up to `largest`, and learning keeps them there. A file
// with others is refused; if learning has led outside after a strange file, they are clipped before saving.
template <bool kHeals>
class Bounds {
public:
    static constexpr bool kReads = true, kMeasures = false;
    explicit Bounds(double largest) : largest_(largest) {}
    template <class T>
    void operator()(std::string_view name, T& value) {
        if constexpr (requires { value.begin(); }) {
            if constexpr (std::is_floating_point_v<typename T::value_type>) look_at(name, value.data(), value.size());
        } else if constexpr (std::is_floating_point_v<T>) {
            look_at(name, &value, 1);
        }
    }
    template <class Doubles, class Floats>
    void numbers(std::string_view name, Doubles& numbers, Floats& singles) {
        (*this)(name, numbers), (*this)(name, singles);
    }
    template <class T>
    void derived(T&) {}
    template <class T, class Each>
    void each(std::string_view name, std::vector<T>& items, Each&& each) {
        list_.assign(name).push_back('.');
        for (T& item : items) each(*this, item);
        list_.clear();
    }

private:
    template <class T>
    void look_at(std::string_view name, T* numbers, std::size_t n) {
        for (std::size_t i = 0; i < n; i++) {
            if (std::abs(numbers[i]) <= largest_) continue;
            if (has_own_rules(name)) return;
            if constexpr (kHeals) {
                const T most = static_cast<T>(std::min<double>(largest_, std::numeric_limits<T>::max()));
                numbers[i] = std::isnan(numbers[i]) ? T(0) : std::copysign(most, numbers[i]);
            } else {
                throw std::invalid_argument("'" + list_ + std::string(name) + "' has a number out of range");
            }
        }
    }
    // Conditions, values of rows and models have rules of their own; a scaler accepts any number.
    bool has_own_rules(std::string_view name) const {
        const std::string whole = list_ + std::string(name);
        for (const char* other : {"node.threshold", "trial.threshold", "grid.edges", "grid.first_rows", "candidates.value",
                                  "model.numbers", "model.sparse_numbers", "model.bend_low", "model.bend_high",
                                  "split_points.keys", "watch_rows", "sums.border_sums"})
            if (whole == other) return true;
        return name.starts_with("scale_");
    }
    double largest_;
    std::string list_;
};

// Bytes on the heap, including the allocator's overhead. Changes nothing.
class Sizer {
public:
    static constexpr bool kReads = false, kMeasures = true;
    std::size_t bytes = 0;
    template <class T, class Allocator>
    void operator()(const char*, std::vector<T, Allocator>& values) {
        add(values.capacity() * sizeof(T));
    }
    template <class T>
        requires std::is_arithmetic_v<T>
    void operator()(const char*, T&) {}  // part of the engine itself
    template <class Doubles, class Floats>
    void numbers(const char* name, Doubles& numbers, Floats& singles) {
        (*this)(name, numbers), (*this)(name, singles);
    }
    template <class T>
    void derived(T& value) {
        (*this)("", value);
    }
    template <class T, class Field>
    void records(const char* name, std::vector<T>& items, Field T::*) {
        if (std::string_view(name) == "trial") add(items.capacity() * sizeof(T));  // only once
    }
    template <class T>
    void owned(const T&) {  // behind a pointer
        add(sizeof(T));
    }
    template <class Items, class Each>
    void each(const char*, Items& items, Each&& each) {
        if constexpr (requires { items.capacity(); }) {
            add(items.capacity() * sizeof(items[0]));
        } else {
            for (std::size_t i = 0; i < items.size(); i++) add(sizeof(items[0]));
        }
        for (auto& item : items) each(*this, item);
    }

private:
    // A block has a header of eight bytes and a size that is a multiple of sixteen (glibc; elsewhere it is similar).
    void add(std::size_t size) { bytes += size == 0 ? 0 : std::max<std::size_t>(32, (size + 8 + 15) / 16 * 16); }
};

}  // namespace driftree
