// The comparison with seeds taken together: mean curves with bands, and a table with every seed under its group.
import { Fragment } from 'preact';
import { LineChart } from '../charts/line_chart';
import { Swatch } from '../charts/legend';
import type { LineSeries, PlotLook } from '../charts/plot_options';
import { StatusBadge } from '../parts/badges';
import { Card } from '../parts/controls';
import { count, fixed, loss, number, signed, words } from '../format';
import { href } from '../router';
import { curve, halfLifeOf, xOf, type Curve } from '../series';
import { categoryName, dashOf } from '../theme';
import type { Maybe, Run, SeriesByName } from '../types';
import { hasAccuracy, speed, speedTitle, unitsOf } from '../units';
import { smoothed } from './compare_data';
import { accuracyPercent, gapOf, isCounted, lossKindOf, meanBand, meanOver, pairedDifferences, type MeanOverSeeds, type SeedGroup } from './compare_groups';
import { AccuracyChart } from './compare_parts';
import { axisLook, endRange, type CurveView } from './curve_controls';

interface GroupedProps {
  groups: SeedGroup[];
  base: SeedGroup;
  metric: string;
  series: Record<string, SeriesByName>;
  view: CurveView;
  range: number;
  empty: string;
}

export const bandName = 'band: mean ± σ over seeds';

export function GroupedCurves({ groups, base, metric, series, view, range, empty }: GroupedProps) {
  const halfLife = halfLifeOf(view.smoothing, range);
  const curveOf = (run: Run) => smoothed(series[run.id]?.[metric], halfLife);
  const isBase = (group: SeedGroup) => group.key === base.key;
  const named = (group: SeedGroup, runs: number) =>
    `${group.label}${isBase(group) ? ' (base)' : ''}${runs > 1 ? `, mean of ${runs} ± σ` : ''}`;
  const place = (group: SeedGroup, of: Curve, log: boolean): Curve => {
    const run = (group.counted[0] ?? group.runs[0]) as Run;
    const at = xOf(view.axis, of.x, run.tokens_per_step, series[run.id]?.time);
    return curve(view.logX ? at.map((x) => (x !== null && x > 0 ? x : null)) : at,
      log ? of.y.map((y) => (y !== null && y > 0 ? y : null)) : of.y);
  };
  const drawn = (curvesOf: (group: SeedGroup) => Curve[], log: boolean) => {
    const lines: LineSeries[] = [];
    const bands: NonNullable<PlotLook['bands']> = [];
    groups.forEach((group, i) => {
      const curves = curvesOf(group).filter((one) => one.x.length > 0);
      const band = meanBand(curves);
      if (band.x.length === 0) return;
      const label = named(group, curves.length);
      const color = categoryName(i);
      if (curves.length > 1) {
        const edge = (name: string, y: Maybe[]): LineSeries =>
          ({ label: `${label}, ${name}`, color, width: 0.5, faint: true, legend: label, ...place(group, { x: band.x, y }, log) });
        bands.push({ high: lines.length, low: lines.length + 1, color });
        lines.push(edge('mean + σ', band.high), edge('mean − σ', band.low));
      }
      lines.push({ label, color, dash: dashOf(i), ...place(group, { x: band.x, y: band.mean }, log) });
    });
    return { series: lines, bands };
  };
  const means = drawn((group) => group.counted.map(curveOf), view.logY);
  const accuracies = drawn((group) => group.counted.map((run) => smoothed(series[run.id]?.validation_accuracy, 0)), false);
  const gaps = drawn((group) => pairedDifferences(group, base, curveOf), false);
  const common = {
    ...axisLook(view.axis, unitsOf(groups.flatMap((group) => group.runs))), logX: view.logX, syncKey: 'compare', empty, bandName,
  };
  const unpaired = groups.filter((group) => !group.counted.some((run) => base.counted.some((other) => other.seed === run.seed)));
  return (
    <div class="grid">
      <LineChart {...common} {...means} title={words(metric)} logY={view.logY} formatY={(value) => number(value, 5)}
        formatTickY={(value) => number(value, 4)} height={300} {...(view.fitEnd ? { rangeOfY: endRange(means.series) } : {})}
        note="Lines: mean over the seeds of a group, each smoothed; bands: ± σ (n − 1), at the steps that all of them have." />
      <LineChart {...common} {...gaps} title={`Difference to ${base.label}`} formatY={(value) => (value === 0 ? '0' : signed(value, 4))}
        formatTickY={(value) => number(value, 3)} height={240} {...(view.fitEnd ? { rangeOfY: endRange(gaps.series) } : {})}
        note={`Mean ± σ of the differences to ${base.label} at the same seed.${unpaired.length > 0
          ? ` No seed in common with it: ${unpaired.map((group) => group.label).join(', ')}.` : ''}`} />
      {accuracies.series.length > 0 && metric !== 'validation_accuracy' && <AccuracyChart look={common} {...accuracies} />}
    </div>
  );
}

