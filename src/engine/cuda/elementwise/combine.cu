#include "engine/cuda/device/vectors.cuh"
#include "engine/cuda/elementwise/combine.h"

namespace quaver::cuda {

namespace {

constexpr int threads = 256;

struct CombineFactors {
  float keep;
  float add;
};

// No __restrict__: out may be x or y.
template <class T>
__global__ void __launch_bounds__(threads)
    combine_kernel(const T* x, const T* y, CombineFactors factors, Size count, bool aligned, T* out) {
  const Size first = (static_cast<Size>(blockIdx.x) * threads + threadIdx.x) * group_size;
  if (first >= count) return;
  const int valid = static_cast<int>(min(count - first, static_cast<Size>(group_size)));
  float a[group_size];
  float b[group_size];
  const Group<T> of_x = load_group(x + first, valid, aligned);
  const Group<T> of_y = load_group(y + first, valid, aligned);
  unpack(of_x, a);
  unpack(of_y, b);
#pragma unroll
  for (int i = 0; i < group_size; ++i) a[i] = factors.keep * a[i] + factors.add * b[i];
  store8(out + first, valid, aligned, a);
}

}  // namespace

void combine(Gpu& gpu, const Combine& op) {
  const Size count = op.out.count();
  if (count == 0) return;
  if (op.x.format != op.out.format || op.y.format != op.out.format) {
    throw Error("two matrices in different formats are to be added",
                "this is a defect: high-precision matrices share a format");
  }
  const bool aligned = aligned16(op.x.data) && aligned16(op.y.data) && aligned16(op.out.data);
  const auto blocks = static_cast<unsigned>(ceil_div(count, threads * group_size));
  with_high_precision(op.out.format, [&]<class T>(T) {
    combine_kernel<T><<<blocks, threads, 0, gpu.stream()>>>(
        static_cast<const T*>(op.x.data), static_cast<const T*>(op.y.data), CombineFactors{op.keep, op.add}, count,
        aligned, static_cast<T*>(op.out.data));
  });
  check_launch("combine");
}

}  // namespace quaver::cuda
