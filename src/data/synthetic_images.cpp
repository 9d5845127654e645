#include "data/synthetic_images.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <fmt/format.h>
#include <numbers>
#include <numeric>

#include "data/hash.h"
#include "formats/random.h"
#include "quaver/error.h"

namespace quaver {
namespace {

// log 2·cosh, which does not overflow.
double log_two_cosh(double x) { return std::abs(x) + std::log1p(std::exp(-2 * std::abs(x))); }

// A square where the pixels make one, else a row.
ImageShape shape_of(const SyntheticImagesOptions& options) {
  const std::int64_t places = options.pixels / options.channels;
  const auto side = static_cast<std::int64_t>(std::lround(std::sqrt(static_cast<double>(places))));
  if (side * side == places) return {side, side, options.channels};
  return {1, places, options.channels};
}

void check_shape(const SyntheticImagesOptions& options) {
  if (options.channels < 1 || options.pixels % options.channels != 0) {
    throw Error(fmt::format("synthetic images of {} pixels in {} channels", options.pixels, options.channels),
                "choose a multiple of the channels");
  }
  if (options.tile == 0) return;
  const ImageShape shape = shape_of(options);
  if (options.tile < 0 || shape.height % options.tile != 0 || shape.width % options.tile != 0) {
    throw Error(fmt::format("synthetic images of {} × {} pixels are not made of tiles of {} × {}", shape.height,
                            shape.width, options.tile, options.tile),
                "choose a tile that divides the image's height and width");
  }
  if (options.tile * options.tile * options.channels < options.classes) {
    throw Error(fmt::format("tiles of {} × {} pixels in {} channels are too small for {} classes", options.tile,
                            options.tile, options.channels, options.classes),
                "choose a larger tile, or fewer classes");
  }
}

std::vector<double> draw_patterns(const SyntheticImagesOptions& options, std::size_t width) {
  const auto classes = static_cast<std::size_t>(options.classes);
  std::vector<float> normals(classes * width);
  random_normals({options.seed, 0, stream_of("synthetic patterns")}, 0, normals.data(),
                 static_cast<std::int64_t>(normals.size()));
  std::vector<double> patterns(normals.begin(), normals.end());
  const auto row = [&](std::size_t i) { return patterns.begin() + static_cast<std::ptrdiff_t>(i * width); };
  for (std::size_t i = 0; i < classes; ++i) {  // modified Gram–Schmidt
    for (std::size_t before = 0; before < i; ++before) {
      const double share = std::inner_product(row(i), row(i + 1), row(before), 0.0);
      std::transform(row(i), row(i + 1), row(before), row(i), [&](double a, double b) { return a - share * b; });
    }
    const double norm = std::sqrt(std::inner_product(row(i), row(i + 1), row(i), 0.0));
    std::transform(row(i), row(i + 1), row(i), [&](double a) { return a / norm; });
  }
  return patterns;
}

// Side by side as often as the image has room for; the norms stay 1.
std::vector<double> tiled(const std::vector<double>& tiles, const SyntheticImagesOptions& options) {
  const ImageShape shape = shape_of(options);
  const std::int64_t values = options.tile * options.tile * options.channels;
  const double share = std::sqrt(static_cast<double>(values) / static_cast<double>(options.pixels));
  std::vector<double> patterns;
  for (std::int64_t of_class = 0; of_class < options.classes; ++of_class) {
    for (std::int64_t i = 0; i < options.pixels; ++i) {
      const std::int64_t channel = i % options.channels;
      const std::int64_t x = i / options.channels % shape.width % options.tile;
      const std::int64_t y = i / (options.channels * shape.width) % options.tile;
      const std::int64_t at = of_class * values + (y * options.tile + x) * options.channels + channel;
      patterns.push_back(share * tiles[static_cast<std::size_t>(at)]);
    }
  }
  return patterns;
}

}  // namespace

SyntheticImages::SyntheticImages(const SyntheticImagesOptions& options) : options_(options) {
  if (options.classes < 2 || options.classes > options.pixels) {
    throw Error(fmt::format("{} classes of synthetic images with {} pixels", options.classes, options.pixels),
                "choose at least 2 classes, and no fewer pixels than classes");
  }
  if (!(options.strength >= 0) || !std::isfinite(options.strength)) {
    throw Error(fmt::format("synthetic images of strength {}", options.strength), "choose a number of at least 0");
  }
  check_shape(options);
  if (options.tile == 0) {
    patterns_ = draw_patterns(options, static_cast<std::size_t>(options.pixels));
  } else {
    const auto values = static_cast<std::size_t>(options.tile * options.tile * options.channels);
    patterns_ = tiled(draw_patterns(options, values), options);
  }
  noise_ = 1 / std::sqrt(1 + options.strength * options.strength / static_cast<double>(options.pixels));
}

ImageShape SyntheticImages::shape() const { return shape_of(options_); }

void SyntheticImages::fill(std::uint64_t batch_index, std::int64_t batch, float* images, std::int32_t* labels) const {
  const RandomKey choices{options_.seed, options_.stream, stream_of("synthetic labels")};
  const RandomKey noise{options_.seed, options_.stream, stream_of("synthetic noise")};
  const auto width = static_cast<std::uint64_t>(options_.pixels);
  for (std::int64_t row = 0; row < batch; ++row) {
    const std::uint64_t index = batch_index * static_cast<std::uint64_t>(batch) + static_cast<std::uint64_t>(row);
    const std::uint64_t word = random_word(choices, 2 * index);
    labels[row] = static_cast<std::int32_t>((word * static_cast<std::uint64_t>(options_.classes)) >> 32U);
    const double sign = random_word(choices, 2 * index + 1) % 2 == 0 ? 1 : -1;
    float* image = images + row * options_.pixels;
    random_normals(noise, index * width, image, options_.pixels);
    const double* of_class = pattern(labels[row]);
    for (std::int64_t i = 0; i < options_.pixels; ++i) {
      image[i] = static_cast<float>(noise_ * (image[i] + sign * options_.strength * of_class[i]));
    }
  }
}

std::uint64_t SyntheticImages::content_hash() const {
  Fnv64 hash;
  hash.add("synthetic images");
  hash.add(static_cast<std::uint64_t>(options_.classes));
  hash.add(static_cast<std::uint64_t>(options_.pixels));
  hash.add(std::bit_cast<std::uint64_t>(options_.strength));
  hash.add(options_.seed);
  hash.add(std::uint64_t{options_.stream});
  if (options_.tile > 0) {
    hash.add(static_cast<std::uint64_t>(options_.tile));
    hash.add(static_cast<std::uint64_t>(options_.channels));
  }
  return hash.value();
}

// The projection on the image's own pattern is N(strength, 1) but for its sign, those on the others are N(0, 1), all of
// them independent: the integral of φ(z − strength) · P(|N(0, 1)| < |z|)^(classes − 1), by the trapezoidal rule.
double SyntheticImages::best_accuracy() const {
  constexpr double reach = 9;  // standard deviations
  constexpr int steps = 4000;
  double sum = 0;
  for (int i = 0; i <= steps; ++i) {
    const double from_mean = reach * (2.0 * i / steps - 1);
    const double density = std::exp(-from_mean * from_mean / 2) / std::sqrt(2 * std::numbers::pi);
    const double others = std::erf(std::abs(options_.strength + from_mean) / std::numbers::sqrt2);
    sum += density * std::pow(others, options_.classes - 1);
  }
  return sum * 2 * reach / steps;
}

double SyntheticImages::best_loss() const {
  constexpr int draws = 65536;
  const RandomKey key{options_.seed, 0, stream_of("synthetic best loss")};
  const auto classes = static_cast<std::size_t>(options_.classes);
  std::vector<float> projections(classes);
  std::vector<double> logits(classes);
  double sum = 0;
  for (std::uint64_t draw = 0; draw < draws; ++draw) {
    random_normals(key, draw * classes, projections.data(), options_.classes);
    for (std::size_t c = 0; c < classes; ++c) {
      const double shift = c == 0 ? options_.strength : 0;  // of class 0: they are alike
      logits[c] = log_two_cosh(options_.strength * (static_cast<double>(projections[c]) + shift));
    }
    const double top = *std::max_element(logits.begin(), logits.end());
    double exponentials = 0;
    for (const double logit : logits) exponentials += std::exp(logit - top);
    sum += top + std::log(exponentials) - logits[0];
  }
  return sum / draws;
}

}  // namespace quaver
