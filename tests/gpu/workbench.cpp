#include "gpu/workbench.h"

#include <deque>
#include <utility>

namespace quaver::test {

namespace {

std::vector<std::byte> encoded(const Matrix& matrix, Format format) {
  const Size count = matrix.rows * matrix.cols;
  std::vector<std::byte> bytes(index(count * info(format).storage_bits / 8));
  encode_array(format, matrix.values.data(), 1, count, bytes.data());
  return bytes;
}

}  // namespace

Workbench::~Workbench() {
  try {
    for (const auto& site : sites_) {
      Site* const one[] = {site.get()};
      engine_.wait_for_statistics(one);
    }
  } catch (const std::exception& error) {
    ADD_FAILURE() << "collecting statistics: " << error.what();
  }
}

Workbench::Place& Workbench::add(std::size_t bytes, std::function<std::vector<std::byte>(std::uint32_t)> contents) {
  places_.push_back({Buffer(engine_, bytes), std::move(contents)});
  return places_.back();
}

View Workbench::input(Size rows, Size cols, Format format, float std, float mean) {
  const auto stream = static_cast<std::uint32_t>(places_.size() + 1);
  const View view{nullptr, format, rows, cols};
  const Place& place = add(index(view.bytes()), [=](std::uint32_t seed) {
    return encoded(normal_matrix(rows, cols, stream + 1000 * seed, std, mean), format);
  });
  return {place.memory.data(), format, rows, cols};
}

View Workbench::output(Size rows, Size cols, Format format) {
  const View view{nullptr, format, rows, cols};
  const Place& place =
      add(index(view.bytes()), [=](std::uint32_t) { return std::vector<std::byte>(index(view.bytes())); });
  return {place.memory.data(), format, rows, cols};
}

QuantizedTensor& Workbench::tensor(const SiteSpec& spec, Size rows, Size cols, float scale, Copies copies) {
  sites_.push_back(std::make_unique<Site>());
  Site& site = *sites_.back();
  site.name = "workbench/" + std::to_string(sites_.size());
  site.spec = spec;
  site.scale = scale;
  site.stream = stream_of(site.name.c_str());
  tensors_.push_back(std::make_unique<QuantizedTensor>(site, rows, cols, copies, Sharing::apart, [this](std::size_t n) {
    return add(n, [n](std::uint32_t) { return std::vector<std::byte>(n); }).memory.data();
  }));
  return *tensors_.back();
}

std::span<const std::int32_t> Workbench::tokens(Size count, Size vocab) {
  const auto bytes = index(count) * sizeof(std::int32_t);
  const Place& place = add(bytes, [=](std::uint32_t seed) {
    std::vector<std::int32_t> values(index(count));
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<std::int32_t>(random_word({seed, 0, 1}, i) % static_cast<std::uint32_t>(vocab));
    }
    const auto* data = reinterpret_cast<const std::byte*>(values.data());
    return std::vector<std::byte>(data, data + bytes);
  });
  return {reinterpret_cast<const std::int32_t*>(place.memory.data()), index(count)};
}

std::uint32_t* Workbench::counter() {
  const Place& place = add(sizeof(std::uint32_t), [](std::uint32_t seed) {
    const auto* data = reinterpret_cast<const std::byte*>(&seed);
    return std::vector<std::byte>(data, data + sizeof(seed));
  });
  return reinterpret_cast<std::uint32_t*>(place.memory.data());
}

std::byte* Workbench::figure_memory(const void* start, std::size_t bytes) {
  const auto* data = static_cast<const std::byte*>(start);
  const std::vector<std::byte> contents(data, data + bytes);
  return add(bytes, [contents](std::uint32_t) { return contents; }).memory.data();
}

void Workbench::fill(std::uint32_t seed) {
  for (Place& place : places_) place.memory.upload(place.contents(seed).data());
}

std::vector<std::byte> Workbench::results() {
  std::vector<std::byte> all;
  const auto append = [&](const std::vector<std::byte>& bytes) { all.insert(all.end(), bytes.begin(), bytes.end()); };
  for (const Place& place : places_) {
    append(place.memory.download());
    EXPECT_TRUE(place.memory.margins_are_intact());
  }
  for (const auto& site : sites_) {
    Site* const one[] = {site.get()};
    engine_.wait_for_statistics(one);
    const CastStatistics seen = std::exchange(site->seen, {});
    const double figures[] = {static_cast<double>(seen.count),
                              static_cast<double>(seen.nonfinite),
                              static_cast<double>(seen.saturated),
                              static_cast<double>(seen.underflowed),
                              static_cast<double>(seen.amax),
                              static_cast<double>(seen.min_nonzero),
                              seen.sum,
                              seen.sum2,
                              seen.sum4,
                              seen.error2};
    const auto* data = reinterpret_cast<const std::byte*>(figures);
    all.insert(all.end(), data, data + sizeof(figures));
  }
  return all;
}

}  // namespace quaver::test
