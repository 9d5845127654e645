#include "gpu/pair.h"

#include <cstdlib>
#include <map>
#include <optional>
#include <thread>

#include "support/variable.h"

#include "engine/cuda_module.h"
#include "quaver/error.h"

namespace quaver::test {

namespace {

constexpr std::byte margin_value{0x5A};
constexpr std::byte undefined_value{0xA5};

std::string find_why_no_gpu() {
  if (is_rehearsal()) return "";
  try {
    const auto engine = make_cuda_engine({.high_precision = Format::f32});
    return "";
  } catch (const Error& error) {
    return std::string("no GPU to test: ") + error.what();
  }
}

Size bytes_of(Format format, Size count) { return count * info(format).storage_bits / 8; }

std::uint32_t code_at(const std::byte* row, Format format, Size c) {
  std::uint32_t code = 0;
  switch (info(format).storage_bits) {
    case 4:
      return (std::to_integer<std::uint32_t>(row[c / 2]) >> (c % 2 * 4)) & 0xFU;
    case 8:
      return std::to_integer<std::uint32_t>(row[c]);
    case 16:
      std::memcpy(&code, row + 2 * c, 2);
      return code;
    default:
      std::memcpy(&code, row + 4 * c, 4);
      return code;
  }
}

// A code's value and its distance to the next.
struct Meaning {
  double value;
  double step;
};

Meaning find_meaning(Format format, std::uint32_t code) {
  const FormatInfo& about = info(format);
  const float value = decode(format, code);
  const float magnitude = std::max(std::abs(value), about.min_normal);
  return {value, std::isfinite(value) ? std::ldexp(1.0, std::ilogb(magnitude) - about.mantissa_bits) : 0.0};
}

// From a table for formats of at most 16 bits.
Meaning meaning_of(Format format, std::uint32_t code) {
  static std::map<Format, std::vector<Meaning>> tables;
  const int bits = info(format).storage_bits;
  if (bits > 16) return find_meaning(format, code);
  static Format last_format = format;
  static std::vector<Meaning>* last = nullptr;
  if (last == nullptr || last_format != format) {
    std::vector<Meaning>& table = tables[format];
    for (std::uint32_t i = 0; table.size() < (std::size_t{1} << bits); ++i) table.push_back(find_meaning(format, i));
    last = &table;
    last_format = format;
  }
  return (*last)[code];
}

}  // namespace

bool is_rehearsal() {
  static const bool answer = [] {
    const char* choice = std::getenv("QUAVER_GPU_TESTS_ENGINE");
    return choice != nullptr && std::string(choice) == "cpu";
  }();
  return answer;
}

bool is_brief() {
  static const bool answer = std::getenv("QUAVER_GPU_TESTS_BRIEF") != nullptr;
  return answer;
}

const std::string& why_no_gpu() {
  static const std::string reason = find_why_no_gpu();
  return reason;
}

std::unique_ptr<Engine> make_reference_engine() {
  return make_cpu_engine(static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1U, 8U)));
}

std::unique_ptr<Engine> make_tested_engine(const CudaOptions& options) {
  return is_rehearsal() ? make_reference_engine() : make_cuda_engine(options);
}

Pair& pair_of(Format format, AttentionBy attention) {
  static std::map<std::pair<Format, AttentionBy>, Pair> pairs;
  Pair& pair = pairs[{format, attention}];
  if (pair.gpu != nullptr) return pair;
  CudaOptions options{.high_precision = format};
  if (format == Format::tf32) options = {.high_precision = Format::f32, .float_attention = Format::tf32};
  pair.high_precision = options.high_precision;
  pair.cpu = make_reference_engine();
  std::optional<Variable> wish;
  if (attention == AttentionBy::own) wish.emplace("QUAVER_ATTENTION", "own");
  pair.gpu = make_tested_engine(options);
  return pair;
}

Buffer::Buffer(Engine& engine, std::size_t bytes)
    : engine_(&engine), bytes_(bytes), memory_(engine.device().allocate(bytes + 2 * margin)) {
  const std::vector<std::byte> whole(bytes + 2 * margin, margin_value);
  engine.device().upload(whole.data(), memory_.get(), whole.size());
  fill(undefined_value);
}

void Buffer::fill(std::byte value) {
  const std::vector<std::byte> contents(bytes_, value);
  upload(contents.data());
}

void Buffer::upload(const void* host) { engine_->device().upload(host, data(), bytes_); }

std::vector<std::byte> Buffer::download() const {
  std::vector<std::byte> contents(bytes_);
  engine_->device().download(data(), contents.data(), bytes_);
  return contents;
}

bool Buffer::margins_are_intact() const {
  std::vector<std::byte> whole(bytes_ + 2 * margin);
  engine_->device().download(memory_.get(), whole.data(), whole.size());
  const auto is_margin = [](std::byte value) { return value == margin_value; };
  return std::all_of(whole.begin(), whole.begin() + margin, is_margin) &&
         std::all_of(whole.end() - margin, whole.end(), is_margin);
}

