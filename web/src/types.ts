// What the server sends. A number that was not finite arrives as null.
export type Maybe = number | null;

export type RunStatus = 'running' | 'finished' | 'interrupted' | 'failed' | 'lost';

export interface Run {
  id: string; // its address here: that of a store in a folder below ends in ~ and eight digits
  store_folder: string; // that its store lies in, from the dashboard's folder on; empty: that folder itself
  missing_folder: string | null; // where the run's own folder was, if it is gone
  name: string;
  trained_name: string; // before anyone gave it another
  note: string;
  hidden: boolean;
  deleted: Maybe; // when, in unix seconds
  model: string;
  recipe: string;
  status: RunStatus;
  started: number;
  updated: number;
  step: number;
  steps: number;
  tokens_per_step: number;
  unit: string; // what it has so many of: tokens, or images of a classifier
  loss: Maybe; // of the newest step
  final_train_loss: Maybe; // mean over the last twentieth of the steps so far
  validation_loss: Maybe;
  validation_accuracy: Maybe; // of a classifier, a share
  tokens_per_second: Maybe;
  eta_seconds: Maybe;
  tags: string[];
  alerts: number;
  critical_alerts: number;
  group: string;
  seed: number;
}

export interface Site {
  site: string;
  layer: string;
  role: string;
  rows: string;
  columns: string;
  block: string;
  policy: string;
  recipe: string;
  reason: string;
  limits?: number; // which of the run's sets
}

// Watch from the first, bad beyond the second.
export interface Limits {
  below?: [number, number];
  above?: [number, number];
}

export interface StatisticInfo {
  name: string;
  unit: string;
  doc: string;
}

// From the step after `step` on. The key "data" stands for the data's content.
export interface SettingChange {
  step: number;
  key: string;
  before: string;
  after: string;
}

export interface RunDetail extends Run {
  changed_settings: SettingChange[];
  config: Record<string, string>;
  environment: Record<string, unknown>;
  sites: Site[];
  statistics: StatisticInfo[];
  metrics: string[];
  shares: Record<string, number>;
  memory: Record<string, number>;
  best?: { loss?: number; accuracy?: number }; // of a perfect model, where it is known
  roles: string[];
  limits?: Record<string, Limits>[]; // by statistic
  totals?: Record<string, number>; // of metrics that count
}

export interface Series {
  step: number[];
  value: Maybe[];
}
export type SeriesByName = Record<string, Series>;

export type Aggregate = 'max' | 'min' | 'mean' | 'absmax';

export interface MatrixHeader {
  statistic: string;
  role: string;
  rows: { layer: string | null; first: number; count: number }[];
  row_names: string[];
  steps: number[]; // the first of each column
  last_step?: number; // of the last column
  steps_per_column: number;
  layers_per_row: number;
  aggregate: Aggregate;
}

export interface Matrix {
  header: MatrixHeader;
  rows: number;
  columns: number;
  values: Float32Array; // row-major; NaN: not measured
}

export interface History {
  site: string;
  step: number[];
  statistics: Record<string, Maybe[]>;
}

export interface WhatIf {
  format: string;
  scale: Maybe;
  underflow_percent: Maybe;
  saturated_percent: Maybe;
  sqnr_db: Maybe;
}

export interface Histogram {
  site: string;
  step: number;
  steps: number[];
  first_binade: number;
  counts: number[];
  format: string;
  scale: Maybe;
  range: { zero_below: Maybe; subnormal_below: Maybe; max: Maybe } | null;
  as_stored?: Omit<WhatIf, 'format'>;
  what_if: WhatIf[]; // each at its best scale
}

export interface Change {
  step: number;
  site: string;
  reason: string;
  scale_before: Maybe;
  scale_after: Maybe;
  format_before: string;
  format_after: string;
}

export type Severity = 'info' | 'warning' | 'critical';

export interface Alert {
  cause: number; // place in the list of the one that explains it, or its own
  seen_in: string | null; // the statistic or metric that shows it
  run: string;
  run_name: string;
  step: number;
  last_step: number;
  count: number;
  rule: string;
  severity: Severity;
  site: string | null;
  value: Maybe;
  threshold: Maybe;
  text: string;
  meaning: string;
  remedy: string;
  act: string | null;
}

export interface RunEvent {
  step: number;
  kind: string;
  text: string;
}

export interface Sample {
  step: number;
  text: string;
}

export interface LocalizedSite {
  site: string;
  layer: string;
  role: string;
  recipe: string;
  loss_change: Maybe;
  gradient_cosine: Maybe;
  sqnr_db: Maybe;
  flops_share: Maybe;
  kept_wide: boolean;
}

export interface RankInfo {
  name: string;
  memory: Record<string, number>;
}

export interface Localization {
  recipe: string;
  step: number;
  group: string;
  baseline_loss: Maybe;
  sites: LocalizedSite[];
}

// What people change about a run; what is absent stays as it is.
export interface RunEdit {
  name?: string; // empty: the one it was trained under
  tags?: string[];
  note?: string;
  hidden?: boolean;
  deleted?: boolean;
}

export interface StoreProblem {
  what: string;
  remedy: string;
}

export interface ServerInfo {
  version: string;
  store: string;
  folder: string;
  depth: number; // of the folders that are searched for stores; 0: it was given one store
  change_token: string | null; // none: nothing can be changed here
  streams: number;
  token_required: boolean;
}

export type ChangeKind = 'metrics' | 'numerics' | 'alerts' | 'changes' | 'events' | 'status' | 'samples' | 'documents';

export interface LiveChange {
  run: string;
  kinds: ChangeKind[];
  step: number;
}
