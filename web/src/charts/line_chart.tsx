// A chart of lines: uPlot draws, this adds a legend that shows values and hides lines, keys, and updates that keep zoom.
import { useEffect, useId, useMemo, useRef, useState } from 'preact/hooks';
import type { ComponentChildren } from 'preact';
import uPlot from 'uplot';
import { useWidth } from '../hooks';
import { usePlace } from '../router';
import { align } from '../series';
import { useTheme } from '../theme';
import { downloadCsv, downloadPng, type CsvCell } from './export';
import { ExportMenu, type Exports } from './export_menu';
import { Legend } from './legend';
import { optionsOf, readAt, type LineSeries, type PlotLook } from './plot_options';
import { setZoom, zoomOf } from './zoom';

export interface LineChartProps extends PlotLook {
  title: string;
  series: LineSeries[];
  note?: ComponentChildren;
  controls?: ComponentChildren;
  empty?: string; // said instead of the chart when no series has a point
  xName?: string; // what the x axis counts, for files; "step" by default
  describe?: string; // what a reader who cannot see the lines should know
}

export function LineChart(props: LineChartProps) {
  const { title, series, note, controls, empty = 'Not recorded in this run.', describe } = props;
  const [hidden, setHidden] = useState<ReadonlySet<string>>(new Set());
  const titleId = useId();
  const exports = useRef<Exports>();
  const drawn = series.filter((one) => one.x.length > 0);
  const toggle = (label: string) => {
    const next = new Set(hidden);
    if (!next.delete(label)) next.add(label);
    setHidden(next);
  };
  return (
    <figure class="card chart" aria-labelledby={titleId}>
      <figcaption class="card-head">
        <h3 id={titleId}>{title}</h3>
        {controls}
        {drawn.length > 0 && <ExportMenu title={title} exports={() => exports.current} />}
      </figcaption>
      {drawn.length === 0 ? (
        <p class="quiet chart-empty">{empty}</p>
      ) : (
        <Plot {...props} series={drawn} hidden={hidden} toggle={toggle} label={describe ?? title} exports={exports} />
      )}
      {note && <p class="note">{note}</p>}
    </figure>
  );
}

interface PlotProps extends LineChartProps {
  hidden: ReadonlySet<string>;
  toggle: (label: string) => void;
  label: string;
  exports: { current: Exports | undefined };
}

