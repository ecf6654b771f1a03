// Paged decode attention: one query row of a sequence against its whole KV, grouped heads, split
// over the context (flash-decoding; Dao et al. 2023, "Flash-Decoding for long-context inference").
//
// Bound: memory. A (sequence, KV head) reads 4 * head_dim bytes a token and does 4 * G * head_dim
// flops with it, far below what the machine does per byte. Bytes moved: K and V once for each tile
// of query heads (8 or fewer share a read), and 4 * head_dim + 8 bytes for each part and head.
//
// Ladder
//   1. one thread a score, one block a head: KV read G times, uncoalesced
//   2. decode_simt: head_dim / 8 lanes a token with 16-byte loads, several tokens under way in
//      registers, all heads of a tile share them. Multiplies and conversions take longer than the
//      loads once G > 2; it is the oracle of 3 and serves G <= 2
//   3. decode_mma: scores and values by tensor cores, KV through a ring in shared memory that
//      cp.async fills behind the warp's back, no barrier among warps until the end
#pragma once

#include "kernels/cuda/paged_kv.cuh"

namespace pagoda::cuda {

inline constexpr int kDecodeThreads = 128;
inline constexpr int kDecodeWarps = kDecodeThreads / 32;

// The heads of a block: a tile of those that share a KV head.
struct HeadTile {
  int kv_head;
  int first;  // query head
  int n;
};
template <int kHeads>
PAGODA_DEVICE HeadTile head_tile(int n_heads, int n_kv_heads) {
  const int group = n_heads / n_kv_heads;
  const int n_tiles = (group + kHeads - 1) / kHeads;
  const int kv_head = static_cast<int>(blockIdx.x) / n_tiles;
  const int in_group = static_cast<int>(blockIdx.x) % n_tiles * kHeads;
  const int left = group - in_group;
  return {kv_head, kv_head * group + in_group, left < kHeads ? left : kHeads};
}

// What a state weighs in one whose maximum is `max`; nothing where it has seen no token.
PAGODA_DEVICE float weight_of(float mine, float max) {
  return mine == -INFINITY ? 0.0F : exp2f(mine - max);
}

// Merges the warps' states and writes the output, or the item's part. outs [warp][kHeads][kDim],
// states [warp][kHeads][2], in shared memory.
template <typename T, int kDim, int kHeads>
PAGODA_DEVICE void merge_warps(const AttentionArgs& args, const AttentionItem& item,
                               const HeadTile& tile, const float* outs, const float* states) {
  for (int i = static_cast<int>(threadIdx.x); i < tile.n * (kDim / 2); i += kDecodeThreads) {
    const int head = i / (kDim / 2);
    const int dim = i % (kDim / 2) * 2;
    float max = -INFINITY;
#pragma unroll
    for (int w = 0; w < kDecodeWarps; ++w) max = fmaxf(max, states[(w * kHeads + head) * 2]);
    float sum = 0;
    float out[2] = {0, 0};
#pragma unroll
    for (int w = 0; w < kDecodeWarps; ++w) {
      const int at = w * kHeads + head;
      const float weight = weight_of(states[at * 2], max);
      sum += weight * states[at * 2 + 1];
      out[0] += weight * outs[at * kDim + dim];
      out[1] += weight * outs[at * kDim + dim + 1];
    }
    if (item.part < 0) {
      const float scale = sum > 0 ? 1.0F / sum : 0.0F;
      T* const to =
          static_cast<T*>(args.out) +
          (static_cast<int64_t>(item.row_begin) * args.n_heads + tile.first + head) * kDim;
      const uint32_t pair = pack2<T>(out[0] * scale, out[1] * scale);
      *reinterpret_cast<uint32_t*>(to + dim) = pair;
    } else {
      const int64_t part = static_cast<int64_t>(item.part) * args.n_heads + tile.first + head;
      *reinterpret_cast<float2*>(args.part_out + part * kDim + dim) = make_float2(out[0], out[1]);
      if (dim == 0) {
        *reinterpret_cast<float2*>(args.part_state + part * 2) = make_float2(max, sum);
      }
    }
  }
}

// ---- CUDA cores ----

// Lanes that share a token: a power of two, of which head_dim / 8 have work.
template <int kDim>
inline constexpr int kLanesPerToken = kDim <= 64    ? 8
                                      : kDim <= 128 ? 16
                                                    : 32;

template <typename T, int kDim, int kHeads>
__global__ void __launch_bounds__(kDecodeThreads) decode_simt(AttentionArgs args) {
  constexpr int kLanes = kLanesPerToken<kDim>;
  constexpr int kTokensPerWarp = 32 / kLanes;
  constexpr int kTokensPerBlock = kTokensPerWarp * kDecodeWarps;
  constexpr int kUnroll = 4;
  const HeadTile tile = head_tile<kHeads>(args.n_heads, args.kv.n_kv_heads);
  const AttentionItem item = args.items[blockIdx.y];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int dim = lane % kLanes * 8;
  const bool has_dim = dim < kDim;
  const int first = first_visible(item.position, args.window);
  const int32_t* const table = args.tables + item.table_begin;
  const float scale = args.scale * kLog2E;

  float q[kHeads][8];
  float out[kHeads][8];
  float max[kHeads];
  float sum[kHeads];
#pragma unroll
  for (int h = 0; h < kHeads; ++h) {
    uint4 words = make_uint4(0, 0, 0, 0);
    if (has_dim && h < tile.n) {
      words = *reinterpret_cast<const uint4*>(static_cast<const T*>(args.q) +
                                              item.row_begin * args.q_stride +
                                              (tile.first + h) * kDim + dim);
    }
    unpack8<T>(words, q[h]);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      q[h][i] *= scale;
      out[h][i] = 0;
    }
    max[h] = -INFINITY;
    sum[h] = 0;
  }
  // The number of turns is the same for the whole block.
  for (int begin = item.kv_begin; begin < item.kv_end; begin += kTokensPerBlock * kUnroll) {
    uint4 k[kUnroll];
    uint4 v[kUnroll];
    bool sees[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int token = begin + u * kTokensPerBlock + warp * kTokensPerWarp + lane / kLanes;
      sees[u] = token >= first && token < item.kv_end;
      k[u] = v[u] = make_uint4(0, 0, 0, 0);
      if (sees[u] && has_dim) {
        const T* const row = page_of<T>(args.kv, table, tile.kv_head, token / kPageTokens) +
                             token % kPageTokens * kDim + dim;
        k[u] = ld_stream(reinterpret_cast<const uint4*>(row));
        v[u] = ld_stream(reinterpret_cast<const uint4*>(row + args.kv.v_offset));
      }
    }
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
      float score[kUnroll];
      float most = max[h];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        float values[8];
        unpack8<T>(k[u], values);
        float dot = 0;
#pragma unroll
        for (int i = 0; i < 8; ++i) dot += q[h][i] * values[i];
#pragma unroll
        for (int lanes = kLanes / 2; lanes > 0; lanes /= 2) {
          dot += __shfl_xor_sync(~0U, dot, lanes);
        }
        score[u] = sees[u] ? dot : -INFINITY;
        most = fmaxf(most, score[u]);
      }
      if (most == -INFINITY) continue;  // these lanes have seen no token
      const float fade = exp2f(max[h] - most);
      max[h] = most;
      sum[h] *= fade;
#pragma unroll
      for (int i = 0; i < 8; ++i) out[h][i] *= fade;
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        const float p = exp2f(score[u] - most);
        float values[8];
        unpack8<T>(v[u], values);
        sum[h] += p;
#pragma unroll
        for (int i = 0; i < 8; ++i) out[h][i] += p * values[i];
      }
    }
  }
  // The groups of lanes of a warp, then the warps.
  PAGODA_SHARED(float, outs, kDecodeWarps* kHeads* kDim);
  PAGODA_SHARED(float, states, kDecodeWarps* kHeads * 2);
