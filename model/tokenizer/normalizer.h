// Unicode's normal form C, as the references of some model families ask for it.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace pagoda::model {

// NFC by the tables of Unicode 9, which `tokenizers` carries: a character assigned later neither
// composes nor moves. Immutable; any thread may call.
class Nfc {
 public:
  // kInternal when ICU's data can't be had.
  static absl::StatusOr<std::unique_ptr<Nfc>> create();
  ~Nfc();

  // `text` is UTF-8. The result is `text` itself or lies in `storage`.
  std::string_view normalize(std::string_view text, std::string& storage) const;

 private:
  struct Tables;
  explicit Nfc(std::unique_ptr<Tables> tables);

  std::unique_ptr<Tables> tables_;
};

}  // namespace pagoda::model
