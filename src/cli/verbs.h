// The verbs of the command line: what each was asked to do, and the function that does it. Each returns the exit
// status.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/prepare.h"
#include "formats/quant_spec.h"
#include "interop/hf_convert.h"
#include "interop/hf_export.h"
#include "serve/dashboard.h"
#include "store/exports.h"
#include "study/localize.h"
#include "train/run.h"

namespace quaver {

// Config files and "section.key=value" settings, as load_config takes them.
struct ConfigArguments {
  std::vector<std::string> files;
  std::vector<std::string> settings;
};

// json: one object per line while a run goes on; compare prints its result alone, as one array.
enum class Output : std::uint8_t { human, json };

// What the ranks that `train` starts run on.
enum class RankKind : std::uint8_t { processes, gpus };

struct TrainArguments {
  ConfigArguments config;
  std::string resume;  // directory of the run; empty: a fresh one
  std::vector<std::string> take_back;
  OtherData other_data = OtherData::refuse;
  std::string tensorboard;  // folder for an event file; empty: none
  std::string log_to;       // a command that reads the metrics of every step; empty: none
  Output output = Output::human;
  RankKind rank_kind = RankKind::processes;
  int ranks = 0;     // to start on this machine; 0: this process is one
  int restarts = 0;  // after a rank was lost
};
Config config_of(const TrainArguments& arguments);
int train_verb(const TrainArguments& arguments);

struct CompareArguments {
  ConfigArguments config;
  std::vector<std::string> recipes;  // "fp8-delayed", or "fp32@umup" with a parametrization
  std::vector<std::uint64_t> seeds;
  std::string base;  // the recipe that gaps are to; empty: the one of highest precision
  std::string out;
  Output output = Output::human;
};
int compare_verb(const CompareArguments& arguments);

struct RunArguments {  // eval
  std::string run;     // folder; empty: the model that --model.from names
  std::optional<Size> step;
  std::string text;       // a file or folder to evaluate on; empty: the run's validation data
  Size batches = 0;       // at most; 0: all there are
  std::string documents;  // JSON file to write, one entry per document; empty: none
  std::vector<std::string> settings;
  Output output = Output::human;
};
int eval_verb(const RunArguments& arguments);

struct SampleArguments {
  std::string run;  // as above
  std::optional<Size> step;
  std::string prompt;
  std::string prompts;  // a file of them, "-": standard input; empty: the one above
  bool chat = false;    // prompts are what a user says
  Size tokens = 200;
  double temperature = 0.8;
  int top_k = 0;
  double top_p = 1;
  std::vector<std::string> stop;
  std::uint64_t seed = 1;
  Size count = 1;  // of each prompt
  std::vector<std::string> settings;
  Output output = Output::human;
};
int sample_verb(const SampleArguments& arguments);

struct DataArguments {
  PrepareOptions options;
  std::string verify;  // a data set or shard to verify, in place of preparing one
  Output output = Output::human;
};
int data_verb(const DataArguments& arguments);

struct BenchSuiteArguments {
  ConfigArguments config;            // without a file: gpt-350m on a GPU, small on a CPU
  std::vector<std::string> recipes;  // empty: all for layers, some for whole steps
  double seconds = 0;                // to spend, about; 0: as many as the hardware needs
  std::string json;                  // files to write; empty: none
  std::string csv;
  std::string html;
};
int bench_suite_verb(const BenchSuiteArguments& arguments);

struct BenchDiffArguments {
  std::string before;  // files of bench --json
  std::string after;
};
int bench_diff_verb(const BenchDiffArguments& arguments);  // 1: something changed

struct BenchArguments {
  ConfigArguments
      config;            // without a file: gpt-350m, fp8-delayed and 64 sequences per micro-batch, unless set otherwise
  Size tokens = 524288;  // a step
  Size steps = 5;
  Size warmup = 2;
  std::string json;       // file to write; empty: none
  std::string reference;  // such a file of an earlier benchmark, to take bf16's losses from; empty: none
};
int bench_step_verb(const BenchArguments& arguments);

struct AttentionBenchArguments {
  ConfigArguments config;  // as above
  Size repeats = 20;       // of each pass in a round
};
int bench_attention_verb(const AttentionBenchArguments& arguments);

enum class Browser : std::uint8_t { leave, open };
struct DashArguments {
  std::string path = "runs";  // a folder of runs, or its store
  ServeOptions serve;
  Browser browser = Browser::leave;
};
int dash_verb(const DashArguments& arguments);

struct ExportArguments {
  std::string path;               // a folder of runs, or its store
  std::vector<std::string> runs;  // ids or names; empty: all
  std::string out;                // folder
  ExportOptions options;
};
int export_verb(const ExportArguments& arguments);

struct ExportModelArguments {
  std::string run;  // folder
  std::optional<Size> step;
  std::string out;  // folder
  WeightFormat dtype = WeightFormat::f32;
  std::optional<WeightFormat> quantize = {};
  bool adapter = false;  // the adapters alone, for PEFT
};
int export_model_verb(const ExportModelArguments& arguments);

struct ConvertArguments {
  std::string from;  // folders
  std::string out;
  std::string calibration;  // a scale file; empty: none
  std::string json;         // files to write; empty: none
  std::string html;
  ConvertOptions options;
};
int convert_verb(const ConvertArguments& arguments);

struct DoctorArguments {
  Output output = Output::human;
};
int doctor_verb(const DoctorArguments& arguments);

enum class EstimateTiming : std::uint8_t { measure, leave_out };
struct EstimateArguments {
  ConfigArguments config;
  std::string gpu;         // a model to plan for, here or not; empty: what the config says
  std::string gpu_memory;  // "80GiB"; empty: what is free
  EstimateTiming timing = EstimateTiming::measure;
  double tokens_per_second = 0;    // of one GPU, as measured; 0: estimated
  std::string bench;               // file of bench --json to take times from; empty: none
  std::optional<Size> gpus;        // in all
  std::optional<Size> nodes;       // machines that hold them
  std::vector<std::string> links;  // "nvlink", "ib"
  std::string gradients = "fp32";  // how they travel: fp32 or bf16
  double overlap = 0.9;
  Output output = Output::human;
};
int estimate_verb(const EstimateArguments& arguments);

enum class InspectWhat : std::uint8_t { run, config_reference, recipes, presets, plan };
struct InspectArguments {
  InspectWhat what = InspectWhat::run;
  std::string path;   // a run, a shard, a data set or a safetensors file
  std::string other;  // a second run: scale books are compared
  ConfigArguments config;
};
int inspect_verb(const InspectArguments& arguments);

struct StudyArguments {  // what calibrate and localize share
  ConfigArguments config;
  std::string run;           // weights of this run's checkpoint; empty: a fresh model
  std::optional<Size> step;  // of the checkpoint; the newest good one by default
  Size batches = 0;
  std::optional<Size> warmup_steps;
  Output output = Output::human;
};

struct CalibrateArguments {
  StudyArguments study;
  double percentile = 100;
  int margin = 1;       // binades
  std::string against;  // an earlier scale file
  std::string out;      // the scale file; the report goes beside it
};
int calibrate_verb(const CalibrateArguments& arguments);

struct LocalizeArguments {
  StudyArguments study;
  std::string budget = "0.25%";
  Grouping grouping = Grouping::site;
  std::string out;  // folder
};
int localize_verb(const LocalizeArguments& arguments);

}  // namespace quaver
