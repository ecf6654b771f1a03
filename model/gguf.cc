#include "model/gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "base/check.h"

namespace pagoda::model {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF is read in place");

// Far above any model there is; they keep a hostile header from costing more than a moment.
constexpr uint64_t kMaxHeaderBytes = uint64_t{256} << 20;
constexpr uint64_t kMaxItems = 1 << 16;     // keys, tensors
constexpr uint64_t kMaxElements = 1 << 24;  // of all arrays together
constexpr uint64_t kMaxKeyBytes = (1 << 16) - 1;
constexpr uint64_t kMaxTensorNameBytes = 64;
constexpr uint64_t kMaxAlignment = 1 << 20;
constexpr uint64_t kDefaultAlignment = 32;
constexpr uint32_t kMaxDims = 4;
constexpr uint64_t kMinKeyBytes = 8 + 1 + 4 + 1;  // name, type, value
// Name and number of dimensions: one that is cut short there is told from a wrong count.
constexpr uint64_t kMinTensorBytes = 8 + 1 + 4;

// Types of values, numbered as in the file.
enum class ValueType : uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64,
};
constexpr uint32_t kNumValueTypes = 13;

// Bytes that one value takes at least.
uint64_t value_bytes(ValueType type) {
  switch (type) {
    case ValueType::kU8:
    case ValueType::kI8:
    case ValueType::kBool:
      return 1;
    case ValueType::kU16:
    case ValueType::kI16:
      return 2;
    case ValueType::kU32:
    case ValueType::kI32:
    case ValueType::kF32:
      return 4;
    case ValueType::kString:
    case ValueType::kU64:
    case ValueType::kI64:
    case ValueType::kF64:
      return 8;
    case ValueType::kArray:
      return 12;
  }
  return 1;
}

// Tensor types are numbered with gaps; those without a DType are known by name only.
struct TensorType {
  uint32_t id;
  std::string_view name;
  std::optional<DType> type;
};
constexpr TensorType kTensorTypes[] = {
    {0, "F32", DType::kF32},
    {1, "F16", DType::kF16},
    {2, "Q4_0", DType::kQ4_0},
    {3, "Q4_1", DType::kQ4_1},
    {6, "Q5_0", DType::kQ5_0},
    {7, "Q5_1", DType::kQ5_1},
    {8, "Q8_0", DType::kQ8_0},
    {12, "Q4_K", DType::kQ4_K},
    {13, "Q5_K", DType::kQ5_K},
    {14, "Q6_K", DType::kQ6_K},
    {30, "BF16", DType::kBF16},
    {9, "Q8_1", {}},
    {10, "Q2_K", {}},
    {11, "Q3_K", {}},
    {15, "Q8_K", {}},
    {16, "IQ2_XXS", {}},
    {17, "IQ2_XS", {}},
    {18, "IQ3_XXS", {}},
    {19, "IQ1_S", {}},
    {20, "IQ4_NL", {}},
    {21, "IQ3_S", {}},
    {22, "IQ2_S", {}},
    {23, "IQ4_XS", {}},
    {24, "I8", {}},
    {25, "I16", {}},
    {26, "I32", {}},
    {27, "I64", {}},
    {28, "F64", {}},
    {29, "IQ1_M", {}},
    {34, "TQ1_0", {}},
    {35, "TQ2_0", {}},
    {39, "MXFP4", {}},
};

std::string supported_types() {
  std::string names;
  for (const TensorType& type : kTensorTypes) {
    if (type.type.has_value()) fmt::format_to(std::back_inserter(names), " {},", type.name);
  }
  names.pop_back();
  return names;
}

bool is_printable(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c >= 0x20 && c < 0x7F; });
}

// The first bytes of something that is not a GGUF file, for a person to recognise.
std::string show_start(std::span<const uint8_t> bytes) {
  const std::string_view start(reinterpret_cast<const char*>(bytes.data()),
                               std::min<size_t>(bytes.size(), 4));
  if (is_printable(start)) return fmt::format("'{}'", start);
  return fmt::format("bytes {:02x}", fmt::join(start.begin(), start.end(), " "));
}

std::string_view type_name(const GgufValue& value) {
  if (std::holds_alternative<GgufArray>(value)) return "an array";
  constexpr std::array<std::string_view, 5> kNames = {"a bool", "an integer", "an integer",
                                                      "a float", "a string"};
  return kNames[std::get<GgufScalar>(value).index()];
}

}  // namespace

