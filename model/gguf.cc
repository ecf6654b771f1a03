#include "model/gguf.h"

#include <array>
#include <limits>
#include <utility>

#include "base/check.h"
#include "model/gguf_parser.h"

namespace pagoda::model {
namespace {

std::string_view type_name(const GgufValue& value) {
  if (std::holds_alternative<GgufArray>(value)) return "an array";
  constexpr std::array<std::string_view, 5> kNames = {"a bool", "an integer", "an integer",
                                                      "a float", "a string"};
  return kNames[std::get<GgufScalar>(value).index()];
}

}  // namespace

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
