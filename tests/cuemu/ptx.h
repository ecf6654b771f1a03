// What kernels/cuda/portable.h writes as inline PTX, emulated after the PTX ISA's chapters on
// asynchronous copies and warp-level matrix instructions. ptx_test.cc holds the fragment tables.
#pragma once

namespace cuemu {

// Each lane of m8n8 matrix fragments holds two neighbours of a row: row lane/4, columns 2*(lane%4)
// and the next. With .trans it holds what a transposed matrix has there.
inline uint32_t fragment_pair(const Meeting& rows, int first_row_lane, bool transposed) {
  const int lane = self().lane;
  uint16_t pair[2];
  for (int j = 0; j < 2; ++j) {
    const int row = transposed ? lane % 4 * 2 + j : lane / 4;
    const int column = transposed ? lane / 4 : lane % 4 * 2 + j;
    uint16_t elements[8];
    std::memcpy(elements, rows.values[first_row_lane + row], sizeof(elements));
    pair[j] = elements[column];
  }
  return pair[0] | static_cast<uint32_t>(pair[1]) << 16;
}

// Lane 8*i + r names row r of matrix i, and reads it itself, so that the sanitizers see who reads.
inline void load_matrices(uint32_t registers[4], const void* row, bool transposed, const char* op,
                          const Location& where) {
  if (reinterpret_cast<uintptr_t>(row) % 16 != 0) fail(std::string(op) + ": the row isn't aligned");
  const uint4 mine = *static_cast<const uint4*>(row);
  const Meeting rows = meet(~0U, &mine, sizeof(mine), op, false, where);
  for (int i = 0; i < 4; ++i) registers[i] = fragment_pair(rows, i * 8, transposed);
}

template <typename T>
float to_float(T x);
template <>
inline float to_float(__half x) {
  return __half2float(x);
}
template <>
inline float to_float(__nv_bfloat16 x) {
  return __bfloat162float(x);
}

template <typename T>
float half_of(uint32_t word, int which) {
  return to_float(
      std::bit_cast<T>(static_cast<uint16_t>(which == 0 ? word & 0xFFFFU : word >> 16)));
}

}  // namespace cuemu

namespace pagoda::cuda {

inline uint4 ld_stream(const uint4* p) {
  ::cuemu::check_aligned(p);
  return *p;
}

// The destination is poisoned at the issue and written at the wait: a wait that comes too late or
// never shows as NaN, a refill that comes too early as a race.
inline void cp_async16(void* to, const void* from, bool valid = true) {
  ::cuemu::async_issue({to, from, valid});
  *static_cast<uint4*>(to) = uint4{~0U, ~0U, ~0U, ~0U};
}
inline void cp_async_commit() { ::cuemu::async_commit(); }
template <int kPending>
void cp_async_wait() {
  ::cuemu::AsyncCopy copy;
  while (::cuemu::async_take(kPending, &copy)) {
    *static_cast<uint4*>(copy.to) =
        copy.valid ? *static_cast<const uint4*>(copy.from) : uint4{0, 0, 0, 0};
  }
}

inline void ldmatrix_x4(uint32_t registers[4], const void* row, CUEMU_HERE) {
  ::cuemu::load_matrices(registers, row, false, "ldmatrix", here);
}
inline void ldmatrix_x4_trans(uint32_t registers[4], const void* row, CUEMU_HERE) {
  ::cuemu::load_matrices(registers, row, true, "ldmatrix.trans", here);
}

// The lane holds the matrix's row lane/4, columns 2*(lane%4) …; it gets the transposed one's.
inline uint32_t movmatrix_trans(uint32_t pair, CUEMU_HERE) {
  const ::cuemu::Meeting meeting =
      ::cuemu::meet(~0U, &pair, sizeof(pair), "movmatrix", false, here);
  const int lane = ::cuemu::self().lane;
  uint32_t result = 0;
  for (int j = 0; j < 2; ++j) {
    const int row = lane % 4 * 2 + j;
    const int column = lane / 4;
    const auto word = ::cuemu::lane_value<uint32_t>(meeting, row * 4 + column / 2);
    result |= (word >> (column % 2 * 16) & 0xFFFFU) << (j * 16);
  }
  return result;
}

// d += a b for a [16, 16] row-major, b [16, 8] column-major, d [16, 8]: products and sums in f32.
template <typename T>
void mma_16816(float d[4], const uint32_t a[4], const uint32_t b[2], CUEMU_HERE) {
  const int group = ::cuemu::self().lane / 4;
  const int in_group = ::cuemu::self().lane % 4;
  float rows[2][16];  // of a: this lane's two
  const ::cuemu::Meeting as = ::cuemu::meet(~0U, a, 16, "mma (a)", false, here);
  for (int k = 0; k < 16; ++k) {
    const auto words = ::cuemu::lane_value<uint4>(as, group * 4 + k % 8 / 2);
    rows[0][k] = ::cuemu::half_of<T>(k < 8 ? words.x : words.z, k % 2);
    rows[1][k] = ::cuemu::half_of<T>(k < 8 ? words.y : words.w, k % 2);
  }
  const ::cuemu::Meeting bs = ::cuemu::meet(~0U, b, 8, "mma (b)", false, here);
  for (int j = 0; j < 2; ++j) {
    float sums[2] = {0, 0};
    for (int k = 0; k < 16; ++k) {
      const auto words = ::cuemu::lane_value<uint2>(bs, (in_group * 2 + j) * 4 + k % 8 / 2);
      const float value = ::cuemu::half_of<T>(k < 8 ? words.x : words.y, k % 2);
      sums[0] += rows[0][k] * value;
      sums[1] += rows[1][k] * value;
    }
    d[j] += sums[0];
    d[2 + j] += sums[1];
  }
}

}  // namespace pagoda::cuda
