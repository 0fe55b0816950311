#include "stored_arrays.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <iterator>
#include <optional>
#include <utility>

namespace driftree {
namespace {

using namespace nb::literals;

constexpr std::size_t kMostArrays = 4'000;  // in a file as we write it: takes milliseconds even if all names share a slot
constexpr std::size_t kLongestName = 100;   // as in learn/storage/container.py
constexpr std::size_t kMostDigits = 15;     // of lengths and offsets: no sum or product overflows
struct NamedType {
    std::string_view name, singles;  // of the tensor with all arrays of one number
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

constexpr std::array<bool, 256> kIsPlain = [] {
    std::array<bool, 256> out = {};
    for (const char c : std::string_view("abcdefghijklmnopqrstuvwxyz0123456789_."))
        out[static_cast<unsigned char>(c)] = true;
    return out;
}();

bool is_plain(std::string_view name) {
    bool is_so = !name.empty() && name.size() <= kLongestName;
    for (const char c : name) is_so &= kIsPlain[static_cast<unsigned char>(c)];
    return is_so;
}

std::uint64_t hash_of(std::string_view name) {
    std::uint64_t hash = name.size(), part = 0;
    const auto mix = [&] { hash = std::rotl((hash ^ part) * 0x9E3779B97F4A7C15u, 29); };
    for (; name.size() > sizeof part; name.remove_prefix(sizeof part)) {
        std::memcpy(&part, name.data(), sizeof part);
        mix();
    }
    part = 0;
    std::memcpy(&part, name.data(), name.size());
    mix();
    return hash;
}

// Reads JSON of a fixed layout.
class Scanner {
public:
    explicit Scanner(std::string_view text) : rest_(text) {}
    template <std::size_t kLength>  // a constant, so that this is a comparison or two
    bool skip(const char (&expected)[kLength]) {
        constexpr std::size_t n = kLength - 1;
        if (rest_.size() < n || !std::equal(expected, expected + n, rest_.begin())) return false;
        rest_.remove_prefix(n);
        return true;
    }
    // The text up to the next quotation mark; empty if there is none. Names with escapes are not plain.
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

// Not by nanobind, which would create a string and abort the process when memory runs out.
std::string_view text_of(PyObject* text) {
    if (!PyUnicode_CheckExact(text) || !PyUnicode_IS_ASCII(text)) return {};
    return {static_cast<const char*>(PyUnicode_DATA(text)), static_cast<std::size_t>(PyUnicode_GET_LENGTH(text))};
}

// Appends the text of a JSON string from position `at` of a file, and moves `at` to the closing quotation mark. Returns
// false if there are escapes other than of quotation marks and backslashes, or characters that are not printable.
bool unquote(std::string_view all, std::size_t& at, std::string& text) {
    for (; at < all.size(); at++) {
        char c = all[at];
        if (c == '"') return true;
        if (c == '\\') {
            if (++at == all.size()) return false;
            c = all[at];
            if (c != '"' && c != '\\') return false;
        }
        if (c < ' ' || c > '~') return false;
        text += c;
    }
    return false;
}

// The text of the JSON string whose opening quotation mark is at position `at` of a file, and the position after it; None if
// it needs a JSON library.
nb::object unquoted(const nb::bytes& file, std::size_t at) {
    const std::string_view all(file.c_str(), file.size());
    std::string text;
    text.reserve(at < all.size() ? std::min(all.size() - at, all.find("}\"", at) - at) : 0);
    if (!unquote(all, ++at, text)) return nb::none();
    return nb::make_tuple(nb::str(text.data(), text.size()), at + 1);
}

// Cuts a JSON string in two before `part`: returns the first piece as in the file, still escaped, from `at` on; the second
// as text without its first character; and the position after the string. None if either is longer than allowed, or if the
// second needs a JSON library.
nb::object cut_quoted(const nb::bytes& file, std::size_t at, const nb::bytes& part, std::size_t most_before,
                      std::size_t most_behind) {
    const std::string_view all(file.c_str(), file.size()), wanted(part.c_str(), part.size());
    if (at > all.size()) return nb::none();
    const std::size_t found = all.substr(at, most_before + wanted.size()).find(wanted);
    if (found == std::string_view::npos) return nb::none();
    std::size_t end = at + found + 1;
    std::string text;
    if (!unquote(all.substr(0, end + most_behind), end, text)) return nb::none();
    return nb::make_tuple(nb::bytes(all.data() + at, found), nb::str(text.data(), text.size()), end + 1);
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

// ---------------------------------------------------------------- packed arrays, for pickles
// A mark, the number of arrays, a header for each; the names, concatenated; the numbers of each array, aligned to eight
// bytes.
constexpr std::uint64_t kMark = 0x8765432101020304;  // in the byte order of the machine
struct PackedHead {
    std::uint64_t n;
    std::uint32_t type, name_length;
};

constexpr std::size_t padded_to_eight(std::size_t n) { return (n + 7) / 8 * 8; }

StoredArrays::Entry entry_of(std::string_view name, const View& view) {
    const auto entry = [&](Type type) { return StoredArrays::Entry{name, type, view.data<char>(), view.size()}; };
    if (view.holds<double>()) return entry(Type::kF64);
    if (view.holds<float>()) return entry(Type::kF32);
    if (view.holds<std::int64_t>()) return entry(Type::kI64);
    if (view.holds<std::int32_t>()) return entry(Type::kI32);
    if (view.holds<std::uint8_t>()) return entry(Type::kU8);
    throw nb::type_error("such an array cannot be packed");
}

nb::object pack_arrays(const nb::dict& arrays) {
    std::vector<StoredArrays::Entry> entries;
    entries.reserve(arrays.size());
    std::size_t n_names = 0, n_numbers = 0;
    for (const auto [key, array] : arrays) {
        entries.push_back(entry_of(text_of(key.ptr()), View(array.ptr())));  // the dict keeps it alive
        n_names += entries.back().name.size();
        n_numbers += padded_to_eight(entries.back().n_bytes());
    }
    const std::uint64_t start[] = {kMark, entries.size()};
    const std::size_t n_before = padded_to_eight(sizeof start + entries.size() * sizeof(PackedHead) + n_names);
    PyObject* made = PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(n_before + n_numbers));
    if (!made) throw nb::python_error();
    char* const out = PyBytes_AS_STRING(made);
    std::memset(out, 0, n_before + n_numbers);
    std::memcpy(out, start, sizeof start);
    std::size_t head_at = sizeof start, name_at = head_at + entries.size() * sizeof(PackedHead), numbers_at = n_before;
    for (const StoredArrays::Entry& entry : entries) {
        const PackedHead head = {entry.n, static_cast<std::uint32_t>(entry.type),
                                 static_cast<std::uint32_t>(entry.name.size())};
        std::memcpy(out + head_at, &head, sizeof head);
        std::ranges::copy(entry.name, out + name_at);
        if (entry.n > 0) std::memcpy(out + numbers_at, entry.data, entry.n_bytes());
        head_at += sizeof head;
        name_at += entry.name.size();
        numbers_at += padded_to_eight(entry.n_bytes());
    }
    return nb::steal(made);
}

}  // namespace

std::size_t StoredArrays::Entry::n_bytes() const { return n * size_of(type); }

std::size_t StoredArrays::n_bytes() const {
    std::size_t sum = 0;
    for (const Entry& entry : entries_) sum += entry.n_bytes();
    return sum;
}

nb::list StoredArrays::names() const {
    std::vector<std::string_view> sorted;
    sorted.reserve(entries_.size());
    for (const Entry& entry : entries_) sorted.push_back(entry.name);
    std::ranges::sort(sorted);
    nb::list out;
    for (const std::string_view name : sorted) out.append(nb::str(name.data(), name.size()));
    return out;
}

const StoredArrays::Entry* StoredArrays::find(std::string_view name) const {
    const std::size_t last = slots_.size() - 1;
    for (std::size_t i = hash_of(name) & last; !slots_.empty() && slots_[i] != 0; i = (i + 1) & last)
        if (entries_[slots_[i] - 1].name == name) return &entries_[slots_[i] - 1];
    return nullptr;
}

bool StoredArrays::index() {
    slots_.assign(std::bit_ceil(2 * entries_.size() + 1), 0);
    const std::size_t last = slots_.size() - 1;
    for (std::size_t e = 0; e < entries_.size(); e++) {
        std::size_t i = hash_of(entries_[e].name) & last;
        for (; slots_[i] != 0; i = (i + 1) & last)
            if (entries_[slots_[i] - 1].name == entries_[e].name) return false;
        slots_[i] = static_cast<std::uint16_t>(e + 1);
    }
    return true;
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
    names_.reserve(kLongestName * n_names);  // so that they never move
    for (Py_ssize_t i = 0; PyDict_Next(singles.ptr(), &i, &key, &names);) {
        const NamedType& type = *type_named(text_of(key));
        if (!add_singles(type.type, type.singles, names)) return false;
    }
    for (Py_ssize_t i = 0; PyDict_Next(empty.ptr(), &i, &key, &names);)
        if (!add_names(names, {{}, type_named(text_of(key))->type, file.c_str(), 0}, 0)) return false;
    return index();
}

bool StoredArrays::unpack(nb::bytes packed) {
    owner_ = packed;
    const char* const all = packed.c_str();
    std::uint64_t start[2];
    if (packed.size() < sizeof start) return false;
    std::memcpy(start, all, sizeof start);
    if (start[0] != kMark || start[1] > kMostArrays) return false;
    std::size_t head_at = sizeof start, name_at = head_at + start[1] * sizeof(PackedHead);
    if (packed.size() < name_at) return false;
    entries_.reserve(start[1]);
    for (; entries_.size() < start[1]; head_at += sizeof(PackedHead)) {
        PackedHead head;
        std::memcpy(&head, all + head_at, sizeof head);
        if (head.type >= static_cast<std::uint32_t>(Type::kNone) || head.n > packed.size()) return false;
        if (head.name_length > packed.size() - name_at) return false;
        entries_.push_back({{all + name_at, head.name_length}, static_cast<Type>(head.type), nullptr, head.n});
        name_at += head.name_length;
    }
    std::size_t numbers_at = padded_to_eight(name_at);
    for (Entry& entry : entries_) {
        if (numbers_at > packed.size() || entry.n_bytes() > packed.size() - numbers_at) return false;
        entry.data = all + numbers_at;
        numbers_at += padded_to_eight(entry.n_bytes());
    }
    return numbers_at == packed.size() && index();
}

bool StoredArrays::take_without(const StoredArrays& others, const nb::list& starts, nb::object owner) {
    const auto is_left_out = [&](const Entry& entry) {
        return std::ranges::any_of(starts, [&](nb::handle start) { return entry.name.starts_with(text_of(start.ptr())); });
    };
    if (std::ranges::none_of(others.entries_, is_left_out)) return false;
    owner_ = std::move(owner);
    std::ranges::remove_copy_if(others.entries_, std::back_inserter(entries_), is_left_out);
    return index();
}

void StoredArrays::take_under(const StoredArrays& others, std::string_view start, nb::object owner) {
    owner_ = std::move(owner);
    for (Entry entry : others.entries_) {
        if (!entry.name.starts_with(start)) continue;
        entry.name.remove_prefix(start.size());
        entries_.push_back(entry);
    }
    index();
}

bool StoredArrays::read_tensors(std::string_view header, std::string_view body) {
    Scanner scanner(header);
    entries_.reserve(128);
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
        if (!is_aligned || name == "__metadata__" || !is_plain(name) || entries_.size() == kMostArrays) return false;
        entries_.push_back({name, type, data, n});
        place = end;
    }
    if (!scanner.skip("}") || scanner.rest().find_first_not_of(' ') != std::string_view::npos) return false;
    return place == body.size();
}

// Makes each number of a tensor an array of its own.
bool StoredArrays::add_singles(Type type, std::string_view tensor, nb::handle names) {
    const auto found = std::ranges::find(entries_, tensor, &Entry::name);
    if (found == entries_.end() || found->type != type) return false;
    const Entry all = *found;
    entries_.erase(found);
    if (all.n != static_cast<std::size_t>(PyList_GET_SIZE(names.ptr()))) return false;
    return add_names(names, {{}, type, all.data, 1}, size_of(type));
}

// Adds arrays like `entry`, each `step` bytes after the one before.
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
    m.def("unquote", &unquoted, "file"_a, "at"_a);
    m.def("cut_quoted", &cut_quoted, "file"_a, "at"_a, "part"_a, "most_before"_a, "most_behind"_a);
    m.def("pack_arrays", &pack_arrays, "arrays"_a);
    nb::class_<StoredArrays>(m, "StoredArrays")
        .def_static(
            "read",
            [](nb::bytes file, std::size_t begin, std::size_t end, nb::object singles, nb::object empty) -> nb::object {
                nb::object made = nb::cast(new StoredArrays(), nb::rv_policy::take_ownership);
                auto& arrays = nb::cast<StoredArrays&>(made);
                return arrays.read(std::move(file), begin, end, singles, empty) ? made : nb::none();
            },
            "file"_a, "begin"_a, "end"_a, "short"_a.none(), "empty"_a.none())
        .def_static(
            "unpack",
            [](nb::bytes packed) {
                nb::object made = nb::cast(new StoredArrays(), nb::rv_policy::take_ownership);
                if (!nb::cast<StoredArrays&>(made).unpack(std::move(packed)))
                    throw nb::value_error("these are no packed arrays, or of a machine of another byte order");
                return made;
            },
            "packed"_a)
        .def("__len__", &StoredArrays::size)
        .def("__contains__", [](const StoredArrays& a, nb::handle name) { return a.find(text_of(name.ptr())) != nullptr; })
        .def("__getitem__", &array_of, "name"_a)
        .def(
            "without",
            [](nb::handle_t<StoredArrays> self, const nb::list& starts) -> nb::object {
                nb::object all = nb::borrow(self), made = nb::cast(new StoredArrays(), nb::rv_policy::take_ownership);
                const auto& others = nb::cast<const StoredArrays&>(self);
                return nb::cast<StoredArrays&>(made).take_without(others, starts, all) ? made : all;
            },
            "starts"_a)
        .def(
            "under",
            [](nb::handle_t<StoredArrays> self, nb::handle start) {
                nb::object made = nb::cast(new StoredArrays(), nb::rv_policy::take_ownership);
                const auto& others = nb::cast<const StoredArrays&>(self);
                nb::cast<StoredArrays&>(made).take_under(others, text_of(start.ptr()), nb::borrow(self));
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
