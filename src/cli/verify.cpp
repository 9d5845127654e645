#include "cli/verify.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "data/dataset.h"
#include "data/shard.h"
#include "quaver/error.h"

namespace quaver {
namespace {

namespace fs = std::filesystem;

struct Verified {
  fs::path path;
  std::uint64_t tokens = 0;
  bool has_checksum = false;
  std::string damage;  // empty: none
};

Verified verify_shard(const fs::path& path, int vocab_size) {
  const bool terminal = isatty(STDERR_FILENO) != 0;
  Verified result;
  result.path = path;
  try {
    const Shard shard = Shard::open(path);
    result.tokens = shard.tokens();
    result.has_checksum = shard.info().format == ShardFormat::quaver;
    std::uint64_t shown = 0;
    shard.verify(vocab_size, [&](std::uint64_t bytes) {
      const std::uint64_t percent = 100 * bytes / shard.id_bytes();
      if (terminal && percent != shown) fmt::print(stderr, "\r\033[K{}: {} %", path.filename().string(), percent);
      shown = percent;
      return true;
    });
  } catch (const Error& error) {
    result.damage = error.what();
  }
  if (terminal) fmt::print(stderr, "\r\033[K");
  return result;
}

void print_line(const Verified& shard) {
  if (!shard.damage.empty()) {
    fmt::print("{}: damaged: {}\n", shard.path.string(), shard.damage);
  } else {
    fmt::print("{}: ok, {} tokens{}\n", shard.path.string(), shard.tokens,
               shard.has_checksum ? "" : " (the format has no checksum: only the ids were checked)");
  }
}

void print_json(const std::vector<Verified>& shards) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Verified& shard : shards) {
    list.push_back({{"file", shard.path.string()},
                    {"tokens", shard.tokens},
                    {"checksum", shard.has_checksum},
                    {"damage", shard.damage}});
  }
  const nlohmann::ordered_json text = {{"shards", std::move(list)}};
  fmt::print("{}\n", text.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

}  // namespace

void verify_shards(const fs::path& path, Output output) {
  std::vector<fs::path> paths{path};
  int vocab_size = 0;
  if (fs::is_directory(path)) {
    const Dataset dataset = open_dataset(path);
    paths = dataset.train;
    paths.insert(paths.end(), dataset.valid.begin(), dataset.valid.end());
    vocab_size = dataset.vocab_size;
  }
  std::vector<Verified> shards;
  std::size_t damaged = 0;
  for (const fs::path& shard : paths) {
    shards.push_back(verify_shard(shard, vocab_size));
    if (output == Output::human) print_line(shards.back());
    if (!shards.back().damage.empty()) ++damaged;
  }
  if (output == Output::json) print_json(shards);
  if (damaged > 0) {
    throw Error(fmt::format("{}: {} of {} shards damaged", path.string(), damaged, shards.size()),
                "copy the data again, or prepare it again");
  }
}

}  // namespace quaver
