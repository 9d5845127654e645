// Made-up runs that look like real ones: learning curves, numerics with trouble in known places, names that attack.
const statistics = [
  ['scale', '', 'what the tensor is multiplied by before the cast'], ['amax', '', 'largest magnitude'],
  ['min_nonzero', '', 'smallest magnitude that is not zero'], ['mean', '', 'mean'], ['std', '', 'standard deviation'],
  ['rms', '', 'root of the mean square'], ['kurtosis', '', 'about zero: 3 for a normal distribution, more with outliers'],
  ['underflow_percent', '%', 'non-zero elements that the cast made zero'],
  ['saturated_percent', '%', "elements beyond the format's largest value"], ['nonfinite', '', 'infinities and NaNs'],
  ['sqnr_db', 'dB', 'signal to quantization noise'],
  ['headroom_log2', 'bits', "binades between the largest magnitude and the format's end"],
  ['gradient_snr', '', "‖mean‖ / deviation of the weight's gradient over micro-batches"],
  ['update_ratio', '', '‖Δw‖ / ‖w‖ of the last update'], ['unmoved_percent', '%', 'weights that the last update did not change'],
  ['shadow_cosine', '', "between the weight's gradient and the same in high precision"],
  ['shadow_error', '', "relative error of the weight's gradient against high precision"],
].map(([name, unit, doc]) => ({ name, unit, doc }));
const weightOnly = new Set(['gradient_snr', 'update_ratio', 'unmoved_percent', 'shadow_cosine', 'shadow_error']);
const aggregates = { min_nonzero: 'min', sqnr_db: 'min', headroom_log2: 'min', gradient_snr: 'min', shadow_cosine: 'min', mean: 'absmax', scale: 'absmax' };
const roles = ['x', 'w', 'dy'];

// Uniform in [0, 1), a function of its arguments alone.
export function chance(...keys) {
  let h = 0x811c9dc5;
  for (const key of keys) {
    for (const c of String(key)) h = Math.imul(h ^ c.charCodeAt(0), 0x01000193);
    h = Math.imul(h ^ (h >>> 15), 0x2c1b3c6d);
  }
  h = Math.imul(h ^ (h >>> 13), 0x297a2d39);
  return ((h ^ (h >>> 16)) >>> 0) / 2 ** 32;
}
const normal = (...keys) => Math.sqrt(-2 * Math.log(chance('a', ...keys) + 1e-12)) * Math.cos(2 * Math.PI * chance('b', ...keys));

export function layersOf(run) {
  if (run.layers) return run.layers;
  const parts = ['attention.qkv', 'attention.out', 'mlp.up', 'mlp.down'];
  run.layers = [];
  for (let block = 0; block < run.blocks; ++block) for (const part of parts) run.layers.push(`blocks.${block}.${part}`);
  run.layers.push('head');
  if (run.hostile) run.layers.splice(3, 0, '<img src=x onerror=boom()>');
  return run.layers;
}

export function lossAt(run, step) {
  if (run.nanAfter && step > run.nanAfter) return null;
  const curve = run.floor + 8.2 * Math.exp(-step / (run.steps * 0.012)) + 1.1 * (step / run.steps + 0.04) ** -0.18 - 1.1;
  return curve + 0.045 * normal(run.id, step) + 0.0016 * run.seed * Math.sin(step / 90 + run.seed);
}

const seconds = (run, step) => run.pace * (1 + 0.04 * chance('pace', run.id, step)) + (step % 500 === 0 ? run.pace * 3 : 0);

// Of a classifier, which also knows the best that is possible.
function accuracyAt(run, step) {
  return run.best.accuracy - 0.9 * Math.exp(-step / (run.steps * 0.12)) - 0.002 * chance('accuracy', run.id, step);
}

