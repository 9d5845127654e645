// Runs recorded through the real recorder, for the dashboard to show.
#pragma once

#include <filesystem>
#include <string>

#include "store/recorder.h"

namespace quaver::test {

inline constexpr std::size_t sample_layers = 3;
inline constexpr std::uint64_t sample_steps = 20;

// Three layers with sites x, w and dy, every statistic of the program.
RunDescription describe_run(const std::string& id, const std::string& name = "a run");

// The value recorded for a site and statistic at a step.
float sample_figure(std::uint64_t step, std::size_t site, std::size_t statistic);

// Twenty steps of loss and numerics, a change, an alert, an event, a sample and a localization; finished.
void record_run(const std::filesystem::path& store, const RunDescription& description);

}  // namespace quaver::test
