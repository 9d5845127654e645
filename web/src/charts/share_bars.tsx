// Parts of a whole as one bar with a table beneath: shares of FLOPs, memory by category.
import { categoryName } from '../theme';

export interface Part {
  name: string;
  value: number;
}

interface ShareBarsProps {
  parts: Part[];
  format: (value: number) => string;
  label: string;
  percents?: boolean; // the share beside the value
  colors?: (name: string, index: number) => string;
}

export function ShareBars({ parts, format, label, percents = true, colors = (_, i) => categoryName(i) }: ShareBarsProps) {
  const shown = parts.filter((part) => part.value > 0).sort((a, b) => b.value - a.value);
  const total = shown.reduce((sum, part) => sum + part.value, 0);
  if (total <= 0) return <p class="quiet">Not recorded in this run.</p>;
  return (
    <div class="shares">
      <div class="share-bar" role="img" aria-label={`${label}: ${shown.map((part) => `${part.name} ${format(part.value)}`).join(', ')}`}>
        {shown.map((part, i) => (
          <i key={part.name} class={`fill-${colors(part.name, i)}`} style={{ flexGrow: part.value / total }}
            title={`${part.name} ${format(part.value)}`} />
        ))}
      </div>
      <table class="share-table">
        <tbody>
          {shown.map((part, i) => (
            <tr key={part.name}>
              <th scope="row"><i class={`dot fill-${colors(part.name, i)}`} aria-hidden="true" />{part.name}</th>
              <td class="num">{format(part.value)}</td>
              {percents && <td class="num quiet">{(100 * part.value / total).toFixed(1)} %</td>}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
