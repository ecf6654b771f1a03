#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "base/check.h"
#include "model/tokenizer/added_tokens.h"
#include "model/tokenizer/bpe_merger.h"
#include "model/tokenizer/pre_tokenizer.h"
#include "model/tokenizer/tokenizer.h"
#include "model/tokenizer/utf8.h"

namespace pagoda::model {
namespace {

// Abseil's own hash does not know std::string_view in Debian's build.
using TextIndex = absl::flat_hash_map<std::string_view, TokenId, std::hash<std::string_view>,
                                      std::equal_to<std::string_view>>;

// GPT-2 writes a byte as one printable character: itself where Latin-1 prints it, else the next of
// U+0100, U+0101, … in the order of the bytes.
class ByteAlphabet {
 public:
  ByteAlphabet() {
    bytes_.fill(-1);
    size_t next = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      const bool printable =
          (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
      bytes_[printable ? static_cast<size_t>(byte) : next++] = static_cast<int16_t>(byte);
    }
    CHECK_EQ(next, bytes_.size());
  }

  // Appends the bytes that `text` stands for. False, with nothing appended, when a character of it
  // is not of the alphabet.
  bool append_bytes(std::string_view text, std::string& bytes) const {
    const size_t old_len = bytes.size();
    while (!text.empty()) {
      const std::optional<char> byte = take_byte(text);
      if (!byte) {
        bytes.resize(old_len);
        return false;
      }
      bytes += *byte;
    }
    return true;
  }

 private:
  std::optional<char> take_byte(std::string_view& text) const {
    const Utf8Step step = utf8_step(text);
    if (step.kind != Utf8Kind::kCharacter || step.len > 2) return std::nullopt;
    size_t code = static_cast<uint8_t>(text[0]);
    if (step.len == 2) code = (code & 0x1F) << 6 | (static_cast<uint8_t>(text[1]) & 0x3F);
    text.remove_prefix(step.len);
    if (code >= bytes_.size() || bytes_[code] < 0) return std::nullopt;
    return static_cast<char>(bytes_[code]);
  }

  std::array<int16_t, 0x100 + 68> bytes_;  // by code point, -1: not of the alphabet
};

// Well-formed text and where control tokens count in it.
struct Subject {
  std::string text;
  std::vector<TextRange> special;  // sorted, disjoint, not touching
};

// Joins the parts; neighbours of kParse become one range.
Subject join_parts(std::span<const TextPart> parts) {
  Subject subject;
  size_t len = 0;
  for (const TextPart& part : parts) len += part.text.size();
  subject.text.reserve(len);
  for (const TextPart& part : parts) {
    const size_t begin = subject.text.size();
    subject.text.append(part.text);
    if (part.special != SpecialTokens::kParse || part.text.empty()) continue;
    if (!subject.special.empty() && subject.special.back().end == begin) {
      subject.special.back().end = subject.text.size();
    } else {
      subject.special.push_back({begin, subject.text.size()});
    }
  }
  return subject;
}

// Makes U+FFFD of every ill-formed part and moves the ranges along. A range's border inside a
// character or an ill-formed part leaves that to the outside.
void replace_ill_formed(Subject& subject) {
  const std::string_view text = subject.text;
  if (utf8_valid_len(text) == text.size()) return;
  std::vector<size_t*> borders;  // begin, end, begin, end, … of the ranges
  for (TextRange& range : subject.special) {
    borders.push_back(&range.begin);
    borders.push_back(&range.end);
  }
  std::string clean;
  size_t n_moved = 0;
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = utf8_step(text.substr(at));
    const bool well_formed = step.kind == Utf8Kind::kCharacter;
    const std::string_view unit = well_formed ? text.substr(at, step.len) : kReplacementCharacter;
    for (; n_moved < borders.size() && *borders[n_moved] < at + step.len; ++n_moved) {
      const bool is_begin = n_moved % 2 == 0;
      const bool inside = *borders[n_moved] > at;
      *borders[n_moved] = clean.size() + (is_begin && inside ? unit.size() : 0);
    }
    clean.append(unit);
    at += step.len;
  }
  for (; n_moved < borders.size(); ++n_moved) *borders[n_moved] = clean.size();
  subject.text = std::move(clean);
}

class BpeTokenizer final : public Tokenizer {
 public:
  static absl::StatusOr<std::unique_ptr<Tokenizer>> create(Vocabulary vocabulary);

  void encode(std::string_view text, SpecialTokens special,
              std::vector<TokenId>& ids) const override {
    const TextPart part{text, special};
    encode_parts({&part, 1}, ids);
  }
  void encode_parts(std::span<const TextPart> parts, std::vector<TokenId>& ids) const override;

