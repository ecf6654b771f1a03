#include "model/template/text.h"

#include <algorithm>
#include <cstring>

namespace pagoda::model::jinja {

void TextBuilder::grow(size_t n_bytes) const {
  if (n_bytes > max_bytes_ || bytes_.size() > max_bytes_ - n_bytes) {
    fail("makes more than {} bytes of text", max_bytes_);
  }
  workspace_.check_room(bytes_.size() + n_bytes + stretches_.size() * sizeof(Stretch));
}

void TextBuilder::append(std::string_view bytes, bool from_user) {
  if (bytes.empty()) return;
  grow(bytes.size());
  bytes_.append(bytes);
  if (stretches_.empty() || stretches_.back().from_user != from_user) {
    stretches_.push_back({bytes_.size(), from_user});
  } else {
    stretches_.back().end = bytes_.size();
  }
}

void TextBuilder::append(const Text& text) {
  for_each_stretch(text, [&](size_t begin, size_t end, bool from_user) {
    append(text.bytes.substr(begin, end - begin), from_user);
  });
}

void TextBuilder::append(const Text& text, size_t begin, size_t end) {
  if (begin >= end) return;
  if (text.stretches.empty()) {
    append(text.bytes.substr(begin, end - begin), text.from_user);
    return;
  }
  auto stretch = std::upper_bound(text.stretches.begin(), text.stretches.end(), begin,
                                  [](size_t at, const Stretch& s) { return at < s.end; });
  while (begin < end) {
    const size_t stop = std::min(end, stretch->end);
    append(text.bytes.substr(begin, stop - begin), stretch->from_user);
    begin = stop;
    ++stretch;
  }
}

void TextBuilder::append_repeated(const Text& text, size_t n) {
  if (text.bytes.empty()) return;
  if (n > SIZE_MAX / text.bytes.size()) fail("makes too long a text");
  grow(text.bytes.size() * n);
  for (size_t i = 0; i < n; ++i) append(text);
}

const Text* TextBuilder::finish(Workspace& workspace) const {
  const std::string_view bytes = workspace.copy(bytes_);
  std::span<const Stretch> stretches;
  if (stretches_.size() > 1) stretches = workspace.copy(stretches_);
  return workspace.make<Text>(Text{.bytes = bytes,
                                   .stretches = stretches,
                                   .from_user = stretches_.size() == 1 && last_from_user(),
                                   .is_ascii = is_ascii(bytes)});
}

const Text* view_text(Workspace& workspace, std::string_view bytes, bool from_user) {
  return workspace.make<Text>(
      Text{.bytes = bytes, .from_user = from_user, .is_ascii = is_ascii(bytes)});
}

const Text* make_text(Workspace& workspace, std::string_view bytes, bool from_user) {
  return view_text(workspace, workspace.copy(bytes), from_user);
}

const Text* sub_text(Workspace& workspace, const Text& text, size_t begin, size_t end) {
  end = std::min(end, text.bytes.size());
  begin = std::min(begin, end);
  if (begin == 0 && end == text.bytes.size()) return &text;
  const std::string_view bytes = text.bytes.substr(begin, end - begin);
  Text part{.bytes = bytes,
            .from_user = text.from_user,
            .is_markup = text.is_markup,
            .is_ascii = text.is_ascii || is_ascii(bytes)};
  if (!text.stretches.empty() && begin < end) {
    const auto first = std::upper_bound(text.stretches.begin(), text.stretches.end(), begin,
                                        [](size_t at, const Stretch& s) { return at < s.end; });
    auto last = first;
    while (last->end < end) ++last;
    part.from_user = first->from_user && first == last;
    if (first != last) {
      const std::span<Stretch> cut = workspace.copy(std::span<const Stretch>(first, last + 1));
      for (Stretch& stretch : cut) stretch.end = std::min(stretch.end, end) - begin;
      part.stretches = cut;
    }
  }
  return workspace.make<Text>(part);
}

const Text* with_markup(Workspace& workspace, const Text& text, bool is_markup) {
  if (text.is_markup == is_markup) return &text;
  Text* copy = workspace.make<Text>(text);
  copy->is_markup = is_markup;
  return copy;
}

bool is_from_user(const Text& text, size_t at) {
  if (text.stretches.empty()) return text.from_user;
  return std::upper_bound(text.stretches.begin(), text.stretches.end(), at,
                          [](size_t a, const Stretch& s) { return a < s.end; })
      ->from_user;
}

size_t find(std::string_view text, std::string_view needle, size_t from) {
  if (from > text.size() || needle.size() > text.size() - from) return std::string_view::npos;
  if (needle.empty()) return from;
  const void* found = memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
  if (found == nullptr) return std::string_view::npos;
  return static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

size_t find_last(Workspace& workspace, std::string_view text, std::string_view needle) {
  constexpr size_t kShort = 16;
  if (needle.size() > kShort) {
    const double worst = static_cast<double>(text.size()) * static_cast<double>(needle.size());
    workspace.tick(static_cast<int64_t>(worst / 512));
  }
  return text.rfind(needle);
}

}  // namespace pagoda::model::jinja
