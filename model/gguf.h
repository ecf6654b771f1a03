// GGUF files, versions 2 and 3 (the format's specification: ggml's docs/gguf.md). The header is
// untrusted: every count, length, offset and alignment is checked against the file before use, and
// nothing is allocated that the file's size does not justify.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "base/fs.h"
#include "kernels/dtype.h"

namespace pagoda::model {

struct GgufTensor {
  std::string name;
  DType type = DType::kF32;
  std::vector<int64_t> dims;      // as in the file: dims[0] runs fastest (columns)
  std::span<const uint8_t> data;  // inside the mapping
};

// Integers widen to int64 or uint64 (kept apart so that no value changes), floats to double.
using GgufScalar = std::variant<bool, int64_t, uint64_t, double, std::string>;
struct GgufArray {
  std::variant<std::vector<bool>, std::vector<int64_t>, std::vector<uint64_t>, std::vector<double>,
               std::vector<std::string>>
      values;
};
using GgufValue = std::variant<GgufScalar, GgufArray>;

// Owns the mapping; immutable.
class GgufFile {
 public:
  // kInvalidArgument with one sentence that names the file and the field; errors of the file system
  // are passed on.
  static absl::StatusOr<std::unique_ptr<GgufFile>> open(base::FileSystem& fs,
                                                        const std::string& path);

  const std::string& path() const { return path_; }
  uint32_t version() const { return version_; }
  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  const GgufTensor* find_tensor(std::string_view name) const;  // null when absent
  const GgufValue* find(std::string_view key) const;           // null when absent
  const std::map<std::string, GgufValue, std::less<>>& values() const { return values_; }

  // Typed access. kNotFound when absent, kInvalidArgument when of another type or out of range;
  // both name the key.
  absl::StatusOr<int64_t> get_int(std::string_view key) const;
  absl::StatusOr<double> get_float(std::string_view key) const;
  absl::StatusOr<bool> get_bool(std::string_view key) const;
  absl::StatusOr<std::string> get_string(std::string_view key) const;
  absl::StatusOr<const std::vector<std::string>*> get_strings(std::string_view key) const;
  absl::StatusOr<std::vector<int64_t>> get_ints(std::string_view key) const;

  // The reader is done with a tensor's bytes: their pages may be given back.
  void drop(const GgufTensor& tensor) const;

 private:
  GgufFile() = default;
  friend class GgufParser;
  absl::StatusOr<const GgufValue*> get(std::string_view key) const;
  absl::Status wrong_type(std::string_view key, std::string_view wanted) const;

  std::string path_;
  std::unique_ptr<base::MappedFile> file_;
  uint32_t version_ = 0;
  std::map<std::string, GgufValue, std::less<>> values_;
  std::vector<GgufTensor> tensors_;
  std::map<std::string, size_t, std::less<>> tensor_index_;
};

}  // namespace pagoda::model
