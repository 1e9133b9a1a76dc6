/** Draws a line over time. It is loaded when the first plot is shown. */

import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";

export interface PlotLook {
  width: number;
  height: number;
  line: string;
  grid: string;
  text: string;
  threshold: string;
  /** The largest value that must be visible. */
  highest: number;
  format: (value: number) => string;
}

const HOURS = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });

export function draw(node: HTMLElement, data: uPlot.AlignedData, look: PlotLook): uPlot {
  const probe = (name: string) => resolved(node, name);
  const axis: uPlot.Axis = {
    stroke: probe(look.text),
    grid: { stroke: probe(look.grid), width: 1 },
    ticks: { show: false },
    font: "11px system-ui, sans-serif",
  };
  return new uPlot(
    {
      width: look.width,
      height: look.height,
      legend: { show: false },
      cursor: { show: false },
      padding: [8, 4, 0, 0],
      // From zero: a line that is cut off at the bottom exaggerates.
      scales: { x: { time: true }, y: { range: [0, Math.max(look.highest * 1.1, 1)] } },
      axes: [
        { ...axis, size: 20, space: 60, values: (_, times) => times.map((time) => HOURS.format(time * 1000)) },
        { ...axis, size: 46, space: 30, values: (_, values) => values.map((value) => look.format(value)) },
      ],
      series: [
        {},
        { stroke: probe(look.line), width: 1.5, spanGaps: false, points: { show: false } },
        ...(data.length > 2
          ? [{ stroke: probe(look.threshold), width: 1, dash: [4, 3], points: { show: false } }]
          : []),
      ],
    },
    data,
    node,
  );
}

/** A colour as the canvas understands it: `light-dark()` and variables are resolved by the document only. */
function resolved(node: HTMLElement, colour: string): string {
  const before = node.style.color;
  node.style.color = colour;
  const found = getComputedStyle(node).color;
  node.style.color = before;
  return found;
}
