#include "model/tokenizer/normalizer.h"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/stringpiece.h>
#include <unicode/uniset.h>

#include <algorithm>

#include "base/check.h"

namespace pagoda::model {

struct Nfc::Tables {
  icu::UnicodeSet assigned;
  icu::FilteredNormalizer2 normalizer;

  Tables(const icu::Normalizer2& nfc, const icu::UnicodeSet& set)
      : assigned(set), normalizer(nfc, *static_cast<icu::UnicodeSet*>(assigned.freeze())) {}
};

Nfc::Nfc(std::unique_ptr<Tables> tables) : tables_(std::move(tables)) {}
Nfc::~Nfc() = default;

absl::StatusOr<std::unique_ptr<Nfc>> Nfc::create() {
  UErrorCode error = U_ZERO_ERROR;
  const icu::Normalizer2* nfc = icu::Normalizer2::getNFCInstance(error);
  const icu::UnicodeSet assigned(u"[:Age=9.0:]", error);
  if (U_FAILURE(error)) {
    return base::status_error(absl::StatusCode::kInternal, "ICU has no NFC tables: {}",
                              u_errorName(error));
  }
  return std::unique_ptr<Nfc>(new Nfc(std::make_unique<Tables>(*nfc, assigned)));
}

std::string_view Nfc::normalize(std::string_view text, std::string& storage) const {
  const bool ascii =
      std::all_of(text.begin(), text.end(), [](char c) { return static_cast<uint8_t>(c) < 0x80; });
  if (ascii) return text;
  CHECK_LE(text.size(), static_cast<size_t>(INT32_MAX));
  storage.clear();
  icu::StringByteSink<std::string> sink(&storage);
  UErrorCode error = U_ZERO_ERROR;
  const icu::StringPiece source(text.data(), static_cast<int32_t>(text.size()));
  tables_->normalizer.normalizeUTF8(0, source, sink, nullptr, error);
  // Only memory can fail here; text that is not normalised is still all there.
  return U_FAILURE(error) ? text : std::string_view(storage);
}

}  // namespace pagoda::model
