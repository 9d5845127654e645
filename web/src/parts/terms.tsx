// The words that a newcomer does not know, explained where they stand: a tooltip on the word, and a list to unfold for
// those who cannot point.
import type { ComponentChildren } from 'preact';

export const terms = {
  site: 'Where a tensor is cast and stored for matrix products, named layer/role: blocks.3.mlp.up/x is the input of that layer.',
  role: 'Which tensor of a layer: x, its input; w, its weight; dy, the gradient of its output.',
  amax: 'The largest magnitude of the tensor. Scales are computed from it.',
  scale: 'What the tensor is multiplied by before the cast, so that it fits the range of the format.',
  binade: 'The numbers between two neighboring powers of two. One binade is a factor of two.',
  headroom: 'Binades from the scaled amax to the largest value of the format. Below 0 the tensor saturates; far above, its small elements underflow.',
  underflow: 'Non-zero elements that the cast made zero.',
  saturation: 'Elements beyond the largest value of the format, which the cast clips to it.',
  overflow: 'A site overflows in a step when it has non-finite elements or when too many of its elements saturate.',
  SQNR: 'Signal to quantization noise ratio of the cast: about 31 dB in E4M3 and 25 dB in E5M2 where the scale fits.',
  'SQNR deficit': 'How far the SQNR is below that of the same tensor and format at the best single scale. 0: the scale fits; 12 dB: bad.',
  'high precision': 'FP32, TF32, BF16 and FP16. Low precision: formats of 8 bits and fewer.',
  'shadow check': 'A micro-batch run in high precision too, to compare the gradients.',
} as const;

export type TermName = keyof typeof terms;

export function Term({ name, children }: { name: TermName; children?: ComponentChildren }) {
  return <abbr class="term" title={terms[name]}>{children ?? name}</abbr>;
}

export function Terms() {
  return (
    <details class="card terms">
      <summary>What the words mean</summary>
      <dl class="facts">
        {Object.entries(terms).flatMap(([name, text]) => [<dt key={name}>{name}</dt>, <dd key={`${name} text`}>{text}</dd>])}
      </dl>
    </details>
  );
}