// Reads a header from front to back, once. Every error is one sentence that begins with the path.
class GgufParser {
 public:
  explicit GgufParser(GgufFile& file)
      : file_(file),
        bytes_(file.file_->bytes()),
        header_(bytes_.first(std::min<size_t>(bytes_.size(), kMaxHeaderBytes))) {}

  absl::Status parse() {
    RETURN_IF_ERROR(parse_preamble());
    for (uint64_t i = 0; i < n_keys_; ++i) RETURN_IF_ERROR(parse_key(i));
    RETURN_IF_ERROR(parse_alignment());
    for (uint64_t i = 0; i < n_tensors_; ++i) RETURN_IF_ERROR(parse_tensor(i));
    return place_tensors();
  }

 private:
  // Where a tensor's bytes are, until the start of the data section is known.
  struct Place {
    uint64_t offset = 0;
    uint64_t size = 0;
  };

  template <typename... Args>
  absl::Status error(fmt::format_string<Args...> format, Args&&... args) const {
    return base::invalid_argument("{}: {}", file_.path_,
                                  fmt::format(format, std::forward<Args>(args)...));
  }
  absl::Status cut_short(std::string_view where) const {
    if (bytes_.size() > header_.size()) {
      return error("the header goes on past {} MiB, in {}", kMaxHeaderBytes >> 20, where);
    }
    return error("the file is cut short: it ends in {}", where);
  }

  uint64_t left() const { return header_.size() - at_; }

