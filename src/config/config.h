// A run, as the user describes it: default < preset < file < flag. One struct, one table of keys (schema.h).
#pragma once

#include <string>
#include <vector>

#include "data/chat_template.h"
#include "models/model_config.h"
#include "nn/shard_mode.h"
#include "nn/step.h"
#include "numerics/alerts.h"
#include "optim/optim_config.h"
#include "precision/precision_config.h"

namespace quaver {

enum class DataKind : std::uint8_t { dataset, synthetic, idx, cifar, image_folder, synthetic_images, examples };

constexpr bool has_image_files(DataKind kind) {
  return kind == DataKind::idx || kind == DataKind::cifar || kind == DataKind::image_folder;
}
constexpr bool has_images(DataKind kind) { return has_image_files(kind) || kind == DataKind::synthetic_images; }
// What a batch has so many of, as messages call it.
constexpr const char* unit_of(DataKind kind) { return has_images(kind) ? "images" : "tokens"; }
constexpr const char* sequences_of(DataKind kind) { return has_images(kind) ? "images" : "sequences"; }

struct DataConfig {
  // A folder written by `quaver data`, or a shard file; for images the folder of their files, for examples a
  // file of JSON lines.
  std::string path;
  std::string valid_path;  // a shard file, or JSON lines; empty: the data set's own validation shards
  std::string tokenizer;   // for bare shards and examples: "bytes", a tokenizer.json or its folder
  DataKind kind = DataKind::dataset;
  ChatTemplate chat_template = ChatTemplate::automatic;
  bool pack = true;             // examples: several in a row
  double valid_share = 0;       // examples: without valid_path, the share to validate on
  Size augment_shift = 0;       // images to train on: moved by at most so many pixels
  bool augment_mirror = false;  // the same: every second one is mirrored
  Size synthetic_vocab = 64;
  std::uint64_t synthetic_seed = 7;
  Size synthetic_classes = 10;
  Size synthetic_pixels = 256;
  Size synthetic_channels = 1;
  Size synthetic_tile = 0;  // of patterns that repeat; 0: they do not
  double synthetic_strength = 4;
};

// automatic: a GPU where there is one that this program can use, else the CPU.
enum class DeviceChoice : std::uint8_t { automatic, cpu, cuda };

struct TrainConfig {
  Size steps = 1000;
  Size batch = 8;                          // sequences per micro-batch
  Size accumulation = 1;                   // micro-batches per step
  ShardMode shard = ShardMode::optimizer;  // what ranks share out
  Size reduction_groups = 0;  // of micro-batches, whose gradients are summed one after the other; 0: as many as ranks
  Size context = 0;           // tokens per sequence; 0: the model's
  std::uint64_t seed = 1;
  Size eval_every = 100;  // 0: only at the end
  Size eval_batches = 8;
  Size checkpoint_every = 200;  // 0: only at the end
  Size keep = 3;
  Size log_every = 10;
  Size sample_every = 0;  // 0: never
  std::string sample_prompt;
  Size statistics_every = 10;  // full statistics of every site, for the store; 0: never
  Size shadow_every = 0;       // a micro-batch repeated in high precision, gradients compared; 0: never
  DeviceChoice device = DeviceChoice::automatic;
  Memory memory = Memory::balanced;
  double z_loss = 0;
  int threads = 0;           // 0: all cores
  Size memory_limit_mb = 0;  // 0: what the machine has

  // Steps of one micro-batch, which is not shared out.
  void make_single() {
    accumulation = 1;
    reduction_groups = 0;
  }
};

struct GuardConfig {
  bool enabled = true;
  int widen_after = 8;          // consecutive overflowing steps of a site before it moves to bf16
  double overflow_percent = 1;  // share of saturated elements that counts as an overflow of a site
  double divergence = 2.0;      // loss this many times its running mean counts as divergence …
  int patience = 5;             // … when it lasts this many steps; then rewind
  int max_rewinds = 2;
  bool act_on_alerts = false;  // does what an alert suggests, where it suggests something
};

constexpr Documents documents_of(const DataConfig& data) {
  return data.kind == DataKind::examples && data.pack ? Documents::packed : Documents::one_per_row;
}

struct RunConfig {
  std::string dir;       // empty: runs/<name>
  std::string name;      // empty: model-recipe-seed
  std::string store;     // file of the store; empty: quaver.db beside the run's folder; "none": not recorded
  std::string fallback;  // folder for the last checkpoint where the run's own does not take it; empty: the system's
  Size patience = 600;   // seconds of trying to write the last checkpoint before it is given up
};

struct Config {
  std::string preset = "tiny";
  ModelConfig model;
  DataConfig data;
  TrainConfig train;
  OptimConfig optim;
  PrecisionConfig precision;
  GuardConfig guard;
  AlertConfig alerts;
  RunConfig run;
};

}  // namespace quaver
