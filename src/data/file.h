#pragma once
#include "io/file_io.h"
