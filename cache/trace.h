// A trace: which requests came when, and what they had in common, without a word of them. JSON
// lines; `--trace-out` writes it, `pagoda replay` reads it.
//
// The first line tells what all blocks are, and says that this is such a file:
//
//   {"pagoda_trace":1,"block_size":16,"block_bytes":368640,"start_ms":1764545201000}
//
//   block_size   tokens of a block
//   block_bytes  of KV that a block takes; 0 or absent: unknown
//   start_ms     Unix time that t_ms counts from. The same line again further down: the server was
//                started again. Then ids are new, and times go on by the difference of the two.
//
// Each other line is a request, in any order of time:
//
//   {"t_ms":1532.4,"prompt_len":70,"output_len":30,"blocks":[1804289383,846930886, … 6 of them],
//    "salt":4242,"tenant":7,"session":99,"priority":80}
//
//   t_ms        when it arrived
//   prompt_len  tokens, at least 1
//   output_len  tokens
//   blocks      ids of the whole blocks of prompt and output in one row: the first
//               prompt_len / block_size are the prompt's. Equal ids in equal places under equal
//               blocks before them are equal tokens.
//   salt        who shares KV with whom; tenant: who asked; session: a conversation that may come
//               back; 0 or absent: none
//   priority    of retention, 0 … 100, 50 when absent: lower leaves a tier first
//
// Ids and digests are unsigned 64-bit numbers, beginnings of
//
//   d(root) = SHA-256(key, "root", salt, adapter)    d(block) = SHA-256(key, d(parent), tokens)
//
// under a key of 32 random bytes that is never written anywhere: equal prefixes of one run of a
// server have equal ids, and nobody can test a guess of the text against them.
//
// The other form that is read is the one in which Mooncake's traces are published: no first line,
// each line has timestamp (ms), input_length, output_length and hash_ids of the prompt's blocks of
// 512 tokens, the last one maybe not whole. It has no ids of outputs: that a later prompt begins
// with an answer can't be seen, and outputs take no room.
//
// Fields of other names are ignored. Anything odd is an error of one sentence that begins with
// FILE:LINE. Only a last line without an end, which a killed server leaves, is left out and
// counted.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/fs.h"

namespace pagoda::cache {

struct TraceRequest {
  int64_t arrival_us = 0;
  int32_t prompt_len = 0;
  int32_t output_len = 0;
  uint64_t salt = 0;
  uint64_t tenant = 0;
  uint64_t session = 0;
  int32_t priority = 50;
  size_t first = 0;      // of Trace::nodes
  int32_t n_blocks = 0;  // whole ones, of prompt and output
};

// Blocks are numbered from 0 as nodes of a forest, parents before their children. Numbers depend
// on the order in the file, requests are in the order of arrival.
struct Trace {
  int32_t block_size = 0;
  int64_t block_bytes = 0;  // 0: the file doesn't say
  std::vector<TraceRequest> requests;
  std::vector<int32_t> nodes;    // the blocks of each request, one request after the other
  std::vector<int32_t> parents;  // by node; -1: a root
  int64_t n_lines_cut = 0;       // 1: the last line had no end

  std::span<const int32_t> path(const TraceRequest& request) const {
    return std::span(nodes).subspan(request.first, static_cast<size_t>(request.n_blocks));
  }
  int32_t n_nodes() const { return static_cast<int32_t>(parents.size()); }
  // Blocks of a request's prompt that a cache may serve: whole ones, and one token is computed.
  int32_t n_lookups(const TraceRequest& request) const {
    return std::min(request.n_blocks, (request.prompt_len - 1) / block_size);
  }
};

struct TraceLimits {
  size_t line_bytes = size_t{64} << 20;
  size_t n_requests = size_t{1} << 26;
  size_t n_blocks = size_t{1} << 29;  // of all requests together
  int32_t hash_id_tokens = 512;       // of a block in Mooncake's form
};

// `name` is what errors call the file.
absl::StatusOr<Trace> parse_trace(std::string_view text, const std::string& name,
                                  const TraceLimits& limits = {});
absl::StatusOr<Trace> read_trace(base::FileSystem& fs, const std::string& path,
                                 const TraceLimits& limits = {});

}  // namespace pagoda::cache
