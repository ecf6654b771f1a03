// Reads the header of a GGUF file into a GgufFile. Used by GgufFile::open alone.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/check.h"
#include "model/gguf.h"

namespace pagoda::model {

// Types of values, numbered as in the file.
enum class GgufValueType : uint32_t {
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
inline constexpr uint32_t kNumGgufValueTypes = 13;

// Reads a header from front to back, once. Every error is one sentence that begins with the path.
class GgufParser {
 public:
  // The file is mapped; its values and tensors are filled in.
  explicit GgufParser(GgufFile& file);
  absl::Status parse();

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
  absl::Status cut_short(std::string_view where) const;

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
  absl::StatusOr<std::string_view> take_string(Where where);

  absl::Status parse_preamble();
  absl::Status check_count(std::string_view what, uint64_t count, uint64_t item_bytes) const;
  absl::Status parse_key(uint64_t index);
  absl::StatusOr<GgufValueType> take_value_type(const std::string& where);
  absl::StatusOr<GgufScalar> take_scalar(const std::string& where, GgufValueType type);
  absl::StatusOr<GgufArray> take_array(const std::string& where);
  absl::StatusOr<GgufArray> take_strings(const std::string& where, uint64_t count);
  absl::StatusOr<GgufArray> take_bools(const std::string& where, uint64_t count);
  absl::Status parse_alignment();
  absl::Status parse_tensor(uint64_t index);
  absl::Status parse_shape(GgufTensor& tensor, uint64_t& n_elements);
  absl::Status parse_type(GgufTensor& tensor, uint64_t n_elements, Place& place);
  absl::Status place_tensors();

  template <typename T, typename Wide>
  absl::StatusOr<GgufScalar> take_number(const std::string& where);
  // The caller has checked that count values are there.
  template <typename T, typename Wide>
  GgufArray take_numbers(uint64_t count);

  GgufFile& file_;
  const std::span<const uint8_t> bytes_;
  const std::span<const uint8_t> header_;  // the part of bytes_ that a header may take
  uint64_t at_ = 0;
  uint64_t n_tensors_ = 0;
  uint64_t n_keys_ = 0;
  uint64_t n_elements_ = 0;
  uint64_t alignment_ = 32;    // the format's default
  std::vector<Place> places_;  // [n_tensors]
};

}  // namespace pagoda::model
