// A string of the template: bytes, and which of them a client wrote.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/template/unicode.h"
#include "model/template/workspace.h"

namespace pagoda::model::jinja {

// The end of a run of bytes that have one origin; runs follow each other.
struct Stretch {
  size_t end = 0;
  bool from_user = false;
};

// Immutable; the bytes and stretches lie in a workspace or outlive it.
struct Text {
  std::string_view bytes{};
  // Empty: all bytes are from where `from_user` says, the case nearly always.
  std::span<const Stretch> stretches{};
  bool from_user = false;
  // Marked as safe for HTML by |e or |safe; what it is joined to by + gets escaped.
  bool is_markup = false;
  bool is_ascii = false;

  bool has_user_bytes() const { return from_user || !stretches.empty(); }
};

// Builds a text piece by piece. Grows no further than its workspace allows.
class TextBuilder {
 public:
  explicit TextBuilder(const Workspace& workspace) : workspace_(workspace) {}
  // An output of its own limit.
  TextBuilder(const Workspace& workspace, size_t max_bytes)
      : workspace_(workspace), max_bytes_(max_bytes) {}

  void append(std::string_view bytes, bool from_user);
  // What has no origin of its own, such as the commas in a list; it goes with what stands before.
  void append_neutral(std::string_view bytes) { append(bytes, last_from_user()); }
  void append(const Text& text);
  // Bytes [begin, end).
  void append(const Text& text, size_t begin, size_t end);
  void append_repeated(const Text& text, size_t n);

  size_t size() const { return bytes_.size(); }
  std::string_view bytes() const { return bytes_; }
  bool last_from_user() const { return !stretches_.empty() && stretches_.back().from_user; }

  // Copies what was built into the workspace.
  const Text* finish(Workspace& workspace) const;
  std::string take_bytes() { return std::move(bytes_); }
  std::span<const Stretch> stretches() const { return stretches_; }

 private:
  void grow(size_t n_bytes) const;

  const Workspace& workspace_;
  size_t max_bytes_ = SIZE_MAX;
  std::string bytes_{};
  std::vector<Stretch> stretches_;
};

// Texts of one origin. `bytes` is not copied by view_text and must outlive the workspace.
const Text* view_text(Workspace& workspace, std::string_view bytes, bool from_user = false);
const Text* make_text(Workspace& workspace, std::string_view bytes, bool from_user = false);
// Bytes [begin, end) of another one, which are not copied.
const Text* sub_text(Workspace& workspace, const Text& text, size_t begin, size_t end);
// The same bytes, marked as safe for HTML or not.
const Text* with_markup(Workspace& workspace, const Text& text, bool is_markup);

// Calls visit(begin, end, from_user) for each run of one origin.
template <typename Visit>
void for_each_stretch(const Text& text, Visit visit) {
  if (text.stretches.empty()) {
    if (!text.bytes.empty()) visit(size_t{0}, text.bytes.size(), text.from_user);
    return;
  }
  size_t begin = 0;
  for (const Stretch& stretch : text.stretches) {
    visit(begin, stretch.end, stretch.from_user);
    begin = stretch.end;
  }
}

// Whether the byte at `at` is a client's.
bool is_from_user(const Text& text, size_t at);

// In characters.
inline size_t length(const Text& text) {
  return text.is_ascii ? text.bytes.size() : count_characters(text.bytes);
}
inline size_t offset_of(const Text& text, size_t index) {
  if (text.is_ascii) return index < text.bytes.size() ? index : text.bytes.size();
  return character_offset(text.bytes, index);
}

// The first place of `needle` at or after `from`, npos if there is none; linear time.
size_t find(std::string_view text, std::string_view needle, size_t from = 0);
// The last place; counts its work, which for a long needle may be more than linear.
size_t find_last(Workspace& workspace, std::string_view text, std::string_view needle);

}  // namespace pagoda::model::jinja
