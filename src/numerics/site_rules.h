// Rules on the statistics of sites: some check the scale book after every step, the others a sample. Internal to this
// module.
#pragma once

#include <map>
#include <string>
#include <unordered_map>

#include "numerics/alert_ledger.h"
#include "numerics/running_level.h"

namespace quaver {

class SiteRules {
 public:
  void look(const StepMetrics& metrics, const ScaleBook& book, const AlertConfig& config, AlertLedger& ledger);
  void look_closely(const StepMetrics& metrics, const ScaleBook& book, const NumericsSample& sample,
                    const AlertConfig& config, AlertLedger& ledger);

  void save(std::map<std::string, double>& state) const;
  void restore(const std::map<std::string, double>& state);

 private:
  struct Memory {
    Baseline rms;
    Baseline amax;
    Baseline snr;
    double snr_square = 0;  // running mean of the square: a single step's figure is an estimate, and often zero
    double scale = 0;       // a delayed scale as last seen …
    double unchanged = 0;   // … and for how many steps it has been that
    double peak = 0;        // largest amax of the latest steps, and of those before
    double peak_before = 0;
    double filled = 0;       // steps in `peak`
    double amax_before = 0;  // at the sample before
    double zeros = 0;        // steps in a row in which the tensor was all zero

    template <typename Self, typename Visit>
    static void each_field(Self& self, Visit visit) {
      visit("rms_count", self.rms.count);
      visit("rms_log", self.rms.log_sum);
      visit("amax_count", self.amax.count);
      visit("amax_log", self.amax.log_sum);
      visit("snr_count", self.snr.count);
      visit("snr_log", self.snr.log_sum);
      visit("snr_square", self.snr_square);
      visit("scale", self.scale);
      visit("unchanged", self.unchanged);
      visit("peak", self.peak);
      visit("peak_before", self.peak_before);
      visit("filled", self.filled);
      visit("zeros", self.zeros);
      visit("amax_before", self.amax_before);
    }
  };

  // One site of one sample.
  struct Look {
    const ScaleEntry& entry;
    const SiteSample& sample;
    Memory& memory;
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

  static void follow_scale(const ScaleEntry& entry, Memory& memory);
  static void look_for_frozen(const ScaleEntry& entry, const Memory& memory, const AlertConfig& config,
                              AlertLedger& ledger);
  static void look_at_range(const Look& look);
  static void look_for_underflow(const Look& look);
  static void look_for_noise(const Look& look);
  static void look_at_fit(const Look& look);
  static void look_at_size(const Look& look);
  static void look_for_jump(const Look& look);
  static void look_at_weight(const Look& look, const StepMetrics& metrics);

  std::unordered_map<std::string, Memory> memories_;
};

}  // namespace quaver
