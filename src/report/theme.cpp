#include "report/theme.h"

#include <fmt/core.h>

namespace quaver::report {
namespace {

// Okabe and Ito's palette without its yellow, which does not show on white; lighter versions of the same hues on dark.
constexpr std::size_t color_count = 7;
constexpr std::size_t dash_count = 5;

}  // namespace

std::string series_classes(std::size_t index) {
  return fmt::format("s{} d{}", index % color_count, index % dash_count);
}

std::string fill_class(std::size_t index) { return fmt::format("s{}", index % color_count); }

std::string_view chart_css() {
  return R"css(
:root{color-scheme:light dark;--bg:#fff;--panel:#f6f7f9;--fg:#1b1f24;--muted:#5c6670;--rule:#d5dae0;--grid:#e8ebef;
--c0:#0072b2;--c1:#d55e00;--c2:#009e73;--c3:#b8578d;--c4:#d28f00;--c5:#56b4e9;--c6:#3b424a;
--sans:system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue","Liberation Sans",Arial,sans-serif;
--mono:ui-monospace,SFMono-Regular,Menlo,Consolas,"Liberation Mono",monospace}
@media screen and (prefers-color-scheme:dark){:root{--bg:#14171b;--panel:#1c2025;--fg:#e4e7ea;--muted:#98a2ad;
--rule:#363d45;--grid:#282d34;--c0:#4aa3df;--c1:#f08247;--c2:#2fc197;--c3:#e093bd;--c4:#f0b840;--c5:#a3d9f7;--c6:#b9c1c9}}
.chart{font-family:var(--sans);font-size:12px;max-width:100%;height:auto;display:block;overflow:visible;
font-variant-numeric:tabular-nums}
.chart text{fill:var(--fg)}
.chart text.muted{fill:var(--muted)}
.chart text.small{font-size:11px}
.chart text.title{font-size:13.5px;font-weight:600}
.chart text.series{fill:var(--s);font-weight:500}
.chart .grid{stroke:var(--grid);stroke-width:1}
.chart .axis{stroke:var(--rule);stroke-width:1}
.chart .ref{stroke:var(--muted);stroke-width:1;stroke-dasharray:2 3}
.chart .line{fill:none;stroke:var(--s);stroke-width:1.75;stroke-linejoin:round;stroke-linecap:butt}
.chart .raw{stroke-width:1;stroke-opacity:.28;stroke-dasharray:none}
.chart .band{fill:var(--s);fill-opacity:.18;stroke:none}
.chart .cross{fill:none;stroke:var(--s);stroke-width:1.75;stroke-linecap:round}
.chart .run{fill:none;stroke:var(--s);stroke-width:1.5;stroke-opacity:.6;stroke-dasharray:1 3}
.chart .fill{fill:var(--s)}
.chart .mark{fill:var(--s);fill-opacity:.55;stroke:var(--s);stroke-width:1}
.chart .bound{fill:none;stroke:var(--muted);stroke-width:1.25}
.chart .bar{fill:var(--s);stroke:var(--bg);stroke-width:1}
.chart .cell{fill:var(--s);fill-opacity:.32;stroke:var(--bg);stroke-width:1.5}
.chart .heat{fill:var(--c0);stroke:var(--bg);stroke-width:1.5}
.chart .blank{fill:none;stroke:var(--grid);stroke-width:1}
.chart .odd{fill:none;stroke:var(--c1);stroke-width:1.5;stroke-dasharray:3 2}
.chart text.inverse{fill:var(--bg)}
.chart .tip{fill:var(--bg);fill-opacity:.95;stroke:var(--rule)}
.s0{--s:var(--c0)}.s1{--s:var(--c1)}.s2{--s:var(--c2)}.s3{--s:var(--c3)}.s4{--s:var(--c4)}.s5{--s:var(--c5)}
.s6{--s:var(--c6)}
.d1{stroke-dasharray:8 3}.d2{stroke-dasharray:2.5 2.5}.d3{stroke-dasharray:9 3 2 3}.d4{stroke-dasharray:5 2}
)css";
}

std::string_view page_css() {
  return R"css(
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0;background:var(--bg);color:var(--fg);font:15px/1.55 var(--sans)}
main{max-width:62rem;margin:0 auto;padding:2.5rem 1.5rem 4rem}
header{border-bottom:1px solid var(--rule);padding-bottom:1rem;margin-bottom:1.75rem}
h1{font-size:1.7rem;line-height:1.2;margin:0;letter-spacing:-.01em;overflow-wrap:anywhere}
header p{margin:.35rem 0 0;color:var(--muted)}
h2{font-size:1.2rem;line-height:1.3;margin:2.5rem 0 .75rem;letter-spacing:-.005em}
h3{font-size:1rem;margin:1.75rem 0 .5rem}
p{margin:.75rem 0;max-width:44rem;overflow-wrap:break-word}
figure{margin:1.5rem 0;break-inside:avoid}
figcaption,caption{color:var(--muted);font-size:.87rem;line-height:1.45;text-align:left;max-width:44rem}
figcaption{margin-top:.5rem}
caption{caption-side:top;padding-bottom:.5rem}
.scroll{overflow-x:auto;margin:1.25rem 0}
table{border-collapse:collapse;font-size:.9rem;font-variant-numeric:tabular-nums;min-width:50%}
th,td{padding:.38rem 1.4rem .38rem 0;text-align:left;vertical-align:baseline;border-bottom:1px solid var(--grid)}
th:last-child,td:last-child{padding-right:0}
thead th{font-weight:600;color:var(--muted);border-bottom:1px solid var(--rule);vertical-align:bottom;white-space:nowrap}
tbody th{font-weight:500}
tbody tr:last-child>*{border-bottom:1px solid var(--rule)}
tr.strong>*{font-weight:650}
.r{text-align:right}.c{text-align:center}
td.r,tbody th{white-space:nowrap}
dl{display:grid;grid-template-columns:max-content minmax(0,1fr);gap:.3rem 1.5rem;margin:1rem 0;font-size:.93rem}
dt{color:var(--muted)}
dd{margin:0;overflow-wrap:anywhere;font-variant-numeric:tabular-nums}
ul.headline{display:flex;flex-wrap:wrap;gap:1px;list-style:none;margin:1.5rem 0;
padding:1px;background:var(--rule);border-radius:6px;overflow:hidden}
ul.headline li{flex:1 1 9rem;background:var(--bg);padding:.8rem 1rem}
ul.headline span{display:block;color:var(--muted);font-size:.82rem;line-height:1.35}
ul.headline strong{display:block;font-size:1.35rem;font-weight:600;line-height:1.4;font-variant-numeric:tabular-nums}
pre{background:var(--panel);border-radius:6px;padding:.85rem 1rem;overflow-x:auto;font:.84rem/1.5 var(--mono);margin:1rem 0;
tab-size:2}
.note{border-left:3px solid var(--c1);padding:.15rem 0 .15rem .9rem;margin:1rem 0}
details{margin:1rem 0;border-top:1px solid var(--grid);border-bottom:1px solid var(--grid);padding:.5rem 0}
summary{cursor:pointer;font-weight:500}
summary:focus-visible,a:focus-visible{outline:2px solid var(--c0);outline-offset:2px}
footer{margin-top:3rem;padding-top:1rem;border-top:1px solid var(--rule);color:var(--muted);font-size:.85rem}
@media print{main{max-width:none;padding:0}body{font-size:10.5pt}thead{display:table-header-group}
tr,pre,ul.headline{break-inside:avoid}h2,h3{break-after:avoid}.scroll,pre{overflow:visible}pre{white-space:pre-wrap}}
@page{margin:18mm 16mm}
)css";
}

