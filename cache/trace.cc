#include "cache/trace.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "base/check.h"

namespace pagoda::cache {
namespace {

constexpr int32_t kMostTokens = 1 << 30;
constexpr double kMostMs = 1e14;  // some three thousand years
constexpr int64_t kMostBlockTokens = 1 << 20;
constexpr int64_t kMostBlockBytes = int64_t{1} << 40;

// What a line may say. Numbers are doubles until they are asked for, but those that need all 64
// bits.
struct Line {
  std::optional<double> pagoda_trace, block_size, block_bytes, start_ms;
  std::optional<double> t_ms, prompt_len, output_len, priority;
  std::optional<double> timestamp, input_length;
  uint64_t salt = 0;
  uint64_t tenant = 0;
  uint64_t session = 0;
  bool has_blocks = false;
  bool has_hash_ids = false;
  std::vector<uint64_t> ids;

  void clear() {
    std::vector<uint64_t> kept = std::move(ids);
    *this = Line();
    kept.clear();
    ids = std::move(kept);
  }
};

struct NumberField {
  std::string_view name;
  std::optional<double> Line::*field;
};
constexpr NumberField kNumbers[] = {
    {"t_ms", &Line::t_ms},
    {"prompt_len", &Line::prompt_len},
    {"output_len", &Line::output_len},
    {"output_length", &Line::output_len},
    {"timestamp", &Line::timestamp},
    {"input_length", &Line::input_length},
    {"priority", &Line::priority},
    {"block_size", &Line::block_size},
    {"block_bytes", &Line::block_bytes},
    {"start_ms", &Line::start_ms},
    {"pagoda_trace", &Line::pagoda_trace},
};
struct DigestField {
  std::string_view name;
  uint64_t Line::*field;
};
constexpr DigestField kDigests[] = {
    {"salt", &Line::salt}, {"tenant", &Line::tenant}, {"session", &Line::session}};

// Takes one line's events into a Line; what is wrong with it stays in `error`.
class LineSax final : public nlohmann::json::json_sax_t {
 public:
  explicit LineSax(Line& line) : line_(line) {}

  std::string error;

  bool null() override { return scalar("null"); }
  bool boolean(bool) override { return scalar("true or false"); }
  bool string(string_t&) override { return scalar("a text"); }
  bool binary(binary_t&) override { return scalar("bytes"); }
  bool number_unsigned(number_unsigned_t value) override {
    if (is_in_ids_) return id(value);
    if (digest_ != nullptr) {
      line_.*digest_ = value;
      return true;
    }
    return number(static_cast<double>(value));
  }
  bool number_integer(number_integer_t value) override {
    if (is_in_ids_ || digest_ != nullptr) return scalar("a negative number");
    return number(static_cast<double>(value));
  }
  bool number_float(number_float_t value, const string_t&) override {
    if (is_in_ids_ || digest_ != nullptr) return scalar("a number of other than 64 bits");
    return number(value);
  }
  bool key(string_t& name) override {
    if (depth_ != 1) return true;
    name_ = name;
    number_ = nullptr;
    digest_ = nullptr;
    wants_ids_ = name == "blocks" || name == "hash_ids";
    if (wants_ids_ && (line_.has_blocks || line_.has_hash_ids)) {
      return fail("has its blocks twice");
    }
    for (const NumberField& each : kNumbers) {
      if (each.name == name) number_ = each.field;
    }
    for (const DigestField& each : kDigests) {
      if (each.name == name) digest_ = each.field;
    }
    if (number_ != nullptr && (line_.*number_).has_value()) {
      return fail(fmt::format("has {} twice", name));
    }
    return true;
  }
  bool start_object(size_t) override {
    if (is_in_ids_) return scalar("an object");
    if (depth_ == 1 && !is_ignored()) return scalar("an object");
    return deeper();
  }
  bool end_object() override {
    --depth_;
    return true;
  }
  bool start_array(size_t) override {
    if (depth_ == 0) return fail("is a list, not an object");
    if (is_in_ids_) return scalar("a list");
    if (depth_ == 1 && wants_ids_) {
      (name_ == "blocks" ? line_.has_blocks : line_.has_hash_ids) = true;
      is_in_ids_ = true;
      return deeper();
    }
    if (depth_ == 1 && !is_ignored()) return scalar("a list");
    return deeper();
  }
  bool end_array() override {
    --depth_;
    is_in_ids_ = false;
    return true;
  }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception&) override {
    return fail("is not JSON");
  }

 private:
  static constexpr int kMostDepth = 16;

