#include "model/tokenizer/pre_tokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <string>

#include "base/check.h"

namespace pagoda::model {
namespace {

// Bodies of character classes. The reference's white space is Unicode's property, without U+180E,
// which PCRE2's \s has.
constexpr std::string_view kSpace =
    R"(\t-\r \x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";
// What Unicode 15 to 16 added to the letters and numbers of 14. ASCII is named first because PCRE2
// looks it up in a bitmap before it asks for properties.
constexpr std::string_view kLetter =
    R"(A-Za-z\p{L}\x{1C89}\x{1C8A}\x{A7CB}-\x{A7CD}\x{A7DA}-\x{A7DC}\x{105C0}-\x{105F3})"
    R"(\x{10D4A}-\x{10D65}\x{10D6F}-\x{10D85}\x{10EC2}-\x{10EC4}\x{1123F}\x{11240})"
    R"(\x{11380}-\x{11389}\x{1138B}\x{1138E}\x{11390}-\x{113B5}\x{113B7}\x{113D1}\x{113D3})"
    R"(\x{11BC0}-\x{11BE0}\x{11F02}\x{11F04}-\x{11F10}\x{11F12}-\x{11F33}\x{1342F})"
    R"(\x{13441}-\x{13446}\x{13460}-\x{143FA}\x{16100}-\x{1611D}\x{16D40}-\x{16D6C}\x{18CFF})"
    R"(\x{1B132}\x{1B155}\x{1DF25}-\x{1DF2A}\x{1E030}-\x{1E06D}\x{1E4D0}-\x{1E4EB})"
    R"(\x{1E5D0}-\x{1E5ED}\x{1E5F0}\x{2B739}\x{2EBF0}-\x{2EE5D}\x{31350}-\x{323AF})";
constexpr std::string_view kNumber =
    R"(0-9\p{N}\x{10D40}-\x{10D49}\x{116D0}-\x{116E3}\x{11BF0}-\x{11BF9}\x{11F50}-\x{11F59})"
    R"(\x{16130}-\x{16139}\x{16D70}-\x{16D79}\x{1CCF0}-\x{1CCF9}\x{1D2C0}-\x{1D2D3})"
    R"(\x{1E4F0}-\x{1E4F9}\x{1E5F1}-\x{1E5FA})";
// The reference's digit rule is not its regex engine's but Rust's, of Unicode 17.
constexpr std::string_view kNewerNumber = R"(\x{11DE0}-\x{11DE9}\x{16FF4}-\x{16FF6})";

// In the patterns, letters in angle brackets stand for the bodies above: <L> <N> <S>, and <D> for
// <N> with the newer numbers. Every pattern matches at every position, so the matches cover the
// text. Repeats are possessive where nothing can be given back.
constexpr std::string_view kGpt2Pattern =
    "'(?:[stmd]|re|ve|ll)| ?[<L>]++| ?[<N>]++| ?[^<S><L><N>]++|[<S>]+(?![^<S>])|[<S>]+";

// Hugging Face isolates each digit first and runs GPT-2's pattern inside the pieces between them.
// One pattern does both: a digit ends every other match, and white space before a digit ends where
// its piece ends, so that all of it is taken.
constexpr std::string_view kSmollmPattern =
    "'(?:[stmd]|re|ve|ll)| ?[<L>]++|[<D>]| ?[^<S><L><D>]++|[<S>]+(?![^<S><D>])|[<S>]+";

constexpr std::string_view kLlama3Pattern =
    "(?i:'(?:[stmd]|re|ve|ll))|[^\\r\\n<L><N>]?+[<L>]++|[<N>]{1,3}+| ?[^<S><L><N>]++[\\r\\n]*+"
    "|[<S>]*[\\r\\n]++|[<S>]+(?![^<S>])|[<S>]+";

constexpr std::string_view kQwen2Pattern =
    "(?i:'(?:[stmd]|re|ve|ll))|[^\\r\\n<L><N>]?+[<L>]++|[<N>]| ?[^<S><L><N>]++[\\r\\n]*+"
    "|[<S>]*[\\r\\n]++|[<S>]+(?![^<S>])|[<S>]+";

struct Rule {
  std::string_view name;
  std::string_view pattern;
  bool nfc = false;
  bool whole_pieces_first = false;
};

constexpr Rule kRules[] = {
    {"default", kGpt2Pattern},
    {"gpt-2", kGpt2Pattern},
    {"smollm", kSmollmPattern},
    {"llama-bpe", kLlama3Pattern, false, true},
    {"qwen2", kQwen2Pattern, true, false},
};

std::string expand(std::string_view pattern) {
  std::string expanded;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '<') {
      expanded += pattern[i];
      continue;
    }
    switch (pattern[i + 1]) {
      case 'S':
        expanded += kSpace;
        break;
      case 'L':
        expanded += kLetter;
        break;
      case 'N':
        expanded += kNumber;
        break;
      default:
        expanded += kNumber;
        expanded += kNewerNumber;
    }
    i += 2;
  }
  return expanded;
}