#pragma unroll
  for (int h = 0; h < kHeads; ++h) {
#pragma unroll
    for (int lanes = kLanes; lanes < 32; lanes *= 2) {
      const float other_max = __shfl_xor_sync(~0U, max[h], lanes);
      const float other_sum = __shfl_xor_sync(~0U, sum[h], lanes);
      const float most = fmaxf(max[h], other_max);
      const float mine = weight_of(max[h], most);
      const float other = weight_of(other_max, most);
      max[h] = most;
      sum[h] = sum[h] * mine + other_sum * other;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        out[h][i] = out[h][i] * mine + __shfl_xor_sync(~0U, out[h][i], lanes) * other;
      }
    }
    const int at = warp * kHeads + h;
    if (lane < kLanes && has_dim) {
#pragma unroll
      for (int i = 0; i < 8; ++i) outs[at * kDim + dim + i] = out[h][i];
    }
    if (lane == 0) {
      states[at * 2] = max[h];
      states[at * 2 + 1] = sum[h];
    }
  }
  __syncthreads();
  merge_warps<T, kDim, kHeads>(args, item, tile, outs, states);
}

// ---- tensor cores ----

// m16n8k16 with the 16 tokens of a page as rows and eight heads as columns:
//   S^T [16 tokens, 8 heads] = K [16, dim] Q^T,   O^T [dim, 8 heads] = V^T [dim, 16] P^T.
// A group of fewer heads leaves columns empty, which costs no memory traffic. Each warp walks every
// fourth page with a ring of its own.
inline constexpr int kDecodeHeads = 8;
inline constexpr int kDecodeStages = 2;

