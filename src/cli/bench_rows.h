// Tables of a benchmark, as rows of cells with the titles first: for the terminal and for the report.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "study/bench.h"

namespace quaver {

using BenchRows = std::vector<std::vector<std::string>>;

// Of the recipes that were measured, the most bits of an operand in low precision; nothing of those without one.
using RecipeBits = std::map<std::string, int>;
RecipeBits low_precision_bits(const Bench& bench);

BenchRows peak_rows(const Bench& bench);
// Recipes down: all layers of a micro-batch together, and whether tensor cores or CPU multiply the codes as they are.
BenchRows precision_rows(const Bench& bench);
// Layers down, recipes across: bf16's time over the recipe's, operands' production included.
BenchRows speedup_rows(const Bench& bench, const std::vector<LayerVerdict>& verdicts);
BenchRows break_even_rows(const std::vector<LayerVerdict>& verdicts, const RecipeBits& bits);  // 8 bits
BenchRows step_rows(const Bench& bench);
BenchRows memory_rows(const Bench& bench);  // recipes down, purposes across
BenchRows block_rows(const Bench& bench);
BenchRows decode_rows(const Bench& bench);
BenchRows cast_rows(const Bench& bench);  // recipes down
BenchRows cast_detail_rows(const Bench& bench);
BenchRows phase_rows(const Bench& bench);     // phases down, recipes across
BenchRows product_rows(const Bench& bench);   // every GEMM
BenchRows producer_rows(const Bench& bench);  // what writes operands
BenchRows vector_rows(const Bench& bench);

std::string emulation_text(const Bench& bench);  // how what is not native is multiplied; empty where all is

// What a run could take here: as the square GEMM of its format, or the memory's speed.
double roofline_seconds(const Bench& bench, const Measurement& m);
// Of a layer at the tokens at which it is judged.
bool is_judged(const Bench& bench, const Measurement& m);

const Measurement* copy_of(const Bench& bench);  // the peak of memory; null where it was not measured
std::vector<std::string> recipes_of(const std::vector<LayerVerdict>& verdicts);
std::string as_number(double value);  // three digits, or all of those before the point
std::string as_ms(double seconds);
std::string as_share(double share);
std::string as_gigabytes(double per_second);

}  // namespace quaver
