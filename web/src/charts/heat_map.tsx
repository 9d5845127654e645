// The heat map as a control: pointer and keys move a cursor over its cells, Enter or a click opens one, a drag along the
// steps zooms.
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
import { useWidth } from '../hooks';
import { type ColorScale } from '../color_scale';
import { useTheme } from '../theme';
import type { Matrix, Severity } from '../types';
import { ExportMenu } from './export_menu';
import { cellAt, cellRect, drawHeatMap, drawMarks, drawOverlay, layoutOf, type Cell } from './heat_draw';
import { heatExports, heatTitle } from './heat_export';

export interface HeatMapProps {
  matrix: Matrix;
  scale: ColorScale;
  label: string;
  maxHeight: number;
  openRow: number | null;
  marks: Map<number, Severity>; // rows with alerts
  tell: (cell: Cell) => { title: string; detail: string };
  open: (cell: Cell) => void;
  zoom: (fromColumn: number, toColumn: number) => void;
}

const dragThreshold = 8;

export function HeatMap({ matrix, scale, label, maxHeight, openRow, marks, tell, open, zoom }: HeatMapProps) {
  const theme = useTheme();
  const [holder, width] = useWidth<HTMLDivElement>();
  const base = useRef<HTMLCanvasElement>(null);
  const overlay = useRef<HTMLCanvasElement>(null);
  const said = useRef<HTMLSpanElement>(null);
  const [cursor, setCursor] = useState<Cell | null>(null);
  const [drag, setDrag] = useState<{ from: number; to: number } | null>(null);
  const layout = useMemo(() => layoutOf(matrix, width || 600, maxHeight), [matrix, width, maxHeight]);

  useLayoutEffect(() => {
    if (!base.current || width === 0) return;
    const began = performance.now();
    drawHeatMap(base.current, matrix, scale, layout, theme.dark);
    drawMarks(base.current, matrix, layout, marks);
    performance.measure('heat map drawn', { start: began, detail: `${matrix.rows} x ${matrix.columns}` });
  }, [matrix, scale, layout, marks, theme.version, width === 0]);

  const shown = cursor && cursor.row < matrix.rows && cursor.column < matrix.columns ? cursor : null;
  useLayoutEffect(() => {
    if (overlay.current && width > 0) drawOverlay(overlay.current, matrix, layout, { cursor: shown, openRow, drag });
  }, [matrix, layout, shown, openRow, drag, theme.version, width === 0]);

  const at = (event: PointerEvent): { x: number; y: number } => {
    const box = (event.currentTarget as HTMLElement).getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };
  const press = (event: PointerEvent) => {
    if (event.button !== 0) return;
    const { x, y } = at(event);
    if (!cellAt(matrix, layout, x, y)) return;
    (event.currentTarget as HTMLElement).setPointerCapture(event.pointerId);
    setDrag({ from: x, to: x });
  };
  const move = (event: PointerEvent) => {
    const { x, y } = at(event);
    if (drag) setDrag({ from: drag.from, to: x });
    setCursor(cellAt(matrix, layout, x, y));
  };
  const release = (event: PointerEvent) => {
    if (!drag) return;
    const { x, y } = at(event);
    setDrag(null);
    if (Math.abs(x - drag.from) < dragThreshold) {
      const cell = cellAt(matrix, layout, x, y);
      if (cell) open(cell);
      return;
    }
    const column = (px: number) =>
      Math.min(matrix.columns - 1, Math.max(0, Math.floor(((px - layout.left) / layout.width) * matrix.columns)));
    zoom(column(Math.min(drag.from, x)), column(Math.max(drag.from, x)));
  };
  const key = (event: KeyboardEvent) => {
    const now = shown ?? { row: openRow ?? 0, column: matrix.columns - 1 };
    const far = event.shiftKey ? 10 : 1;
    const page = Math.max(1, Math.round(matrix.rows / 8));
    const moves: Record<string, Cell> = {
      ArrowUp: { row: now.row - far, column: now.column },
      ArrowDown: { row: now.row + far, column: now.column },
      ArrowLeft: { row: now.row, column: now.column - far },
      ArrowRight: { row: now.row, column: now.column + far },
      PageUp: { row: now.row - page, column: now.column },
      PageDown: { row: now.row + page, column: now.column },
      Home: { row: now.row, column: 0 },
      End: { row: now.row, column: matrix.columns - 1 },
    };
    if (event.key === 'Enter' || event.key === ' ') {
      event.preventDefault();
      open(now);
      return;
    }
    const to = moves[event.key];
    if (!to) return;
    event.preventDefault();
    const cell = {
      row: Math.min(matrix.rows - 1, Math.max(0, to.row)), column: Math.min(matrix.columns - 1, Math.max(0, to.column)),
    };
    setCursor(cell);
    const told = tell(cell);
    if (said.current) said.current.textContent = `${told.title}, ${told.detail}`;
  };

  return (
    <div class="heat" ref={holder}>
      <div class="heat-surface" tabIndex={0} role="application" aria-roledescription="heat map" aria-label={label}
        data-layout={JSON.stringify({ ...layout, names: matrix.header.row_names, columns: matrix.columns, marks: [...marks] })}
        onPointerDown={press} onPointerMove={move} onPointerUp={release} onPointerCancel={() => setDrag(null)}
        onPointerLeave={() => !drag && setCursor(null)} onKeyDown={key}
        onFocus={(event) => {
          const target = event.currentTarget as HTMLElement;
          if (!shown && target.matches(':focus-visible')) setCursor({ row: openRow ?? 0, column: matrix.columns - 1 });
        }}
        onBlur={() => setCursor(null)}>
        <canvas ref={base} class="heat-cells" />
        <canvas ref={overlay} class="heat-overlay" />
        {shown && <Tip matrix={matrix} layout={layout} cell={shown} told={tell(shown)} />}
      </div>
      <span class="sr-only" aria-live="polite" ref={said} />
      <ExportMenu title={heatTitle(matrix)} exports={() => heatExports(matrix, scale, layout, theme.dark)} />
    </div>
  );
}

interface TipProps {
  matrix: Matrix;
  layout: ReturnType<typeof layoutOf>;
  cell: Cell;
  told: { title: string; detail: string };
}

function Tip({ matrix, layout, cell, told }: TipProps) {
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const tip = box.current;
    if (!tip) return;
    const rect = cellRect(matrix, layout, cell);
    const right = rect.x + rect.width + 12;
    const left = right + tip.offsetWidth > layout.totalWidth ? rect.x - tip.offsetWidth - 12 : right;
    const top = Math.min(layout.totalHeight - tip.offsetHeight, Math.max(0, rect.y + rect.height / 2 - tip.offsetHeight / 2));
    tip.style.transform = `translate(${Math.max(0, left)}px, ${top}px)`;
  });
  return (
    <div class="tip" ref={box} aria-hidden="true">
      <b>{told.title}</b>
      <span>{told.detail}</span>
    </div>
  );
}