export function metricAt(run, name, step) {
  const warm = Math.min(1, step / (run.steps * 0.04));
  switch (name) {
    case 'loss': return lossAt(run, step);
    case 'validation_loss': return step % run.evalEvery === 0 ? (lossAt(run, step) ?? 9) + 0.03 : undefined;
    case 'validation_accuracy': return run.best && step % run.evalEvery === 0 ? accuracyAt(run, step) : undefined;
    case 'learning_rate': return 6e-4 * warm * (0.1 + 0.45 * (1 + Math.cos((Math.PI * step) / run.steps)));
    case 'gradient_norm': return 0.35 + 4 * Math.exp(-step / (run.steps * 0.02)) + 0.12 * Math.abs(normal('g', run.id, step)) + (chance('spike', run.id, step) > 0.999 ? 6 : 0);
    case 'seconds': return seconds(run, step);
    case 'tokens_per_second': return run.tokens_per_step / seconds(run, step);
    case 'time': return run.started + step * run.pace * 1.02;
    case 'statistics_seconds': return step % 10 === 0 ? 0.06 * run.pace : 0.002 * run.pace;
    case 'phase.data': return 0.01 * run.pace;
    case 'phase.forward_backward': return run.pace * (0.86 + 0.02 * chance('fb', run.id, step));
    case 'phase.optimizer': return 0.09 * run.pace;
    case 'phase.statistics': return step % 10 === 0 ? 0.06 * run.pace : 0.002 * run.pace;
    case 'phase.evaluation': return step % run.evalEvery === 0 ? 2.5 * run.pace : undefined;
    case 'phase.checkpoint': return step % 500 === 0 ? 3 * run.pace : 0;
    case 'power_watts': return run.gpu ? 590 + 60 * chance('w', run.id, step) : undefined;
    case 'sm_clock_mhz': return run.gpu ? 1700 + 120 * chance('clk', run.id, Math.floor(step / 30)) : undefined;
    case 'temperature_c': return run.gpu ? 52 + 14 * (1 - Math.exp(-step / 200)) + chance('t', run.id, step) : undefined;
    case 'memory_used_bytes': return run.gpu ? 61.3 * 2 ** 30 : undefined;
    case 'communication_seconds': return run.ranks ? run.pace * (0.1 + 0.05 * chance('comm', run.id, step)) : undefined;
    case 'communication_least_seconds': return run.ranks ? 0.08 * run.pace : undefined;
    case 'slowest_rank': return run.ranks ? run.ranks - 1 : undefined;
    case 'narrow_share': return 0.93;
    case 'max_logit': return 6 + 14 * (step / run.steps) + normal('l', run.id, step) * 0.4;
    case 'gradient_snr': return 0.4 + 0.1 * chance('snr', run.id, step);
    default: return undefined;
  }
}
const metricNames = ['loss', 'validation_loss', 'validation_accuracy', 'learning_rate', 'gradient_norm', 'seconds', 'tokens_per_second', 'time', 'statistics_seconds',
  'phase.data', 'phase.forward_backward', 'phase.optimizer', 'phase.statistics', 'phase.evaluation', 'phase.checkpoint', 'power_watts',
  'sm_clock_mhz', 'temperature_c', 'memory_used_bytes', 'narrow_share', 'max_logit', 'gradient_snr',
  'communication_seconds', 'communication_least_seconds', 'slowest_rank'];

export function metrics(run, names, after, points) {
  const series = {};
  for (const name of names) {
    if (!metricNames.includes(name)) continue;
    const step = [];
    const value = [];
    const stride = Math.max(1, Math.ceil((run.step - after) / points));
    const every = name.startsWith('validation_') || name === 'phase.evaluation' ? run.evalEvery : stride;
    for (let s = Math.ceil((after + 1) / every) * every; s <= run.step; s += every) {
      const v = metricAt(run, name, s);
      if (v === undefined) continue;
      step.push(s);
      value.push(v);
    }
    series[name] = { step, value };
  }
  return series;
}