// In shared memory a row ends in 16 unused bytes: rows begin an odd number of 16 bytes apart, so
// the eight rows that ldmatrix reads at once lie in different banks.
template <int kDim>
inline constexpr int kPaddedDim = kDim + 8;

template <int kDim>
inline constexpr int kDecodeRing = kDecodeStages * 2 * kPageTokens* kPaddedDim<kDim>;
template <typename T, int kDim>
inline constexpr int kDecodeSharedBytes =
    kDecodeWarps* kDecodeRing<kDim>* static_cast<int>(sizeof(T)) +
    kDecodeWarps* kDecodeHeads * 2 * static_cast<int>(sizeof(float));

template <typename T, int kDim>
__global__ void __launch_bounds__(kDecodeThreads) decode_mma(AttentionArgs args) {
  constexpr int kChunks = kDim / 8;  // 16 bytes each, of a row
  constexpr int kSteps = kDim / 16;  // of the product over dims
  constexpr int kStride = kPaddedDim<kDim>;
  constexpr int kPage = kPageTokens * kStride;
  const HeadTile tile = head_tile<kDecodeHeads>(args.n_heads, args.kv.n_kv_heads);
  const AttentionItem item = args.items[blockIdx.y];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int group = lane / 4;
  const int in_group = lane % 4;
  const int first = first_visible(item.position, args.window);
  const int32_t* const table = args.tables + item.table_begin;
  const float scale = args.scale * kLog2E;
  SharedMemory shared;
  T* const rings = shared.take<T>(kDecodeWarps * kDecodeRing<kDim>);
  float* const states = shared.take<float>(kDecodeWarps * kDecodeHeads * 2);
  T* const ring = rings + warp * kDecodeRing<kDim>;

  uint32_t q[kSteps][2];  // fragments of Q^T: column (head) `group`
#pragma unroll
  for (int k = 0; k < kSteps; ++k) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      q[k][j] = 0;
      if (group < tile.n) {
        q[k][j] = *reinterpret_cast<const uint32_t*>(
            static_cast<const T*>(args.q) + item.row_begin * args.q_stride +
            (tile.first + group) * kDim + k * 16 + j * 8 + in_group * 2);
      }
    }
  }
  float out[kSteps][4];
#pragma unroll
  for (int k = 0; k < kSteps; ++k) {
#pragma unroll
    for (int i = 0; i < 4; ++i) out[k][i] = 0;
  }
  float max[2] = {-INFINITY, -INFINITY};  // of the lane's two heads
  float sum[2] = {0, 0};                  // of the lane's tokens

  const int page_begin = item.kv_begin / kPageTokens;
  const int page_end = (item.kv_end + kPageTokens - 1) / kPageTokens;
  const auto fetch = [&](int page, int stage) {
    if (page < page_end) {
      const T* const from = page_of<T>(args.kv, table, tile.kv_head, page);
      T* const to = ring + stage * 2 * kPage;
#pragma unroll
      for (int i = lane; i < kPageTokens * kChunks; i += 32) {
        const int row = i / kChunks;
        const int chunk = i % kChunks;
        const bool is_there = page * kPageTokens + row < item.kv_end;
        const T* const source = from + (is_there ? row : 0) * kDim + chunk * 8;
        cp_async16(to + row * kStride + chunk * 8, source, is_there);
        cp_async16(to + kPage + row * kStride + chunk * 8, source + args.kv.v_offset, is_there);
      }
    }
    cp_async_commit();
  };
#pragma unroll
  for (int s = 0; s < kDecodeStages - 1; ++s) {
    fetch(page_begin + warp + s * kDecodeWarps, s);
  }
  int stage = 0;
  for (int page = page_begin + warp; page < page_end; page += kDecodeWarps) {
    fetch(page + (kDecodeStages - 1) * kDecodeWarps, (stage + kDecodeStages - 1) % kDecodeStages);
#ifndef PAGODA_BUG_NO_WAIT
    cp_async_wait<kDecodeStages - 1>();
#endif
    __syncwarp();
    const T* const keys = ring + stage * 2 * kPage;
    const T* const values = keys + kPage;
    float score[4] = {0, 0, 0, 0};  // tokens group, group + 8; heads 2 * in_group, + 1
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      uint32_t a[4];
      ldmatrix_x4(a, keys + lane % 16 * kStride + k * 16 + lane / 16 * 8);
      mma_16816<T>(score, a, q[k]);
    }
    const int token = page * kPageTokens + group;
    const bool sees[2] = {token >= first && token < item.kv_end,
                          token + 8 >= first && token + 8 < item.kv_end};
    float fade[2];
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      score[j] = sees[0] ? score[j] * scale : -INFINITY;
      score[2 + j] = sees[1] ? score[2 + j] * scale : -INFINITY;
      float most = fmaxf(score[j], score[2 + j]);