std::string_view chart_script() {
  return R"js(
(function () {
  'use strict';
  const NS = 'http://www.w3.org/2000/svg';
  const units = {
    bytes: [[1073741824, ' GiB'], [1048576, ' MiB'], [1024, ' KiB'], [0, ' B']],
    seconds: [[7200, ' h', 3600], [120, ' min', 60], [1, ' s'], [1e-3, ' ms'], [1e-6, ' \u00b5s'], [0, ' ns', 1e-9]],
  };
  function show(value, unit) {
    if (unit === 'percent') return (100 * value).toPrecision(4) + ' %';
    const found = (units[unit] || []).find((u) => Math.abs(value) >= u[0]);
    if (found) return (value / (found[2] || found[0] || 1)).toPrecision(4) + found[1];
    const size = Math.abs(value);
    return size !== 0 && (size < 1e-3 || size >= 1e6) ? value.toExponential(3) : value.toPrecision(4);
  }
  function axis(text, first, last) {
    const [low, high, scale, unit] = text.split(' ');
    const log = scale === 'log';
    const a = log ? Math.log(low) : Number(low);
    const b = log ? Math.log(high) : Number(high);
    return (pixel) => {
      const v = a + (b - a) * (pixel - first) / (last - first);
      return show(log ? Math.exp(v) : v, unit);
    };
  }
  function element(parent, name, attributes, text) {
    const made = parent.appendChild(document.createElementNS(NS, name));
    for (const key in attributes) made.setAttribute(key, attributes[key]);
    if (text !== undefined) made.textContent = text;
    return made;
  }
  function points(path) {
    const n = (path.getAttribute('d').match(/-?\d+(\.\d+)?/g) || []).map(Number);
    const out = [];
    for (let i = 0; i + 1 < n.length; i += 2) out.push([n[i], n[i + 1]]);
    return out;
  }
  function attach(svg) {
    const [left, top, width, height] = svg.dataset.plot.split(' ').map(Number);
    const xOf = axis(svg.dataset.x, 0, width);
    const yOf = axis(svg.dataset.y, height, 0);
    const series = [...svg.querySelectorAll('path.main')].map((path) => ({
      name: path.dataset.name, color: path.getAttribute('class').match(/s\d+/)[0], points: points(path),
    }));
    const title = svg.querySelector('title');
    if (title) title.remove();
    const layer = element(svg, 'g', {'pointer-events': 'none'});
    svg.addEventListener('pointerleave', () => layer.replaceChildren());
    svg.addEventListener('pointermove', (event) => {
      layer.replaceChildren();
      const box = svg.getBoundingClientRect();
      const x = (event.clientX - box.left) * svg.viewBox.baseVal.width / box.width - left;
      if (x < -2 || x > width + 2) return;
      const near = series.map((s) => ({
        s, p: s.points.reduce((best, p) => (!best || Math.abs(p[0] - x) < Math.abs(best[0] - x) ? p : best), null),
      })).filter((n) => n.p && Math.abs(n.p[0] - x) < 40).sort((a, b) => a.p[1] - b.p[1]);
      if (near.length === 0) return;
      const at = near.reduce((best, n) => (Math.abs(n.p[0] - x) < Math.abs(best - x) ? n.p[0] : best), near[0].p[0]);
      element(layer, 'line', {x1: left + at, x2: left + at, y1: top, y2: top + height, class: 'axis'});
      const back = element(layer, 'rect', {class: 'tip', rx: 4});
      const texts = [element(layer, 'text', {class: 'muted small'}, xOf(at).replace(/\.0*$/, ''))];
      for (const n of near) {
        element(layer, 'circle', {cx: left + n.p[0], cy: top + n.p[1], r: 3, class: 'fill ' + n.s.color});
        texts.push(element(layer, 'text', {class: 'small series ' + n.s.color}, yOf(n.p[1]) + '  ' + n.s.name));
      }
      const wide = Math.max(...texts.map((t) => t.getComputedTextLength())) + 16;
      const from = at + 12 + wide > width ? left + at - 12 - wide : left + at + 12;
      texts.forEach((t, i) => { t.setAttribute('x', from + 8); t.setAttribute('y', top + 18 + 16 * i); });
      for (const [key, value] of Object.entries({x: from, y: top + 3, width: wide, height: 16 * texts.length + 6})) {
        back.setAttribute(key, value);
      }
    });
  }
  document.querySelectorAll('svg.lines').forEach(attach);
})();
)js";
}

std::string_view chart_script_hash() { return "k0E/Wpa9OFuoxgCR/r8AjNk75gBwvaCehFaEBg0JqKc="; }

}  // namespace quaver::report
