// Layers by steps, colored by any statistic; a cell opens what is known of its site.
import { useMemo } from 'preact/hooks';
import { api } from '../api';
import { HeatLegend } from '../charts/heat_legend';
import { HeatMap } from '../charts/heat_map';
import type { Cell } from '../charts/heat_draw';
import { judgedScale } from '../color_scale';
import { count, withUnit, words } from '../format';
import { useResource, useWidth } from '../hooks';
import { Segments, Select, Toolbar } from '../parts/controls';
import { Empty, ErrorBox, Loading, Problem } from '../parts/feedback';
import { Term, Terms } from '../parts/terms';
import { changed, go, type Place } from '../router';
import type { Alert, Matrix, RunDetail } from '../types';
import { badCells, judgingOf, verdictOf, type Judging } from '../verdict';
import { columnEnd, marksOf, lowPrecisionValues, rowOfSite, siteOfRow, worstRows } from './numerics_rows';
import { SitePanel } from './site_panel';
import { severityOfSites, siteOf, statisticOf, Suspects } from './suspects';

const mostColumns = 1200;
const mostRows = 800;
const coarseColumns = 160;

interface Wanted {
  statistic: string;
  role: string;
  from: number | undefined;
  to: number | undefined;
  tall: boolean;
}

// By default what shows the most severe alert, else the SQNR deficit.
function wantedOf(place: Place, run: RunDetail, alerts: Alert[]): Wanted {
  const known = run.statistics.map((one) => one.name);
  const statistic = place.query.get('statistic') ?? '';
  const role = place.query.get('role') ?? (place.query.get('site') ?? siteOf(alerts) ?? '').split('/').pop() ?? '';
  const usual = [statisticOf(alerts), 'sqnr_deficit_db', 'underflow_percent'].find((one) => one !== null && known.includes(one)) ?? known[0] ?? '';
  const step = (name: string) => {
    const value = Number(place.query.get(name) ?? NaN);
    return Number.isInteger(value) && value > 0 ? value : undefined;
  };
  return {
    statistic: known.includes(statistic) ? statistic : usual,
    role: run.roles.includes(role) ? role : run.roles.includes('x') ? 'x' : (run.roles[0] ?? 'x'),
    from: step('from'),
    to: step('to'),
    tall: place.query.get('rows') === 'all',
  };
}

// How many cells there is room for: a cell smaller than a pixel would not be drawn. In steps, so that a scrollbar that
// comes and goes does not load everything anew.
function roomFor(width: number, tall: boolean): { columns: number; rows: number; height: number } {
  const ratio = window.devicePixelRatio || 1;
  const height = tall ? mostRows : Math.min(mostRows, Math.max(300, window.innerHeight - 330));
  const columns = Math.floor(((width - 200) * ratio) / 40) * 40;
  return { columns: Math.min(mostColumns, Math.max(80, columns)), rows: Math.min(mostRows, Math.floor(height * ratio)), height };
}

export function NumericsView({ run, place }: { run: RunDetail; place: Place }) {
  const found = useResource(`alerts ${run.id}`, (signal) => api.alerts(run.id, signal), { run: run.id, kinds: ['alerts'] });
  const alerts = found.data ?? noAlerts;
  const wanted = wantedOf(place, run, alerts);
  const [holder, width] = useWidth<HTMLDivElement>();
  const room = useMemo(() => roomFor(width, wanted.tall), [width, wanted.tall]);
  const { statistic, role, from, to } = wanted;
  const key = width > 0 && statistic !== '' ? `${run.id} ${statistic} ${role} ${from} ${to} ${room.columns} ${room.rows}` : null;
  const load = (columns: number) => async (signal: AbortSignal) => {
    const began = performance.now();
    const loaded = await api.numerics(run.id, { statistic, role, from, to, columns, rows: room.rows }, signal);
    performance.measure('numerics loaded', { start: began, detail: `${loaded.rows} x ${loaded.columns}` });
    return loaded;
  };
  const { data: matrix, error, loading, reload } = useResource(key, load(room.columns),
    { run: run.id, kinds: ['numerics'], pause: 3000, keep: true }, load(Math.min(room.columns, coarseColumns)));
  const site = place.query.get('site');
  const info = run.statistics.find((one) => one.name === statistic);
  // The map of before stays in sight while another loads, but under its own name.
  const current = matrix && matrix.header.statistic === statistic && matrix.header.role === role ? matrix : undefined;

  return (
    <div class={`page numerics ${site ? 'with-panel' : ''}`}>
      <div class="numerics-main" ref={holder}>
        <Suspects run={run} alerts={alerts} />
        <Controls run={run} place={place} wanted={wanted} alerts={alerts} />
        <p class="quiet statistic-doc">{info?.doc}{loading && current ? ' · loading…' : ''}</p>
        {error && (error.status === 404 ? <Problem error={error} /> : <ErrorBox error={error} retry={reload} />)}
        {run.statistics.length === 0 ? <NoStatistics />
          : current ? <Map run={run} place={place} matrix={current} alerts={alerts} unit={info?.unit ?? ''} height={room.height} />
            : !error && <Loading what="numerics" />}
      </div>
      {site && <SitePanel key={site} run={run} site={site} place={place} statistic={statistic} />}
    </div>
  );
}

