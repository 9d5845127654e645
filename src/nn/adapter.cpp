#include "nn/adapter.h"

#include <cmath>

namespace quaver {

namespace {

LayerShape part_of(const LayerShape& adapted, const char* name, Size in, Size out) {
  return {.name = adapted.name + name,
          .in = in,
          .out = out,
          .block = adapted.block,
          .high_precision = true,
          .adaptation = Adaptation::adapter};
}

// The variance of PEFT's initial A, which is uniform in ±1/√in.
float initial_deviation(Size in) { return 1.0F / std::sqrt(3.0F * static_cast<float>(in)); }

// The matrix as GEMMs read it: its own codes where the site stores no other, else cast into what `place` returns.
template <class Place>
QuantizedTensor operand_of(Step& step, Site& site, View matrix, const Place& place) {
  if (step.is_own_codes(site, matrix)) {
    if (!step.can_skip_cast(site, matrix)) step.observe_uncast(site, matrix);
    return {site, matrix, step.one};
  }
  QuantizedTensor codes = place();
  step.engine.run(Quantize{matrix, codes, step.casting});
  return codes;
}

}  // namespace

Adapter::Factor Adapter::add_factor(Registry& registry, const LayerShape& shape, float init_std) {
  const LayerSites sites = registry.add(shape);
  Parameter& weight = registry.parameters().add({.name = shape.name + ".weight",
                                                 .kind = ParameterKind::matrix,
                                                 .rows = shape.out,
                                                 .cols = shape.in,
                                                 .init_std = init_std,
                                                 .adapter = true});
  weight.site = &sites.w;
  return {sites, weight};
}

Adapter::Adapter(Registry& registry, const LayerShape& adapted)
    : a_(add_factor(registry, part_of(adapted, ".lora_A", adapted.in, registry.lora().rank),
                    initial_deviation(adapted.in))),
      b_(add_factor(registry, part_of(adapted, ".lora_B", registry.lora().rank, adapted.out), 0)),
      factor_(static_cast<float>(registry.lora().alpha / static_cast<double>(registry.lora().rank))) {}

void Adapter::forward(Step& step, Operand x, View y) {
  const GemmRows rows = step.decodes_one() ? GemmRows::apart : GemmRows::together;
  const Size rank = a_.weight.rows;
  if (!hidden_.valid()) {
    const View hidden = step.pass == Pass::evaluate ? step.scratch(rank) : step.saved(rank);
    step.engine.run(Gemm{.a = x, .b = a_.weight.quantized.rows(), .out = hidden, .rows = rows});
    hidden_ = operand_of(step, b_.sites.x, hidden, [&] { return step.operand(b_.sites.x, rank); });
  }
  step.engine.run(Gemm{.a = hidden_.rows(),
                       .b = b_.weight.quantized.rows(),
                       .out = y,
                       .alpha = factor_,
                       .accumulate = true,
                       .rows = rows});
}

void Adapter::dgrad(Step& step, Operand dy, View dx) {
  const Size rank = a_.weight.rows;
  const View gradient = step.scratch(rank);
  step.engine.run(
      Gemm{.pass = GemmPass::dgrad, .a = dy, .b = b_.weight.quantized.columns(), .out = gradient, .alpha = factor_});
  hidden_gradient_ =
      operand_of(step, a_.sites.dy, gradient, [&] { return step.scratch(a_.sites.dy, rank, Copies::both); });
  step.engine.run(Gemm{.pass = GemmPass::dgrad,
                       .a = hidden_gradient_.rows(),
                       .b = a_.weight.quantized.columns(),
                       .out = dx,
                       .accumulate = true});
}

void Adapter::wgrad(Step& step, Operand dy, Operand x) {
  if (a_.weight.has_gradient()) {
    step.engine.run(Gemm{.pass = GemmPass::wgrad,
                         .a = hidden_gradient_.columns(),
                         .b = x,
                         .out = a_.weight.gradient,
                         .accumulate = true});
  }
  if (b_.weight.has_gradient()) {
    step.engine.run(Gemm{.pass = GemmPass::wgrad,
                         .a = dy,
                         .b = hidden_.columns(),
                         .out = b_.weight.gradient,
                         .alpha = factor_,
                         .accumulate = true});
  }
}

}  // namespace quaver