struct FreeMatch {
  void operator()(pcre2_match_data* match) const { pcre2_match_data_free(match); }
};
struct FreeContext {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};

// Each position is tried by a handful of alternatives, each of which gives a character back at most
// once, so a match far past this many steps can't happen; PCRE2 counts a little differently in
// compiled code.
uint32_t match_limit(size_t text_len) {
  return static_cast<uint32_t>(std::min<size_t>(10'000 + 16 * text_len, UINT32_MAX));
}

}  // namespace

struct PreTokenizer::Regex {
  explicit Regex(pcre2_code* compiled) : code(compiled) {}
  ~Regex() { pcre2_code_free(code); }
  Regex(const Regex&) = delete;
  Regex& operator=(const Regex&) = delete;

  pcre2_code* code;
};

PreTokenizer::PreTokenizer(std::unique_ptr<Regex> regex, std::unique_ptr<Nfc> nfc,
                           bool whole_pieces_first)
    : regex_(std::move(regex)), nfc_(std::move(nfc)), whole_pieces_first_(whole_pieces_first) {}

PreTokenizer::~PreTokenizer() = default;

absl::StatusOr<std::unique_ptr<PreTokenizer>> PreTokenizer::create(std::string_view name) {
  const auto* rule = std::find_if(std::begin(kRules), std::end(kRules),
                                  [&](const Rule& candidate) { return candidate.name == name; });
  if (rule == std::end(kRules)) {
    return base::invalid_argument("tokenizer.ggml.pre: unknown pre-tokenizer \"{}\"", name);
  }
  const std::string pattern = expand(rule->pattern);
  int error = 0;
  PCRE2_SIZE offset = 0;
  // Anchored here, not at the match: compiled code does not take that option.
  pcre2_code* code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED, &error, &offset, nullptr);
  if (code == nullptr) {
    return base::status_error(absl::StatusCode::kInternal,
                              "PCRE2 refuses the pattern of {} at {} (error {})", name, offset,
                              error);
  }
  auto regex = std::make_unique<Regex>(code);
  // Where the system allows no compiled code this fails, and PCRE2 interprets the pattern.
  (void)pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
  std::unique_ptr<Nfc> nfc;
  if (rule->nfc) {
    ASSIGN_OR_RETURN(nfc, Nfc::create());
  }
  return std::unique_ptr<PreTokenizer>(
      new PreTokenizer(std::move(regex), std::move(nfc), rule->whole_pieces_first));
}

void PreTokenizer::split(std::string_view text,
                         absl::FunctionRef<void(std::string_view)> take) const {
  std::string storage;
  if (nfc_ != nullptr) text = nfc_->normalize(text, storage);
  const std::unique_ptr<pcre2_match_data, FreeMatch> match(pcre2_match_data_create(1, nullptr));
  const std::unique_ptr<pcre2_match_context, FreeContext> context(
      pcre2_match_context_create(nullptr));
  CHECK(match != nullptr && context != nullptr);
  pcre2_set_match_limit(context.get(), match_limit(text.size()));
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(match.get());
  size_t begin = 0;
  while (begin < text.size()) {
    const int rc = pcre2_match(regex_->code, subject, text.size(), begin, PCRE2_NO_UTF_CHECK,
                               match.get(), context.get());
    const size_t end = rc > 0 && bounds[1] > begin ? bounds[1] : text.size();
    take(text.substr(begin, end - begin));
    begin = end;
  }
}

}  // namespace pagoda::model
