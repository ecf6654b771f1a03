#include "model/gguf_parser.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <limits>
#include <optional>

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
constexpr uint32_t kMaxDims = 4;
constexpr uint64_t kMinKeyBytes = 8 + 1 + 4 + 1;  // name, type, value
// Name and number of dimensions: one that is cut short there is told from a wrong count.
constexpr uint64_t kMinTensorBytes = 8 + 1 + 4;

// Bytes that one value takes at least.
uint64_t value_bytes(GgufValueType type) {
  switch (type) {
    case GgufValueType::kU8:
    case GgufValueType::kI8:
    case GgufValueType::kBool:
      return 1;
    case GgufValueType::kU16:
    case GgufValueType::kI16:
      return 2;
    case GgufValueType::kU32:
    case GgufValueType::kI32:
    case GgufValueType::kF32:
      return 4;
    case GgufValueType::kString:
    case GgufValueType::kU64:
    case GgufValueType::kI64:
    case GgufValueType::kF64:
      return 8;
    case GgufValueType::kArray:
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

}  // namespace

GgufParser::GgufParser(GgufFile& file)
    : file_(file),
      bytes_(file.file_->bytes()),
      header_(bytes_.first(std::min<size_t>(bytes_.size(), kMaxHeaderBytes))) {}

absl::Status GgufParser::parse() {
  RETURN_IF_ERROR(parse_preamble());
  for (uint64_t i = 0; i < n_keys_; ++i) RETURN_IF_ERROR(parse_key(i));
  RETURN_IF_ERROR(parse_alignment());
  for (uint64_t i = 0; i < n_tensors_; ++i) RETURN_IF_ERROR(parse_tensor(i));
  return place_tensors();
}

absl::Status GgufParser::cut_short(std::string_view where) const {
  if (bytes_.size() > header_.size()) {
    return error("the header goes on past {} MiB, in {}", kMaxHeaderBytes >> 20, where);
  }
  return error("the file is cut short: it ends in {}", where);
}

template <typename Where>
absl::StatusOr<std::string_view> GgufParser::take_string(Where where) {
  uint64_t length = 0;
  if (!take(length)) return cut_short(where());
  if (length > left()) {
    return error("{} has a length of {}, but only {} bytes follow", where(), length, left());
  }
  const auto* data = reinterpret_cast<const char*>(header_.data() + at_);
  at_ += length;
  return std::string_view(data, length);
}

template <typename T, typename Wide>
absl::StatusOr<GgufScalar> GgufParser::take_number(const std::string& where) {
  T value{};
  if (!take(value)) return cut_short(where);
  return GgufScalar(static_cast<Wide>(value));
}

template <typename T, typename Wide>
GgufArray GgufParser::take_numbers(uint64_t count) {
  std::vector<Wide> values(count);
  for (Wide& wide : values) {
    T value{};
    CHECK(take(value));
    wide = static_cast<Wide>(value);
  }
  return GgufArray{std::move(values)};
}

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
  ASSIGN_OR_RETURN(const GgufValueType type, take_value_type(key));
  if (type == GgufValueType::kArray) {
    ASSIGN_OR_RETURN(GgufArray array, take_array(key));
    file_.values_.emplace(name, std::move(array));
  } else {
    ASSIGN_OR_RETURN(GgufScalar scalar, take_scalar(key, type));
    file_.values_.emplace(name, std::move(scalar));
  }
  return absl::OkStatus();
}

absl::StatusOr<GgufValueType> GgufParser::take_value_type(const std::string& where) {
  uint32_t type = 0;
  if (!take(type)) return cut_short(where);
  if (type >= kNumGgufValueTypes) {
    return error("{} has value type {}; it must be below {}", where, type, kNumGgufValueTypes);
  }
  return static_cast<GgufValueType>(type);
}

absl::StatusOr<GgufScalar> GgufParser::take_scalar(const std::string& where, GgufValueType type) {
  switch (type) {
    case GgufValueType::kU8:
      return take_number<uint8_t, uint64_t>(where);
    case GgufValueType::kI8:
      return take_number<int8_t, int64_t>(where);
    case GgufValueType::kU16:
      return take_number<uint16_t, uint64_t>(where);
    case GgufValueType::kI16:
      return take_number<int16_t, int64_t>(where);
    case GgufValueType::kU32:
      return take_number<uint32_t, uint64_t>(where);
    case GgufValueType::kI32:
      return take_number<int32_t, int64_t>(where);
    case GgufValueType::kU64:
      return take_number<uint64_t, uint64_t>(where);
    case GgufValueType::kI64:
      return take_number<int64_t, int64_t>(where);
    case GgufValueType::kF32:
      return take_number<float, double>(where);
    case GgufValueType::kF64:
      return take_number<double, double>(where);
    case GgufValueType::kBool: {
      uint8_t value = 0;
      if (!take(value)) return cut_short(where);
      if (value > 1) return error("{} is a bool of value {}; it must be 0 or 1", where, value);
      return GgufScalar(value == 1);
    }
    case GgufValueType::kString: {
      ASSIGN_OR_RETURN(const std::string_view text, take_string([&] { return where; }));
      return GgufScalar(std::string(text));
    }
    case GgufValueType::kArray:
      break;
  }
  return error("{} is an array where a single value is expected", where);
}

absl::StatusOr<GgufArray> GgufParser::take_array(const std::string& where) {
  ASSIGN_OR_RETURN(const GgufValueType type, take_value_type(where));
  if (type == GgufValueType::kArray) {
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
    case GgufValueType::kU8:
      return take_numbers<uint8_t, uint64_t>(count);
    case GgufValueType::kI8:
      return take_numbers<int8_t, int64_t>(count);
    case GgufValueType::kU16:
      return take_numbers<uint16_t, uint64_t>(count);
    case GgufValueType::kI16:
      return take_numbers<int16_t, int64_t>(count);
    case GgufValueType::kU32:
      return take_numbers<uint32_t, uint64_t>(count);
    case GgufValueType::kI32:
      return take_numbers<int32_t, int64_t>(count);
    case GgufValueType::kU64:
      return take_numbers<uint64_t, uint64_t>(count);
    case GgufValueType::kI64:
      return take_numbers<int64_t, int64_t>(count);
    case GgufValueType::kF32:
      return take_numbers<float, double>(count);
    case GgufValueType::kF64:
      return take_numbers<double, double>(count);
    case GgufValueType::kBool:
      return take_bools(where, count);
    case GgufValueType::kString:
      return take_strings(where, count);
    case GgufValueType::kArray:
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

}  // namespace pagoda::model