// What a statistic is, by layer, role and step; NaN where a role does not have it or the step was not measured.
export function statisticAt(run, statistic, layer, role, step) {
  if (weightOnly.has(statistic) && role !== 'w') return NaN;
  const layers = layersOf(run).length;
  const depth = layer / layers;
  const t = step / run.steps;
  const noise = (k) => (((layer * 73856093) ^ (step * 19349663) ^ k) >>> 0) % 1000 / 1000 - 0.5;
  const down = layer % 4 === 3;
  const base = role === 'dy' ? 1e-5 * 2 ** (-6 * depth) : role === 'x' ? 1 + 3 * depth : 0.02;
  const growth = down && role === 'x' ? 1 + 40 * t * t * (depth > 0.5 ? 1 : 0.2) : 1;
  if (run.gap && t > 0.42 && t < 0.47 && layer % 7 < 3) return NaN;
  switch (statistic) {
    case 'amax': return base * growth * 12 * 2 ** noise(1);
    case 'scale': return 448 / (base * growth * 12 * 2 ** noise(2));
    case 'min_nonzero': return base * 2 ** (-14 + noise(3));
    case 'mean': return base * 0.1 * (noise(4) + 0.4 * Math.sin(layer));
    case 'std': case 'rms': return base * (1 + 0.1 * noise(5));
    case 'kurtosis': return 3 + 30 * t * growth * (0.5 + noise(6) * 0.2);
    case 'underflow_percent': return role === 'dy' ? Math.min(90, 0.02 + 30 * Math.max(0, depth - 0.55) ** 2 * (0.3 + t) * (1 + noise(7))) : Math.max(0, 0.01 + 0.02 * noise(7));
    case 'saturated_percent': return down && role === 'x' ? Math.max(0, 1.5 * t * t * (depth - 0.4) + 0.05 * noise(8)) : 0;
    case 'nonfinite': return run.nanAfter && step > run.nanAfter && depth > 0.8 ? 1 + Math.floor(1000 * chance(layer, step)) : 0;
    case 'sqnr_db': return 27 - 8 * depth * (role === 'dy' ? 1 : 0.3) - 3 * t * growth / 20 + noise(9);
    case 'headroom_log2': return 1.2 - 3 * t * (down ? 1 : 0.1) + noise(10) * 0.5;
    case 'gradient_snr': return 0.5 * 2 ** (-2 * t + noise(11));
    case 'update_ratio': return 1e-3 * (1 - 0.8 * t) * 2 ** noise(12);
    case 'unmoved_percent': return Math.max(0, 20 * t * t + 2 * noise(13));
    case 'shadow_cosine': return 1 - 0.02 * (1 + depth) * (1 + noise(14));
    case 'shadow_error': return 0.05 * (1 + depth) * 2 ** noise(15);
    default: return NaN;
  }
}

export function matrix(run, { statistic, role, from, to, columns, rows }) {
  const layers = layersOf(run);
  const every = run.statisticsEvery;
  const measured = [];
  for (let s = Math.ceil(Math.max(1, from) / every) * every; s <= Math.min(to, run.step); s += every) measured.push(s);
  const perRow = Math.max(1, Math.ceil(layers.length / rows));
  const perColumn = Math.max(1, Math.ceil(measured.length / columns));
  const rowCount = Math.ceil(layers.length / perRow);
  const columnCount = Math.ceil(measured.length / perColumn);
  const values = new Float32Array(rowCount * columnCount);
  for (let r = 0; r < rowCount; ++r) {
    for (let c = 0; c < columnCount; ++c) {
      values[r * columnCount + c] = statisticAt(run, statistic, r * perRow, role, measured[c * perColumn]);
    }
  }
  const header = {
    statistic, role,
    rows: Array.from({ length: rowCount }, (_, r) => ({
      layer: perRow === 1 ? layers[r] : null, first: r * perRow, count: Math.min(perRow, layers.length - r * perRow),
    })),
    row_names: Array.from({ length: rowCount }, (_, r) => layers[r * perRow]),
    steps: Array.from({ length: columnCount }, (_, c) => measured[c * perColumn]),
    steps_per_column: perColumn * every, layers_per_row: perRow, aggregate: aggregates[statistic] ?? 'max',
  };
  let text = JSON.stringify(header);
  let bytes = Buffer.from(text);
  while ((4 + bytes.length) % 4 !== 0) {
    text += ' ';
    bytes = Buffer.from(text);
  }
  const length = Buffer.alloc(4);
  length.writeUInt32LE(bytes.length);
  return Buffer.concat([length, bytes, Buffer.from(values.buffer)]);
}