  std::string_view token_bytes(TokenId id) const override {
    return has(id) ? token_bytes_[static_cast<size_t>(id)] : std::string_view();
  }
  TokenKind token_kind(TokenId id) const override {
    return has(id) ? vocabulary_.kinds[static_cast<size_t>(id)] : TokenKind::kUnused;
  }
  int32_t n_vocab() const override { return static_cast<int32_t>(vocabulary_.texts.size()); }
  const Vocabulary& vocabulary() const override { return vocabulary_; }

 private:
  struct Scratch {
    std::vector<TokenId> symbols;
    BpeMerger::Scratch merger;
  };

  BpeTokenizer(Vocabulary vocabulary, std::unique_ptr<PreTokenizer> pre_tokenizer)
      : vocabulary_(std::move(vocabulary)),
        added_(vocabulary_),
        pre_tokenizer_(std::move(pre_tokenizer)) {}

  bool has(TokenId id) const { return id >= 0 && id < n_vocab(); }
  // Returns which tokens stand for text that merging may reach.
  std::vector<bool> index_bytes();
  absl::Status index_merges();
  void index_pieces(const std::vector<bool>& ordinary);
  void merge_piece(std::string_view piece, Scratch& scratch, std::vector<TokenId>& ids) const;

  const Vocabulary vocabulary_;
  const AddedTokens added_;
  const std::unique_ptr<PreTokenizer> pre_tokenizer_;
  std::string bytes_;                          // of all tokens, one after the other
  std::vector<std::string_view> token_bytes_;  // [n_vocab], in bytes_
  std::array<TokenId, 256> byte_ids_{};        // -1: no token for that byte
  BpeMerger merger_;
  TextIndex pieces_;  // pieces that are known to become one token; keys in bytes_
};

absl::Status check_ids(const Vocabulary& vocabulary) {
  const size_t n_vocab = vocabulary.texts.size();
  if (n_vocab == 0 || n_vocab > INT32_MAX) {
    return base::invalid_argument("tokenizer.ggml.tokens: {} tokens", n_vocab);
  }
  if (vocabulary.kinds.size() != n_vocab) {
    return base::invalid_argument("tokenizer.ggml.token_type: {} values for {} tokens",
                                  vocabulary.kinds.size(), n_vocab);
  }
  if (vocabulary.merges.size() >= UINT32_MAX) {
    return base::invalid_argument("tokenizer.ggml.merges: {} merges", vocabulary.merges.size());
  }
  const auto in_vocabulary = [&](TokenId id) {
    return id >= -1 && id < static_cast<int64_t>(n_vocab);
  };
  if (!in_vocabulary(vocabulary.bos)) {
    return base::invalid_argument("tokenizer.ggml.bos_token_id: {} of {} tokens", vocabulary.bos,
                                  n_vocab);
  }
  if (!in_vocabulary(vocabulary.eos)) {
    return base::invalid_argument("tokenizer.ggml.eos_token_id: {} of {} tokens", vocabulary.eos,
                                  n_vocab);
  }
  for (const TokenId id : vocabulary.end_ids) {
    if (id < 0 || !in_vocabulary(id)) {
      return base::invalid_argument(
          "tokenizer.ggml.eos_token_id, eot_token_id or eom_token_id: {} of {} tokens", id,
          n_vocab);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Tokenizer>> BpeTokenizer::create(Vocabulary vocabulary) {
  RETURN_IF_ERROR(check_ids(vocabulary));
  ASSIGN_OR_RETURN(std::unique_ptr<PreTokenizer> pre_tokenizer,
                   PreTokenizer::create(vocabulary.pre_tokenizer));
  std::unique_ptr<BpeTokenizer> tokenizer(
      new BpeTokenizer(std::move(vocabulary), std::move(pre_tokenizer)));
  const std::vector<bool> ordinary = tokenizer->index_bytes();
  RETURN_IF_ERROR(tokenizer->index_merges());
  tokenizer->index_pieces(ordinary);
  return tokenizer;
}

// Added tokens are stored as plain text, the others in the byte alphabet; a text that is not of the
// alphabet stands for itself and can't be reached.
std::vector<bool> BpeTokenizer::index_bytes() {
  const ByteAlphabet alphabet;
  std::vector<bool> ordinary;
  size_t len = 0;
  for (const std::string& text : vocabulary_.texts) len += text.size();
  bytes_.reserve(len);  // the views stay valid: a token's bytes are never longer than its text
  token_bytes_.reserve(vocabulary_.texts.size());
  byte_ids_.fill(-1);
  for (size_t i = 0; i < vocabulary_.texts.size(); ++i) {
    const std::string& text = vocabulary_.texts[i];
    const TokenKind kind = vocabulary_.kinds[i];
    const size_t begin = bytes_.size();
    const bool plain = is_special(kind) || kind == TokenKind::kUserDefined;
    const bool encoded = !plain && alphabet.append_bytes(text, bytes_);
    if (!encoded) bytes_.append(text);
    const std::string_view bytes = std::string_view(bytes_).substr(begin);
    token_bytes_.push_back(bytes);
    ordinary.push_back(encoded && !bytes.empty() && kind != TokenKind::kUnused);
    if (!ordinary.back() || bytes.size() != 1) continue;
    TokenId& id = byte_ids_[static_cast<uint8_t>(bytes[0])];
    if (id < 0) id = static_cast<TokenId>(i);
  }
  return ordinary;
}

// Merges speak of texts as stored. Of tokens with equal texts the first ordinary one counts. A
// merge that makes a special token would let a user write one, so it is refused.
absl::Status BpeTokenizer::index_merges() {
  TextIndex ids;
  ids.reserve(vocabulary_.texts.size());
  for (size_t i = 0; i < vocabulary_.texts.size(); ++i) {
    const auto [it, inserted] = ids.emplace(vocabulary_.texts[i], static_cast<TokenId>(i));
    if (!inserted && is_special(token_kind(it->second))) it->second = static_cast<TokenId>(i);
  }
  const auto find = [&](std::string_view text) {
    const auto it = ids.find(text);
    return it == ids.end() || is_special(token_kind(it->second)) ? TokenId{-1} : it->second;
  };
  merger_.reserve(vocabulary_.merges.size());
  std::string merged;
  for (size_t rank = 0; rank < vocabulary_.merges.size(); ++rank) {
    const std::string_view merge = vocabulary_.merges[rank];
    const size_t space = merge.find(' ', 1);
    if (space == std::string_view::npos) {
      return base::invalid_argument("tokenizer.ggml.merges[{}]: no pair", rank);
    }
    merged.assign(merge.substr(0, space)).append(merge.substr(space + 1));
    const TokenId left = find(merge.substr(0, space));
    const TokenId right = find(merge.substr(space + 1));
    const TokenId result = find(merged);
    if (left < 0 || right < 0 || result < 0) {
      return base::invalid_argument(
          "tokenizer.ggml.merges[{}]: a piece or the result is no ordinary token", rank);
    }
    merger_.add(left, right, static_cast<uint32_t>(rank), result);
  }
  return absl::OkStatus();
}

// Most pieces of real text are one token. Those whose bytes merge to just that token are looked up
// whole; where whole pieces come first anyway, every ordinary token is.
void BpeTokenizer::index_pieces(const std::vector<bool>& ordinary) {
  Scratch scratch;
  std::vector<TokenId> ids;
  pieces_.reserve(token_bytes_.size());
  for (size_t i = 0; i < token_bytes_.size(); ++i) {
    if (!ordinary[i]) continue;
    const auto id = static_cast<TokenId>(i);
    if (!pre_tokenizer_->whole_pieces_first()) {
      ids.clear();
      merge_piece(token_bytes_[i], scratch, ids);
      if (ids.size() != 1 || ids[0] != id) continue;
    }
    pieces_.emplace(token_bytes_[i], id);
  }
}

void BpeTokenizer::merge_piece(std::string_view piece, Scratch& scratch,
                               std::vector<TokenId>& ids) const {
  scratch.symbols.clear();
  for (const char c : piece) {
    const TokenId id = byte_ids_[static_cast<uint8_t>(c)];
    if (id >= 0) scratch.symbols.push_back(id);
  }
  merger_.merge(scratch.symbols, scratch.merger, ids);
}

void BpeTokenizer::encode_parts(std::span<const TextPart> parts, std::vector<TokenId>& ids) const {
  Subject subject = join_parts(parts);
  replace_ill_formed(subject);
  const std::string_view text = subject.text;
  Scratch scratch;
  const auto encode_piece = [&](std::string_view piece) {
    const auto whole = pieces_.find(piece);
    if (whole != pieces_.end()) {
      ids.push_back(whole->second);
    } else {
      merge_piece(piece, scratch, ids);
    }
  };
  size_t begin = 0;
  for (const AddedMatch& match : added_.find(text, subject.special)) {
    if (match.range.begin > begin) {
      pre_tokenizer_->split(text.substr(begin, match.range.begin - begin), encode_piece);
    }
    ids.push_back(match.id);
    begin = match.range.end;
  }
  if (begin < text.size()) pre_tokenizer_->split(text.substr(begin), encode_piece);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> make_bpe_tokenizer(Vocabulary vocabulary) {
  return BpeTokenizer::create(std::move(vocabulary));
}

}  // namespace pagoda::model
