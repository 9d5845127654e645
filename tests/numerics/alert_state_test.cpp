// What alarms remember survives a checkpoint, and what comes from outside is not trusted.
#include "numerics/alert_state.h"

#include <cmath>

#include "numerics/planted.h"

namespace quaver::test {
namespace {

// A resumed run goes on as if it had not stopped: what is active stays so and is not raised again, what was about to be
// raised is raised at the same step, and starts are remembered.
TEST(AlarmState, StateSurvivesACheckpointAtAnyStep) {
  const auto run_with_stop = [](int stop) {
    PlantedRun run;
    const Plant bad{.step =
                        [](StepMetrics& now) {
                          if (now.step > 230) now.max_logit = 500;
                          if (now.step % 90 == 0) now.loss += 4;
                        },
                    .casts =
                        [&](ScaleBook& book) {
                          book.entry("blocks.0.mlp.up/dy").site.seen.underflowed = 40'000;
                          if (run.step_number > 200) book.entry("blocks.0.attn.qkv/x").site.seen.amax *= 1e-3F;
                        },
                    .scales = [](ScaleBook& book) { book.entry("blocks.0.attn.qkv/x").site.scale = 100.0F; },
                    .sample =
                        [](PlantedRun& planted) {
                          if (planted.step_number > 100) planted.site_sample("head/w")[Statistic::rms] = 1e-4F;
                          if (planted.step_number > 180)
                            planted.site_sample("blocks.1.mlp.down/x")[Statistic::rms] = 900;
                        }};
    for (int i = 0; i < 300; ++i) {
      if (i == stop) {
        std::map<std::string, double> numbers = to_numbers(run.alarms.state());
        for (const auto& [key, value] : numbers) EXPECT_TRUE(std::isfinite(value)) << key;
        numbers["guard.mean"] = 3;  // of somebody else
        Alarms resumed{AlertConfig{}};
        resumed.restore(parse_alarm_state(numbers));
        run.alarms = std::move(resumed);
      }
      run.step(bad);
    }
    std::vector<std::string> lines;
    for (const Alert& alert : run.all) lines.push_back(std::to_string(alert.step) + " " + alert.text);
    for (const Alert& alert : run.alarms.active()) {
      lines.push_back(alert.site + " " + std::to_string(alert.count) + " " + std::to_string(alert.last_step));
    }
    return std::pair(lines, to_numbers(run.alarms.state()));
  };
  const auto straight = run_with_stop(-1);
  EXPECT_GE(straight.first.size(), 8);
  for (const int stop : {1, 4, 40, 99, 111, 150, 185, 232, 260, 299}) {
    EXPECT_EQ(run_with_stop(stop), straight) << stop;
  }
}

TEST(AlarmState, RestoreTakesNothingOnTrust) {
  Alarms alarms{AlertConfig{}};
  std::map<std::string, double> state;
  const double odd[] = {NAN, INFINITY, -INFINITY, -1, 1e300, 0.5};
  const char* keys[] = {"alarms|",
                        "alarms||",
                        "alarms|||",
                        "alarms|underflow|a/x|count",
                        "alarms|underflow|a/x|severity",
                        "alarms|underflow|a/x|act",
                        "alarms|underflow|a/x|raised",
                        "alarms|site|a|unchanged",
                        "alarms|run||loss_variance",
                        "alarms|none|a|count",
                        "other",
                        ""};
  for (const double value : odd) {
    for (const char* key : keys) state[key] = value;
    alarms.restore(parse_alarm_state(state));
    for (const Alert& alert : alarms.active()) {
      EXPECT_LE(alert.severity, Severity::critical);
      EXPECT_LE(alert.act, Act::reset_history);
      EXPECT_FALSE(alert.text.empty());
    }
    PlantedRun run;
    run.alarms = std::move(alarms);
    run.steps(10);
    alarms = std::move(run.alarms);
  }
}

}  // namespace
}  // namespace quaver::test
