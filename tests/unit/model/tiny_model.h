// A small random llama loaded onto a backend, for the tests of what runs it.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "base/check.h"
#include "base/fs.h"
#include "kernels/backend.h"
#include "kernels/cpu/cpu_backend.h"
#include "model/config.h"
#include "model/gguf.h"
#include "model/weights.h"
#include "tests/unit/model/gguf_builder.h"

namespace pagoda::model {

struct TinyModel {
  std::unique_ptr<GgufFile> file;
  ModelConfig config;
  Weights weights;
};

inline std::unique_ptr<GgufFile> open_gguf(std::vector<uint8_t> bytes) {
  base::MemoryFileSystem fs;
  fs.put("x.gguf", std::move(bytes));
  auto file = GgufFile::open(fs, "x.gguf");
  EXPECT_TRUE(file.ok()) << file.status();
  return *std::move(file);
}

inline TinyModel load_tiny(const TinyLlama& tiny, Backend& backend) {
  TinyModel model;
  model.file = open_gguf(tiny.build());
  auto config = config_from_gguf(*model.file);
  EXPECT_TRUE(config.ok()) << config.status();
  model.config = *std::move(config);
  auto weights = load_weights(*model.file, model.config, backend, {});
  EXPECT_TRUE(weights.ok()) << weights.status();
  model.weights = *std::move(weights);
  return model;
}

inline std::unique_ptr<CpuBackend> cpu_backend(int32_t n_threads) {
  auto backend = CpuBackend::create({.n_threads = n_threads});
  EXPECT_TRUE(backend.ok()) << backend.status();
  return *std::move(backend);
}

}  // namespace pagoda::model