  bool fail(std::string what) {
    if (error.empty()) error = std::move(what);
    return false;
  }
  bool is_ignored() const { return number_ == nullptr && digest_ == nullptr && !wants_ids_; }
  bool deeper() { return ++depth_ <= kMostDepth || fail("is nested too deep"); }
  bool id(uint64_t value) {
    line_.ids.push_back(value);
    return true;
  }
  bool number(double value) {
    if (depth_ == 1 && number_ != nullptr) {
      line_.*number_ = value;
      return true;
    }
    return scalar("a number");
  }
  // A value that no field wants.
  bool scalar(std::string_view what) {
    if (depth_ == 0) return fail("is not an object");
    if (is_in_ids_) return fail(fmt::format("has {} among the ids of {}", what, name_));
    if (depth_ > 1 || is_ignored()) return true;
    return fail(fmt::format("has {} for {}", what, name_));
  }

  Line& line_;
  int depth_ = 0;
  bool is_in_ids_ = false;
  bool wants_ids_ = false;
  std::optional<double> Line::*number_ = nullptr;
  uint64_t Line::*digest_ = nullptr;
  std::string name_;
};

// A number of a field: whole where T is, and within bounds.
template <typename T>
absl::StatusOr<T> value_of(const std::optional<double>& field, std::string_view name, double low,
                           double high) {
  if (!field.has_value()) return base::invalid_argument("has no {}", name);
  if (*field < low || *field > high || (std::is_integral_v<T> && *field != std::floor(*field))) {
    return base::invalid_argument("has {} for {}, which takes a {}number from {} to {}", *field,
                                  name, std::is_integral_v<T> ? "whole " : "", low, high);
  }
  return static_cast<T>(*field);
}
template <typename T>
absl::StatusOr<T> value_or(const std::optional<double>& field, T otherwise, std::string_view name,
                           double low, double high) {
  if (!field.has_value()) return otherwise;
  return value_of<T>(field, name, low, high);
}

// Errors are the rest of a sentence that begins with the line's place.
class TraceReader {
 public:
  explicit TraceReader(const TraceLimits& limits) : limits_(limits) {}

  absl::Status add(std::string_view text) {
    line_.clear();
    LineSax sax(line_);
    if (!nlohmann::json::sax_parse(text, &sax)) {
      return base::invalid_argument("{}", sax.error.empty() ? "is not JSON" : sax.error);
    }
    if (line_.pagoda_trace.has_value()) return add_head();
    if (!has_head_ && trace_.block_size == 0) {
      if (!line_.has_hash_ids && !line_.input_length.has_value()) {
        return base::invalid_argument(
            "is neither the first line of a trace ({{\"pagoda_trace\":1, …}}) nor a request with "
            "timestamp, input_length, output_length and hash_ids");
      }
      trace_.block_size = limits_.hash_id_tokens;
    }
    return has_head_ ? add_request() : add_mooncake();
  }

  Trace finish() && {
    std::ranges::stable_sort(trace_.requests, {}, &TraceRequest::arrival_us);
    return std::move(trace_);
  }
  int64_t& n_lines_cut() { return trace_.n_lines_cut; }

 private:
  struct NodeKey {
    int32_t parent;
    uint64_t id;
    bool operator==(const NodeKey&) const = default;
    template <typename H>
    friend H AbslHashValue(H h, const NodeKey& key) {
      return H::combine(std::move(h), key.parent, key.id);
    }
  };

  absl::Status add_head() {
    if (!has_head_ && trace_.block_size != 0) {
      return base::invalid_argument("begins a trace of another form than the lines before it");
    }
    ASSIGN_OR_RETURN(const auto version,
                     value_of<int32_t>(line_.pagoda_trace, "pagoda_trace", 1, 1e9));
    if (version != 1) {
      return base::invalid_argument("is of version {} of the format; this program reads version 1",
                                    version);
    }
    ASSIGN_OR_RETURN(const auto size,
                     value_of<int32_t>(line_.block_size, "block_size", 1, kMostBlockTokens));
    ASSIGN_OR_RETURN(const auto bytes,
                     value_or<int64_t>(line_.block_bytes, 0, "block_bytes", 0, kMostBlockBytes));
    ASSIGN_OR_RETURN(const auto start_ms,
                     value_or<double>(line_.start_ms, 0, "start_ms", 0, kMostMs));
    if (!has_head_) {
      trace_.block_size = size;
      trace_.block_bytes = bytes;
      start_ms_ = start_ms;
    } else if (size != trace_.block_size || bytes != trace_.block_bytes) {
      return base::invalid_argument(
          "changes the blocks from {} tokens and {} bytes to {} and {}; cut the file before it",
          trace_.block_size, trace_.block_bytes, size, bytes);
    }
    has_head_ = true;
    offset_ms_ = start_ms - start_ms_;
    return absl::OkStatus();
  }

