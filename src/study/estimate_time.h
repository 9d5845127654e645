// How long a step takes: a model of one layer and one of two are trained for a moment on the engine that would train
// the whole, and the difference is what a layer costs. Small models are trained as they are.
#pragma once

#include "config/config.h"
#include "engine/engine.h"
#include "study/estimate.h"

namespace quaver {

// Whether a micro-batch of the whole model is measured, which no depth and no batch has to be scaled from: that of a
// model small enough for the CPU, and of one whose blocks differ.
bool is_measured_whole(const Config& config, HardwareKind kind);

// Sequences of the micro-batch that is measured: the run's, or on the CPU as many as take a second or two.
Size probe_batch(const Config& config, HardwareKind kind);

// What is measured of a deep model: as many of its layers, in which no pattern names a block.
Config shallow(const Config& whole, Size layers, Size batch);

// What a step of a shallow model took: its optimizer's part grows with the parameters, the rest with the tokens.
struct ShallowStep {
  double micro_step = 0;  // seconds without the optimizer's
  double optimizer = 0;
  Size parameters = 0;
};

// Seconds that the optimizer of a model of `layers` layers takes.
double optimizer_seconds(Size layers, const ShallowStep& one, const ShallowStep& two);

// Seconds per step of a model of `layers` layers, from steps of one micro-batch of `measured_batch` sequences over one
// layer and over two (the same step again where the model has only one).
double seconds_of_step(const TrainConfig& train, Size layers, Size measured_batch, const ShallowStep& one,
                       const ShallowStep& two);

TimeEstimate measure_time(const Config& config, Engine& engine);

// From the GPU's peak and the share of it that training is assumed to reach.
TimeEstimate assume_time(const Estimate& estimate, const GpuModel& gpu);

}  // namespace quaver