export function history(run, site, points) {
  const { layer, role } = splitSite(run, site);
  const step = [];
  const stride = Math.max(run.statisticsEvery, Math.ceil(run.step / points / run.statisticsEvery) * run.statisticsEvery);
  for (let s = stride; s <= run.step; s += stride) step.push(s);
  const all = {};
  for (const { name } of statistics) {
    all[name] = step.map((s) => {
      const value = statisticAt(run, name, layer, role, s);
      return Number.isFinite(value) ? value : null;
    });
  }
  return { site, step, statistics: all };
}

export function splitSite(run, site) {
  const cut = site.lastIndexOf('/');
  return { layer: layersOf(run).indexOf(site.slice(0, cut)), role: site.slice(cut + 1) };
}

export function histogram(run, site, step) {
  const { layer, role } = splitSite(run, site);
  const steps = [];
  const keep = Math.max(run.statisticsEvery, Math.floor(run.step / 40));
  for (let s = keep; s <= run.step; s += keep) steps.push(s);
  const nearest = steps.reduce((best, s) => (Math.abs(s - (step ?? Infinity)) <= Math.abs(best - (step ?? Infinity)) ? s : best), steps[0] ?? 0);
  const at = step === undefined ? (steps[steps.length - 1] ?? 0) : nearest;
  const center = Math.log2(statisticAt(run, 'rms', layer, role, at) || 1);
  const amax = Math.log2(statisticAt(run, 'amax', layer, role, at) || 1);
  const counts = Array.from({ length: 64 }, (_, i) => {
    const e = i - 40;
    if (e > amax) return 0;
    const left = 1 / (1 + Math.exp(-(e - center + 7) * 0.75));
    return Math.floor(4e6 * left * Math.exp(-(Math.max(0, e - center + 1) ** 2) / 3) * 2 ** Math.min(0, (e - center) * 0.5));
  });
  const top = amax + (site.endsWith('down/x') ? -0.7 : 0.3);
  return {
    site, step: at, steps, first_binade: -40, counts, format: role === 'dy' ? 'e5m2' : 'e4m3', scale: 2 ** (8 - amax),
    range: role === 'dy' ? { zero_below: top - 32.8, subnormal_below: top - 29.8, max: top } : { zero_below: top - 18.8, subnormal_below: top - 14.8, max: top },
    what_if: [['e4m3', 0.4, 0.02, 26.1], ['e5m2', 0.003, 0, 20.4], ['e2m1', 21.5, 0.3, 11.9], ['bf16', 0, 0, 52.6], ['f16', 0, 0, null]]
      .map(([format, u, s, q]) => ({ format, scale: format === 'bf16' ? 1 : 2 ** (8 - amax), underflow_percent: u, saturated_percent: s, sqnr_db: q })),
  };
}

export function sitesOf(run) {
  const widened = new Set([`${layersOf(run)[Math.min(7, layersOf(run).length - 2)]}/x`, `${layersOf(run)[Math.min(11, layersOf(run).length - 2)]}/x`]);
  return layersOf(run).flatMap((layer) => roles.map((role) => {
    const site = `${layer}/${role}`;
    const wide = layer === 'head' || run.recipe === 'bf16';
    const moved = widened.has(site) && !wide;
    const four = run.recipe === 'nvfp4';
    const format = wide || moved ? 'bf16' : four ? 'e2m1' : role === 'dy' ? 'e5m2' : 'e4m3';
    return {
      site, layer, role, rows: format, columns: format, block: wide || moved ? 'tensor' : four ? '1x16' : 'tensor',
      policy: wide || moved ? 'none' : four ? 'current' : 'delayed', recipe: wide ? 'bf16' : run.recipe,
      reason: layer === 'head' ? 'kept in high precision by default' : moved ? 'widened: overflowed in 5 steps in a row' : 'recipe',
    };
  }));
}

