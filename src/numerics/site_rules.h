// Rules on the statistics of sites: some check the scale book after every step, the others a sample. Internal to this
// module.
#pragma once

#include "numerics/alert_ledger.h"
#include "numerics/alert_state.h"

namespace quaver {

class SiteRules {
 public:
  void check_step(const StepMetrics& metrics, const ScaleBook& book, const AlertConfig& config, AlertLedger& ledger);
  void check_sample(const StepMetrics& metrics, const ScaleBook& book, const NumericsSample& sample,
                    const AlertConfig& config, AlertLedger& ledger);

  const SiteMemories& memories() const { return memories_; }
  void restore(const SiteMemories& memories) { memories_ = memories; }

 private:
  // One site of one sample.
  struct SampledSite {
    const ScaleEntry& entry;
    const SiteSample& sample;
    SiteMemory& memory;
    const AlertConfig& config;
    AlertLedger& ledger;
    int layer_bits;  // of the lowest-precision operand of the site's layer

    const Site& site() const { return entry.site; }
    Format format() const { return entry.site.spec.rows.format; }
    SiteStorage storage() const { return storage_of(entry.site, layer_bits); }
    Limits limits(Statistic statistic) const { return limits_of(statistic, storage(), config); }
    Patience patience() const { return {config.samples, config.clear_samples}; }
    void take(const Reading& reading) const { ledger.take(site().name, reading); }
  };

  static void follow_scale(const ScaleEntry& entry, SiteMemory& memory);
  static void check_frozen_scale(const ScaleEntry& entry, const SiteMemory& memory, const AlertConfig& config,
                                 AlertLedger& ledger);
  static void check_range(const SampledSite& at);
  static void check_underflow(const SampledSite& at);
  static void check_sqnr_deficit(const SampledSite& at);
  static void check_stale_scale(const SampledSite& at);
  static void check_growth_and_collapse(const SampledSite& at);
  static void check_weight_jump(const SampledSite& at);
  static void check_weight(const SampledSite& at, const StepMetrics& metrics);

  SiteMemories memories_;
};

}  // namespace quaver