Twin::Twin(Pair& pair, Matrix values, Kept kept)
    : rows_(values.rows),
      cols_(values.cols),
      kept_(kept),
      held_(kept == Kept::bf16  ? Format::bf16
            : kept == Kept::f32 ? Format::f32
                                : pair.high_precision),
      cpu_format_(kept == Kept::bf16 ? Format::bf16 : Format::f32),
      gpu_format_(kept == Kept::high_precision ? pair.gpu->high_precision() : cpu_format_),
      cpu_(index(bytes_of(cpu_format_, rows_ * cols_))),
      gpu_(*pair.gpu, index(bytes_of(gpu_format_, rows_ * cols_))) {
  set(values);
}

void Twin::set(const Matrix& values) {
  std::vector<float> held = values.values;
  if (held_ != Format::f32) {
    std::vector<std::byte> rounded(index(bytes_of(held_, rows_ * cols_)));
    encode_array(held_, held.data(), 1, rows_ * cols_, rounded.data());
    decode_array(held_, rounded.data(), 1, rows_ * cols_, held.data());
  }
  encode_array(cpu_format_, held.data(), 1, rows_ * cols_, cpu_.data());
  std::vector<std::byte> encoded(gpu_.bytes());
  encode_array(gpu_format_, held.data(), 1, rows_ * cols_, encoded.data());
  gpu_.upload(encoded.data());
}

Matrix Twin::from_cpu() const {
  Matrix values(rows_, cols_);
  decode_array(cpu_format_, cpu_.data(), 1, rows_ * cols_, values.values.data());
  return values;
}

Matrix Twin::from_gpu() const {
  Matrix values(rows_, cols_);
  const std::vector<std::byte> bytes = gpu_.download();
  decode_array(gpu_format_, bytes.data(), 1, rows_ * cols_, values.values.data());
  return values;
}

float HostSide::multiplier(Size r, Size c) const {
  if (block_scales.empty()) return 1;
  const Size row = spec.block.rows > 0 ? r / spec.block.rows : 0;
  const Size col = spec.block.cols > 0 ? c / spec.block.cols : 0;
  const Size stride = spec.block.cols > 0 ? (cols + spec.block.cols - 1) / spec.block.cols : 1;
  return block_scales[index(row * stride + col)];
}

double HostSide::value(Size r, Size c) const {
  return meaning_of(spec.format, codes[index(r * cols + c)]).value * static_cast<double>(multiplier(r, c)) *
         static_cast<double>(tensor_scale);
}

double HostSide::step(Size r, Size c) const {
  return meaning_of(spec.format, codes[index(r * cols + c)]).step * static_cast<double>(multiplier(r, c)) *
         static_cast<double>(tensor_scale);
}

HostSide HostSide::transposed() const {
  HostSide transposed = *this;
  transposed.rows = cols;
  transposed.cols = rows;
  std::swap(transposed.spec.block.rows, transposed.spec.block.cols);
  for (Size r = 0; r < rows; ++r) {
    for (Size c = 0; c < cols; ++c) transposed.codes[index(c * rows + r)] = codes[index(r * cols + c)];
  }
  if (block_scales.empty()) return transposed;
  const Size down = spec.block.rows > 0 ? (rows + spec.block.rows - 1) / spec.block.rows : 1;
  const Size across = static_cast<Size>(block_scales.size()) / down;
  for (Size r = 0; r < down; ++r) {
    for (Size c = 0; c < across; ++c)
      transposed.block_scales[index(c * down + r)] = block_scales[index(r * across + c)];
  }
  return transposed;
}

HostSide side_of(Engine& engine, const CodeMatrix& matrix) {
  HostSide side{.spec = matrix.spec, .rows = matrix.rows, .cols = matrix.cols};
  std::vector<std::byte> bytes(index(matrix.code_bytes()));
  engine.device().download(matrix.codes, bytes.data(), bytes.size());
  engine.device().download(matrix.tensor_scale, &side.tensor_scale, sizeof(float));
  if (matrix.has_block_scales()) {
    side.block_scales.resize(index(matrix.scale_rows() * matrix.scale_cols()));
    engine.device().download(matrix.block_scales, side.block_scales.data(), side.block_scales.size() * sizeof(float));
  }
  side.codes.resize(index(side.rows * side.cols));
  for (Size r = 0; r < side.rows; ++r) {
    const std::byte* row = bytes.data() + r * matrix.row_bytes();
    for (Size c = 0; c < side.cols; ++c) side.codes[index(r * side.cols + c)] = code_at(row, matrix.spec.format, c);
    const bool padded = matrix.spec.format == Format::e2m1 && side.cols % 2 == 1;
    if (padded && code_at(row, matrix.spec.format, side.cols) != 0) side.padding_is_clear = false;
    const bool clear = std::all_of(row + side.cols, row + std::max(matrix.stride, side.cols),
                                   [](std::byte code) { return code == std::byte{0}; });
    // Nobody reads it on a CPU that stands in for the GPU.
    if (matrix.stride != 0 && !clear && !is_rehearsal()) side.padding_is_clear = false;
  }
  return side;
}