export function changesOf(run) {
  const layers = layersOf(run);
  const all = [];
  for (let i = 0; i < Math.min(400, run.step / 20); ++i) {
    const layer = layers[Math.floor(chance('c', run.id, i) * (layers.length - 1))];
    const before = 2 ** Math.floor(4 + 6 * chance('s', i));
    all.push({
      step: Math.max(1, Math.floor(run.step * (1 - i / 400))), site: `${layer}/${roles[i % 3]}`, reason: 'amax history moved by a factor of two',
      scale_before: before, scale_after: chance('d', i) > 0.5 ? before * 2 : before / 2, format_before: 'e4m3', format_after: 'e4m3',
    });
  }
  if (run.recipe === 'bf16') return all;
  for (const site of sitesOf(run).filter((one) => one.reason.startsWith('widened'))) {
    all.push({
      step: Math.ceil(run.step * 0.6), site: site.site, reason: 'overflowed in 5 steps in a row (1.8 % saturated): stored in bf16 from here on',
      scale_before: 64, scale_after: null, format_before: run.recipe === 'nvfp4' ? 'e2m1' : 'e4m3', format_after: 'bf16',
    });
  }
  return all.sort((a, b) => b.step - a.step);
}

export function alertsOf(run) {
  if (run.alerts === 0) return [];
  const layers = layersOf(run);
  const late = layers[Math.max(0, layers.length - 4)];
  const common = { run: run.id, run_name: run.name, count: 1, act: null };
  return [
    {
      ...common, step: Math.ceil(run.step * 0.8), last_step: run.step, count: 41, rule: 'gradient_underflow', severity: 'warning', site: `${late}/dy`,
      value: 12.4, threshold: 10, text: `${late}/dy: 12.4 % becomes zero (threshold 10 %)`,
      meaning: 'Small gradients are lost in the cast; the layers below learn from fewer of them. Above 10 % losses have been seen to part.',
      remedy: 'Store this gradient in E5M2, raise the loss scale, or use block scales: `--precision.gradient_format=e5m2`.',
    },
    {
      ...common, step: Math.ceil(run.step * 0.6), last_step: Math.ceil(run.step * 0.62), count: 5, rule: 'saturation', severity: 'critical',
      site: `${layers[Math.min(7, layers.length - 2)]}/x`, value: 1.8, threshold: 1, text: '1.8 % of the inputs saturate, five steps in a row',
      meaning: 'The delayed scale follows the tensor too late: its outliers grow faster than the history of amaxes.',
      remedy: 'Use current or block scales for `*.mlp.down`, or smooth the channels.', act: 'stored in bf16 from now on',
    },
    {
      ...common, step: Math.ceil(run.step * 0.3), last_step: Math.ceil(run.step * 0.3), rule: 'loss_spike', severity: 'info', site: null,
      value: 1.31, threshold: 1.25, text: run.hostile ? '<script>boom()</script> the loss jumped' : 'The loss jumped by 31 % within a step and came back',
      meaning: 'A single hard batch does this; several within a hundred steps are the beginning of trouble.', remedy: 'Nothing, unless it repeats.',
    },
  ].slice(0, run.alerts);
}

export function ranksOf(run) {
  if (!run.ranks) return undefined;
  const names = Array.from({ length: run.ranks }, (_, rank) => `rank ${rank} on node-${Math.floor(rank / 2)}`);
  return { ranks: names.map((name, rank) => ({ name, memory: { weights: (9 + rank) * 2 ** 30, activations: 2 ** 34 } })) };
}

