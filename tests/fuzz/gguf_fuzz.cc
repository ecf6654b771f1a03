// GGUF headers: whatever the bytes, the file is read or refused with a message, and what is read
// holds what the header promises.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/fs.h"
#include "model/config.h"
#include "model/gguf.h"

namespace pagoda {
namespace {

void check_tensor(const model::GgufTensor& tensor) {
  CHECK(!tensor.dims.empty() && tensor.dims.size() <= 4);
  int64_t n = 1;
  for (const int64_t dim : tensor.dims) {
    CHECK_GE(dim, 1);
    n *= dim;
  }
  CHECK_EQ(tensor.dims[0] % dtype_info(tensor.type).block_len, 0);
  CHECK_EQ(dtype_row_bytes(tensor.type, n), static_cast<int64_t>(tensor.data.size()));
  // Reads the ends, for the sanitizer.
  const volatile uint8_t first = tensor.data.front();
  const volatile uint8_t last = tensor.data.back();
  (void)first;
  (void)last;
}

void check_refusal(const absl::Status& status) {
  CHECK(status.code() == absl::StatusCode::kInvalidArgument ||
        status.code() == absl::StatusCode::kUnimplemented);
  CHECK(base::message_of(status).starts_with("x.gguf: "));
}

void run(std::vector<uint8_t> bytes) {
  base::MemoryFileSystem fs;
  fs.put("x.gguf", std::move(bytes));
  const auto file = model::GgufFile::open(fs, "x.gguf");
  if (!file.ok()) return check_refusal(file.status());
  for (const model::GgufTensor& tensor : (*file)->tensors()) {
    check_tensor(tensor);
    CHECK((*file)->find_tensor(tensor.name) == &tensor);
  }
  const auto config = model::config_from_gguf(**file);
  if (!config.ok()) check_refusal(config.status());
  if (config.ok()) {
    CHECK_EQ(model::rope_inv_freq(config->rope).size(), static_cast<size_t>(config->rope.dim / 2));
    CHECK_GT(model::rope_magnitude(config->rope), 0.0F);
  }
  const auto vocabulary = model::vocabulary_from_gguf(**file);
  if (!vocabulary.ok()) return check_refusal(vocabulary.status());
  CHECK_EQ(vocabulary->texts.size(), vocabulary->kinds.size());
}

}  // namespace
}  // namespace pagoda

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  pagoda::run(std::vector<uint8_t>(data, data + size));
  return 0;
}
