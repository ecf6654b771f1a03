// The emulated warp-level matrix instructions against the fragment layouts of the PTX ISA ("Matrix
// Fragments for mma.m16n8k16 with floating point type", "ldmatrix", "movmatrix"), written out as
// data: whoever changes the emulation and a kernel alike fails here.
#include <gtest/gtest.h>

#include <array>
#include <random>
#include <vector>

#include "kernels/cuda/portable.h"

namespace {

using pagoda::cuda::BFloat16;
using pagoda::cuda::from_float;
using pagoda::cuda::Half;
using pagoda::cuda::to_float;

// Of a 16x16: which lane holds each pair of columns (0,1), (2,3) … of a row, and in which register.
struct Place {
  int lane;
  int reg;
};
constexpr Place kA[16][8] = {
    {{0, 0}, {1, 0}, {2, 0}, {3, 0}, {0, 2}, {1, 2}, {2, 2}, {3, 2}},
    {{4, 0}, {5, 0}, {6, 0}, {7, 0}, {4, 2}, {5, 2}, {6, 2}, {7, 2}},
    {{8, 0}, {9, 0}, {10, 0}, {11, 0}, {8, 2}, {9, 2}, {10, 2}, {11, 2}},
    {{12, 0}, {13, 0}, {14, 0}, {15, 0}, {12, 2}, {13, 2}, {14, 2}, {15, 2}},
    {{16, 0}, {17, 0}, {18, 0}, {19, 0}, {16, 2}, {17, 2}, {18, 2}, {19, 2}},
    {{20, 0}, {21, 0}, {22, 0}, {23, 0}, {20, 2}, {21, 2}, {22, 2}, {23, 2}},
    {{24, 0}, {25, 0}, {26, 0}, {27, 0}, {24, 2}, {25, 2}, {26, 2}, {27, 2}},
    {{28, 0}, {29, 0}, {30, 0}, {31, 0}, {28, 2}, {29, 2}, {30, 2}, {31, 2}},
    {{0, 1}, {1, 1}, {2, 1}, {3, 1}, {0, 3}, {1, 3}, {2, 3}, {3, 3}},
    {{4, 1}, {5, 1}, {6, 1}, {7, 1}, {4, 3}, {5, 3}, {6, 3}, {7, 3}},
    {{8, 1}, {9, 1}, {10, 1}, {11, 1}, {8, 3}, {9, 3}, {10, 3}, {11, 3}},
    {{12, 1}, {13, 1}, {14, 1}, {15, 1}, {12, 3}, {13, 3}, {14, 3}, {15, 3}},
    {{16, 1}, {17, 1}, {18, 1}, {19, 1}, {16, 3}, {17, 3}, {18, 3}, {19, 3}},
    {{20, 1}, {21, 1}, {22, 1}, {23, 1}, {20, 3}, {21, 3}, {22, 3}, {23, 3}},
    {{24, 1}, {25, 1}, {26, 1}, {27, 1}, {24, 3}, {25, 3}, {26, 3}, {27, 3}},
    {{28, 1}, {29, 1}, {30, 1}, {31, 1}, {28, 3}, {29, 3}, {30, 3}, {31, 3}},
};
// Of a 16x8 (rows k, columns n): which lane and register hold each pair of rows, by column.
constexpr Place kB[8][8] = {
    // [pair of k][n]
    {{0, 0}, {4, 0}, {8, 0}, {12, 0}, {16, 0}, {20, 0}, {24, 0}, {28, 0}},
    {{1, 0}, {5, 0}, {9, 0}, {13, 0}, {17, 0}, {21, 0}, {25, 0}, {29, 0}},
    {{2, 0}, {6, 0}, {10, 0}, {14, 0}, {18, 0}, {22, 0}, {26, 0}, {30, 0}},
    {{3, 0}, {7, 0}, {11, 0}, {15, 0}, {19, 0}, {23, 0}, {27, 0}, {31, 0}},
    {{0, 1}, {4, 1}, {8, 1}, {12, 1}, {16, 1}, {20, 1}, {24, 1}, {28, 1}},
    {{1, 1}, {5, 1}, {9, 1}, {13, 1}, {17, 1}, {21, 1}, {25, 1}, {29, 1}},
    {{2, 1}, {6, 1}, {10, 1}, {14, 1}, {18, 1}, {22, 1}, {26, 1}, {30, 1}},
    {{3, 1}, {7, 1}, {11, 1}, {15, 1}, {19, 1}, {23, 1}, {27, 1}, {31, 1}},
};
// Of the 16x8 result, f32: the lane and the first of the two registers of a pair of columns.
constexpr Place kD[16][4] = {
    {{0, 0}, {1, 0}, {2, 0}, {3, 0}},     {{4, 0}, {5, 0}, {6, 0}, {7, 0}},
    {{8, 0}, {9, 0}, {10, 0}, {11, 0}},   {{12, 0}, {13, 0}, {14, 0}, {15, 0}},
    {{16, 0}, {17, 0}, {18, 0}, {19, 0}}, {{20, 0}, {21, 0}, {22, 0}, {23, 0}},
    {{24, 0}, {25, 0}, {26, 0}, {27, 0}}, {{28, 0}, {29, 0}, {30, 0}, {31, 0}},
    {{0, 2}, {1, 2}, {2, 2}, {3, 2}},     {{4, 2}, {5, 2}, {6, 2}, {7, 2}},
    {{8, 2}, {9, 2}, {10, 2}, {11, 2}},   {{12, 2}, {13, 2}, {14, 2}, {15, 2}},
    {{16, 2}, {17, 2}, {18, 2}, {19, 2}}, {{20, 2}, {21, 2}, {22, 2}, {23, 2}},
    {{24, 2}, {25, 2}, {26, 2}, {27, 2}}, {{28, 2}, {29, 2}, {30, 2}, {31, 2}},
};

struct Registers {
  uint32_t a[32][4];
  uint32_t b[32][2];
  float d[32][4];
};

template <typename T>
__global__ void run_mma(Registers* registers) {
  const auto lane = threadIdx.x;
  pagoda::cuda::mma_16816<T>(registers->d[lane], registers->a[lane], registers->b[lane]);
}

template <typename T>
uint32_t pair_of(T first, T second) {
  const T pair[2] = {first, second};
  uint32_t word;
  std::memcpy(&word, pair, sizeof(word));
  return word;
}

template <typename T>
class MmaTest : public testing::Test {};
using Types = testing::Types<Half, BFloat16>;
TYPED_TEST_SUITE(MmaTest, Types);

TYPED_TEST(MmaTest, MultipliesByTheFragmentTables) {
  using T = TypeParam;
  std::mt19937 random(1);
  std::uniform_int_distribution<int> small(-8, 8);  // all sums are exact
  T a[16][16];
  T b[16][8];
  float d[16][8];
  for (auto& row : a) {
    for (T& x : row) x = from_float<T>(static_cast<float>(small(random)));
  }
  for (auto& row : b) {
    for (T& x : row) x = from_float<T>(static_cast<float>(small(random)));
  }
  for (auto& row : d) {
    for (float& x : row) x = static_cast<float>(small(random));
  }
  Registers registers{};
  for (int row = 0; row < 16; ++row) {
    for (int i = 0; i < 8; ++i) {
      registers.a[kA[row][i].lane][kA[row][i].reg] = pair_of(a[row][2 * i], a[row][2 * i + 1]);
    }
    for (int i = 0; i < 4; ++i) {
      for (int j = 0; j < 2; ++j) {
        registers.d[kD[row][i].lane][kD[row][i].reg + j] = d[row][2 * i + j];
      }
    }
  }
  for (int i = 0; i < 8; ++i) {
    for (int n = 0; n < 8; ++n) {
      registers.b[kB[i][n].lane][kB[i][n].reg] = pair_of(b[2 * i][n], b[2 * i + 1][n]);
    }
  }
  PAGODA_LAUNCH((run_mma<T>), dim3(1), dim3(32), 0, nullptr, &registers);
  for (int row = 0; row < 16; ++row) {
    for (int column = 0; column < 8; ++column) {
      float want = d[row][column];
      for (int k = 0; k < 16; ++k) want += to_float(a[row][k]) * to_float(b[k][column]);
      const Place& place = kD[row][column / 2];
      EXPECT_EQ(registers.d[place.lane][place.reg + column % 2], want) << row << ", " << column;
    }
  }
}

// Where the pairs of an 8x8 matrix lie: lanes by row, four of them a row.
constexpr int kLaneOf[8][4] = {{0, 1, 2, 3},     {4, 5, 6, 7},     {8, 9, 10, 11},
                               {12, 13, 14, 15}, {16, 17, 18, 19}, {20, 21, 22, 23},
                               {24, 25, 26, 27}, {28, 29, 30, 31}};

struct Matrices {
  alignas(16) uint16_t elements[4][8][8];
  uint32_t loaded[32][4];
  uint32_t loaded_trans[32][4];
  uint32_t moved[32];
};

__global__ void load_and_move(Matrices* matrices) {
  PAGODA_SHARED(uint16_t, tile, 4 * 64);
  const int lane = static_cast<int>(threadIdx.x);
  for (int i = 0; i < 8; ++i) tile[lane * 8 + i] = matrices->elements[lane / 8][lane % 8][i];
  __syncwarp();
  pagoda::cuda::ldmatrix_x4(matrices->loaded[lane], tile + lane * 8);
  pagoda::cuda::ldmatrix_x4_trans(matrices->loaded_trans[lane], tile + lane * 8);
  matrices->moved[lane] = pagoda::cuda::movmatrix_trans(matrices->loaded[lane][0]);
}

TEST(MatrixTest, LoadsAndTransposes) {
  Matrices matrices{};
  for (int m = 0; m < 4; ++m) {
    for (int row = 0; row < 8; ++row) {
      for (int column = 0; column < 8; ++column) {
        matrices.elements[m][row][column] = static_cast<uint16_t>(m * 100 + row * 10 + column);
      }
    }
  }
  PAGODA_LAUNCH(load_and_move, dim3(1), dim3(32), 0, nullptr, &matrices);
  for (int m = 0; m < 4; ++m) {
    const auto& e = matrices.elements[m];
    for (int row = 0; row < 8; ++row) {
      for (int i = 0; i < 4; ++i) {
        const int lane = kLaneOf[row][i];
        const uint32_t plain = pair_of(e[row][2 * i], e[row][2 * i + 1]);
        const uint32_t transposed = pair_of(e[2 * i][row], e[2 * i + 1][row]);
        EXPECT_EQ(matrices.loaded[lane][m], plain);
        EXPECT_EQ(matrices.loaded_trans[lane][m], transposed);
        if (m == 0) {
          EXPECT_EQ(matrices.moved[lane], transposed);
        }
      }
    }
  }
}

__global__ void collectives(int* out) {
  const int lane = static_cast<int>(threadIdx.x);
  int* const mine = out + lane * 8;
  mine[0] = __shfl_sync(~0U, lane, 3, 8);
  mine[1] = __shfl_up_sync(~0U, lane, 2);
  mine[2] = __shfl_down_sync(~0U, lane, 2, 16);
  mine[3] = __shfl_xor_sync(~0U, lane, 5);
  mine[4] = static_cast<int>(__ballot_sync(~0U, lane % 3 == 0));
  mine[5] = static_cast<int>(__match_any_sync(~0U, lane % 4));
  mine[6] = __reduce_add_sync(~0U, lane);
  mine[7] = __syncthreads_count(lane < 7);
}

TEST(CollectiveTest, AsInTheProgrammingGuide) {
  std::vector<int> out(32 * 8);
  PAGODA_LAUNCH(collectives, dim3(1), dim3(32), 0, nullptr, out.data());
  for (int lane = 0; lane < 32; ++lane) {
    const int* mine = out.data() + lane * 8;
    EXPECT_EQ(mine[0], lane / 8 * 8 + 3);
    EXPECT_EQ(mine[1], lane < 2 ? lane : lane - 2);
    EXPECT_EQ(mine[2], lane % 16 < 14 ? lane + 2 : lane);
    EXPECT_EQ(mine[3], lane ^ 5);
    EXPECT_EQ(mine[4], static_cast<int>(0b01001001001001001001001001001001U));
    EXPECT_EQ(mine[5], static_cast<int>(0x11111111U << (lane % 4)));
    EXPECT_EQ(mine[6], 496);
    EXPECT_EQ(mine[7], 7);
  }
}

TEST(TypesTest, RoundToNearestEven) {
  EXPECT_EQ(to_float(from_float<Half>(1.0F + 0x1p-11F)), 1.0F);
  EXPECT_EQ(to_float(from_float<Half>(1.0F + 3 * 0x1p-11F)), 1.0F + 0x1p-9F);
  EXPECT_EQ(to_float(from_float<Half>(65520.0F)), INFINITY);
  EXPECT_EQ(to_float(from_float<BFloat16>(1.0F + 0x1p-8F)), 1.0F);
  EXPECT_EQ(to_float(from_float<BFloat16>(1.0F + 3 * 0x1p-8F)), 1.0F + 0x1p-6F);
  EXPECT_TRUE(std::isnan(to_float(from_float<BFloat16>(NAN))));
}

}  // namespace