export function localizationOf(run) {
  if (!run.localized) return undefined;
  return {
    recipe: 'fp8-delayed', step: 400, group: 'site', baseline_loss: 3.2412,
    sites: sitesOf(run).map((site, i) => ({
      site: site.site, layer: site.layer, role: site.role, recipe: 'fp8-delayed',
      loss_change: 2e-4 * normal('loc', i) + (site.site.endsWith('down/x') ? 0.004 * chance('locd', i) : 0), gradient_cosine: 0.99 - 0.05 * chance('cos', i),
      sqnr_db: 24 + 4 * chance('q', i), flops_share: 1 / (layersOf(run).length * 3), kept_wide: site.site.endsWith('down/x') && chance('locd', i) > 0.7,
    })),
  };
}

export function detailOf(run) {
  return {
    ...publicOf(run), config: configOf(run), changed_settings: run.changed ?? [],
    environment: { device: run.gpu ? 'NVIDIA H200' : 'CPU', threads: 16, version: '0.9.0', libraries: { cublas: '13.0', cudnn: '9.19' } },
    sites: run.bare ? [] : sitesOf(run), statistics, metrics: metricNames,
    shares: run.recipe === 'bf16' ? { bf16: 1 } : run.recipe === 'nvfp4' ? { e2m1: 0.86, bf16: 0.14 } : { e4m3: 0.62, e5m2: 0.31, bf16: 0.07 },
    memory: { weights: 2.1e9, gradients: 2.1e9, optimizer: 3.2e9, activations: 11.4e9, quantized: 1.6e9, workspace: 0.5e9 }, roles, best: run.best ?? {},
  };
}

function configOf(run) {
  return {
    'model.kind': 'llama', 'model.layers': String(run.blocks), 'model.width': '1024', 'precision.recipe': run.recipe,
    'precision.history': run.recipe === 'nvfp4' ? '1' : '16', 'train.steps': String(run.steps), 'train.seed': String(run.seed),
    'train.batch_tokens': String(run.tokens_per_step), 'optim.learning_rate': '0.0006', 'optim.weight_decay': '0.1',
    ...(run.recipe === 'nvfp4' ? { 'precision.rotate': 'true' } : {}), ...(run.hostile ? { 'train.name': '"><svg onload=boom()>' } : {}),
  };
}

function finalLossOf(run) {
  const from = run.step - Math.max(1, Math.floor(run.step / 20));
  const losses = Array.from({ length: run.step - Math.max(0, from) }, (_, i) => lossAt(run, from + 1 + i));
  return losses.length === 0 || losses.includes(null) ? null : losses.reduce((sum, one) => sum + one, 0) / losses.length;
}

export function publicOf(run) {
  return {
    id: run.id, name: run.name, model: run.model, recipe: run.recipe, status: run.status, started: run.started, updated: run.updated, step: run.step,
    steps: run.steps, tokens_per_step: run.tokens_per_step, unit: run.unit ?? 'tokens', loss: run.step ? lossAt(run, run.step) : null,
    final_train_loss: finalLossOf(run),
    validation_loss: run.step >= run.evalEvery && !run.nanAfter ? (lossAt(run, Math.floor(run.step / run.evalEvery) * run.evalEvery) ?? 0) + 0.03 : null,
    validation_accuracy: run.best && run.step >= run.evalEvery ? accuracyAt(run, Math.floor(run.step / run.evalEvery) * run.evalEvery) : null,
    tokens_per_second: run.step ? run.tokens_per_step / run.pace : null, eta_seconds: run.status === 'running' ? (run.steps - run.step) * run.pace : null,
    tags: run.tags, alerts: alertsOf(run).length, group: run.group, seed: run.seed,
    store_folder: run.folder ?? '', missing_folder: run.missing ?? null, trained_name: run.trained_name ?? run.name, note: run.note ?? '',
    hidden: run.hidden ?? false, deleted: run.deleted ?? null,
  };
}