  // The next value as it lies in the file; false and nothing read when the file ends first.
  template <typename T>
  bool take(T& value) {
    if (left() < sizeof(T)) return false;
    std::memcpy(&value, header_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return true;
  }

  // A length and so many bytes. `where` makes the text for errors.
  template <typename Where>
  absl::StatusOr<std::string_view> take_string(Where where) {
    uint64_t length = 0;
    if (!take(length)) return cut_short(where());
    if (length > left()) {
      return error("{} has a length of {}, but only {} bytes follow", where(), length, left());
    }
    const auto* data = reinterpret_cast<const char*>(header_.data() + at_);
    at_ += length;
    return std::string_view(data, length);
  }

  absl::Status parse_preamble();
  absl::Status check_count(std::string_view what, uint64_t count, uint64_t item_bytes) const;
  absl::Status parse_key(uint64_t index);
  absl::StatusOr<ValueType> take_value_type(const std::string& where);
  absl::StatusOr<GgufScalar> take_scalar(const std::string& where, ValueType type);
  absl::StatusOr<GgufArray> take_array(const std::string& where);
  absl::StatusOr<GgufArray> take_strings(const std::string& where, uint64_t count);
  absl::StatusOr<GgufArray> take_bools(const std::string& where, uint64_t count);
  absl::Status parse_alignment();
  absl::Status parse_tensor(uint64_t index);
  absl::Status parse_shape(GgufTensor& tensor, uint64_t& n_elements);
  absl::Status parse_type(GgufTensor& tensor, uint64_t n_elements, Place& place);
  absl::Status place_tensors();

  template <typename T, typename Wide>
  absl::StatusOr<GgufScalar> take_number(const std::string& where) {
    T value{};
    if (!take(value)) return cut_short(where);
    return GgufScalar(static_cast<Wide>(value));
  }
  // The caller has checked that count values are there.
  template <typename T, typename Wide>
  GgufArray take_numbers(uint64_t count) {
    std::vector<Wide> values(count);
    for (Wide& wide : values) {
      T value{};
      CHECK(take(value));
      wide = static_cast<Wide>(value);
    }
    return GgufArray{std::move(values)};
  }

  GgufFile& file_;
  const std::span<const uint8_t> bytes_;
  const std::span<const uint8_t> header_;  // the part of bytes_ that a header may take
  uint64_t at_ = 0;
  uint64_t n_tensors_ = 0;
  uint64_t n_keys_ = 0;
  uint64_t n_elements_ = 0;
  uint64_t alignment_ = kDefaultAlignment;
  std::vector<Place> places_;  // [n_tensors]
};

absl::Status GgufParser::parse_preamble() {
  if (bytes_.empty()) return error("is not a GGUF file: it is empty");
  char magic[4] = {};
  if (!take(magic) || std::memcmp(magic, "GGUF", 4) != 0) {
    return error("is not a GGUF file: it begins with {}", show_start(bytes_));
  }
  uint32_t version = 0;
  if (!take(version)) return cut_short("the version");
  if (const uint32_t swapped = __builtin_bswap32(version); swapped >= 1 && swapped <= 3) {
    return error("the version is {} in big-endian order; only little-endian files are supported",
                 swapped);
  }
  if (version != 2 && version != 3) {
    return error("the version is {}; supported are 2 and 3", version);
  }
  file_.version_ = version;
  if (!take(n_tensors_)) return cut_short("the tensor count");
  if (!take(n_keys_)) return cut_short("the key count");
  RETURN_IF_ERROR(check_count("tensor count", n_tensors_, kMinTensorBytes));
  RETURN_IF_ERROR(check_count("key count", n_keys_, kMinKeyBytes));
  return absl::OkStatus();
}

absl::Status GgufParser::check_count(std::string_view what, uint64_t count,
                                     uint64_t item_bytes) const {
  if (count > left() / item_bytes) {
    return error("the {} is {}, but the {} bytes that follow have room for {} at most", what, count,
                 left(), left() / item_bytes);
  }
  if (count > kMaxItems)
    return error("the {} is {}; it must be at most {}", what, count, kMaxItems);
  return absl::OkStatus();
}

absl::Status GgufParser::parse_key(uint64_t index) {
  const auto where = [&] { return fmt::format("the name of key {} of {}", index + 1, n_keys_); };
  ASSIGN_OR_RETURN(const std::string_view name, take_string(where));
  if (name.empty()) return error("{} is empty", where());
  if (name.size() > kMaxKeyBytes) {
    return error("{} has {} bytes; it must have at most {}", where(), name.size(), kMaxKeyBytes);
  }
  if (!is_printable(name)) return error("{} is not printable ASCII", where());

  const std::string key = fmt::format("key '{}'", name.substr(0, 256));
  if (file_.values_.contains(name)) return error("{} occurs twice", key);
  ASSIGN_OR_RETURN(const ValueType type, take_value_type(key));
  if (type == ValueType::kArray) {
    ASSIGN_OR_RETURN(GgufArray array, take_array(key));
    file_.values_.emplace(name, std::move(array));
  } else {
    ASSIGN_OR_RETURN(GgufScalar scalar, take_scalar(key, type));
    file_.values_.emplace(name, std::move(scalar));
  }
  return absl::OkStatus();
}

absl::StatusOr<ValueType> GgufParser::take_value_type(const std::string& where) {
  uint32_t type = 0;
  if (!take(type)) return cut_short(where);
  if (type >= kNumValueTypes) {
    return error("{} has value type {}; it must be below {}", where, type, kNumValueTypes);
  }
  return static_cast<ValueType>(type);
}

absl::StatusOr<GgufScalar> GgufParser::take_scalar(const std::string& where, ValueType type) {
  switch (type) {
    case ValueType::kU8:
      return take_number<uint8_t, uint64_t>(where);
    case ValueType::kI8:
      return take_number<int8_t, int64_t>(where);
    case ValueType::kU16:
      return take_number<uint16_t, uint64_t>(where);
    case ValueType::kI16:
      return take_number<int16_t, int64_t>(where);
    case ValueType::kU32:
      return take_number<uint32_t, uint64_t>(where);
    case ValueType::kI32:
      return take_number<int32_t, int64_t>(where);
    case ValueType::kU64:
      return take_number<uint64_t, uint64_t>(where);
    case ValueType::kI64:
      return take_number<int64_t, int64_t>(where);
    case ValueType::kF32:
      return take_number<float, double>(where);
    case ValueType::kF64:
      return take_number<double, double>(where);
    case ValueType::kBool: {
      uint8_t value = 0;
      if (!take(value)) return cut_short(where);
      if (value > 1) return error("{} is a bool of value {}; it must be 0 or 1", where, value);
      return GgufScalar(value == 1);
    }
    case ValueType::kString: {
      ASSIGN_OR_RETURN(const std::string_view text, take_string([&] { return where; }));
      return GgufScalar(std::string(text));
    }
    case ValueType::kArray:
      break;
  }
  return error("{} is an array where a single value is expected", where);
}

absl::StatusOr<GgufArray> GgufParser::take_array(const std::string& where) {
  ASSIGN_OR_RETURN(const ValueType type, take_value_type(where));
  if (type == ValueType::kArray) {
    return error("{} is an array of arrays, which is not supported", where);
  }
  uint64_t count = 0;
  if (!take(count)) return cut_short(where);
  if (count > left() / value_bytes(type)) {
    return error(
        "{} is an array of {} values, but the {} bytes that follow have room for {} at most", where,
        count, left(), left() / value_bytes(type));
  }
  if (count > kMaxElements - n_elements_) {
    return error("{} is an array of {} values; all arrays together must have at most {}", where,
                 count, kMaxElements);
  }
  n_elements_ += count;
  switch (type) {
    case ValueType::kU8:
      return take_numbers<uint8_t, uint64_t>(count);
    case ValueType::kI8:
      return take_numbers<int8_t, int64_t>(count);
    case ValueType::kU16:
      return take_numbers<uint16_t, uint64_t>(count);
    case ValueType::kI16:
      return take_numbers<int16_t, int64_t>(count);
    case ValueType::kU32:
      return take_numbers<uint32_t, uint64_t>(count);
    case ValueType::kI32:
      return take_numbers<int32_t, int64_t>(count);
    case ValueType::kU64:
      return take_numbers<uint64_t, uint64_t>(count);
    case ValueType::kI64:
      return take_numbers<int64_t, int64_t>(count);
    case ValueType::kF32:
      return take_numbers<float, double>(count);
    case ValueType::kF64:
      return take_numbers<double, double>(count);
    case ValueType::kBool:
      return take_bools(where, count);
    case ValueType::kString:
      return take_strings(where, count);
    case ValueType::kArray:
      break;
  }
  return error("{} is an array of arrays, which is not supported", where);
}

absl::StatusOr<GgufArray> GgufParser::take_bools(const std::string& where, uint64_t count) {
  std::vector<bool> values;
  values.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    uint8_t value = 0;
    CHECK(take(value));
    if (value > 1) {
      return error("{}: element {} is a bool of value {}; it must be 0 or 1", where, i, value);
    }
    values.push_back(value == 1);
  }
  return GgufArray{std::move(values)};
}