function Plot(props: PlotProps) {
  const { series, hidden, toggle, label, formatX, formatY, height = 200 } = props;
  const theme = useTheme();
  const [holder, width] = useWidth<HTMLDivElement>();
  const target = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot>();
  const said = useRef<HTMLSpanElement>(null);
  const [cursor, setCursor] = useState<number | null>(null);
  const zoom = zoomOf(usePlace());
  const zoomKey = zoom?.join() ?? '';

  const data = useMemo(() => {
    const { x, columns } = align(series.map(({ x: at, y }) => ({ x: at, y })));
    return [x, ...columns] as uPlot.AlignedData;
  }, [series]);
  const latest = useRef({ props, data, zoom });
  latest.current = { props, data, zoom };

  const shape = JSON.stringify([
    series.map((one) => [one.label, one.color, one.dash, one.width, one.faint, one.points, one.axis]),
    props.logX, props.logY, props.bands, props.stacked, props.secondAxis !== undefined, props.syncKey, height, props.rangeOfY,
  ]);

  useEffect(() => {
    const host = target.current;
    if (!host || width === 0) return;
    const options = optionsOf(latest.current.props, series, { width, height }, {
      cursorMoved: setCursor,
      rangeChosen: setZoom,
      marks: () => latest.current.props.markers ?? [],
    });
    const made = new uPlot(options, latest.current.data, host);
    plot.current = made;
    showRange(made, latest.current.zoom);
    return () => {
      made.destroy();
      plot.current = undefined;
    };
  }, [shape, theme.version, width === 0]);

  useEffect(() => {
    const made = plot.current;
    if (!made) return;
    // Still the data it was made with: nothing to do.
    if (made.data === data) return;
    made.setData(data, zoom === null);
    showRange(made, zoom);
  }, [data]);

  // The address is what counts: a drag writes it, a link brings it, and every chart of the view follows.
  const shownZoom = useRef(zoomKey);
  useEffect(() => {
    const made = plot.current;
    if (!made || shownZoom.current === zoomKey) return;
    shownZoom.current = zoomKey;
    if (zoom) showRange(made, zoom);
    else made.setData(data);
  }, [zoomKey]);

  useEffect(() => {
    if (width > 0) plot.current?.setSize({ width, height });
  }, [width, height]);

  useEffect(() => {
    const made = plot.current;
    if (!made) return;
    made.batch(() => series.forEach((one, i) => {
      const show = !hidden.has(one.legend ?? one.label);
      if (made.series[i + 1]?.show !== show) made.setSeries(i + 1, { show });
    }));
  }, [hidden, shape, theme.version, width === 0]);

  useEffect(() => plot.current?.redraw(false), [props.markers]);

  const moveBy = (event: KeyboardEvent) => {
    const made = plot.current;
    if (!made) return;
    const x = data[0];
    const now = cursor ?? x.length - 1;
    const page = Math.max(1, Math.round(x.length / 20));
    const steps: Record<string, number> = {
      ArrowLeft: now - (event.shiftKey ? page : 1), ArrowRight: now + (event.shiftKey ? page : 1), Home: 0, End: x.length - 1,
    };
    const to = steps[event.key];
    if (event.key === 'Escape' && zoom) resetZoom();
    if (to === undefined) return;
    event.preventDefault();
    const index = Math.min(x.length - 1, Math.max(0, to));
    made.setCursor({ left: made.valToPos(x[index] as number, 'x'), top: 0 });
    if (said.current) said.current.textContent = spoken(index);
  };
  const spoken = (index: number) => {
    const values = series.filter((one) => one.legend !== null && !one.faint)
      .map((one, i) => `${one.label} ${formatOf(one)(readAt(data[i + 1], index))}`);
    return `${formatX(data[0][index] ?? null)}: ${values.join(', ')}`;
  };
  const formatOf = (one: LineSeries) => (one.axis === 'right' && props.secondAxis ? props.secondAxis.format : formatY);
  const resetZoom = () => setZoom(null);
  props.exports.current = {
    png: () => plot.current && downloadPng({
      title: props.title, chart: plot.current.ctx.canvas, xName: props.xName ?? 'step', lines: linesOf(props),
    }),
    csv: () => downloadCsv(props.title, csvRows(props, data, zoom)),
  };

  return (
    <>
      <Legend series={series} data={data} cursor={cursor} hidden={hidden} toggle={toggle} formatX={formatX}
        formatOf={formatOf} />
      <div class="plot-holder" ref={holder}>
        <div ref={target} class="plot" tabIndex={0} role="img" onKeyDown={moveBy}
          aria-label={`${label}. Left and right arrows read values.`} />
        {zoom && <button type="button" class="small zoom-reset" onClick={resetZoom}>Reset zoom</button>}
      </div>
      <span class="sr-only" aria-live="polite" ref={said} />
    </>
  );
}

function showRange(made: uPlot, range: readonly [number, number] | null): void {
  if (range) made.setScale('x', { min: range[0], max: range[1] });
}

const isShown = (one: LineSeries, hidden: ReadonlySet<string>) => !hidden.has(one.legend ?? one.label);

// The legend as it is on the page; where there are bands, what they are.
function linesOf({ series, hidden, bands = [], bandName }: PlotProps) {
  const lines = series.filter((one) => isShown(one, hidden) && !one.faint)
    .map(({ label, color, dash }) => ({ label, color, ...(dash ? { dash } : {}) }));
  const band = bands[0];
  return band && bandName ? [...lines, { label: bandName, color: bands.length > 1 ? 'c6' : band.color, band: true }] : lines;
}

// A row per x that is shown, a column per line that is; a line without a point there leaves its cell empty.
function csvRows({ series, hidden, xName = 'step' }: PlotProps, data: uPlot.AlignedData, zoom: readonly [number, number] | null): CsvCell[][] {
  const columns = series.map((one, i) => ({ one, values: one.shown ?? data[i + 1] ?? [] })).filter(({ one }) => isShown(one, hidden));
  const rows: CsvCell[][] = [[xName, ...columns.map(({ one }) => one.label)]];
  data[0].forEach((x, i) => {
    if (zoom && (x < zoom[0] || x > zoom[1])) return;
    rows.push([x, ...columns.map(({ values }) => values[i] ?? null)]);
  });
  return rows;
}