// Classifiers of images, for tests that ask for them: the others' lists stay as they are.
export function makeClassifiers() {
  const now = Date.now() / 1000;
  const make = (recipe, seed) => ({
    id: `${recipe}-images-${seed}`, name: `${recipe} images ${seed}`, model: 'convnet-small', recipe, status: 'finished', steps: 1000, step: 1000,
    tokens_per_step: 64, unit: 'images', best: { loss: 0.05, accuracy: 0.9969 }, blocks: 3, statisticsEvery: 10, evalEvery: 100, floor: 0.09, seed, tags: [],
    group: `${recipe} images`, alerts: 0, gpu: false, pace: 0.03, started: now - 4000, updated: now - 3900,
  });
  return ['fp32', 'fp8-delayed'].flatMap((recipe) => [1, 2].map((seed) => make(recipe, seed)));
}

export function makeRuns() {
  const now = Date.now() / 1000;
  const make = (id, values) => ({
    id, name: id, model: 'llama 24 × 1024', recipe: 'fp8-delayed', status: 'finished', steps: 4000, step: 4000, tokens_per_step: 524288, blocks: 24,
    statisticsEvery: 10, evalEvery: 200, floor: 3.05, seed: 1, tags: [], group: `g-${id}`, alerts: 0, gpu: true, pace: 1.1, gap: true,
    started: now - 90000, updated: now - 80000, ...values,
  });
  return [
    make('live', { name: 'fp8-live', status: 'running', step: 1200, started: now - 1400, updated: now, alerts: 2, localized: true, tags: ['sweep-7'], live: true, pace: 1.1 }),
    make('fp8-s1', { name: 'fp8 seed 1', group: 'fp8', seed: 1, alerts: 3, localized: true, tags: ['paper', 'baseline-candidate'] }),
    make('bf16-s1', { name: 'bf16 seed 1', recipe: 'bf16', group: 'bf16', seed: 1, floor: 3.045, tags: ['paper'], pace: 1.7 }),
    make('bf16-s2', { name: 'bf16 seed 2', recipe: 'bf16', group: 'bf16', seed: 2, floor: 3.045, tags: ['paper'], pace: 1.7 }),
    make('bf16-s3', { folder: 'sweep/wide', note: 'the best of three\nseeds', name: 'bf16 seed 3', recipe: 'bf16', group: 'bf16', seed: 3, floor: 3.045, tags: ['paper'], pace: 1.7 }),
    make('nvfp4-s1', { name: 'nvfp4 seed 1', recipe: 'nvfp4', group: 'nvfp4', floor: 3.09, alerts: 1, pace: 0.8, ranks: 4 }),
    make('deep', { name: 'deep-4000-layers', model: 'gpt 999 × 64', blocks: 999, steps: 10800, step: 10800, statisticsEvery: 1, alerts: 3, pace: 0.4 }),
    make('hostile', { folder: '<i onload=boom()>', note: '<script>boom()</script>', missing: '…/<u>gone</u>', name: '<img src=x onerror=boom()>', hostile: true, tags: ['<b>bold</b>', '"><script>boom()</script>'], status: 'interrupted', step: 900, blocks: 4, alerts: 3, gpu: false }),
    make('diverged', { name: 'no-guard', status: 'failed', step: 2100, nanAfter: 2000, alerts: 3, blocks: 8 }),
    make('vanished', { missing: 'vanished', name: 'vanished', status: 'lost', step: 310, blocks: 4, gpu: false, pace: 0.3, changed: [
      { step: 200, key: 'precision.recipe', before: '"bf16"', after: '"fp8-delayed"' },
      { step: 200, key: 'train.seed', before: '4', after: '1' },
      { step: 300, key: 'optim.learning_rate', before: '0.001', after: '0.0006' }] }),
    make('fresh', { name: 'just-started', status: 'running', step: 0, blocks: 2, bare: true, started: now - 2, updated: now - 1, gpu: false }),
  ];
}
