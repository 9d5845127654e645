// The backward pass through the stack: joins, branches, embedding.
#include "models/transformer.h"
#include "nn/output_gradients.h"

namespace quaver {

void Transformer::backward(Step& step, std::span<const std::int32_t> tokens, View head_gradient) {
  const View gradient = step.scratch(config_.width);
  if (norms_after_branches()) {
    backward_norms_after(step, gradient, head_gradient);
  } else {
    backward_norms_before(step, gradient, head_gradient);
  }
  const float unit = is_unit_scaled() ? unit_embedding_gradient(config_.vocab, step.tokens()) : 1.0F;
  step.begin_gradients(embedding_section);
  if (table_.has_gradient() || (positions_ != nullptr && positions_->has_gradient())) {
    step.engine.run(EmbedBackward{.tokens = tokens,
                                  .document_starts = step.document_starts,
                                  .sequence = step.sequence,
                                  .gradient = gradient,
                                  .factor = unit,
                                  .table_gradient = table_.gradient,
                                  .positions_gradient = positions_ != nullptr ? positions_->gradient : View{}});
  }
  step.end_gradients(embedding_section);
}

void Transformer::backward_branch(std::size_t i, Step& step, View dx) {
  step.use(section_of(i));
  step.begin_gradients(section_of(i));
  branches_[i]->backward(step, dx);
  if (step.pass == Pass::calibrate) propagate_ratios(step);
}

void Transformer::backward_norms_before(Step& step, View gradient, View dx) {
  std::vector<Linear*> last_layers;
  for (const auto& branch : branches_) last_layers.push_back(&branch->last());
  OutputGradients output_gradients(step, std::move(last_layers), gradient);
  for (std::size_t i = branches_.size() + 1; i-- > 0;) {
    const Arena::Scope branch_scope(step.arena);
    const bool at_end = i == branches_.size();
    Norm& norm = at_end ? *final_norm_ : *norms_[i];
    if (!at_end) backward_branch(i, step, dx);
    step.engine.run(AddNormBackward{.norm = norm.parameters(),
                                    .sum = streams_[i],
                                    .stats = norm.stats(),
                                    .out_gradient = dx,
                                    .next = at_end ? View{} : gradient,
                                    .keep = at_end ? 0.0F : residual(static_cast<Size>(i)).keep,
                                    .add = at_end ? 1.0F : join_factor(i),
                                    .gradient = gradient,
                                    .branch_gradient = i > 0 ? &output_gradients.of(i - 1) : nullptr,
                                    .out = at_end ? nullptr : branches_[i]->first().requantized_input(step),
                                    .gradients = norm.gradients(step.tokens()),
                                    .casting = step.casting});
    if (!at_end) branches_[i]->first().wgrad(step);
    step.end_gradients(section_of(i));
  }
}

void Transformer::backward_norms_after(Step& step, View gradient, View dx) {
  const std::size_t mark = step.arena.mark();
  step.engine.run(AddNormBackward{.norm = final_norm_->parameters(),
                                  .sum = streams_.back(),
                                  .stats = final_norm_->stats(),
                                  .out_gradient = dx,
                                  .gradient = dx,
                                  .gradients = final_norm_->gradients(step.tokens()),
                                  .casting = step.casting});
  step.end_gradients(head_section());
  for (std::size_t i = branches_.size(); i-- > 0;) {
    const bool at_end = i + 1 == branches_.size();
    step.arena.rewind(mark);
    QuantizedTensor& dy = branches_[i]->last().output_gradient(step);
    NormAddBackward join{.norm = norms_[i]->parameters(),
                         .branch = branch_outputs_[i],
                         .stats = norms_[i]->stats(),
                         .input_gradient = dx,
                         .next = at_end ? View{} : gradient,
                         .keep = at_end ? 0.0F : residual(static_cast<Size>(i + 1)).keep,
                         .add = at_end ? 1.0F : join_factor(i + 1),
                         .factor = entry_factors_[i],
                         .gradient = gradient,
                         .branch_gradient = dy,
                         .gradients = norms_[i]->gradients(step.tokens()),
                         .casting = step.casting};
    step.engine.run(join);
    if (step.pass == Pass::calibrate) {
      join.factor = entry_factors_[i] = factor_to_unit(entry_factors_[i], dy.site(), step.engine);
      join.input_gradient = gradient;  // already joined: only the branch's gradient is to be requantized
      join.next = {};
      join.add = 1;
      step.engine.run(join);
    }
    backward_branch(i, step, dx);
    branches_[i]->first().wgrad(step);
    step.end_gradients(section_of(i));
  }
  step.arena.rewind(mark);
  step.engine.run(Combine{.x = gradient, .y = dx, .keep = residual(0).keep, .add = join_factor(0), .out = gradient});
}

}  // namespace quaver
