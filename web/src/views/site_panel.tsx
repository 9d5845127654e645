// Everything known of one site: how it is stored, its histogram, its statistics over time, other formats, its changes.
import { useEffect, useMemo, useRef } from 'preact/hooks';
import { api } from '../api';
import { Binades } from '../charts/binades';
import { LineChart } from '../charts/line_chart';
import { kindOf } from '../color_scale';
import { count, number, percent, withUnit, words } from '../format';
import { useResource } from '../hooks';
import { formatColor } from '../parts/badges';
import { Card, Select, Slider } from '../parts/controls';
import { Loading, Problem } from '../parts/feedback';
import { Term } from '../parts/terms';
import { changed, go, type Place } from '../router';
import type { Change, Histogram, History, Maybe, RunDetail } from '../types';

interface SitePanelProps {
  run: RunDetail;
  site: string;
  place: Place;
  statistic: string;
}

export function SitePanel({ run, site, place, statistic }: SitePanelProps) {
  const asked = Number(place.query.get('step') ?? NaN);
  const step = Number.isInteger(asked) && asked > 0 ? asked : undefined;
  const heading = useRef<HTMLHeadingElement>(null);
  const fresh = { run: run.id, kinds: ['numerics' as const], pause: 3000 };
  const history = useResource(`history ${run.id} ${site}`, (signal) => api.history(run.id, site, 1500, signal), fresh,
    (signal) => api.history(run.id, site, 160, signal));
  const histogram = useResource(`histogram ${run.id} ${site} ${step ?? ''}`,
    (signal) => api.histogram(run.id, site, step, signal), { ...fresh, keep: true });
  const changes = useResource(`changes ${run.id}`, (signal) => api.changes(run.id, signal), { run: run.id, kinds: ['changes'] });
  const known = run.sites.find((one) => one.site === site);
  const close = () => go(changed(place, { site: null, step: null }));

  useEffect(() => heading.current?.focus({ preventScroll: window.innerWidth >= 1100 }), []);

  return (
    <aside class="panel" aria-label={`Site ${site}`} onKeyDown={(event) => event.key === 'Escape' && close()}>
      <div class="panel-head">
        <h2 ref={heading} tabIndex={-1}>{site}</h2>
        <button type="button" class="ghost" onClick={close} aria-label="Close the panel">✕</button>
      </div>
      <Neighbors run={run} site={site} place={place} />
      {known && (
        <p class="site-facts">
          <i class={`dot fill-${formatColor(known.rows)}`} aria-hidden="true" />
          <b>{known.rows === known.columns ? known.rows : `${known.rows} rowwise, ${known.columns} columnwise`}</b>
          {` · ${known.block} · ${known.policy} · ${known.recipe}`}
          {known.reason && <span class="quiet"> · {known.reason}</span>}
        </p>
      )}
      <Card title="Magnitudes by binade, and the format's range">
        {histogram.error && <Problem error={histogram.error} />}
        {histogram.data ? <Distribution data={histogram.data} place={place} />
          : !histogram.error && <Loading what="the histogram" />}
      </Card>
      {histogram.data && histogram.data.what_if.length > 0 && (
        <Card title="What if it were stored in…"><WhatIfTable data={histogram.data} /></Card>
      )}
      {history.error && <Problem error={history.error} />}
      {history.data ? <Histories run={run} data={history.data} statistic={statistic} /> : !history.error && <Loading what="the history" />}
      <Card title="Scale and format changes"><Changes all={changes.data} site={site} /></Card>
    </aside>
  );
}

// The same layer's other tensors, and the layers beside it.
function Neighbors({ run, site, place }: { run: RunDetail; site: string; place: Place }) {
  const known = run.sites.find((one) => one.site === site);
  if (!known) return null;
  const ofRole = run.sites.filter((one) => one.role === known.role);
  const index = ofRole.indexOf(known);
  const go_to = (to: string) => go(changed(place, { site: to }));
  return (
    <div class="row neighbors">
      <button type="button" class="small" disabled={index <= 0} aria-label="Previous layer" onClick={() => go_to(ofRole[index - 1]?.site ?? site)}>‹</button>
      <Select label="Layer" value={site} change={go_to} options={ofRole.map((one) => ({ value: one.site, text: one.layer }))} />
      <button type="button" class="small" disabled={index >= ofRole.length - 1} aria-label="Next layer" onClick={() => go_to(ofRole[index + 1]?.site ?? site)}>›</button>
      {run.sites.filter((one) => one.layer === known.layer && one.site !== site).map((one) => (
        <a key={one.site} class="button small" href={changed(place, { site: one.site, role: one.role })}>{one.role}</a>
      ))}
    </div>
  );
}

