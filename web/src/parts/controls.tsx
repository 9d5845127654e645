// Small form controls with visible labels.
import type { ComponentChildren } from 'preact';
import { useId } from 'preact/hooks';
import type { Severity } from '../types';

interface SelectProps {
  label: string;
  value: string;
  options: { value: string; text: string; title?: string }[];
  change: (value: string) => void;
}

export function Select({ label, value, options, change }: SelectProps) {
  const id = useId();
  return (
    <span class="field">
      <label for={id}>{label}</label>
      <select id={id} value={value} onChange={(event) => change(event.currentTarget.value)}>
        {options.map((option) => <option key={option.value} value={option.value} title={option.title}>{option.text}</option>)}
      </select>
    </span>
  );
}

interface SegmentsProps {
  label: string;
  value: string;
  options: { value: string; text: string; title?: string; disabled?: boolean; mark?: Severity | undefined }[];
  change: (value: string) => void;
}

// One of a few, all in sight: radio buttons that look like one control.
export function Segments({ label, value, options, change }: SegmentsProps) {
  const name = useId();
  return (
    <fieldset class="segments">
      <legend>{label}</legend>
      <span class="segments-row">
        {options.map((option) => (
          <label key={option.value} title={option.title}>
            <input type="radio" name={name} value={option.value} checked={option.value === value} disabled={option.disabled}
              onChange={() => change(option.value)} />
            <span>{option.text}{option.mark && <span class={`alerted severity-${option.mark}`}> ●<span class="sr-only"> {option.mark} alerts</span></span>}</span>
          </label>
        ))}
      </span>
    </fieldset>
  );
}

export function Check({ label, checked, change }: { label: string; checked: boolean; change: (on: boolean) => void }) {
  return (
    <label class="check">
      <input type="checkbox" checked={checked} onChange={(event) => change(event.currentTarget.checked)} /> {label}
    </label>
  );
}

interface SliderProps {
  label: string;
  value: number;
  min?: number;
  max?: number;
  say: string;
  change: (value: number) => void;
}

export function Slider({ label, value, min = 0, max = 100, say, change }: SliderProps) {
  const id = useId();
  return (
    <span class="field slider">
      <label for={id}>{label}</label>
      <input id={id} type="range" min={min} max={max} value={value} aria-valuetext={say}
        onInput={(event) => change(Number(event.currentTarget.value))} />
      <output for={id}>{say}</output>
    </span>
  );
}

export function Toolbar({ label, children }: { label: string; children: ComponentChildren }) {
  return <div class="toolbar" role="group" aria-label={label}>{children}</div>;
}

export function Card({ title, children, controls, class: name = '' }: {
  title: string; children: ComponentChildren; controls?: ComponentChildren; class?: string;
}) {
  const id = useId();
  return (
    <section class={`card ${name}`} aria-labelledby={id}>
      <div class="card-head"><h3 id={id}>{title}</h3>{controls}</div>
      {children}
    </section>
  );
}

export function Figure({ name, value, detail }: { name: string; value: ComponentChildren; detail?: ComponentChildren }) {
  return (
    <div class="figure">
      <dt>{name}</dt>
      <dd><strong>{value}</strong>{detail && <span>{detail}</span>}</dd>
    </div>
  );
}