absl::StatusOr<GgufArray> GgufParser::take_strings(const std::string& where, uint64_t count) {
  std::vector<std::string> values;
  values.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(const std::string_view text,
                     take_string([&] { return fmt::format("element {} of {}", i, where); }));
    values.emplace_back(text);
  }
  return GgufArray{std::move(values)};
}

absl::Status GgufParser::parse_alignment() {
  constexpr std::string_view kKey = "general.alignment";
  if (file_.find(kKey) == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(const int64_t alignment, file_.get_int(kKey));
  if (alignment < 8 || alignment % 8 != 0 || alignment > static_cast<int64_t>(kMaxAlignment)) {
    return error("key '{}' is {}; it must be a multiple of 8 from 8 to {}", kKey, alignment,
                 kMaxAlignment);
  }
  alignment_ = static_cast<uint64_t>(alignment);
  return absl::OkStatus();
}

absl::Status GgufParser::parse_tensor(uint64_t index) {
  const auto where = [&] {
    return fmt::format("the name of tensor {} of {}", index + 1, n_tensors_);
  };
  ASSIGN_OR_RETURN(const std::string_view name, take_string(where));
  if (name.empty() || name.size() > kMaxTensorNameBytes) {
    return error("{} has {} bytes; it must have 1 to {}", where(), name.size(),
                 kMaxTensorNameBytes);
  }
  if (!is_printable(name)) return error("{} is not printable ASCII", where());
  if (file_.tensor_index_.contains(name)) return error("tensor '{}' occurs twice", name);

  GgufTensor tensor{.name = std::string(name), .type = DType::kF32, .dims = {}, .data = {}};
  uint64_t n_elements = 0;
  Place place;
  RETURN_IF_ERROR(parse_shape(tensor, n_elements));
  RETURN_IF_ERROR(parse_type(tensor, n_elements, place));
  if (!take(place.offset)) return cut_short(fmt::format("the offset of tensor '{}'", name));
  if (place.offset % alignment_ != 0) {
    return error("tensor '{}': the offset is {}; it must be a multiple of the alignment, {}", name,
                 place.offset, alignment_);
  }
  file_.tensor_index_.emplace(tensor.name, file_.tensors_.size());
  file_.tensors_.push_back(std::move(tensor));
  places_.push_back(place);
  return absl::OkStatus();
}

absl::Status GgufParser::parse_shape(GgufTensor& tensor, uint64_t& n_elements) {
  uint32_t n_dims = 0;
  if (!take(n_dims)) return cut_short(fmt::format("the shape of tensor '{}'", tensor.name));
  if (n_dims < 1 || n_dims > kMaxDims) {
    return error("tensor '{}': the number of dimensions is {}; it must be 1 to {}", tensor.name,
                 n_dims, kMaxDims);
  }
  n_elements = 1;
  for (uint32_t i = 0; i < n_dims; ++i) {
    uint64_t dim = 0;
    if (!take(dim)) return cut_short(fmt::format("the shape of tensor '{}'", tensor.name));
    if (dim == 0) {
      return error("tensor '{}': dimension {} is 0; it must be at least 1", tensor.name, i + 1);
    }
    if (__builtin_mul_overflow(n_elements, dim, &n_elements) ||
        n_elements > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return error("tensor '{}': dimension {} is {}, which makes more than 2^63 - 1 elements",
                   tensor.name, i + 1, dim);
    }
    tensor.dims.push_back(static_cast<int64_t>(dim));
  }
  return absl::OkStatus();
}

absl::Status GgufParser::parse_type(GgufTensor& tensor, uint64_t n_elements, Place& place) {
  uint32_t id = 0;
  if (!take(id)) return cut_short(fmt::format("the type of tensor '{}'", tensor.name));
  const auto* known = std::ranges::find(kTensorTypes, id, &TensorType::id);
  if (known == std::end(kTensorTypes) || !known->type.has_value()) {
    const std::string name =
        known == std::end(kTensorTypes) ? "" : fmt::format(" ({})", known->name);
    return error("tensor '{}' has type {}{}, which is not supported; supported are{}", tensor.name,
                 id, name, supported_types());
  }
  tensor.type = *known->type;
  const DTypeInfo info = dtype_info(tensor.type);
  if (tensor.dims[0] % info.block_len != 0) {
    return error("tensor '{}': dimension 1 is {}; type {} needs a multiple of {}", tensor.name,
                 tensor.dims[0], info.name, info.block_len);
  }
  const uint64_t n_blocks = n_elements / static_cast<uint64_t>(info.block_len);
  if (__builtin_mul_overflow(n_blocks, static_cast<uint64_t>(info.block_bytes), &place.size)) {
    return error("tensor '{}': the dimensions make more than 2^64 bytes", tensor.name);
  }
  return absl::OkStatus();
}

// Gives each tensor its bytes, which must lie in the file and belong to no other tensor.
absl::Status GgufParser::place_tensors() {
  const uint64_t data_begin = (at_ + alignment_ - 1) / alignment_ * alignment_;
  const uint64_t data_size = bytes_.size() > data_begin ? bytes_.size() - data_begin : 0;
  std::vector<size_t> order(places_.size());
  for (size_t i = 0; i < order.size(); ++i) {
    order[i] = i;
    const Place& place = places_[i];
    if (place.offset > data_size || place.size > data_size - place.offset) {
      return error("tensor '{}': offset {} and size {} reach past the {} bytes of tensor data",
                   file_.tensors_[i].name, place.offset, place.size, data_size);
    }
    file_.tensors_[i].data = bytes_.subspan(data_begin + place.offset, place.size);
  }
  std::ranges::sort(order, {}, [&](size_t i) { return places_[i].offset; });
  for (size_t i = 1; i < order.size(); ++i) {
    const Place& before = places_[order[i - 1]];
    if (places_[order[i]].offset < before.offset + before.size) {
      return error("tensor '{}': offset {} lies inside tensor '{}'", file_.tensors_[order[i]].name,
                   places_[order[i]].offset, file_.tensors_[order[i - 1]].name);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<GgufFile>> GgufFile::open(base::FileSystem& fs,
                                                         const std::string& path) {
  std::unique_ptr<GgufFile> file(new GgufFile);
  file->path_ = path;
  ASSIGN_OR_RETURN(file->file_, fs.map(path));
  RETURN_IF_ERROR(GgufParser(*file).parse());
  return file;
}

const GgufTensor* GgufFile::find_tensor(std::string_view name) const {
  const auto it = tensor_index_.find(name);
  return it == tensor_index_.end() ? nullptr : &tensors_[it->second];
}

const GgufValue* GgufFile::find(std::string_view key) const {
  const auto it = values_.find(key);
  return it == values_.end() ? nullptr : &it->second;
}

absl::StatusOr<const GgufValue*> GgufFile::get(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) {
    return base::status_error(absl::StatusCode::kNotFound, "{}: key '{}' is missing", path_, key);
  }
  return value;
}

absl::Status GgufFile::wrong_type(std::string_view key, std::string_view wanted) const {
  return base::invalid_argument("{}: key '{}' is {}; it must be {}", path_, key,
                                type_name(*find(key)), wanted);
}

absl::StatusOr<int64_t> GgufFile::get_int(std::string_view key) const {
  ASSIGN_OR_RETURN(const GgufValue* value, get(key));
  const auto* scalar = std::get_if<GgufScalar>(value);
  if (scalar == nullptr) return wrong_type(key, "an integer");
  if (const auto* number = std::get_if<int64_t>(scalar)) return *number;
  const auto* number = std::get_if<uint64_t>(scalar);
  if (number == nullptr) return wrong_type(key, "an integer");
  if (*number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return base::invalid_argument("{}: key '{}' is {}; it must be below 2^63", path_, key, *number);
  }
  return static_cast<int64_t>(*number);
}

absl::StatusOr<double> GgufFile::get_float(std::string_view key) const {
  ASSIGN_OR_RETURN(const GgufValue* value, get(key));
  const auto* scalar = std::get_if<GgufScalar>(value);
  const auto* number = scalar == nullptr ? nullptr : std::get_if<double>(scalar);
  if (number == nullptr) return wrong_type(key, "a float");
  return *number;
}

absl::StatusOr<bool> GgufFile::get_bool(std::string_view key) const {
  ASSIGN_OR_RETURN(const GgufValue* value, get(key));
  const auto* scalar = std::get_if<GgufScalar>(value);
  const auto* flag = scalar == nullptr ? nullptr : std::get_if<bool>(scalar);
  if (flag == nullptr) return wrong_type(key, "a bool");
  return *flag;
}

absl::StatusOr<std::string> GgufFile::get_string(std::string_view key) const {
  ASSIGN_OR_RETURN(const GgufValue* value, get(key));
  const auto* scalar = std::get_if<GgufScalar>(value);
  const auto* text = scalar == nullptr ? nullptr : std::get_if<std::string>(scalar);
  if (text == nullptr) return wrong_type(key, "a string");
  return *text;
}

absl::StatusOr<const std::vector<std::string>*> GgufFile::get_strings(std::string_view key) const {
  ASSIGN_OR_RETURN(const GgufValue* value, get(key));
  const auto* array = std::get_if<GgufArray>(value);
  const auto* texts =
      array == nullptr ? nullptr : std::get_if<std::vector<std::string>>(&array->values);
  if (texts == nullptr) return wrong_type(key, "an array of strings");
  return texts;
}

absl::StatusOr<std::vector<int64_t>> GgufFile::get_ints(std::string_view key) const {
  ASSIGN_OR_RETURN(const GgufValue* value, get(key));
  const auto* array = std::get_if<GgufArray>(value);
  if (array == nullptr) return wrong_type(key, "an array of integers");
  if (const auto* numbers = std::get_if<std::vector<int64_t>>(&array->values)) return *numbers;
  const auto* numbers = std::get_if<std::vector<uint64_t>>(&array->values);
  if (numbers == nullptr) return wrong_type(key, "an array of integers");
  std::vector<int64_t> values;
  values.reserve(numbers->size());
  for (const uint64_t number : *numbers) {
    if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return base::invalid_argument("{}: key '{}': element {} is {}; it must be below 2^63", path_,
                                    key, values.size(), number);
    }
    values.push_back(static_cast<int64_t>(number));
  }
  return values;
}

void GgufFile::drop(const GgufTensor& tensor) const {
  const auto begin = static_cast<size_t>(tensor.data.data() - file_->bytes().data());
  file_->drop(begin, begin + tensor.data.size());
}

}  // namespace pagoda::model
