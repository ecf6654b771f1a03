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

// Where a text lies that may grow in place. It belongs to nobody in particular: whoever reaches to
// its end may append to it, and the texts that end before do not see that.
struct TextBuffer {
  char* bytes = nullptr;
  size_t size = 0;
  size_t capacity = 0;
  Stretch* stretches = nullptr;
  size_t stretch_capacity = 0;
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
  TextBuffer* buffer = nullptr;  // what a sum of texts lies in

  bool has_user_bytes() const { return from_user || !stretches.empty(); }
};

// Builds a text piece by piece; its memory and work count as its workspace's.
class TextBuilder {
 public:
  explicit TextBuilder(Workspace& workspace) : TextBuilder(workspace, SIZE_MAX) {}
  // An output of its own limit.
  TextBuilder(Workspace& workspace, size_t max_bytes)
      : workspace_(workspace), max_bytes_(max_bytes), bytes_(workspace), stretches_(workspace) {}

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
  std::span<const Stretch> stretches() const { return stretches_; }

 private:
  void check_growth(size_t n_bytes) const;

  Workspace& workspace_;
  size_t max_bytes_;
  std::basic_string<char, std::char_traits<char>, Charged<char>> bytes_;
  Temporary<Stretch> stretches_;
};

// Texts of one origin. `bytes` is not copied by view_text and must outlive the workspace.
const Text* view_text(Workspace& workspace, std::string_view bytes, bool from_user = false);
const Text* make_text(Workspace& workspace, std::string_view bytes, bool from_user = false);
// `left` and then `right`. In place where that can be, so that a text that a loop adds to costs
// what is added.
const Text* concatenate(Workspace& workspace, const Text& left, const TextBuilder& right);
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
inline size_t length(Workspace& workspace, const Text& text) {
  if (text.is_ascii) return text.bytes.size();
  workspace.tick_bytes(text.bytes.size());
  return count_characters(text.bytes);
}
// The byte where a character begins, the end if there are fewer.
size_t offset_of(Workspace& workspace, const Text& text, size_t index);

// The first place of `needle` at or after `from`, npos if there is none; linear time.
size_t find(std::string_view text, std::string_view needle, size_t from = 0);
// The last place; counts its work, which may be more than linear.
size_t find_last(Workspace& workspace, std::string_view text, std::string_view needle);

}  // namespace pagoda::model::jinja
