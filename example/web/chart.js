// Draws the last day of readings as one line on the wall screen in the harbour office.

const WIDTH = 960;
const HEIGHT = 320;
const HIGHEST_EXPECTED_M = 6;

/** @param {{time: string, level_m: number}[]} readings oldest first */
export function tidePath(readings) {
  const first = Date.parse(readings[0].time);
  const span = Date.parse(readings.at(-1).time) - first;
  return readings
    .map(({ time, level_m }, index) => {
      const x = ((Date.parse(time) - first) / span) * WIDTH;
      const y = HEIGHT - (level_m / HIGHEST_EXPECTED_M) * HEIGHT;
      return `${index === 0 ? "M" : "L"}${x.toFixed(1)},${y.toFixed(1)}`;
    })
    .join(" ");
}

// High and low water are not marked on the curve yet; notes/ideas/open-questions.md has what the night watch asked for.
export function draw(svg, readings) {
  svg.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
  svg.querySelector("path").setAttribute("d", tidePath(readings));
}
