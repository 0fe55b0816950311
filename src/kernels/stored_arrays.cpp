#include "stored_arrays.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <utility>

namespace driftree {
namespace {

using namespace nb::literals;

constexpr std::size_t kMostArrays = 10'000, kLongestName = 100;  // as in learn/storage/container.py
constexpr std::size_t kMostDigits = 15;                          // of lengths and places: no sum or product overflows
struct NamedType {
    std::string_view name, singles;  // the tensor of all arrays of one number
    Type type;
};
constexpr std::array<NamedType, 5> kTypes = {{{"F32", "short.f32", Type::kF32},
                                              {"F64", "short.f64", Type::kF64},
                                              {"I32", "short.i32", Type::kI32},
                                              {"I64", "short.i64", Type::kI64},
                                              {"U8", "short.u8", Type::kU8}}};

const NamedType* type_named(std::string_view name) {
    for (const NamedType& known : kTypes)
        if (known.name == name) return &known;
    return nullptr;
}

std::size_t size_of(Type type) {
    switch (type) {
        case Type::kF64:
        case Type::kI64:
            return 8;
        case Type::kF32:
        case Type::kI32:
            return 4;
        default:
            return 1;
    }
}

bool is_plain(std::string_view name) {
    for (const char c : name)
        if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.')) return false;
    return !name.empty() && name.size() <= kLongestName;
}

// Reads JSON that has no choice about its signs.
class Scanner {
public:
    explicit Scanner(std::string_view text) : rest_(text) {}
    bool skip(std::string_view expected) {
        if (!rest_.starts_with(expected)) return false;
        rest_.remove_prefix(expected.size());
        return true;
    }
    // What comes before a quotation mark; nothing if there is none. Names with escapes are not plain.
    std::string_view text() {
        const std::size_t n = rest_.find('"');
        if (n == std::string_view::npos) return {};
        const std::string_view found = rest_.substr(0, n);
        rest_.remove_prefix(n);
        return found;
    }
    bool whole(std::size_t& value) {
        std::size_t n = 0;
        for (value = 0; n < rest_.size() && rest_[n] >= '0' && rest_[n] <= '9'; n++) {
            if (n == kMostDigits) return false;
            value = 10 * value + static_cast<std::size_t>(rest_[n] - '0');
        }
        const bool is_so = n == 1 || (n > 1 && rest_[0] != '0');
        rest_.remove_prefix(n);
        return is_so;
    }
    std::string_view rest() const { return rest_; }

private:
    std::string_view rest_;
};

// Not by nanobind: it would make a string, and end the process if there is no memory for that.
std::string_view text_of(PyObject* text) {
    if (!PyUnicode_CheckExact(text) || !PyUnicode_IS_ASCII(text)) return {};
    return {static_cast<const char*>(PyUnicode_DATA(text)), static_cast<std::size_t>(PyUnicode_GET_LENGTH(text))};
}

// The text of a JSON string whose opening quotation mark is at a place in a file, and where the file goes on behind it;
// None if it has other escapes than those of quotation marks and backslashes, or signs that do not print.
nb::object unquote(const nb::bytes& file, std::size_t at) {
    const std::string_view all(file.c_str(), file.size());
    std::string text;
    text.reserve(at < all.size() ? std::min(all.size() - at, all.find("}\"", at) - at) : 0);
    for (std::size_t i = at + 1; i < all.size(); i++) {
        char c = all[i];
        if (c == '"') return nb::make_tuple(nb::str(text.data(), text.size()), i + 1);
        if (c == '\\') {
            if (++i == all.size()) break;
            c = all[i];
            if (c != '"' && c != '\\') break;
        }
        if (c < ' ' || c > '~') break;
        text += c;
    }
    return nb::none();
}

template <class T>
nb::object view_of(const StoredArrays::Entry& entry, nb::handle owner) {
    const std::size_t shape[] = {entry.n};
    return nb::cast(nb::ndarray<nb::numpy, const T>(static_cast<const T*>(entry.data), 1, shape, owner));
}

nb::object array_of(nb::handle_t<StoredArrays> self, nb::handle name) {
    const StoredArrays::Entry* entry = nb::cast<const StoredArrays&>(self).find(text_of(name.ptr()));
    if (!entry) throw nb::key_error("there is no such array");
    switch (entry->type) {
        case Type::kF32:
            return view_of<float>(*entry, self);
        case Type::kF64:
            return view_of<double>(*entry, self);
        case Type::kI32:
            return view_of<std::int32_t>(*entry, self);
        case Type::kI64:
            return view_of<std::int64_t>(*entry, self);
        default:
            return view_of<std::uint8_t>(*entry, self);
    }
}

}  // namespace

std::size_t StoredArrays::Entry::n_bytes() const { return n * size_of(type); }

std::size_t StoredArrays::n_bytes() const {
    std::size_t sum = 0;
    for (const Entry& entry : entries_) sum += entry.n_bytes();
    return sum;
}

nb::list StoredArrays::names() const {
    nb::list out;
    for (const Entry& entry : entries_) out.append(nb::str(entry.name.data(), entry.name.size()));
    return out;
}

const StoredArrays::Entry* StoredArrays::find(std::string_view name) const {
    const auto found = std::ranges::lower_bound(entries_, name, {}, &Entry::name);
    return found == entries_.end() || found->name != name ? nullptr : &*found;
}

bool StoredArrays::read(nb::bytes file, std::size_t begin, std::size_t end, nb::handle singles, nb::handle empty) {
    const std::string_view all(file.c_str(), file.size());
    if (begin > end || end > all.size()) return false;
    owner_ = file;
    if (!read_tensors(all.substr(begin, end - begin), all.substr(end))) return false;
    PyObject *key, *names;
    std::size_t n_names = 0;
    for (const nb::handle by_type : {singles, empty}) {
        if (!PyDict_CheckExact(by_type.ptr())) return false;
        for (Py_ssize_t i = 0; PyDict_Next(by_type.ptr(), &i, &key, &names);) {
            if (!type_named(text_of(key)) || !PyList_CheckExact(names)) return false;
            n_names += static_cast<std::size_t>(PyList_GET_SIZE(names));
        }
    }
    if (n_names + entries_.size() > kMostArrays) return false;
    names_.reserve(kLongestName * n_names);  // they stay where they are
    for (Py_ssize_t i = 0; PyDict_Next(singles.ptr(), &i, &key, &names);) {
        const NamedType& type = *type_named(text_of(key));
        if (!add_singles(type.type, type.singles, names)) return false;
    }
    for (Py_ssize_t i = 0; PyDict_Next(empty.ptr(), &i, &key, &names);)
        if (!add_names(names, {{}, type_named(text_of(key))->type, file.c_str(), 0}, 0)) return false;
    std::ranges::sort(entries_, {}, &Entry::name);
    return std::ranges::adjacent_find(entries_, {}, &Entry::name) == entries_.end();
}

void StoredArrays::take_without(const StoredArrays& others, std::string_view start, nb::object owner) {
    owner_ = std::move(owner);
    const auto is_own = [&](const Entry& entry) { return !entry.name.starts_with(start); };
    std::ranges::copy_if(others.entries_, std::back_inserter(entries_), is_own);
}

bool StoredArrays::read_tensors(std::string_view header, std::string_view body) {
    Scanner scanner(header);
    std::size_t place = 0;
    if (!scanner.skip("}")) return false;
    while (scanner.skip(",")) {
        std::size_t n, begin, end;
        if (!scanner.skip("\"")) return false;
        const std::string_view name = scanner.text();
        if (!scanner.skip("\":{\"dtype\":\"")) return false;
        const NamedType* named = type_named(scanner.text());
        if (!named || !scanner.skip("\",\"shape\":[") || !scanner.whole(n)) return false;
        const Type type = named->type;
        if (!scanner.skip("],\"data_offsets\":[") || !scanner.whole(begin)) return false;
        if (!scanner.skip(",") || !scanner.whole(end) || !scanner.skip("]}")) return false;
        if (begin != place || end != begin + n * size_of(type) || end > body.size()) return false;
        const char* data = body.data() + begin;
        const bool is_aligned = reinterpret_cast<std::uintptr_t>(data) % size_of(type) == 0;
        if (!is_aligned || name == "__metadata__" || !is_plain(name)) return false;
        entries_.push_back({name, type, data, n});
        place = end;
    }
    if (!scanner.skip("}") || scanner.rest().find_first_not_of(' ') != std::string_view::npos) return false;
    return place == body.size();
}

// Makes arrays of one number each of a tensor.
bool StoredArrays::add_singles(Type type, std::string_view tensor, nb::handle names) {
    const auto found = std::ranges::find(entries_, tensor, &Entry::name);
    if (found == entries_.end() || found->type != type) return false;
    const Entry all = *found;
    entries_.erase(found);
    if (all.n != static_cast<std::size_t>(PyList_GET_SIZE(names.ptr()))) return false;
    return add_names(names, {{}, type, all.data, 1}, size_of(type));
}

// Adds arrays like one, each so many bytes behind the one before.
bool StoredArrays::add_names(nb::handle names, Entry entry, std::size_t step) {
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(names.ptr()); i++) {
        const std::string_view name = text_of(PyList_GET_ITEM(names.ptr(), i));
        if (!is_plain(name)) return false;
        const std::size_t place = names_.size();
        names_ += name;
        entry.name = std::string_view(names_).substr(place);
        entries_.push_back(entry);
        entry.data = static_cast<const char*>(entry.data) + step;
    }
    return true;
}

