// The grid itself: thousands of layers, so only the rows in sight exist. Arrow keys move between cells.
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { cssColor, ramp, rampSize } from '../color_scale';
import { signed } from '../format';
import { formatColor } from '../parts/badges';
import { go, href } from '../router';
import { useTheme } from '../theme';
import type { PrecisionCell, PrecisionRow } from './precision_rows';
import { storageText } from './precision_rows';

const rowHeight = 26;
const spare = 12; // rows kept above and below what is in sight

interface PrecisionGridProps {
  run: string;
  rows: PrecisionRow[];
  roles: string[];
  localized: boolean;
  point: (cell: PrecisionCell) => void;
}

export function PrecisionGrid({ run, rows, roles, localized, point }: PrecisionGridProps) {
  const scroller = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ first: 0, last: 60 });
  const [active, setActive] = useState({ row: 0, role: 0 });
  const moved = useRef(false);
  const most = Math.max(1e-9, ...rows.flatMap((row) => [...row.cells.values()].map((cell) => Math.abs(cell.localized?.loss_change ?? 0))));

  const look = () => {
    const box = scroller.current;
    if (!box) return;
    const first = Math.max(0, Math.floor(box.scrollTop / rowHeight) - spare);
    const last = Math.min(rows.length, Math.ceil((box.scrollTop + box.clientHeight) / rowHeight) + spare);
    setView((before) => (before.first === first && before.last === last ? before : { first, last }));
  };
  useLayoutEffect(look, [rows.length]);
  useEffect(() => {
    window.addEventListener('resize', look);
    return () => window.removeEventListener('resize', look);
  }, [rows.length]);

  const current = { row: Math.min(active.row, rows.length - 1), role: Math.min(active.role, roles.length - 1) };
  // Before the next key comes: the cell that had the focus may be gone.
  useLayoutEffect(() => {
    if (!moved.current) return;
    const cell = scroller.current?.querySelector<HTMLElement>('[tabindex="0"]');
    if (!cell) return; // its row comes with the next view
    moved.current = false;
    cell.focus({ preventScroll: true });
  }, [active, view]);

  const reveal = (row: number) => {
    const box = scroller.current;
    if (!box) return;
    const head = rowHeight;
    const top = row * rowHeight;
    if (top < box.scrollTop) box.scrollTop = top;
    else if (top + rowHeight + head > box.scrollTop + box.clientHeight) box.scrollTop = top + rowHeight + head - box.clientHeight;
    look();
  };
  const key = (event: KeyboardEvent) => {
    const page = Math.max(1, Math.floor((scroller.current?.clientHeight ?? 400) / rowHeight) - 2);
    const { row, role } = current;
    const moves: Record<string, [number, number]> = {
      ArrowUp: [row - 1, role], ArrowDown: [row + 1, role], ArrowLeft: [row, role - 1], ArrowRight: [row, role + 1],
      PageUp: [row - page, role], PageDown: [row + page, role], Home: [0, role], End: [rows.length - 1, role],
    };
    const to = moves[event.key];
    if (!to) return;
    event.preventDefault();
    const next = { row: Math.min(rows.length - 1, Math.max(0, to[0])), role: Math.min(roles.length - 1, Math.max(0, to[1])) };
    moved.current = true;
    setActive(next);
    reveal(next.row);
  };
  const last = Math.min(rows.length, view.last);
  return (
    <div class="card flush precision-scroll" ref={scroller} onScroll={look}>
      <table class={`precision-grid ${localized ? 'with-localization' : ''}`} role="grid" aria-label="Formats by layer and role"
        aria-rowcount={rows.length + 1} onKeyDown={key}>
        <thead>
          <tr aria-rowindex={1}>
            <th scope="col">Layer</th>
            {roles.map((role) => <th scope="col" key={role}>{role}</th>)}
            {localized && roles.map((role) => <th scope="col" key={`l${role}`} class="num">Δ loss {role}</th>)}
          </tr>
        </thead>
        <tbody>
          {view.first > 0 && <tr aria-hidden="true"><td class="filler" style={{ height: `${view.first * rowHeight}px` }} /></tr>}
          {rows.slice(view.first, last).map((row, offset) => {
            const index = view.first + offset;
            return (
              <tr key={row.layer} aria-rowindex={index + 2}>
                <th scope="row" title={row.layer}>{row.layer}</th>
                {roles.map((role, column) => (
                  <Cell key={role} run={run} cell={row.cells.get(role)} point={point}
                    active={index === current.row && column === current.role}
                    take={() => setActive({ row: index, role: column })} />
                ))}
                {localized && roles.map((role) => <LossCell key={`l${role}`} cell={row.cells.get(role)} most={most} point={point} />)}
              </tr>
            );
          })}
          {last < rows.length && <tr aria-hidden="true"><td class="filler" style={{ height: `${(rows.length - last) * rowHeight}px` }} /></tr>}
        </tbody>
      </table>
    </div>
  );
}

interface CellProps {
  run: string;
  cell: PrecisionCell | undefined;
  active: boolean;
  point: (cell: PrecisionCell) => void;
  take: () => void;
}

function Cell({ run, cell, active, point, take }: CellProps) {
  if (!cell) return <td role="gridcell" class="none" tabIndex={active ? 0 : -1}>–</td>;
  const open = () => go(href(['run', run, 'numerics'], { site: cell.site.site, role: cell.site.role }));
  const [format = '', ...rest] = storageText(cell.site).split(' · ');
  return (
    <td role="gridcell" class={`format ink-${formatColor(cell.site.rows)} ${cell.planned ? 'moved' : ''}`} tabIndex={active ? 0 : -1}
      onPointerEnter={() => point(cell)} onFocus={() => {
        take();
        point(cell);
      }}
      onClick={open} onKeyDown={(event) => event.key === 'Enter' && open()}>
      <span class="format-cell">
        <b>{format}</b><span class="quiet">{rest.join(' · ')}</span>
        {cell.alerts[0] && (
          <span class={`alerted severity-${cell.alerts[0].severity}`} title={cell.alerts[0].text}>●<span class="sr-only"> {cell.alerts[0].severity} alert</span></span>
        )}
        {cell.planned && <span class="mark" title={`planned: ${cell.planned}`}>▲<span class="sr-only"> changed from {cell.planned}</span></span>}
      </span>
    </td>
  );
}

function LossCell({ cell, most, point }: { cell: PrecisionCell | undefined; most: number; point: (cell: PrecisionCell) => void }) {
  const { dark } = useTheme();
  const found = cell?.localized;
  if (!cell || !found || found.loss_change === null) return <td class="none num">–</td>;
  const place = 0.5 + 0.5 * Math.sign(found.loss_change) * Math.sqrt(Math.min(1, Math.abs(found.loss_change) / most));
  const packed = ramp('diverging', dark)[Math.round(place * (rampSize - 1))] ?? 0;
  const brightness = 0.3 * (packed & 255) + 0.59 * ((packed >> 8) & 255) + 0.11 * ((packed >> 16) & 255);
  return (
    <td class="num loss-cell" style={{ backgroundColor: cssColor(packed), color: brightness > 140 ? '#111' : '#fff' }} onPointerEnter={() => point(cell)}>
      {found.kept_wide && <span title="kept in high precision">◆ </span>}{signed(found.loss_change, 4)}
    </td>
  );
}
