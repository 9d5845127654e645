// Charts as files: the shown data as CSV, the picture as PNG with its title and legend, readable on its own.
import { color } from '../theme';

export type CsvCell = string | number | null;

// RFC 4180. A text that a spreadsheet would run as a formula is marked as text; numbers stay numbers.
export function csvText(rows: CsvCell[][]): string {
  return rows.map((row) => row.map(csvCell).join(',')).join('\r\n') + '\r\n';
}

function csvCell(value: CsvCell): string {
  if (value === null || (typeof value === 'number' && !Number.isFinite(value))) return '';
  if (typeof value === 'number') return String(value);
  const safe = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
  return /[",\r\n]/.test(safe) ? `"${safe.replace(/"/g, '""')}"` : safe;
}

// "Training loss of <x>" → "training-loss-of-x".
export function fileName(title: string, extension: string): string {
  const stem = title.toLowerCase().replace(/[^a-z0-9]+/g, '-').replace(/^-+|-+$/g, '').slice(0, 80);
  return `${stem || 'chart'}.${extension}`;
}

export function download(blob: Blob, name: string): void {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

export function downloadCsv(title: string, rows: CsvCell[][]): void {
  download(new Blob([csvText(rows)], { type: 'text/csv;charset=utf-8' }), fileName(title, 'csv'));
}

export interface PictureLine {
  label: string;
  color: string; // name of a color variable
  dash?: number[];
  band?: boolean; // a filled swatch
}

export interface Picture {
  title: string;
  chart: HTMLCanvasElement; // in device pixels
  xName?: string; // below the chart
  lines?: PictureLine[];
  notes?: string[];
  extra?: { canvas: HTMLCanvasElement; width: number; height: number; ticks: { at: number; text: string }[]; text: string };
}

const family = 'system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", sans-serif';
const margin = 14;
const row = 18;

// Legend entries side by side as long as they fit.
function rowsOf(context: CanvasRenderingContext2D, lines: PictureLine[], width: number): { line: PictureLine; x: number; row: number }[] {
  let x = 0;
  let at = 0;
  return lines.map((line) => {
    const size = 30 + context.measureText(line.label).width + 16;
    if (x > 0 && x + size > width) {
      x = 0;
      ++at;
    }
    const placed = { line, x, row: at };
    x += size;
    return placed;
  });
}

export function compose(picture: Picture): HTMLCanvasElement {
  const ratio = window.devicePixelRatio || 1;
  const chartWidth = picture.chart.width / ratio;
  const chartHeight = picture.chart.height / ratio;
  const canvas = document.createElement('canvas');
  const context = canvas.getContext('2d');
  if (!context) throw new Error('This browser gives no canvas to draw on');
  context.font = `12px ${family}`;
  const legend = rowsOf(context, picture.lines ?? [], chartWidth);
  const legendRows = legend.reduce((most, entry) => Math.max(most, entry.row + 1), 0);
  const notes = picture.notes ?? [];
  const extraHeight = picture.extra ? picture.extra.height + 22 : 0;
  const height = margin + 24 + legendRows * row + extraHeight + 4 + chartHeight + (picture.xName ? row : 0) + notes.length * row + margin;
  canvas.width = Math.round((chartWidth + 2 * margin) * ratio);
  canvas.height = Math.round(height * ratio);
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.fillStyle = color('panel');
  context.fillRect(0, 0, chartWidth + 2 * margin, height);

  let y = margin;
  context.textBaseline = 'middle';
  context.fillStyle = color('fg');
  context.font = `600 14px ${family}`;
  context.fillText(picture.title, margin, y + 10, chartWidth);
  y += 24;
  context.font = `12px ${family}`;
  for (const entry of legend) drawEntry(context, entry.line, margin + entry.x, y + entry.row * row + row / 2);
  y += legendRows * row;
  if (picture.extra) drawExtra(context, picture.extra, y);
  y += extraHeight + 4;
  context.drawImage(picture.chart, margin, y, chartWidth, chartHeight);
  y += chartHeight;
  context.fillStyle = color('muted');
  if (picture.xName) {
    context.textAlign = 'center';
    context.fillText(picture.xName, margin + chartWidth / 2, y + row / 2);
    context.textAlign = 'left';
    y += row;
  }
  notes.forEach((note, i) => context.fillText(note, margin, y + i * row + row / 2, chartWidth));
  return canvas;
}

function drawEntry(context: CanvasRenderingContext2D, line: PictureLine, x: number, y: number): void {
  context.save();
  context.strokeStyle = context.fillStyle = color(line.color);
  if (line.band) {
    context.globalAlpha = 0.3;
    context.fillRect(x, y - 5, 22, 10);
  } else {
    context.lineWidth = 2.5;
    context.setLineDash(line.dash ?? []);
    context.beginPath();
    context.moveTo(x, y);
    context.lineTo(x + 22, y);
    context.stroke();
  }
  context.restore();
  context.fillStyle = color('fg');
  context.fillText(line.label, x + 28, y);
}

function drawExtra(context: CanvasRenderingContext2D, extra: NonNullable<Picture['extra']>, y: number): void {
  context.drawImage(extra.canvas, margin, y + 2, extra.width, extra.height);
  context.fillStyle = color('muted');
  context.textAlign = 'center';
  for (const tick of extra.ticks) {
    const half = context.measureText(tick.text).width / 2;
    context.fillText(tick.text, margin + Math.min(Math.max(tick.at, half), Math.max(half, extra.width - half)), y + extra.height + 12);
  }
  context.textAlign = 'left';
  context.fillText(extra.text, margin + extra.width + 14, y + extra.height / 2 + 2);
}

const drawnStyles = ['fill', 'stroke', 'stroke-width', 'opacity', 'font-family', 'font-size', 'text-anchor'];

// An SVG of the page as a canvas. Its style sheet does not go with it: what the page computed is written down.
export async function drawnSvg(svg: SVGSVGElement): Promise<HTMLCanvasElement> {
  const copy = svg.cloneNode(true) as SVGSVGElement;
  const own = [...svg.querySelectorAll('*')];
  [...copy.querySelectorAll('*')].forEach((element, i) => {
    const style = getComputedStyle(own[i] as Element);
    for (const name of drawnStyles) element.setAttribute(name, style.getPropertyValue(name));
  });
  copy.setAttribute('xmlns', 'http://www.w3.org/2000/svg');
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(new XMLSerializer().serializeToString(copy))}`;
  await image.decode();
  const ratio = window.devicePixelRatio || 1;
  const canvas = document.createElement('canvas');
  canvas.width = Math.round(svg.clientWidth * ratio);
  canvas.height = Math.round(svg.clientHeight * ratio);
  canvas.getContext('2d')?.drawImage(image, 0, 0, canvas.width, canvas.height);
  return canvas;
}

export function downloadPng(picture: Picture): void {
  compose(picture).toBlob((blob) => {
    if (blob) download(blob, fileName(picture.title, 'png'));
  }, 'image/png');
}