TwinTensor::TwinTensor(Pair& pair, const SiteSpec& spec, Size rows, Size cols, Copies copies, const TwinSite& twin_site)
    : pair_(pair) {
  for (Site* site : {&cpu_site_, &gpu_site_}) {
    site->name = twin_site.name;
    site->spec = spec;
    site->stream = stream_of(twin_site.name.c_str());
    site->scale = twin_site.scale;
  }
  const auto taker = [](Engine& engine, std::vector<Buffer>& memory) {
    return [&engine, &memory](std::size_t bytes) { return memory.emplace_back(engine, bytes).data(); };
  };
  cpu_ = QuantizedTensor(cpu_site_, rows, cols, copies, Sharing::where_exact, taker(*pair.cpu, memory_));
  gpu_ = QuantizedTensor(gpu_site_, rows, cols, copies, twin_site.sharing, taker(*pair.gpu, gpu_memory_));
}

// The engine knows sites by their address: what it saw of this one must not be found at the next one there.
TwinTensor::~TwinTensor() {
  try {
    take_gpu_seen();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "collecting statistics: " << error.what();
  }
}

Twin& TwinTensor::sum_columns(float initial) {
  sums_ = std::make_unique<Twin>(pair_, 1, cpu_.cols_count(), initial, Kept::f32);
  cpu_.column_sums = sums_->cpu();
  gpu_.column_sums = sums_->gpu();
  return *sums_;
}

HostSide TwinTensor::cpu_columns() const {
  return cpu_.has_own_columns() ? side_of(*pair_.cpu, cpu_.columns_matrix()) : cpu_rows().transposed();
}

HostSide TwinTensor::gpu_columns() const {
  return gpu_.has_own_columns() ? side_of(*pair_.gpu, gpu_.columns_matrix()) : gpu_rows().transposed();
}

std::vector<std::byte> TwinTensor::gpu_bytes() const {
  std::vector<std::byte> bytes;
  const auto append = [&](const void* device, Size count) {
    std::vector<std::byte> part(index(count));
    pair_.gpu->device().download(device, part.data(), part.size());
    bytes.insert(bytes.end(), part.begin(), part.end());
  };
  for (const CodeMatrix* matrix : {&gpu_.rows_matrix(), &gpu_.columns_matrix()}) {
    if (matrix->codes == nullptr) continue;
    append(matrix->codes, matrix->code_bytes());
    append(matrix->tensor_scale, 4);
    if (matrix->has_block_scales()) append(matrix->block_scales, matrix->scale_rows() * matrix->scale_cols() * 4);
  }
  return bytes;
}

bool TwinTensor::margins_are_intact() const {
  const auto intact = [](const Buffer& buffer) { return buffer.margins_are_intact(); };
  return std::all_of(gpu_memory_.begin(), gpu_memory_.end(), intact);
}

CastStatistics TwinTensor::take_cpu_seen() { return std::exchange(cpu_site_.seen, {}); }

CastStatistics TwinTensor::take_gpu_seen() {
  Site* const sites[] = {&gpu_site_};
  pair_.gpu->wait_for_statistics(sites);
  return std::exchange(gpu_site_.seen, {});
}

Matrix normal_matrix(Size rows, Size cols, std::uint32_t stream, float std, float mean) {
  constexpr std::uint32_t pool_size = 1U << 20;
  static const std::vector<float> pool = [] {
    std::vector<float> numbers(pool_size);
    random_normals({42, 0, 0}, 0, numbers.data(), pool_size);
    return numbers;
  }();
  Matrix matrix(rows, cols);
  std::uint32_t next = random_word({43, 0, stream}, 0);
  for (float& value : matrix.values) value = mean + std * pool[next++ % pool_size];
  return matrix;
}

void store(Pair& pair, Twin& values, TwinTensor& tensor, const Casting& casting) {
  pair.run([&](On on) { return Quantize{values.on(on), tensor.on(on), casting}; });
}

std::string text_of(const Shape& shape) { return std::to_string(shape.rows) + " × " + std::to_string(shape.cols); }

std::vector<Shape> all_shapes() {
  if (is_brief()) return {odd_shapes[3], model_shapes[2]};
  std::vector<Shape> shapes(std::begin(odd_shapes), std::end(odd_shapes));
  shapes.insert(shapes.end(), std::begin(model_shapes), std::end(model_shapes));
  return shapes;
}

std::vector<Shape> shapes_of(std::vector<Shape> shapes) {
  if (!is_brief()) return shapes;
  std::erase_if(shapes, [](const Shape& shape) {
    const Size count = shape.rows * shape.cols;
    return count < 500 || count > 100'000;
  });
  if (shapes.size() > 2) shapes.resize(2);
  return shapes;
}

}  // namespace quaver::test