function Distribution({ data, place }: { data: Histogram; place: Place }) {
  const index = Math.max(0, data.steps.indexOf(data.step));
  return (
    <>
      <Binades histogram={data} />
      {data.steps.length > 1 && (
        <Slider label="Step" value={index} max={data.steps.length - 1} say={count(data.step)}
          change={(to) => go(changed(place, { step: data.steps[to] ?? null }), 'replace')} />
      )}
    </>
  );
}

function WhatIfTable({ data }: { data: Histogram }) {
  const best = Math.max(...data.what_if.map((one) => one.sqnr_db ?? -Infinity));
  return (
    <div class="scroll-x">
      <table class="data">
        <thead>
          <tr>
            <th scope="col">Format</th><th scope="col" class="num">Scale</th><th scope="col" class="num"><Term name="underflow">Underflow</Term></th>
            <th scope="col" class="num"><Term name="saturation">Saturated</Term></th><th scope="col" class="num"><Term name="SQNR" /></th>
          </tr>
        </thead>
        <tbody>
          {data.as_stored && (
            <tr class="picked as-stored">
              <th scope="row">
                <i class={`dot fill-${formatColor(data.format)}`} aria-hidden="true" />{data.format} <b>as stored</b>
              </th>
              <td class="num">{data.as_stored.scale === null ? 'several' : number(data.as_stored.scale, 3)}</td>
              <td class="num">{percent(data.as_stored.underflow_percent)}</td>
              <td class="num">{percent(data.as_stored.saturated_percent)}</td>
              <td class="num">{withUnit(data.as_stored.sqnr_db, 'dB')}</td>
            </tr>
          )}
          {data.what_if.map((one) => (
            <tr key={one.format}>
              <th scope="row">
                <i class={`dot fill-${formatColor(one.format)}`} aria-hidden="true" />{one.format}
                <span class="quiet"> at its best scale</span>
              </th>
              <td class="num">{number(one.scale, 3)}</td>
              <td class="num">{percent(one.underflow_percent)}</td>
              <td class="num">{percent(one.saturated_percent)}</td>
              <td class={`num ${one.sqnr_db !== null && one.sqnr_db === best ? 'best' : ''}`}>{withUnit(one.sqnr_db, 'dB')}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

const stepText = (value: Maybe) => `step ${count(value)}`;

// One small chart per statistic, the chosen one first and larger.
function Histories({ run, data, statistic }: { run: RunDetail; data: History; statistic: string }) {
  const charts = useMemo(() => run.statistics
    .filter(({ name }) => data.statistics[name]?.some((value) => value !== null))
    .sort((a, b) => Number(b.name === statistic) - Number(a.name === statistic))
    .map((info) => {
      const values = data.statistics[info.name] ?? [];
      const log = kindOf(info.name).transform === 'log' && values.every((value) => value === null || value > 0);
      return { info, log, series: [{ label: words(info.name), color: 'c0', x: data.step, y: values }] };
    }), [data, statistic, run.statistics]);
  return (
    <div class="histories">
      {charts.map(({ info, log, series }) => (
        <div key={info.name} class={info.name === statistic ? 'span' : ''}>
          <LineChart title={words(info.name)} series={series} height={info.name === statistic ? 150 : 96} logY={log}
            formatX={stepText} formatTickX={count} formatY={(value) => (info.unit === '%' ? percent(value) : number(value, 3))}
            syncKey={`site ${data.site}`} describe={`${words(info.name)}: ${info.doc}`} />
        </div>
      ))}
    </div>
  );
}

function Changes({ all, site }: { all: Change[] | undefined; site: string }) {
  const changes = (all ?? []).filter((change) => change.site === site).slice(0, 100);
  if (changes.length === 0) return <p class="quiet">None among the newest thousand of the run.</p>;
  return (
    <div class="scroll-y">
      <table class="data">
        <thead><tr><th scope="col" class="num">Step</th><th scope="col">Change</th><th scope="col">Why</th></tr></thead>
        <tbody>
          {changes.map((change, i) => (
            <tr key={i}>
              <td class="num">{count(change.step)}</td>
              <td class="num left">
                {change.format_before !== change.format_after && <b>{change.format_before} → {change.format_after} </b>}
                {number(change.scale_before, 3)} → {number(change.scale_after, 3)}
              </td>
              <td class="prose">{change.reason}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