void bind_stored_arrays(nb::module_& m) {
    m.def("unquote", &unquote, "file"_a, "at"_a);
    nb::class_<StoredArrays>(m, "StoredArrays")
        .def_static(
            "read",
            [](nb::bytes file, std::size_t begin, std::size_t end, nb::object singles, nb::object empty) -> nb::object {
                nb::object made = nb::cast(new StoredArrays(), nb::rv_policy::take_ownership);
                auto& arrays = nb::cast<StoredArrays&>(made);
                return arrays.read(std::move(file), begin, end, singles, empty) ? made : nb::none();
            },
            "file"_a, "begin"_a, "end"_a, "short"_a.none(), "empty"_a.none())
        .def("__len__", &StoredArrays::size)
        .def("__contains__", [](const StoredArrays& a, nb::handle name) { return a.find(text_of(name.ptr())) != nullptr; })
        .def("__getitem__", &array_of, "name"_a)
        .def(
            "without",
            [](nb::handle_t<StoredArrays> self, nb::handle start) {
                nb::object made = nb::cast(new StoredArrays(), nb::rv_policy::take_ownership);
                nb::cast<StoredArrays&>(made).take_without(nb::cast<const StoredArrays&>(self), text_of(start.ptr()),
                                                           nb::borrow(self));
                return made;
            },
            "start"_a)
        .def("names", &StoredArrays::names)
        .def(
            "length",
            [](const StoredArrays& a, nb::handle name) {
                const StoredArrays::Entry* entry = a.find(text_of(name.ptr()));
                return entry ? entry->n : 0;
            },
            "name"_a)
        .def(
            "whole",
            [](const StoredArrays& a, nb::handle name) -> std::optional<std::int64_t> {
                const StoredArrays::Entry* entry = a.find(text_of(name.ptr()));
                if (!entry || entry->n != 1) return std::nullopt;
                if (entry->type == Type::kI32) return *static_cast<const std::int32_t*>(entry->data);
                if (entry->type == Type::kI64) return *static_cast<const std::int64_t*>(entry->data);
                return std::nullopt;
            },
            "name"_a)
        .def_prop_ro("nbytes", &StoredArrays::n_bytes);
}

}  // namespace driftree
