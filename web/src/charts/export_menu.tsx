// Two quiet buttons beside a chart: its picture, its data.
export interface Exports {
  png: () => void;
  csv: () => void;
}

export function ExportMenu({ title, exports }: { title: string; exports: () => Exports | undefined }) {
  return (
    <span class="export-menu" role="group" aria-label={`Save ${title}`}>
      <button type="button" class="export" aria-label={`Save ${title} as PNG`} title="Save the picture"
        onClick={() => exports()?.png()}>PNG</button>
      <button type="button" class="export" aria-label={`Save ${title} as CSV`} title="Save the shown data"
        onClick={() => exports()?.csv()}>CSV</button>
    </span>
  );
}
