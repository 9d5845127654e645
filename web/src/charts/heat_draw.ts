// Drawing the heat map: cells through ImageData, hatching where nothing was measured, axes around.
import { cssColor, paint, ramp, rampSize, type ColorScale } from '../color_scale';
import { count, layerName, short } from '../format';
import { color } from '../theme';
import type { Matrix, Severity } from '../types';

export interface HeatLayout {
  left: number; // of the cells, CSS pixels
  top: number;
  width: number;
  height: number;
  totalWidth: number;
  totalHeight: number;
}

const bottom = 24;
const font = '11px system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", sans-serif';

export function layoutOf(matrix: Matrix, totalWidth: number, maxHeight: number): HeatLayout {
  const longest = matrix.header.row_names.reduce((most, name) => Math.max(most, name.length), 4);
  const left = Math.round(Math.min(longest * 6.4 + 20, totalWidth < 600 ? 96 : 190));
  const room = Math.max(1, matrix.rows) * (matrix.rows > 60 ? 10 : 16);
  const height = Math.max(60, Math.min(room, maxHeight));
  return {
    left, top: 8, width: Math.max(50, totalWidth - left - 6), height, totalWidth, totalHeight: height + bottom + 8,
  };
}

// A canvas of device pixels under coordinates in CSS pixels.
export function prepare(canvas: HTMLCanvasElement, width: number, height: number): CanvasRenderingContext2D {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext('2d');
  if (!context) throw new Error('This browser gives no canvas to draw on');
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

// One pixel per cell, to be stretched over the plot.
export function cellsOf(matrix: Matrix, scale: ColorScale, dark: boolean): HTMLCanvasElement {
  const cells = document.createElement('canvas');
  cells.width = Math.max(1, matrix.columns);
  cells.height = Math.max(1, matrix.rows);
  const context = cells.getContext('2d');
  if (!context || matrix.values.length === 0) return cells;
  const image = context.createImageData(matrix.columns, matrix.rows);
  paint(matrix, scale, ramp(scale.ramp, dark), new Uint32Array(image.data.buffer));
  context.putImageData(image, 0, 0);
  return cells;
}

function hatching(context: CanvasRenderingContext2D): CanvasPattern | string {
  const tile = document.createElement('canvas');
  tile.width = tile.height = 8;
  const brush = tile.getContext('2d');
  if (!brush) return color('panel');
  brush.fillStyle = color('panel');
  brush.fillRect(0, 0, 8, 8);
  brush.strokeStyle = color('hatch');
  brush.lineWidth = 1.2;
  brush.beginPath();
  for (const shift of [-8, 0, 8]) {
    brush.moveTo(shift - 1, 9);
    brush.lineTo(shift + 9, -1);
  }
  brush.stroke();
  return context.createPattern(tile, 'repeat') ?? color('panel');
}

export function drawHeatMap(canvas: HTMLCanvasElement, matrix: Matrix, scale: ColorScale, layout: HeatLayout,
  dark: boolean): void {
  const context = prepare(canvas, layout.totalWidth, layout.totalHeight);
  context.fillStyle = hatching(context);
  context.fillRect(layout.left, layout.top, layout.width, layout.height);
  context.imageSmoothingEnabled = false;
  if (matrix.values.length > 0) {
    context.drawImage(cellsOf(matrix, scale, dark), layout.left, layout.top, layout.width, layout.height);
  }
  drawAxes(context, matrix, layout);
}

function drawAxes(context: CanvasRenderingContext2D, matrix: Matrix, layout: HeatLayout): void {
  context.font = font;
  context.fillStyle = color('muted');
  context.strokeStyle = color('rule');
  context.lineWidth = 1;
  context.strokeRect(layout.left - 0.5, layout.top - 0.5, layout.width + 1, layout.height + 1);

  const rowHeight = layout.height / Math.max(1, matrix.rows);
  const every = Math.max(1, Math.ceil(13 / rowHeight));
  const letters = Math.floor((layout.left - 18) / 6.1);
  context.textAlign = 'right';
  context.textBaseline = 'middle';
  for (let row = 0; row < matrix.rows; row += every) {
    const y = layout.top + (row + 0.5) * rowHeight;
    if (y > layout.top + layout.height - 4 && row > 0 && every > 1) break;
    context.fillText(layerName(matrix.header.row_names[row] ?? '', letters), layout.left - 13, y);
  }

  context.textAlign = 'center';
  context.textBaseline = 'top';
  const { steps } = matrix.header;
  const ticks = Math.max(2, Math.floor(layout.width / 75));
  const stride = Math.max(1, Math.ceil(steps.length / ticks));
  for (let column = 0; column < steps.length; column += stride) {
    const x = layout.left + ((column + 0.5) / steps.length) * layout.width;
    context.beginPath();
    context.moveTo(x, layout.top + layout.height + 1);
    context.lineTo(x, layout.top + layout.height + 5);
    context.stroke();
    const step = steps[column] ?? 0;
    const text = step >= 1e6 ? short(step) : count(step);
    const half = context.measureText(text).width / 2;
    context.fillText(text, Math.min(Math.max(x, half), layout.totalWidth - half), layout.top + layout.height + 8);
  }
}

// A dot between a row's name and its cells.
export function drawMarks(canvas: HTMLCanvasElement, matrix: Matrix, layout: HeatLayout, marks: Map<number, Severity>): void {
  const context = canvas.getContext('2d');
  if (!context) return;
  const rowHeight = layout.height / Math.max(1, matrix.rows);
  for (const [row, severity] of marks) {
    context.fillStyle = color(severity);
    context.beginPath();
    context.arc(layout.left - 6, layout.top + (row + 0.5) * rowHeight, 4, 0, 2 * Math.PI);
    context.fill();
  }
}

export interface Cell {
  row: number;
  column: number;
}

export function cellRect(matrix: Matrix, layout: HeatLayout, cell: Cell) {
  const width = layout.width / matrix.columns;
  const height = layout.height / matrix.rows;
  return { x: layout.left + cell.column * width, y: layout.top + cell.row * height, width, height };
}

export function cellAt(matrix: Matrix, layout: HeatLayout, x: number, y: number): Cell | null {
  const column = Math.floor(((x - layout.left) / layout.width) * matrix.columns);
  const row = Math.floor(((y - layout.top) / layout.height) * matrix.rows);
  if (row < 0 || column < 0 || row >= matrix.rows || column >= matrix.columns) return null;
  return { row, column };
}

export interface Overlay {
  cursor: Cell | null;
  openRow: number | null;
  drag: { from: number; to: number } | null; // CSS pixels
}

export function drawOverlay(canvas: HTMLCanvasElement, matrix: Matrix, layout: HeatLayout, overlay: Overlay): void {
  const context = prepare(canvas, layout.totalWidth, layout.totalHeight);
  if (overlay.openRow !== null) {
    const row = cellRect(matrix, layout, { row: overlay.openRow, column: 0 });
    outline(context, layout.left - 1, row.y - 2, layout.width + 2, row.height + 4);
    context.fillStyle = color('accent');
    context.beginPath();
    context.moveTo(layout.left - 6, row.y + row.height / 2 - 4);
    context.lineTo(layout.left - 1, row.y + row.height / 2);
    context.lineTo(layout.left - 6, row.y + row.height / 2 + 4);
    context.fill();
  }
  if (overlay.drag) {
    const from = Math.max(layout.left, Math.min(overlay.drag.from, overlay.drag.to));
    const to = Math.min(layout.left + layout.width, Math.max(overlay.drag.from, overlay.drag.to));
    context.fillStyle = 'rgb(128 128 128 / 0.35)';
    context.fillRect(from, layout.top, to - from, layout.height);
  }
  if (overlay.cursor) {
    const cell = cellRect(matrix, layout, overlay.cursor);
    const width = Math.max(6, cell.width);
    const height = Math.max(6, cell.height);
    outline(context, cell.x + (cell.width - width) / 2, cell.y + (cell.height - height) / 2, width, height);
  }
}

// White within black shows on every color.
function outline(context: CanvasRenderingContext2D, x: number, y: number, width: number, height: number): void {
  context.lineWidth = 3;
  context.strokeStyle = '#000';
  context.strokeRect(x, y, width, height);
  context.lineWidth = 1.2;
  context.strokeStyle = '#fff';
  context.strokeRect(x, y, width, height);
}

export function drawRamp(canvas: HTMLCanvasElement, scale: ColorScale, dark: boolean, width: number, height: number): void {
  const context = prepare(canvas, width, height);
  const table = ramp(scale.ramp, dark);
  for (let x = 0; x < width; ++x) {
    context.fillStyle = cssColor(table[Math.round((x / (width - 1)) * (rampSize - 1))] as number);
    context.fillRect(x, 0, 1, height);
  }
}