  absl::Status add_request() {
    TraceRequest request;
    ASSIGN_OR_RETURN(const auto t_ms, value_of<double>(line_.t_ms, "t_ms", 0, kMostMs));
    request.arrival_us = std::llround((t_ms + offset_ms_) * 1000);
    ASSIGN_OR_RETURN(request.prompt_len,
                     value_of<int32_t>(line_.prompt_len, "prompt_len", 1, kMostTokens));
    ASSIGN_OR_RETURN(request.output_len,
                     value_of<int32_t>(line_.output_len, "output_len", 0, kMostTokens));
    ASSIGN_OR_RETURN(request.priority, value_or<int32_t>(line_.priority, 50, "priority", 0, 100));
    request.salt = line_.salt;
    request.tenant = line_.tenant;
    request.session = line_.session;
    const auto n_ids = static_cast<int64_t>(line_.ids.size());
    const int64_t n_least = request.prompt_len / trace_.block_size;
    const int64_t n_most = (int64_t{request.prompt_len} + request.output_len) / trace_.block_size;
    if (!line_.has_blocks) return base::invalid_argument("has no blocks");
    if (n_ids < n_least || n_ids > n_most) {
      return base::invalid_argument(
          "has {} blocks of {} tokens, where prompt_len and output_len make {} to {}", n_ids,
          trace_.block_size, n_least, n_most);
    }
    return add_path(request);
  }

  absl::Status add_mooncake() {
    TraceRequest request;
    ASSIGN_OR_RETURN(const auto t_ms, value_of<double>(line_.timestamp, "timestamp", 0, kMostMs));
    request.arrival_us = std::llround(t_ms * 1000);
    ASSIGN_OR_RETURN(request.prompt_len,
                     value_of<int32_t>(line_.input_length, "input_length", 1, kMostTokens));
    ASSIGN_OR_RETURN(request.output_len,
                     value_of<int32_t>(line_.output_len, "output_length", 0, kMostTokens));
    if (!line_.has_hash_ids) return base::invalid_argument("has no hash_ids");
    const size_t n_whole = static_cast<size_t>(request.prompt_len / trace_.block_size);
    const size_t n_most =
        (static_cast<size_t>(request.prompt_len) + static_cast<size_t>(trace_.block_size) - 1) /
        static_cast<size_t>(trace_.block_size);
    if (line_.ids.size() < n_whole || line_.ids.size() > n_most) {
      return base::invalid_argument(
          "has {} hash_ids, where input_length {} in blocks of {} tokens makes {}",
          line_.ids.size(), request.prompt_len, trace_.block_size, n_most);
    }
    line_.ids.resize(n_whole);
    return add_path(request);
  }

  absl::Status add_path(TraceRequest& request) {
    if (trace_.requests.size() >= limits_.n_requests ||
        line_.ids.size() > limits_.n_blocks - trace_.nodes.size()) {
      return base::invalid_argument(
          "is one too many: at most {} requests and {} blocks of them together are read",
          limits_.n_requests, limits_.n_blocks);
    }
    request.first = trace_.nodes.size();
    request.n_blocks = static_cast<int32_t>(line_.ids.size());
    int32_t parent = -1;
    for (const uint64_t id : line_.ids) {
      const auto [it, is_new] = by_key_.try_emplace(NodeKey{parent, id}, trace_.n_nodes());
      if (is_new) trace_.parents.push_back(parent);
      parent = it->second;
      trace_.nodes.push_back(parent);
    }
    trace_.requests.push_back(request);
    return absl::OkStatus();
  }

  const TraceLimits limits_;
  Trace trace_;
  Line line_;
  bool has_head_ = false;
  double start_ms_ = 0;   // of the first head
  double offset_ms_ = 0;  // of the last one behind it
  absl::flat_hash_map<NodeKey, int32_t> by_key_;
};

}  // namespace

absl::StatusOr<Trace> parse_trace(std::string_view text, const std::string& name,
                                  const TraceLimits& limits) {
  TraceReader reader(limits);
  int64_t n_line = 0;
  while (!text.empty()) {
    ++n_line;
    const size_t end = text.find('\n');
    const bool has_end = end != std::string_view::npos;
    std::string_view line = text.substr(0, end);
    text.remove_prefix(has_end ? end + 1 : text.size());
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    if (line.size() > limits.line_bytes) {
      return base::invalid_argument("{}:{} is longer than {} bytes", name, n_line,
                                    limits.line_bytes);
    }
    const absl::Status status = reader.add(line);
    if (status.ok()) continue;
    // The first line is no accident of a killed server.
    if (!has_end && n_line > 1) {
      reader.n_lines_cut() = 1;
      break;
    }
    return base::invalid_argument("{}:{} {}", name, n_line, base::message_of(status));
  }
  Trace trace = std::move(reader).finish();
  if (trace.requests.empty()) return base::invalid_argument("{} has no request in it", name);
  return trace;
}

absl::StatusOr<Trace> read_trace(base::FileSystem& fs, const std::string& path,
                                 const TraceLimits& limits) {
  ASSIGN_OR_RETURN(const std::unique_ptr<base::MappedFile> file, fs.map(path));
  const std::span<const uint8_t> bytes = file->bytes();
  return parse_trace({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path, limits);
}

}  // namespace pagoda::cache