function spread(value: MeanOverSeeds | null, digits: number, sign: boolean): string {
  if (!value) return '–';
  const mean = sign ? signed(value.mean, digits) : value.mean.toFixed(digits);
  return value.deviation === null ? mean : `${mean} ± ${value.deviation.toFixed(digits)}`;
}

export function GroupedTable({ groups, base }: { groups: SeedGroup[]; base: SeedGroup }) {
  const all = groups.flatMap((group) => group.runs);
  const classifies = hasAccuracy(all);
  const kind = lossKindOf(all);
  return (
    <Card title="Final metrics" class="final">
      <div class="scroll-x">
        <table class="data">
          <thead>
            <tr>
              <th scope="col">Group and seeds</th><th scope="col">Status</th><th scope="col">Recipe</th><th scope="col" class="num">Steps</th>
              <th scope="col" class="num">Final training loss</th><th scope="col" class="num">Validation loss</th>
              <th scope="col" class="num">Gap %</th>
              {classifies && <th scope="col" class="num">Accuracy %</th>}<th scope="col" class="num">{speedTitle(all)}</th>
            </tr>
          </thead>
          <tbody>
            {groups.map((group, i) => {
              const isBase = group.key === base.key;
              const left = group.runs.length - group.counted.length;
              return (
                <Fragment key={group.key}>
                  <tr class={`group${isBase ? ' picked' : ''}`}>
                    <th scope="row" class="name">
                      <Swatch color={categoryName(i)} dash={dashOf(i)} /><b>{group.label}</b>{isBase && <span class="quiet"> base</span>}
                    </th>
                    <td class="quiet">{group.counted.length} of {group.runs.length} {group.runs.length === 1 ? 'seed' : 'seeds'}{left > 0 && `, ${left} left out`}</td>
                    <td><code>{group.runs[0]?.recipe}</code></td>
                    <td />
                    <td class="num">{spread(meanOver(group.counted.map((run) => run.final_train_loss)), 4, false)}</td>
                    <td class="num">{spread(meanOver(group.counted.map((run) => run.validation_loss)), 4, false)}</td>
                    <td class="num">{isBase ? 'base' : spread(meanOver(group.counted.map((run) => gapOf(run, base, kind))), 2, true)}</td>
                    {classifies && <td class="num">{spread(meanOver(group.counted.map(accuracyPercent)), 2, false)}</td>}
                    <td class="num">{speed(meanOver(group.counted.map((run) => run.tokens_per_second))?.mean ?? null, group.runs[0] as Run, all)}</td>
                  </tr>
                  {group.runs.map((run) => (
                    <tr key={run.id} class="seed">
                      <th scope="row" class="name"><a href={href(['run', run.id, 'overview'])}>{run.name}</a> <span class="quiet">seed {run.seed}</span></th>
                      <td><StatusBadge status={run.status} />{!isCounted(run, kind) && <span class="quiet"> left out</span>}</td>
                      <td />
                      <td class="num">{count(run.step)}</td>
                      <td class="num">{loss(run.final_train_loss)}</td>
                      <td class="num">{loss(run.validation_loss)}</td>
                      <td class="num">{isBase ? '' : signed(gapOf(run, base, kind), 2)}</td>
                      {classifies && <td class="num">{fixed(accuracyPercent(run), 2)}</td>}
                      <td class="num">{speed(run.tokens_per_second, run, all)}</td>
                    </tr>
                  ))}
                </Fragment>
              );
            })}
          </tbody>
        </table>
      </div>
      <p class="note">
        Mean ± σ (n − 1) over the seeds of a group; one seed has no σ. Gap: of the {kind === 'validation_loss' ? 'validation loss' : 'final training loss'}, in
        percent of the base's at the same seed. Final training loss: mean over the last twentieth of the run's steps. Runs that failed or were broken
        off are listed and left out of the means.
      </p>
    </Card>
  );
}