#pragma unroll
      for (int lanes = 4; lanes < 32; lanes *= 2) {
        most = fmaxf(most, __shfl_xor_sync(~0U, most, lanes));
      }
      most = fmaxf(most, max[j]);
      const float base = most == -INFINITY ? 0.0F : most;
      fade[j] = exp2f(max[j] - base);
      max[j] = most;
      score[j] = exp2f(score[j] - base);
      score[2 + j] = exp2f(score[2 + j] - base);
      sum[j] = sum[j] * fade[j] + score[j] + score[2 + j];
    }
    // P^T is a B fragment: the transposed of what the lanes hold.
    const uint32_t p[2] = {movmatrix_trans(pack2<T>(score[0], score[1])),
                           movmatrix_trans(pack2<T>(score[2], score[3]))};
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      uint32_t a[4];  // of V^T: dims 16 k …, the 16 tokens
      ldmatrix_x4_trans(a,
                        values + (lane % 8 + lane / 16 * 8) * kStride + k * 16 + lane / 8 % 2 * 8);
      out[k][0] *= fade[0];
      out[k][1] *= fade[1];
      out[k][2] *= fade[0];
      out[k][3] *= fade[1];
      mma_16816<T>(out[k], a, p);
    }
#ifndef PAGODA_BUG_NO_SYNCWARP
    __syncwarp();  // the stage is filled again in the next turn
#endif
    stage = (stage + 1) % kDecodeStages;
  }
  cp_async_wait<0>();
  // From here on the rings are where the warps' outputs meet.
  __syncthreads();
  float* const outs = reinterpret_cast<float*>(rings);
#pragma unroll
  for (int j = 0; j < 2; ++j) {
#pragma unroll
    for (int lanes = 4; lanes < 32; lanes *= 2) sum[j] += __shfl_xor_sync(~0U, sum[j], lanes);
    if (group == 0) {
      const int at = warp * kDecodeHeads + in_group * 2 + j;
      states[at * 2] = max[j];
      states[at * 2 + 1] = sum[j];
    }
  }
#pragma unroll
  for (int k = 0; k < kSteps; ++k) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int head = in_group * 2 + i % 2;
      outs[(warp * kDecodeHeads + head) * kDim + k * 16 + group + i / 2 * 8] = out[k][i];
    }
  }
#ifndef PAGODA_BUG_NO_SYNC
  __syncthreads();
#endif
  merge_warps<T, kDim, kDecodeHeads>(args, item, tile, outs, states);
}

// ---- launchers ----

template <int kHeads>
dim3 decode_grid(const AttentionArgs& args) {
  const int group = args.n_heads / args.kv.n_kv_heads;
  const int n_tiles = (group + kHeads - 1) / kHeads;
  return dim3(static_cast<unsigned>(args.kv.n_kv_heads * n_tiles),
              static_cast<unsigned>(args.n_items));
}

template <typename T, int kDim>
void launch_mma(const AttentionArgs& args, StreamHandle stream) {
  constexpr int kBytes = kDecodeSharedBytes<T, kDim>;
#ifdef __CUDACC__
  cudaFuncSetAttribute(decode_mma<T, kDim>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
#endif
  PAGODA_LAUNCH((decode_mma<T, kDim>), decode_grid<kDecodeHeads>(args), dim3(kDecodeThreads),
                kBytes, stream, args);
}

template <typename T, int kDim>
void launch_simt(const AttentionArgs& args, StreamHandle stream) {
  const dim3 block(kDecodeThreads);
  if (args.n_heads == args.kv.n_kv_heads) {
    PAGODA_LAUNCH((decode_simt<T, kDim, 1>), decode_grid<1>(args), block, 0, stream, args);
  } else {
    PAGODA_LAUNCH((decode_simt<T, kDim, 2>), decode_grid<2>(args), block, 0, stream, args);
  }
}

template <typename T>
void launch_mma_of(const AttentionArgs& args, StreamHandle stream);
template <typename T>
void launch_simt_of(const AttentionArgs& args, StreamHandle stream);

}  // namespace pagoda::cuda
