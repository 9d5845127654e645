// The public header, under the name of the module that implements it.
#pragma once

#include "quaver/quant_spec.h"