function Controls({ run, place, wanted, alerts }: { run: RunDetail; place: Place; wanted: Wanted; alerts: Alert[] }) {
  const severities = useMemo(() => severityOfSites(alerts), [alerts]);
  const markOf = (role: string) => {
    const found = [...severities].filter(([site]) => site.endsWith(`/${role}`)).map(([, severity]) => severity);
    return found.includes('critical') ? 'critical' : found.includes('warning') ? 'warning' : undefined;
  };
  const set = (values: Record<string, string | number | null>) => go(changed(place, values), 'replace');
  const range = (name: 'from' | 'to', text: string) => (
    <label class="field">{text}
      <input type="number" min={1} class="step-input" value={wanted[name] ?? ''} placeholder={name === 'from' ? '1' : 'last'}
        onChange={(event) => set({ [name]: event.currentTarget.value || null })} />
    </label>
  );
  return (
    <Toolbar label="What the map shows">
      <Select label="Statistic" value={wanted.statistic} change={(statistic) => set({ statistic })}
        options={run.statistics.map((one) => ({ value: one.name, text: words(one.name), title: one.doc }))} />
      <Segments label="Role" value={wanted.role} change={(role) => set({ role })}
        options={run.roles.map((role) => ({ value: role, text: role, title: roleNames[role] ?? role, mark: markOf(role) }))} />
      {range('from', 'Steps')}
      {range('to', 'to')}
      {(wanted.from !== undefined || wanted.to !== undefined) && (
        <button type="button" class="small" onClick={() => set({ from: null, to: null })}>All steps</button>
      )}
      <Segments label="Rows" value={wanted.tall ? 'all' : 'fit'} change={(rows) => set({ rows: rows === 'all' ? 'all' : null })}
        options={[{ value: 'fit', text: 'fit', title: 'As high as the window' }, { value: 'all', text: 'all', title: `Up to ${mostRows} rows` }]} />
    </Toolbar>
  );
}

export const roleNames: Record<string, string> = { x: 'input of the layer', w: 'weight', dy: 'output gradient' };

interface MapProps {
  run: RunDetail;
  place: Place;
  matrix: Matrix;
  alerts: Alert[];
  unit: string;
  height: number;
}

const noAlerts: Alert[] = [];

