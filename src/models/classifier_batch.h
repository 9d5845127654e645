// What classifiers of rows of features share: the check of a batch, and the blank one of dry runs.
#pragma once

#include "models/model.h"

namespace quaver {

struct ClassifierShape {
  Size features = 0;
  Size classes = 0;
};

// How many rows have a class. Throws Error where the batch is not one for a classifier of this shape.
Size check_batch(const ClassifierShape& shape, const Step& step, const Batch& batch);

Batch blank_features(const ClassifierShape& shape, const Step& step, BatchStorage& storage);

}  // namespace quaver
