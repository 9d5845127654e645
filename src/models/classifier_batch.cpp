#include "models/classifier_batch.h"

#include <algorithm>
#include <fmt/format.h>

#include "quaver/error.h"

namespace quaver {

Size check_batch(const ClassifierShape& shape, const Step& step, const Batch& batch) {
  const auto* rows = std::get_if<FeatureBatch>(&batch);
  if (rows == nullptr) throw Error("a classifier was given sequences of tokens", "give it rows of features");
  if (rows->features.size() != static_cast<std::size_t>(step.batch * shape.features) ||
      rows->classes.size() != static_cast<std::size_t>(step.batch)) {
    throw Error(fmt::format("a batch of {} features and {} classes, where the model reads {} rows of {}",
                            rows->features.size(), rows->classes.size(), step.batch, shape.features),
                "the data has another shape than what the model was made for");
  }
  const auto largest = std::ranges::max_element(rows->classes);
  if (largest != rows->classes.end() && *largest >= shape.classes) {
    throw Error(fmt::format("class {} lies outside the model's {}", *largest, shape.classes),
                "the data has more classes than the model was made for");
  }
  return std::ranges::count_if(rows->classes, [](std::int32_t row_class) { return row_class >= 0; });
}

Batch blank_features(const ClassifierShape& shape, const Step& step, BatchStorage& storage) {
  storage.features.assign(static_cast<std::size_t>(step.batch * shape.features), 0);
  storage.targets.assign(static_cast<std::size_t>(step.batch), 0);
  return FeatureBatch{storage.features, storage.targets};
}

}  // namespace quaver