function Map({ run, place, matrix, alerts, unit, height }: MapProps) {
  const { header } = matrix;
  const judging = useMemo(() => judgingOf(run, matrix, alerts), [run.sites, run.limits, matrix, alerts]);
  const scale = useMemo(() => judgedScale(header.statistic, lowPrecisionValues(run, matrix), judging), [matrix, judging]);
  const bad = useMemo(() => badCells(matrix, judging), [matrix, judging]);
  const measured = useMemo(() => matrix.values.some((value) => value === value), [matrix]);
  const site = place.query.get('site');
  const openRow = useMemo(() => rowOfSite(run, matrix, site), [run.sites, matrix, site]);
  const marks = useMemo(() => marksOf(run, matrix, alerts), [run.sites, matrix, alerts]);

  if (matrix.rows === 0 || !measured) return <NothingMeasured statistic={header.statistic} role={header.role} />;

  const tell = (cell: Cell) => {
    const row = header.rows[cell.row];
    const value = matrix.values[cell.row * matrix.columns + cell.column] ?? NaN;
    const first = header.steps[cell.column] ?? 0;
    const last = columnEnd(header, cell.column);
    const steps = last > first ? `steps ${count(first)}–${count(last)}` : `step ${count(first)}`;
    const limits = judging.limits[cell.row];
    const judged = limits && !Number.isNaN(value) ? verdictOf(value, limits) : null;
    const more = row && row.count > 1 ? ` and ${row.count - 1} more` : '';
    return {
      title: `${header.row_names[cell.row] ?? ''}${more}`,
      detail: `${steps}: ${Number.isNaN(value) ? 'not measured' : withUnit(value, unit)}${row && row.count > 1 ? ' (worst)' : ''}${judged && judged !== 'fine' ? `, ${judged}` : ''}`,
    };
  };
  const open = (cell: Cell) => go(changed(place, {
    site: siteOfRow(run, header, cell.row), step: header.steps[cell.column] ?? null,
  }));
  const zoom = (from: number, to: number) => go(changed(place, {
    from: header.steps[from] ?? null, to: columnEnd(header, to),
  }));
  const label = `${words(header.statistic)} of ${header.role}, ${matrix.rows} rows of layers by ${matrix.columns} columns of steps. `
    + 'Arrow keys move, Enter opens the site.';
  return (
    <>
      <HeatLegend scale={scale} unit={unit} aggregate={header.aggregate} />
      <p class="sr-only" data-bad-cells={bad} data-map={`${header.statistic} ${header.role}`}>{bad === 0 ? 'No cell is bad.' : `${bad} cells are bad.`}</p>
      <HeatMap matrix={matrix} scale={scale} label={label} maxHeight={height} openRow={openRow} marks={marks} tell={tell} open={open} zoom={zoom} />
      <p class="note">
        {summary(matrix)} Click or press Enter on a cell to open its <Term name="site" />; drag along the steps to zoom.
      </p>
      <Worst run={run} place={place} matrix={matrix} unit={unit} judging={judging} />
      <Terms />
    </>
  );
}

function summary({ header, rows, columns }: Matrix): string {
  const layers = header.layers_per_row > 1 ? `${count(rows)} rows of up to ${header.layers_per_row} layers` : `${count(rows)} layers`;
  const steps = header.steps_per_column > 1 ? `${count(columns)} columns of ${count(header.steps_per_column)} steps` : `${count(columns)} steps`;
  const several = header.layers_per_row > 1 || header.steps_per_column > 1;
  return `${layers}, ${steps}.${several ? ' A cell shows the worst of them.' : ''}`;
}

interface WorstProps {
  run: RunDetail;
  place: Place;
  matrix: Matrix;
  unit: string;
  judging: Judging;
}

function Worst({ run, place, matrix, unit, judging }: WorstProps) {
  const worst = useMemo(() => worstRows(matrix, judging, 8), [matrix, judging]);
  return (
    <section class="card worst">
      <div class="card-head"><h3>Worst in these steps</h3></div>
      {worst.length === 0 && <p class="quiet">No layer is bad in these steps.</p>}
      <ol>
        {worst.map(({ row, column, value }) => {
          const step = matrix.header.steps[column] ?? 0;
          return (
            <li key={row}>
              <a href={changed(place, { site: siteOfRow(run, matrix.header, row), step })}>{matrix.header.row_names[row]}</a>
              <b class="num">{withUnit(value, unit)}</b>
              <span class="quiet num">step {count(step)}</span>
            </li>
          );
        })}
      </ol>
    </section>
  );
}

function NothingMeasured({ statistic, role }: { statistic: string; role: string }) {
  return (
    <Empty title={`${words(statistic)} was not measured for ${role} in these steps`}>
      <p>Update ratio, unmoved share, gradient SNR and the shadow check exist for weights (<code>w</code>) only;
        statistics other than amax, underflow and saturation need steps with full statistics (<code>train.statistics_every</code>).</p>
    </Empty>
  );
}

function NoStatistics() {
  return (
    <Empty title="No statistics yet">
      <p>If none come, start the run with <code>--train.statistics_every=10</code> to collect them every tenth step.</p>
    </Empty>
  );
}

