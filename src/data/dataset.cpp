#include "data/dataset.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "data/shard.h"
#include "io/file_io.h"
#include "quaver/error.h"

namespace quaver {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr const char* prepare_again = "prepare the data set again";

// Reads dataset.json; every wrong type ends in the same Error, raised by open_dataset.
class IndexReader {
 public:
  IndexReader(const fs::path& folder, json file) : folder_(folder), file_(std::move(file)) {}

  Dataset read() {
    if (file_.at("format").get<std::string>() != dataset_format_name) fail("is of another format");
    if (const int version = file_.at("version").get<int>(); version != dataset_version) {
      fail(fmt::format("is of version {}, this program reads version {}", version, dataset_version));
    }
    Dataset dataset;
    dataset.folder = folder_;
    read_tokenizer(dataset);
    dataset.train_tokens = read_shards("train", dataset, dataset.train);
    dataset.valid_tokens = read_shards("valid", dataset, dataset.valid);
    return dataset;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(fmt::format("{} {}", (folder_ / dataset_file_name).string(), what), prepare_again);
  }

  void read_tokenizer(Dataset& dataset) const {
    const json& entry = file_.at("tokenizer");
    const bool from_file = entry.contains("file");
    dataset.tokenizer = load_tokenizer(from_file ? path_of(entry.at("file").get<std::string>()) : fs::path("bytes"));
    dataset.vocab_size = dataset.tokenizer->vocab_size();
    const auto recorded = entry.at("hash").get<std::string>();
    const std::string actual = fmt::format("{:016x}", dataset.tokenizer->hash());
    if (recorded != actual) {
      fail(fmt::format("was made with tokenizer {}, the one beside it is {}", recorded, actual));
    }
  }

  // A name, not a path: a data set does not reach outside its folder.
  fs::path path_of(const std::string& name) const {
    const fs::path path(name);
    if (name.empty() || path.filename() != path || name == "." || name == "..") {
      fail(fmt::format("names the file \"{}\", which is not in its folder", name));
    }
    return folder_ / path;
  }

  std::uint64_t read_shards(const char* split, const Dataset& dataset, std::vector<fs::path>& paths) const {
    std::uint64_t total = 0;
    for (const json& entry : file_.at(split)) {
      const Shard shard = Shard::open(path_of(entry.at("file").get<std::string>()));
      const auto recorded = entry.at("tokens").get<std::uint64_t>();
      if (shard.tokens() != recorded) {
        fail(fmt::format("records {} tokens for {}, which has {}", recorded, shard.path().string(), shard.tokens()));
      }
      const ShardInfo& info = shard.info();
      const bool other_tokenizer = info.tokenizer_hash != 0 && info.tokenizer_hash != dataset.tokenizer->hash();
      if (other_tokenizer || (info.vocab_size != 0 && info.vocab_size != dataset.vocab_size)) {
        throw Error(fmt::format("shard {} was made with another tokenizer than the data set's", shard.path().string()),
                    prepare_again);
      }
      paths.push_back(shard.path());
      total += recorded;
    }
    return total;
  }

  const fs::path& folder_;
  const json file_;
};

}  // namespace

Dataset open_dataset(const fs::path& folder) {
  const fs::path path = folder / dataset_file_name;
  if (!fs::exists(path)) {
    throw Error(fmt::format("{} is not a prepared data set: it has no {}", folder.string(), dataset_file_name),
                "prepare text with `quaver data`");
  }
  std::string text = read_file(path, max_dataset_file_bytes);
  while (true) {
    try {
      return IndexReader(folder, json::parse(text)).read();
    } catch (const json::exception& error) {
      throw Error(fmt::format("{} is damaged: {}", path.string(), error.what()), prepare_again);
    } catch (const Error&) {
      // A writer may have put a new data set in place and removed the shards of the one that was being opened.
      std::string now = read_file(path, max_dataset_file_bytes);
      if (now == text) throw;
      text = std::move(now);
    }
  }
}

}  // namespace quaver
